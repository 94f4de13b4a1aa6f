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
use crate::store::{Approved, Proposal, SecondOpinion, Store, Withdrawn};

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
    let (mut undone, mut all, mut not_made) = (0, OneByOne::default(), Vec::new());
    for (id, seen) in named {
        let opinion = SecondOpinion { id: ProposalId(id), why, who: &who };
        let approved = match all.make(store.approve(&opinion, seen.unwrap_or_default())).await {
            Ok(approved) => approved,
            Err(why) => {
                not_made.push((id, why));
                continue;
            }
        };
        let trouble = match approved {
            Approved::Done(refund, _) => {
                println!("Refund {} ({}) is {} now.", refund.id, shown(&refund.refund_ref), refund.state);
                continue;
            }
            Approved::Changed(refund, proposal) if refund.version != proposal.version => format!(
                "proposal {id} is void: refund {} has changed since it was made, and is {} at version {} now; \
                 look again: refundd review show {}",
                refund.id, refund.state, refund.version, refund.id
            ),
            Approved::Changed(refund, _) => format!(
                "proposal {id} is about refund {}, which is {} at version {}, and not at the version that you name; \
                 look again: refundd review show {}",
                refund.id, refund.state, refund.version, refund.id
            ),
            Approved::SamePerson(proposal) => {
                format!("{} made proposal {id}; another person must approve it", shown(&proposal.by))
            }
            Approved::Expired(_) => {
                format!("proposal {id} has expired; look at the refund again, and decide anew")
            }
            Approved::Ended(proposal) => has_ended(&proposal),
            Approved::NoSuchProposal => format!("there is no proposal {id}"),
        };
        undone += 1;
        eprintln!("refundd: {trouble}; nothing was changed");
    }
    tell_not_made("proposal", all, &not_made)?;
    Ok(if undone + not_made.len() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

pub(super) async fn withdraw(args: &Args, store: &Store) -> anyhow::Result<ExitCode> {
    let (who, why) = args.words()?;
    let (mut undone, mut all, mut not_made) = (0, OneByOne::default(), Vec::new());
    for (id, _) in read_proposals(&args.proposals)? {
        let opinion = SecondOpinion { id: ProposalId(id), why, who: &who };
        let withdrawn = match all.make(store.withdraw(&opinion)).await {
            Ok(withdrawn) => withdrawn,
            Err(why) => {
                not_made.push((id, why));
                continue;
            }
        };
        let trouble = match withdrawn {
            Withdrawn::Done(proposal) => {
                println!("Proposal {id} about refund {} is withdrawn.", proposal.refund_id);
                continue;
            }
            Withdrawn::Ended(proposal) => has_ended(&proposal),
            Withdrawn::NoSuchProposal => format!("there is no proposal {id}"),
        };
        undone += 1;
        eprintln!("refundd: {trouble}; nothing was changed");
    }
    tell_not_made("proposal", all, &not_made)?;
    Ok(if undone + not_made.len() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn has_ended(proposal: &Proposal) -> String {
    format!("proposal {} {}", proposal.id, shown(&proposal.end()))
}
