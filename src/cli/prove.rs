//! `refundd prove`: checks the pace of a past period again, from the ledger of permits and the journal; or the journal
//! itself, from its chains of seals (`prove/journal.rs`).
//!
//! The command reads only Postgres and changes nothing. It may run while nodes send.

mod journal;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{anyhow, bail};

use super::progress::ProgressDisplay;
use crate::config::Postgres;
use crate::limit_proof::{LimitVerdict, limits_of, prove_one, report};
use crate::prove::{Period, When};
use crate::refund::text::shown_json;
use crate::store::{Provable, Replayed, Store};

const AFTER_HELP: &str = "\
TIME is RFC 3339 (2026-03-29T12:00:00Z), a span back from now (\"90m\", \"2h 30m\", \"7d\"), or \"now\".

The command counts the permits in refundd.permits in every window or span that touches the period, by \
Redis's clock. A short period may touch one window more than fits into it: the line `counted` names the time of the whole \
windows. The share used is of the permits that the rule allows in that time. The command compares each count with the rule in refundd.limit_rules that was in force; close to \
a change of rule, with the looser of the two. It names as unproven each part of the period whose \
permits were pruned or whose rule is not known. On a standby it names as unproven what the standby may not have replayed.

With --journal the command compares every line of refundd.attempts with the seals in refundd.seals. It \
names the first line that was changed, removed or added after it was sealed. Nodes log the head of each chain every \
minute; --head shows that such a head still stands in its chain. If lines that are older than a minute are not sealed, the \
verdict is `unproven`: nothing shows what happened to them. So it is on a standby that lacks a head, or whose last replayed commit \
is older than a minute.

Exit codes: 0 every limit held wherever it could be proven, or every sealed line is unchanged since it was \
sealed; 1 a limit was broken, nothing could be proven about some limit, a line, a seal or a head has changed, lines older than a \
minute are not sealed, with --journal a standby lags by more than a minute, or the command failed; 2 the command line is wrong.";

#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    #[command(flatten)]
    target: Target,
    /// Where the period begins
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = When::read, conflicts_with = "journal")]
    from: When,
    /// Where it ends
    #[arg(long, value_name = "TIME", default_value = "now", value_parser = When::read, conflicts_with = "journal")]
    to: When,
    /// A head from a node's log, which must still stand in a chain of the journal; any number of times
    #[arg(long = "head", value_name = "HASH", value_parser = journal::GivenHead::read, conflicts_with_all = ["channel", "limit", "all"])]
    heads: Vec<journal::GivenHead>,
    /// For programs: one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Target {
    /// Prove every limit of this channel
    #[arg(long, value_name = "NAME")]
    channel: Option<String>,
    /// Prove this limit
    #[arg(long, value_name = "NAME")]
    limit: Option<String>,
    /// Prove every limit that was ever run on this database: one line for each, and their sum
    #[arg(long)]
    all: bool,
    /// Prove that no sealed line of the journal was changed, removed or added, of this channel or of all
    #[arg(long, value_name = "CHANNEL")]
    #[expect(clippy::option_option, reason = "clap's way to say that an option's value may be left out")]
    journal: Option<Option<String>>,
}

pub(super) async fn prove(args: Args, file: Option<&PathBuf>) -> anyhow::Result<ExitCode> {
    // Somebody who checks the journal may have no secret of the other sections.
    if let Some(channel) = &args.target.journal {
        let (store, replayed) = open(&super::load_postgres(file)?).await?;
        return journal::prove(&store, replayed, channel.as_deref(), &args.heads, args.json).await;
    }
    let config = super::load(file)?;
    let (store, _) = open(&config.postgres).await?;
    let now = store.now().await?;
    let clocks = config.redis.clock_tolerance;
    let period = Period::between(args.from, args.to, now, clocks)
        .map_err(|wrong| anyhow!("--{} {wrong}", wrong.field()))?;
    let known = store.provable().await?;
    let (mut all, mut progress) = (Vec::new(), ProgressDisplay::new());
    for limit in limits(&args.target, &known)? {
        let mut tell = |line: std::fmt::Arguments<'_>| progress.show(|| line.to_string());
        all.push(prove_one(&store, &known, limit, period, now, clocks, &mut tell).await?);
    }
    progress.clear();
    if args.json {
        println!("{}", shown_json(serde_json::to_string_pretty(&report::json(period, &all))?));
    } else if args.target.all {
        let unlimited = known.channels.iter().filter(|(channel, limits)| {
            limits.is_empty() && limits_of(channel, &known).is_some_and(|all| all.is_empty())
        });
        let unlimited: Vec<&str> = unlimited.map(|(channel, _)| channel.as_str()).collect();
        print!("{}", report::lines_and_sum(period, &all, &unlimited));
    } else {
        print!("{}", report::text(period, &all));
    }
    let all_kept = all.iter().all(|proved| proved.verdict() == LimitVerdict::Kept);
    Ok(if all_kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The database, and how far it has come if it is a standby.
async fn open(postgres: &Postgres) -> anyhow::Result<(Store, Option<Replayed>)> {
    let store = super::store(postgres).await?;
    let replayed = store.replayed().await?;
    if let Some(standby) = &replayed {
        eprintln!("refundd: {standby}; nothing later is proven here");
    }
    Ok((store, replayed))
}

/// The limits that the command line names, by channel or directly.
fn limits(target: &Target, known: &Provable) -> anyhow::Result<Vec<String>> {
    if target.all {
        if known.limits.is_empty() {
            bail!("--all: no limit was ever run on this database, so there is nothing to prove");
        }
        return Ok(known.limits.clone());
    }
    let names = |names: Vec<&str>| if names.is_empty() { "none yet".to_owned() } else { names.join(", ") };
    if let Some(limit) = &target.limit {
        if !known.limits.contains(limit) {
            let there = names(known.limits.iter().map(String::as_str).collect());
            bail!("--limit {limit}: no such limit was ever run on this database; there are: {there}");
        }
        return Ok(vec![limit.clone()]);
    }
    let name = target.channel.as_deref().unwrap_or_default();
    let Some(limits) = limits_of(name, known) else {
        let there = names(known.channels.iter().map(|(channel, _)| channel.as_str()).collect());
        bail!("--channel {name}: no such channel was ever run on this database; there are: {there}");
    };
    if limits.is_empty() {
        bail!("--channel {name}: it is unlimited (limits = []), so there is nothing to prove");
    }
    Ok(limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channels_limits_come_with_those_derived_from_them() {
        let known = Provable {
            channels: vec![
                ("acme".into(), vec!["acme".into(), "daily".into()]),
                ("asking".into(), vec![]),
                ("free".into(), vec![]),
            ],
            inquiries: vec![
                ("acme".into(), vec!["daily".into(), "asks".into()]),
                ("asking".into(), vec!["asks".into()]),
            ],
            limits: ["acme", "acme.slowed", "acme2", "daily", "globex.slowed"].map(String::from).to_vec(),
            ..Provable::default()
        };
        let of = |channel: Option<&str>, limit: Option<&str>| {
            let target = Target {
                channel: channel.map(String::from),
                limit: limit.map(String::from),
                all: false,
                journal: None,
            };
            limits(&target, &known).map_err(|error| error.to_string())
        };
        assert_eq!(of(Some("acme"), None).unwrap(), ["acme", "daily", "asks", "acme.slowed"]);
        assert_eq!(of(Some("asking"), None).unwrap(), ["asks"]);
        assert_eq!(of(None, Some("acme.slowed")).unwrap(), ["acme.slowed"]);
        let all = Target { channel: None, limit: None, all: true, journal: None };
        assert_eq!(limits(&all, &known).unwrap(), known.limits);
        assert!(of(Some("free"), None).unwrap_err().contains("unlimited"));
        assert!(of(Some("acne"), None).unwrap_err().ends_with("there are: acme, asking, free"));
        assert!(
            of(None, Some("acne")).unwrap_err().ends_with("acme, acme.slowed, acme2, daily, globex.slowed")
        );
    }
}
