//! `refundd review settle`: a person's decision, refund by refund.
//!
//! The module does not decide which moves are legal: the store does.

use std::io::{IsTerminal, Write, stderr, stdin};
use std::process::ExitCode;

use anyhow::bail;

use super::named::read_ids;
use crate::refund::text::shown;
use crate::refund::{Refund, RefundId, State};
use crate::store::{Decided, Decision, Store};

/// A refund, and the version that the decision is based on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NamedRefund {
    id: RefundId,
    seen: Option<i32>,
}

/// The decision about each named refund.
#[derive(Debug)]
pub(super) struct Choice<'a> {
    pub next: State,
    pub reason: &'a str,
    pub not_executed: bool,
    pub by: &'a str,
}

impl NamedRefund {
    /// Reads the refunds from the command line, or from standard input.
    pub(super) fn read_all(args: &[String]) -> anyhow::Result<Vec<NamedRefund>> {
        let named = |&(id, seen): &(i64, Option<i32>)| NamedRefund { id: RefundId(id), seen };
        Ok(read_ids(args, "refund")?.iter().map(named).collect())
    }
}

pub(super) async fn settle(
    mut named: Vec<NamedRefund>,
    choice: &Choice<'_>,
    store: &Store,
) -> anyhow::Result<ExitCode> {
    if choice.reason.is_empty() {
        bail!("--reason is empty: say how you know, it is kept in the journal");
    }
    crate::cli::keeps_the_laws("--reason", choice.reason)?;
    if choice.not_executed && choice.next != State::Ready {
        eprintln!("refundd: --confirm goes with --as ready only; nothing was changed");
        return Ok(ExitCode::from(2));
    }
    if named.iter().any(|named| named.seen.is_none())
        && (stdin().is_terminal() || choice.next != State::Succeeded)
        && !has_seen(&mut named, choice, store).await?
    {
        return Ok(ExitCode::FAILURE);
    }
    let (mut decided, mut proposed) = (0, 0);
    for named in &named {
        match decide(named, choice, store).await? {
            Ok(Made::Decision) => decided += 1,
            Ok(Made::Proposal) => proposed += 1,
            Err(trouble) => eprintln!("refundd: {trouble}"),
        }
    }
    if named.len() > 1 {
        println!("{decided} of {} decided, {proposed} proposed.", named.len());
    }
    Ok(if decided + proposed == named.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What a person's word came to.
#[derive(Debug)]
enum Made {
    Decision,
    /// Another person must approve it.
    Proposal,
}

/// Decides about one refund. The inner error says for people why the decision was not made.
async fn decide(
    named: &NamedRefund,
    choice: &Choice<'_>,
    store: &Store,
) -> anyhow::Result<Result<Made, String>> {
    let NamedRefund { id, seen } = *named;
    let Choice { next, reason, not_executed, by } = *choice;
    let decision = Decision { id, seen, next, not_executed, why: reason, who: by };
    Ok(Err(match store.decide(&decision).await? {
        Decided::Done(refund) => {
            println!("Refund {id} ({}) is {} now.", shown(&refund.refund_ref), refund.state);
            return Ok(Ok(Made::Decision));
        }
        Decided::Proposed(refund, proposal) => {
            println!(
                "Refund {id} ({}) stays {}: {}, so another person must approve: refundd review approve {}@{} --reason \"how you know\"",
                shown(&refund.refund_ref),
                refund.state,
                proposal.needed_for.why(),
                proposal.id,
                proposal.version
            );
            return Ok(Ok(Made::Proposal));
        }
        Decided::NoSuchRefund => format!("there is no refund {id}"),
        Decided::Changed(refund) => format!(
            "refund {id} has changed: it is {} at version {} now; look again: refundd review show {id}; nothing was changed",
            refund.state, refund.version
        ),
        Decided::Unconfirmed(refund) => unconfirmed(&refund),
        Decided::Illegal(refund) => {
            format!("refund {id} is {} and cannot be made {next} by hand; nothing was changed", refund.state)
        }
    }))
}

fn unconfirmed(refund: &Refund) -> String {
    let since = refund.uncertain_since.map_or_else(String::new, |at| format!(", since {at}"));
    format!(
        "an earlier send of refund {} may have been executed{since} ({}); if the bank says that it executed none, \
         add --confirm not-executed; nothing was changed",
        refund.id,
        shown(refund.reason.as_deref().unwrap_or("its send had no clear answer")),
    )
}

/// Shows the refunds and asks for the decision. The decision counts for the versions that were shown.
async fn has_seen(named: &mut [NamedRefund], choice: &Choice<'_>, store: &Store) -> anyhow::Result<bool> {
    if !stdin().is_terminal() {
        bail!(
            "name the version of each refund that you decided on, such as {}@7: `refundd review` and `refundd review \
             show ID` tell it. A decision of {} that names none could be repeated by mistake; nothing was changed",
            named.first().map_or(RefundId(4711), |named| named.id),
            choice.next
        );
    }
    let mut troubles = Vec::new();
    for named in named.iter_mut() {
        let Some(refund) = store.refund(named.id).await? else {
            troubles.push(format!("there is no refund {}", named.id));
            continue;
        };
        show(&refund, store).await?;
        if choice.next == State::Ready && !choice.not_executed && refund.uncertain_since.is_some() {
            troubles.push(unconfirmed(&refund));
        }
        named.seen.get_or_insert(refund.version);
    }
    for trouble in &troubles {
        eprintln!("refundd: {trouble}");
    }
    if !troubles.is_empty() {
        return Ok(false);
    }
    let what = match named {
        [one] => format!("refund {}", one.id),
        _ => format!("these {} refunds", named.len()),
    };
    let means = if choice.next == State::Ready { ", which sends again" } else { "" };
    eprint!(
        "Decide that {what} {} {}{means}? [y/N] ",
        if named.len() == 1 { "is" } else { "are" },
        choice.next
    );
    stderr().flush()?;
    let mut answer = String::new();
    stdin().read_line(&mut answer)?;
    let agreed = ["y", "yes"].contains(&answer.trim().to_lowercase().as_str());
    if !agreed {
        eprintln!("Nothing was changed.");
    }
    Ok(agreed)
}

async fn show(refund: &Refund, store: &Store) -> anyhow::Result<()> {
    eprintln!(
        "{}@{}  {}  {}  {}  {}",
        refund.id,
        refund.version,
        shown(&refund.refund_ref),
        shown(&refund.channel),
        shown(&refund.money.to_string()),
        refund.state
    );
    if let Some(since) = refund.uncertain_since {
        eprintln!("    may have been executed, since {since}");
    }
    if let Some(last) = store.evidence(refund.id).await?.last() {
        let message = shown(last.message.as_deref().unwrap_or_default());
        eprintln!("    last: {} {}, {message}", last.kind, last.outcome);
    }
    Ok(())
}
