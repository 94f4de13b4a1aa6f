//! `refundd review`: shows the refunds that wait for a person, with the evidence, and takes the person's decision. Shows the
//! proposals that wait for a second person, and takes that person's answer.
//!
//! A decision names the version of the refund that the person saw. The version is on the command line, as `4711@7`,
//! or in a question that the person answers. Without a terminal the command asks no question, and needs the versions.

mod named;
mod second;
mod settle;

use std::process::ExitCode;

use anyhow::bail;
use serde_json::json;

use self::named::NamedRefund;
use self::settle::{Choice, settle};
use super::guesses::Meanings;
use crate::caller::Names;
use crate::logs::chain;
use crate::one_by_one::{NotMade, OneByOne};
use crate::refund::text::{counted, shown, shown_json, shown_lines};
use crate::refund::{Refund, RefundId, State};
use crate::store::{Filter, ProposalFilter, Store, StoreError, WaitingProposal};

/// What a person may decide.
const STATES: Meanings = Meanings(&[
    ("succeeded", "the bank paid it"),
    ("failed", "the bank refused it, so nothing was paid; it is not sent again by itself"),
    ("cancelled", "nothing was paid, and nothing will be"),
    ("ready", "nothing was paid; refundd sends it again"),
    ("review", "failed or cancelled by mistake; a person looks at it again, and nothing is sent"),
]);
const CONFIRMATIONS: Meanings =
    Meanings(&[("not-executed", "the bank says that it executed none of the earlier sends")]);

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    listed: Listed,
}

/// What a list shows, and how.
#[derive(Debug, clap::Args)]
struct Listed {
    /// Only this channel
    #[arg(long)]
    channel: Option<String>,
    /// For programs: one JSON object on each line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Show one refund with every attempt, permit and answer
    Show {
        /// Its id, ref, or another name that `refundd show` takes
        #[arg(value_name = "NAME")]
        name: String,
        /// For programs: the refund and every attempt as JSON
        #[arg(long)]
        json: bool,
    },
    /// Decide what became of refunds, each on its own. Where one person is not enough, the decision waits for `approve`
    Settle {
        /// The refunds, each by its id, its ref or another name that `refundd show` takes, with the version that you saw,
        /// such as 4711@7 or R-123@7; without a version the command shows the refund and asks, and without a terminal
        /// it refuses. `-` reads the refunds from standard input, one on each line
        #[arg(required = true, value_name = "NAME[@VERSION]")]
        names: Vec<String>,
        /// The state that you decide; `ready` sends the refund again, and `review` reopens one that has failed or was
        /// cancelled
        #[arg(long = "as", value_name = "STATE", value_parser = STATES)]
        next: String,
        /// How you know; kept in the journal
        #[arg(long)]
        reason: String,
        /// The bank's own reference, as its statement has it; for one refund, with `--as succeeded`. Also corrects one
        /// that a person noted before; then name the version
        #[arg(long, value_name = "REFERENCE")]
        bank_ref: Option<String>,
        /// The bank says that it executed none of the earlier sends; needed to send a refund again that may have been
        /// executed
        #[arg(long, value_name = "WORD", value_parser = CONFIRMATIONS)]
        confirm: Option<String>,
        #[command(flatten)]
        by: super::By,
    },
    /// Show the decisions that wait for a second person's approval
    Proposals(Listed),
    /// Approve what another person decided, each on its own
    Approve(second::Args),
    /// Withdraw decisions that wait for approval, each on its own
    Withdraw(second::Args),
}

pub(super) async fn review(args: &Args, store: &Store) -> anyhow::Result<ExitCode> {
    if args.what.is_some() && (args.listed.channel.is_some() || args.listed.json) {
        eprintln!(
            "refundd: --channel and --json before a subcommand are of the list; write them after the subcommand, if it takes them; nothing was changed"
        );
        return Ok(ExitCode::from(2));
    }
    match &args.what {
        None => list(&args.listed, store).await,
        Some(What::Show { name, json }) => {
            let id = NamedRefund::read(name, store).await?.map_err(anyhow::Error::msg)?.id;
            if *json { show_json(id, store).await } else { show(id, store).await }
        }
        Some(What::Settle { names, next, reason, bank_ref, confirm, by }) => {
            let choice = Choice {
                next: next.parse()?,
                reason: reason.trim(),
                not_executed: confirm.is_some(),
                bank_ref: bank_ref.as_deref().map(str::trim),
                by: &by.name()?,
            };
            settle(NamedRefund::read_all(names, store).await?, &choice, store).await
        }
        Some(What::Proposals(listed)) => {
            if list_proposals(listed, store).await? == 0 && !listed.json {
                println!("Nothing waits for a second person.");
            }
            Ok(ExitCode::SUCCESS)
        }
        Some(What::Approve(args)) => second::approve(args, store).await,
        Some(What::Withdraw(args)) => second::withdraw(args, store).await,
    }
}

async fn list(args: &Listed, store: &Store) -> anyhow::Result<ExitCode> {
    if let Some(channel) = &args.channel {
        super::channel_exists(store, "--channel", channel).await?;
    }
    let mut filter = Filter {
        channel: args.channel.clone(),
        state: Some(State::Review),
        limit: 1000,
        ..Filter::of(Names::All)
    };
    let mut total = 0;
    loop {
        let refunds = store.list(&filter).await?;
        for refund in &refunds {
            if args.json {
                println!("{}", shown_json(serde_json::to_string(refund)?));
            } else {
                print_line(refund);
            }
        }
        total += refunds.len();
        match refunds.last() {
            Some(last) if refunds.len() == 1000 && !super::output::is_lost() => filter.after = Some(last.id),
            _ => break,
        }
    }
    if !args.json {
        match total {
            0 => println!("Nothing waits for a person."),
            n => println!(
                "\n{} for a person. See the evidence: refundd show ID\n\
                 Decide: refundd review settle ID@VERSION... --as succeeded|failed|cancelled|ready --reason \"how you know\"",
                waiting(n, "refund")
            ),
        }
    }
    // Programs read the lines of refunds, and ask for the proposals by their own command.
    if !args.json {
        list_proposals(args, store).await?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Says of each change without a result what is known of it, and why that is so. If none has a result, the error says enough.
fn tell_not_made(what: &str, all: OneByOne, not_made: &[(i64, NotMade)]) -> Result<(), StoreError> {
    let failure = all.end()?;
    for (id, why) in not_made {
        eprintln!("refundd: {what} {id}: {}", why.message());
    }
    if let Some(error) = failure {
        eprintln!("refundd: failed to {}", shown_lines(&chain(&error).to_string()));
    }
    Ok(())
}

/// `1 refund waits`, `2 refunds wait`.
fn waiting(count: usize, noun: &str) -> String {
    format!("{} {}", counted(count as u64, noun), if count == 1 { "waits" } else { "wait" })
}

/// Prints the proposals that wait, and answers how many there are.
async fn list_proposals(args: &Listed, store: &Store) -> anyhow::Result<usize> {
    if let Some(channel) = &args.channel {
        super::channel_exists(store, "--channel", channel).await?;
    }
    let mut filter =
        ProposalFilter { channel: args.channel.clone(), limit: 1000, ..ProposalFilter::of(Names::All) };
    let mut total = 0;
    loop {
        let proposals = store.proposals(&filter).await?;
        for waiting in &proposals {
            if args.json {
                println!("{}", shown_json(serde_json::to_string(waiting)?));
            } else {
                print_proposal(waiting, total == 0);
            }
            total += 1;
        }
        match proposals.last() {
            Some(last) if proposals.len() == 1000 => filter.after = Some(last.proposal.id),
            _ => break,
        }
    }
    if total > 0 && !args.json {
        println!(
            "\n{} for a second person. Approve: refundd review approve PROPOSAL@VERSION... --reason \"how you know\"",
            waiting(total, "decision")
        );
    }
    Ok(total)
}

fn print_proposal(waiting: &WaitingProposal, is_first: bool) {
    let WaitingProposal { proposal, refund_ref, money, state_now } = waiting;
    if is_first {
        println!("\nWait for a second person:");
    }
    let until = proposal.expires_at.map_or_else(String::new, |at| format!(", until {at:.0}"));
    println!(
        "{:>12}  {:<12} {:>16}  {}  refund {}: {state_now} to {}{} by {}: {} ({}{until})",
        format!("{}@{}", proposal.id, proposal.version),
        shown(&proposal.channel),
        shown(&money.to_string()),
        shown(refund_ref),
        proposal.refund_id,
        proposal.state,
        if proposal.not_executed { ", confirmed not executed," } else { "" },
        shown(&proposal.by),
        shown(&proposal.reason),
        proposal.needed_for.why(),
    );
}

fn print_line(refund: &Refund) {
    println!(
        "{:>12}  {:<12} {:>16}  {}  {}",
        format!("{}@{}", refund.id, refund.version),
        shown(&refund.channel),
        shown(&refund.money.to_string()),
        shown(&refund.refund_ref),
        shown(refund.reason.as_deref().unwrap_or(""))
    );
}

/// Tells a refund's story in words, and how to decide about it.
async fn show(id: RefundId, store: &Store) -> anyhow::Result<ExitCode> {
    let Some(refund) = store.refund(id).await? else { bail!("there is no refund {id}") };
    let states = match refund.state {
        State::Review => "succeeded|failed|cancelled|ready",
        State::Unknown | State::Accepted => "succeeded|failed",
        State::Failed => "review|ready",
        State::Cancelled => "review",
        State::Ready | State::Sending | State::Succeeded => "",
    };
    let version = refund.version;
    print!("{}", super::show::story_text(store, refund).await?);
    if !states.is_empty() {
        println!("\nDecide: refundd review settle {id}@{version} --as {states} --reason \"how you know\"");
    }
    Ok(ExitCode::SUCCESS)
}

async fn show_json(id: RefundId, store: &Store) -> anyhow::Result<ExitCode> {
    let Some(refund) = store.refund(id).await? else { bail!("there is no refund {id}") };
    println!("{}", shown_json(serde_json::to_string_pretty(&refund)?));
    let attempts = store.evidence(id).await?;
    // In place of forgotten attempts, a line says so. Otherwise it would look as if there had been none.
    if let Some(before) = store.forgotten_before(&refund).await? {
        println!("{}", json!({ "forgotten_before": before, "by": "[recovery] keep_attempts" }));
    }
    for attempt in attempts {
        println!("{}", shown_json(serde_json::to_string(&attempt)?));
    }
    Ok(ExitCode::SUCCESS)
}
