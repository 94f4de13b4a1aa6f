//! `refundd enqueue`: saves one refund by hand, under the same rules as HTTP.
//!
//! The command sends nothing: the nodes do.

use std::process::ExitCode;

use anyhow::bail;
use serde_json::{Map, Value};

use crate::config::Config;
use crate::refund::draft::{Draft, RefusedDraft, card_numbers_refused, no_such_channel};
use crate::refund::text::{counted, shown};
use crate::refund::{ChannelName, Refund, State};
use crate::store::Saved;
use crate::unambiguous::{Unambiguous, why_unread};

const EXIT_CODES: &str = "\
Exit codes: 0 saved, now or before; 1 refused, or the command failed: the message says which; 2 the command line is wrong. Repeating \
the same command is always safe.";

/// The exit code of a command line that nobody could ever save.
const WRONG: u8 = 2;

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct Args {
    /// Your permanent name for this refund; saving it twice saves it once
    #[arg(long)]
    refund_ref: String,
    /// The channel that sends the refund
    #[arg(long)]
    channel: String,
    /// The bank's name for the payment that the refund gives back
    #[arg(long)]
    payment_ref: String,
    /// Minor units of the currency: 1250 is 12.50 EUR, and 1250 JPY
    #[arg(long, allow_hyphen_values = true)]
    amount_minor: String,
    /// ISO 4217 code, such as EUR
    #[arg(long)]
    currency: String,
    /// JSON that is passed on to the channel, at most 16 KiB
    #[arg(long)]
    payload: Option<String>,
    /// The refund is not sent before this time, RFC 3339
    #[arg(long)]
    due_at: Option<String>,
    /// The refund fails if it still waits at this time, RFC 3339
    #[arg(long)]
    deadline_at: Option<String>,
}

pub(super) async fn enqueue(args: Args, config: &Config) -> anyhow::Result<ExitCode> {
    let store = super::store(&config.postgres).await?;
    let mut fields = Map::new();
    let amount =
        args.amount_minor.parse::<i64>().map_or_else(|_| Value::from(args.amount_minor), Value::from);
    fields.insert("refund_ref".into(), args.refund_ref.into());
    fields.insert("channel".into(), args.channel.into());
    fields.insert("payment_ref".into(), args.payment_ref.into());
    fields.insert("amount_minor".into(), amount);
    fields.insert("currency".into(), args.currency.into());
    if let Some(payload) = args.payload {
        match serde_json::from_str::<Unambiguous>(&payload) {
            Ok(read) => {
                fields.insert("payload".into(), read.0);
            }
            Err(error) => {
                eprintln!("refundd: --payload {}", shown(&why_unread(&error)));
                return Ok(ExitCode::from(WRONG));
            }
        }
    }
    for (name, value) in [("due_at", args.due_at), ("deadline_at", args.deadline_at)] {
        if let Some(value) = value {
            fields.insert(name.into(), value.into());
        }
    }
    let refund = match Draft::read(&Value::Object(fields), &|channel| config.draft_rules(channel)) {
        Ok(refund) => refund,
        Err(RefusedDraft { errors, readable }) => {
            let is_wrong = readable.is_none();
            // The rules may be stricter since it was saved. A person who reads "refused" may refund in another way.
            if let Some(refund) = readable
                && let Some((_, saved)) = store.saved_before(std::slice::from_ref(&*refund)).await?.pop()
            {
                say_already_saved(&saved);
                return Ok(ExitCode::SUCCESS);
            }
            for error in errors {
                let flag = error.field.replace('_', "-");
                match error.value {
                    Some(value) => eprintln!("refundd: --{flag} {value}: {}", shown(&error.message)),
                    None => eprintln!("refundd: --{flag}: {}", shown(&error.message)),
                }
            }
            return Ok(if is_wrong { ExitCode::from(WRONG) } else { ExitCode::FAILURE });
        }
    };
    match store.save(std::slice::from_ref(&refund)).await?.pop() {
        Some(Saved::Created(refund)) => println!("Saved as refund {}.", refund.id),
        Some(Saved::Same(saved)) => say_already_saved(&saved),
        Some(Saved::Conflict { id, differs, .. }) => {
            bail!(
                "refund_ref `{}` is already refund {id}, with other content: {differs}; nothing was saved",
                refund.refund_ref
            )
        }
        Some(Saved::NoSuchChannel) => {
            let known = config.channels.keys().map(ChannelName::as_str);
            let error = no_such_channel(refund.channel.as_str(), known);
            let value = error.value.unwrap_or_default();
            bail!("--channel {value}: {}; `refundd status` lists the channels", error.message)
        }
        Some(Saved::AboveBound(why)) => bail!("--amount-minor {}: {why}", refund.money.amount_minor),
        Some(Saved::CardNumbers(fields)) => {
            for error in card_numbers_refused(fields) {
                eprintln!("refundd: --{}: {}", error.field.replace('_', "-"), error.message);
            }
            return Ok(ExitCode::FAILURE);
        }
        Some(Saved::Full { max_backlog }) => {
            bail!(
                "channel `{}` already has its max_backlog of {} waiting; try later",
                refund.channel,
                counted(max_backlog.unsigned_abs(), "refund")
            )
        }
        None => bail!("Postgres did not say what became of the refund; saving it again is safe"),
    }
    Ok(ExitCode::SUCCESS)
}

fn say_already_saved(saved: &Refund) {
    let Refund { id, state, .. } = saved;
    match state {
        State::Cancelled | State::Failed => {
            println!("Already saved as refund {id}, which is {state}: it is not sent again.");
        }
        _ => println!("Already saved as refund {id}, which is {state} now."),
    }
}
