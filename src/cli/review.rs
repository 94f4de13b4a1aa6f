//! `refundd review`: the refunds that wait for a person, with the evidence; and the person's word.

use std::process::ExitCode;

use anyhow::bail;
use serde_json::json;

use crate::refund::{Refund, RefundId, State};
use crate::store::{Decided, Filter, Store};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    what: Option<What>,
    /// Only this channel
    #[arg(long)]
    channel: Option<String>,
    /// For programs: one JSON object for each refund
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Show one refund with every attempt, permit and answer
    Show {
        /// The refund's id
        id: i64,
    },
    /// Decide what became of refunds, each on its own
    Settle {
        /// The refunds' ids; `-` reads them from standard input, one on each line
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
        /// The state they are in, by your word; `ready` sends again
        #[arg(long = "as", value_name = "STATE", value_parser = ["succeeded", "failed", "cancelled", "ready"])]
        next: String,
        /// How you know; kept in the journal
        #[arg(long)]
        reason: String,
        #[command(flatten)]
        by: super::By,
    },
}

pub(super) async fn review(args: Args, store: &Store) -> anyhow::Result<ExitCode> {
    match args.what {
        None => list(&args, store).await,
        Some(What::Show { id }) => show(RefundId(id), store).await,
        Some(What::Settle { ids, next, reason, by }) => {
            settle(&read_ids(&ids)?, next.parse()?, reason.trim(), &by.name(), store).await
        }
    }
}

async fn list(args: &Args, store: &Store) -> anyhow::Result<ExitCode> {
    let mut filter = Filter {
        channel: args.channel.clone(),
        state: Some(State::Review),
        limit: 1000,
        ..Filter::default()
    };
    let mut total = 0;
    loop {
        let refunds = store.list(&filter).await?;
        for refund in &refunds {
            if args.json {
                println!("{}", serde_json::to_string(refund)?);
            } else {
                print_line(refund);
            }
        }
        total += refunds.len();
        match refunds.last() {
            Some(last) if refunds.len() == 1000 => filter.after = Some(last.id),
            _ => break,
        }
    }
    if !args.json {
        match total {
            0 => println!("Nothing waits for a person."),
            n => println!(
                "\n{n} wait for a person. See the evidence: refundd review show ID\n\
                 Decide: refundd review settle ID... --as succeeded|failed|cancelled|ready --reason \"how you know\""
            ),
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn print_line(refund: &Refund) {
    println!(
        "{:>10}  {:<12} {:>12} {}  {}  {}",
        refund.id,
        refund.channel,
        refund.amount_minor,
        refund.currency,
        refund.refund_ref,
        refund.reason.as_deref().unwrap_or("")
    );
}

async fn show(id: RefundId, store: &Store) -> anyhow::Result<ExitCode> {
    let Some(refund) = store.refund(id).await? else { bail!("there is no refund {id}") };
    println!("{}", serde_json::to_string_pretty(&refund)?);
    let attempts = store.evidence(id).await?;
    // A line where the first attempts would stand, or it would look as if there had been none.
    if let Some(before) = store.forgotten_before(&refund).await? {
        println!("{}", json!({ "forgotten_before": before, "by": "[recovery] keep_attempts" }));
    }
    for attempt in attempts {
        println!("{}", serde_json::to_string(&attempt)?);
    }
    Ok(ExitCode::SUCCESS)
}

/// The ids that were named, or stand on standard input.
fn read_ids(words: &[String]) -> anyhow::Result<Vec<RefundId>> {
    let read = |word: &str| match word.trim().parse() {
        Ok(id) if id > 0 => Ok(RefundId(id)),
        _ => bail!("`{}` is no refund's id: it is a positive whole number; nothing was changed", word.trim()),
    };
    if words == ["-"] {
        let text = std::io::read_to_string(std::io::stdin())?;
        return text.lines().filter(|line| !line.trim().is_empty()).map(read).collect();
    }
    words.iter().map(|word| read(word)).collect()
}

async fn settle(
    ids: &[RefundId],
    next: State,
    reason: &str,
    who: &str,
    store: &Store,
) -> anyhow::Result<ExitCode> {
    if reason.is_empty() {
        bail!("--reason is empty: say how you know, it is kept in the journal");
    }
    let mut undone = 0;
    for &id in ids {
        let trouble = match store.decide(id, next, reason, who).await? {
            Decided::Done(refund) => {
                println!("Refund {id} ({}) is {} now.", refund.refund_ref, refund.state);
                continue;
            }
            Decided::NoSuchRefund => format!("there is no refund {id}"),
            Decided::Illegal(refund) => {
                format!(
                    "refund {id} is {} and cannot be made {next} by hand; nothing was changed",
                    refund.state
                )
            }
        };
        undone += 1;
        eprintln!("refundd: {trouble}");
    }
    if ids.len() > 1 {
        println!("{} of {} decided.", ids.len() - undone, ids.len());
    }
    Ok(if undone == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
