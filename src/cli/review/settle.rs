//! `refundd review settle`: a person's decision, refund by refund.
//!
//! The module does not decide which moves are legal: the store does.

use std::io::{IsTerminal, Write, stderr, stdin};
use std::process::ExitCode;

use anyhow::bail;

use super::named::NamedRefund;
use crate::one_by_one::OneByOne;
use crate::refund::text::shown;
use crate::refund::{Refund, RefundId, State};
use crate::store::{Decided, Decision, NotedReference, Store, StoreError};

/// The decision about each named refund.
#[derive(Debug)]
pub(super) struct Choice<'a> {
    pub next: State,
    pub reason: &'a str,
    pub not_executed: bool,
    /// The bank's reference of the one refund that has succeeded.
    pub bank_ref: Option<&'a str>,
    pub by: &'a str,
}

/// Decides about each refund of a list. An entry that names no refund is the reason for people.
pub(super) async fn settle(
    list: Vec<Result<NamedRefund, String>>,
    choice: &Choice<'_>,
    store: &Store,
) -> anyhow::Result<ExitCode> {
    if choice.reason.is_empty() {
        bail!("--reason is empty: say how you know, it is kept in the journal");
    }
    crate::cli::check_text("--reason", 400, choice.reason)?;
    if choice.not_executed && choice.next != State::Ready {
        eprintln!("refundd: --confirm goes with --as ready only; nothing was changed");
        return Ok(ExitCode::from(2));
    }
    if let Some(reference) = choice.bank_ref {
        crate::cli::check_text("--bank-ref", usize::MAX, reference)?;
        if choice.next != State::Succeeded
            || list.len() != 1
            || !(1..=200).contains(&reference.chars().count())
        {
            eprintln!(
                "refundd: --bank-ref goes with --as succeeded and one refund, and has 1 to 200 characters; nothing was changed"
            );
            return Ok(ExitCode::from(2));
        }
    }
    let listed = list.len();
    let mut named = Vec::with_capacity(listed);
    for entry in list {
        match entry {
            Ok(one) => named.push(one),
            Err(refusal) => eprintln!("refundd: {refusal}"),
        }
    }
    let Some(versions) = versions_seen(&named, choice, store).await? else { return Ok(ExitCode::FAILURE) };
    let (mut decided, mut proposed, mut all, mut not_made) = (0, 0, OneByOne::default(), Vec::new());
    for (id, seen) in versions {
        match all.make(decide(id, seen, choice, store)).await {
            Ok(Ok(Made::Decision)) => decided += 1,
            Ok(Ok(Made::Proposal)) => proposed += 1,
            Ok(Err(trouble)) => eprintln!("refundd: {trouble}"),
            Err(why) => not_made.push((id.0, why)),
        }
    }
    super::tell_not_made("refund", all, &not_made)?;
    if listed > 1 {
        println!("{decided} of {listed} decided, {proposed} proposed.");
    }
    Ok(if decided + proposed == listed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
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
    id: RefundId,
    seen: i32,
    choice: &Choice<'_>,
    store: &Store,
) -> Result<Result<Made, String>, StoreError> {
    let Choice { next, reason, not_executed, bank_ref, by } = *choice;
    let decision = Decision { id, seen, next, not_executed, why: reason, who: by };
    let (decided, is_noted) = match bank_ref {
        None => (store.decide(&decision).await?, false),
        Some(reference) => match store.decide_and_note(&decision, reference).await? {
            Some(made) => made,
            None => return Ok(Err(taken(id, reference))),
        },
    };
    Ok(Err(match decided {
        Decided::Done(refund) => {
            println!("Refund {id} ({}) is {} now.", shown(&refund.refund_ref), refund.state);
            let Some(reference) = bank_ref else { return Ok(Ok(Made::Decision)) };
            if is_noted {
                println!("Its bank reference is {}.", shown(reference));
                return Ok(Ok(Made::Decision));
            }
            format!(
                "refund {id} is decided; it has the bank reference {} already, so {} was not kept",
                shown(refund.bank_ref.as_deref().unwrap_or("of an answer")),
                shown(reference)
            )
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
            if bank_ref.is_some() {
                println!("The bank reference is not kept with a proposal: name it in --reason.");
            }
            return Ok(Ok(Made::Proposal));
        }
        Decided::NoSuchRefund => format!("there is no refund {id}"),
        Decided::Changed(refund) => changed(&refund),
        Decided::Unconfirmed(refund) => unconfirmed(&refund),
        Decided::Illegal(refund) if refund.state == State::Ready && next == State::Cancelled => format!(
            "refund {id} is ready, so nobody needs to decide about it; to withdraw it: refundd cancel {} --reason \"why\"; nothing was changed",
            shown(&refund.refund_ref)
        ),
        Decided::Illegal(refund) if refund.state == State::Succeeded && next == State::Succeeded => {
            let Some(reference) = bank_ref else { return Ok(Err(over(&refund, next))) };
            let noted = NotedReference { id, seen, reference, why: reason, who: by };
            return Ok(note(&refund, &noted, store).await?.map_or(Ok(Made::Decision), Err));
        }
        Decided::Illegal(refund) => over(&refund, next),
        Decided::WasCancelled(refund) => format!(
            "refund {id} ({}) was cancelled before it was reopened, so it is never sent; to pay it, save a new refund with another ref; nothing was changed",
            shown(&refund.refund_ref)
        ),
    }))
}

/// Keeps the bank's reference of a refund that has succeeded before. Answers for people why it was not kept.
async fn note(
    refund: &Refund,
    noted: &NotedReference<'_>,
    store: &Store,
) -> Result<Option<String>, StoreError> {
    let NotedReference { id, seen, reference, .. } = *noted;
    let before = refund.bank_ref.as_deref();
    match store.note_bank_ref(noted).await {
        Ok(true) => {
            let before = before.filter(|before| *before != reference);
            let before = before.map_or_else(String::new, |before| format!("; before: {}", shown(before)));
            println!("Its bank reference is {}{before}.", shown(reference));
            Ok(None)
        }
        Ok(false) => Ok(Some(match store.refund(id).await? {
            Some(now) if now.version != seen => changed(&now),
            _ => format!(
                "refund {id} has the bank reference {} by an answer of the bank, or the journal no longer says that a person noted it; such \
                 a reference stays, so {} was not kept; nothing was changed",
                shown(before.unwrap_or("of an answer")),
                shown(reference)
            ),
        })),
        Err(error) if error.is_taken_reference() => Ok(Some(taken(id, reference))),
        Err(error) => Err(error),
    }
}

fn taken(id: RefundId, reference: &str) -> String {
    format!(
        "refund {id} stays as it is; another refund of its channel has the bank reference {0}: refundd show {0}; nothing was changed",
        shown(reference)
    )
}

fn changed(refund: &Refund) -> String {
    let Refund { id, state, version, .. } = refund;
    format!(
        "refund {id} has changed: it is {state} at version {version} now; look again: refundd review show {id}; nothing was changed"
    )
}

fn over(refund: &Refund, next: State) -> String {
    format!("refund {} is {} and cannot be made {next} by hand; nothing was changed", refund.id, refund.state)
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

/// The refunds with the versions that the person saw. If one is not named, shows the refunds and asks for the decision, which
/// then counts for what was shown. `None` if the person does not agree.
async fn versions_seen(
    named: &[NamedRefund],
    choice: &Choice<'_>,
    store: &Store,
) -> anyhow::Result<Option<Vec<(RefundId, i32)>>> {
    let all: Option<Vec<(RefundId, i32)>> = named.iter().map(|one| Some((one.id, one.seen?))).collect();
    if all.is_some() {
        return Ok(all);
    }
    if !stdin().is_terminal() {
        bail!(
            "name the version of each refund that you decided on, such as {}@7: `refundd review` and `refundd review \
             show ID` tell it. A decision that names none could be about another refund than the one you saw, or could be repeated by \
             mistake; nothing was changed",
            named.iter().find(|one| one.seen.is_none()).map_or(RefundId(4711), |one| one.id)
        );
    }
    let (mut versions, mut troubles) = (Vec::new(), Vec::new());
    for one in named {
        let Some(refund) = store.refund(one.id).await? else {
            troubles.push(format!("there is no refund {}", one.id));
            continue;
        };
        show(&refund, store).await?;
        if choice.next == State::Ready && !choice.not_executed && refund.uncertain_since.is_some() {
            troubles.push(unconfirmed(&refund));
        }
        versions.push((one.id, one.seen.unwrap_or(refund.version)));
    }
    for trouble in &troubles {
        eprintln!("refundd: {trouble}");
    }
    if !troubles.is_empty() {
        return Ok(None);
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
    Ok(agreed.then_some(versions))
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
        eprintln!("    last: {} {}, {message}", last.kind.as_str(), last.outcome);
    }
    Ok(())
}
