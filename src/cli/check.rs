//! `refundd check`: checks a configuration file, and on request compares it with the database or with what nodes run.

mod against_running;
mod difference;
mod looser;

use std::process::ExitCode;

use anyhow::Context;

use crate::bank::{Bank, has_short_secret};
use crate::config::Config;
use crate::daemon::open_answer_warnings;
use crate::refund::text::counted;

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of the command line")]
pub(super) struct Args {
    /// Print the reference configuration with every key and its default, and exit
    #[arg(long)]
    pub(super) reference: bool,
    /// Also count the refunds that may have been sent to other addresses than this file names
    #[arg(long)]
    against_database: bool,
    /// Also show what changes if all nodes take this file over: settings, drain times, and refunds that will be late
    #[arg(long, conflicts_with = "reference")]
    against_running: bool,
    /// For programs: one JSON object with the comparison
    #[arg(long, requires = "against_running")]
    json: bool,
}

const EXIT_CODES: &str = "Exit codes: 0 the file is good; 1 it has faults, or it cannot be compared; 4 with --against-running, the file is good, and after the \
change more of the waiting refunds miss their deadlines, a channel with open refunds goes, or refunds stay behind at an \
earlier address. Changes of secrets and of keys that need a restart are not compared.";

pub(super) async fn check(args: &Args, config: &Config) -> anyhow::Result<ExitCode> {
    for channel in config.channels.values() {
        Bank::new(channel).with_context(|| format!("channel `{}`: failed to prepare it", channel.name))?;
    }
    if !args.json {
        println!(
            "The configuration is good: {}, {}.",
            counted(config.channels.len() as u64, "channel"),
            counted(config.limits.len() as u64, "limit")
        );
        if config.channels.is_empty() {
            println!("Warning: no `[channel.NAME]`: a node with this file sends nothing.");
        }
        let expiring = config.callers.warnings(jiff::Timestamp::now());
        for warning in expiring.into_iter().chain(warnings(config)) {
            println!("Warning: {warning}.");
        }
    }
    if args.against_database {
        let places = config.channels.values().map(|channel| (&channel.name, channel.bank_address()));
        let left_behind = super::store(&config.postgres).await?.left_behind(places).await?;
        if !args.json && left_behind.is_empty() {
            println!("This file names every address to which a refund may have been sent.");
        }
        if !args.json {
            for left in left_behind {
                println!("{left}.");
            }
        }
    }
    if args.against_running {
        return against_running::compare(config, &super::store(&config.postgres).await?, args.json).await;
    }
    Ok(ExitCode::SUCCESS)
}

/// What an operator should know about this configuration, although it meets every requirement; not which tokens expire.
pub(super) fn warnings(config: &Config) -> Vec<String> {
    let mut warnings = config.warnings();
    warnings.extend(open_answer_warnings(config));
    for channel in config.channels.values() {
        if channel.inquiry.as_ref().is_some_and(|inquiry| inquiry.believes_any_json_404()) {
            warnings.push(format!(
                "channel `{}` sends a refund again after any 404 with a JSON object. A gateway before the bank may answer so, too: set `inquiry.not_found` to the bank's own text",
                channel.name
            ));
        }
        if has_short_secret(channel) {
            warnings.push(format!(
                "channel `{}` has a secret of less than six bytes, which is not hidden if the bank or the token server repeats it",
                channel.name
            ));
        }
    }
    warnings
}
