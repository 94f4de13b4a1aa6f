//! `refundd review approve` and `refundd review withdraw`: a second person's answers to proposals.
//!
//! The module does not decide who may answer: the store does.

use std::process::ExitCode;

use anyhow::bail;

use super::named::read_proposals;
use super::tell_not_made;
use crate::cli::{By, check_text};
use crate::one_by_one::OneByOne;
use crate::refund::ProposalId;
use crate::refund::text::shown;
use crate::store::{Approved, Proposal, ProposalAnswer, Store, StoreError, Withdrawn};

/// The proposals, and the person's words about them.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The proposals as the list shows them, such as 12@7: the proposal, and the version of its refund. `-` reads the proposals
    /// from standard input, one on each line
    #[arg(required = true, value_name = "PROPOSAL@VERSION")]
    proposals: Vec<String>,
    /// How you know; kept in the journal
    #[arg(long)]
    reason: String,
    #[command(flatten)]
    by: By,
}

impl Args {
    /// The person's name and reason.
    fn words(&self) -> anyhow::Result<(String, &str)> {
        let reason = self.reason.trim();
        if reason.is_empty() {
            bail!("--reason is empty: say how you know, it is kept in the journal");
        }
        check_text("--reason", 400, reason)?;
        Ok((self.by.name()?, reason))
    }
}

pub(super) async fn approve(args: &Args, store: &Store) -> anyhow::Result<ExitCode> {
    let (who, why) = args.words()?;
    let named = read_proposals(&args.proposals)?;
    if let Some((id, _)) = named.iter().find(|(_, seen)| seen.is_none()) {
        bail!(
            "name the version of the refund that you looked at, such as {id}@7: `refundd review` lists each proposal with it; nothing \
             was changed"
        );
    }
    answer_each(named, async |id, seen| {
        let answer = ProposalAnswer { id: ProposalId(id), why, who: &who };
        store.approve(&answer, seen.unwrap_or_default()).await.map(|approved| match approved {
            Approved::Done(refund, _) => {
                Ok(format!("Refund {} ({}) is {} now.", refund.id, shown(&refund.refund_ref), refund.state))
            }
            Approved::Changed(refund, proposal) if refund.version != proposal.version => Err(format!(
                "proposal {id} is void: refund {} has changed since it was made, and is {} at version {} now; \
                 look again: refundd review show {}",
                refund.id, refund.state, refund.version, refund.id
            )),
            Approved::Changed(refund, _) => Err(format!(
                "proposal {id} is about refund {}, which is {} at version {}, and not at the version that you name; \
                 look again: refundd review show {}",
                refund.id, refund.state, refund.version, refund.id
            )),
            Approved::SamePerson(proposal) => {
                Err(format!("{} made proposal {id}; another person must approve it", shown(&proposal.by)))
            }
            Approved::Expired(_) => {
                Err(format!("proposal {id} has expired; look at the refund again, and decide anew"))
            }
            Approved::Ended(proposal) => Err(has_ended(&proposal)),
            Approved::NoSuchProposal => Err(format!("there is no proposal {id}")),
        })
    })
    .await
}

pub(super) async fn withdraw(args: &Args, store: &Store) -> anyhow::Result<ExitCode> {
    let (who, why) = args.words()?;
    answer_each(read_proposals(&args.proposals)?, async |id, _| {
        let answer = ProposalAnswer { id: ProposalId(id), why, who: &who };
        store.withdraw(&answer).await.map(|withdrawn| match withdrawn {
            Withdrawn::Done(proposal) => {
                Ok(format!("Proposal {id} about refund {} is withdrawn.", proposal.refund_id))
            }
            Withdrawn::Ended(proposal) => Err(has_ended(&proposal)),
            Withdrawn::NoSuchProposal => Err(format!("there is no proposal {id}")),
        })
    })
    .await
}

/// Answers proposals one by one, and prints what became of each. The inner result of `answer` says for people what is done now,
/// or why nothing was changed.
async fn answer_each(
    proposals: Vec<(i64, Option<i32>)>,
    answer: impl AsyncFn(i64, Option<i32>) -> Result<Result<String, String>, StoreError>,
) -> anyhow::Result<ExitCode> {
    let (mut undone, mut all, mut not_made) = (0, OneByOne::default(), Vec::new());
    for (id, seen) in proposals {
        match all.make(answer(id, seen)).await {
            Ok(Ok(done)) => println!("{done}"),
            Ok(Err(trouble)) => {
                undone += 1;
                eprintln!("refundd: {trouble}; nothing was changed");
            }
            Err(why) => not_made.push((id, why)),
        }
    }
    tell_not_made("proposal", all, &not_made)?;
    Ok(if undone + not_made.len() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn has_ended(proposal: &Proposal) -> String {
    format!("proposal {} {}", proposal.id, shown(&proposal.end()))
}
