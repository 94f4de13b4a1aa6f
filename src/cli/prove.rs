//! `refundd prove`: checks the pace of a past period again, from the ledger of permits and the journal; or the journal
//! itself, from its chains of seals (`prove/journal.rs`).
//!
//! The command reads only Postgres and changes nothing. It may run while nodes send.

mod journal;
mod page;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use jiff::Timestamp;

use super::progress::Progress;
use super::when::When;
use crate::config::Config;
use crate::prove::{Findings, History, Opening, Period, Prover, Scope};
use crate::refund::text::shown_json;
use crate::store::{JournalCheck, JournalQuery, Provable, Store};

const AFTER_HELP: &str = "\
TIME is RFC 3339 (2026-03-29T12:00:00Z), a span back from now (\"90m\", \"2h 30m\", \"7d\"), or \"now\".

The command counts the permits in refundd.permits in every window or span that touches the period, by \
Redis's clock. It compares each count with the rule in refundd.limit_rules that was in force; close to \
a change of rule, with the looser of the two. It names as unproven each part of the period whose \
permits were pruned or whose rule is not known.

With --journal the command compares every line of refundd.attempts with the seals in refundd.seals. It \
names the first line that was changed, removed or added after it was sealed. Nodes log the head of each chain every \
minute; --head shows that such a head still stands in its chain.

Exit codes: 0 every limit held wherever it could be proven, or every sealed line is as it was; 1 a limit was \
broken, nothing could be proven about some limit, a line, a seal or a head is not as it was, or the command failed; 2 \
the command line is wrong.";

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
    #[arg(long = "head", value_name = "HASH", value_parser = journal::GivenHead::read, conflicts_with_all = ["channel", "limit"])]
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
    /// Prove that no sealed line of the journal was changed, removed or added, of this channel or of all
    #[arg(long, value_name = "CHANNEL")]
    #[expect(clippy::option_option, reason = "clap's way to say that an option's value may be left out")]
    journal: Option<Option<String>>,
}

/// The proof of one limit.
#[derive(Debug)]
struct Proved {
    limit: String,
    period: Period,
    history: History,
    scope: Scope,
    findings: Findings,
    journal_check: JournalCheck,
    /// The time from which the journal is whole; `None` if it is whole for the proven period.
    journal_since: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Kept,
    Broken,
    /// Nothing could be proven, or some spans stay in doubt.
    Unproven,
}

impl Verdict {
    fn as_str(self) -> &'static str {
        match self {
            Verdict::Kept => "held",
            Verdict::Broken => "broken",
            Verdict::Unproven => "unproven",
        }
    }
}

impl Proved {
    fn verdict(&self) -> Verdict {
        let JournalCheck { without, unknown, again, first_bytes: _ } = self.journal_check;
        if self.findings.broken.count + without.count + unknown.count + again.count > 0 {
            Verdict::Broken
        } else if self.scope.provable.is_empty() || self.findings.doubtful.count > 0 {
            Verdict::Unproven
        } else {
            Verdict::Kept
        }
    }

    /// Permits for refunds under which the journal has no first byte.
    fn unused(&self) -> u64 {
        let JournalCheck { first_bytes, unknown, again, .. } = self.journal_check;
        self.findings.refunds.saturating_sub(first_bytes.saturating_sub(unknown.count.max(again.count)))
    }
}

pub(super) async fn prove(args: Args, config: &Config) -> anyhow::Result<ExitCode> {
    let store = super::store(config).await?;
    if let Some(channel) = &args.target.journal {
        return journal::prove(&store, channel.as_deref(), &args.heads, args.json).await;
    }
    let now = store.now().await?;
    let clocks = config.redis.clock_tolerance;
    let period = period(&args, now, clocks)?;
    let known = store.provable().await?;
    let (mut all, mut progress) = (Vec::new(), Progress::new());
    for limit in limits(&args.target, &known)? {
        all.push(prove_one(&store, &known, limit, period, now, clocks, &mut progress).await?);
    }
    progress.clear();
    if args.json {
        println!("{}", shown_json(serde_json::to_string_pretty(&page::json(period, &all))?));
    } else {
        print!("{}", page::text(period, &all));
    }
    let all_kept = all.iter().all(|proved| proved.verdict() == Verdict::Kept);
    Ok(if all_kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn period(args: &Args, now: Timestamp, clocks: Duration) -> anyhow::Result<Period> {
    let (from_us, mut to_us) = (args.from.us(now)?, args.to.us(now)?);
    let ahead = Duration::from_micros(u64::try_from(to_us - now.as_microsecond()).unwrap_or(0));
    if ahead > clocks {
        bail!(
            "--to {}: by Postgres's clock it is {now:.0}, and nothing is proven of the future; write \"now\"",
            page::time(to_us)
        );
    }
    to_us = to_us.min(now.as_microsecond());
    if from_us >= to_us {
        bail!("--from {} is not before --to {}: the period is empty", page::time(from_us), page::time(to_us));
    }
    Ok(Period { from_us, to_us })
}

/// The limits that the command line names, by channel or directly.
fn limits(target: &Target, known: &Provable) -> anyhow::Result<Vec<String>> {
    let names = |names: Vec<&str>| if names.is_empty() { "none yet".to_owned() } else { names.join(", ") };
    if let Some(limit) = &target.limit {
        if !known.limits.contains(limit) {
            let there = names(known.limits.iter().map(String::as_str).collect());
            bail!("--limit {limit}: no such limit was ever run on this database; there are: {there}");
        }
        return Ok(vec![limit.clone()]);
    }
    let name = target.channel.as_deref().unwrap_or_default();
    let Some((_, limits)) = known.channels.iter().find(|(channel, _)| channel == name) else {
        let there = names(known.channels.iter().map(|(channel, _)| channel.as_str()).collect());
        bail!("--channel {name}: no such channel was ever run on this database; there are: {there}");
    };
    if limits.is_empty() {
        bail!("--channel {name}: it is unlimited (limits = []), so there is nothing to prove");
    }
    // The limits that refundd derived from the channel's limits count, too.
    let is_derived = |of: &str| {
        let (owner, what) = of.split_once('.').unwrap_or((of, ""));
        !what.is_empty() && (owner == name || limits.iter().any(|limit| limit == owner))
    };
    let derived = known.limits.iter().filter(|limit| is_derived(limit) && !limits.contains(limit));
    Ok(limits.iter().chain(derived).cloned().collect())
}

async fn prove_one(
    store: &Store,
    known: &Provable,
    limit: String,
    period: Period,
    now: Timestamp,
    clocks: Duration,
    progress: &mut Progress,
) -> anyhow::Result<Proved> {
    let mut history = store.rules(&limit).await?;
    let oldest = store.oldest_permit_us(&limit).await?;
    if let Some(oldest) = oldest {
        history.began_before(oldest);
    }
    let scope = Scope::of(period, &history, oldest, now.as_microsecond());
    let mut prover = Prover::new(&history, &scope, clocks);
    let mut journal_check = JournalCheck::default();
    if !scope.provable.is_empty() {
        let (mut openings, reads) = (0_u64, prover.reads());
        let see = |opening: &Opening| {
            prover.see(opening);
            openings += 1;
            progress.show(|| format!("limit {limit}: {openings} times with permits counted"));
        };
        store.each_opening(&limit, reads, see).await?;
        let holds = known.channels.iter().filter(|(_, limits)| limits.contains(&limit));
        let channels: Vec<String> = holds.map(|(channel, _)| channel.clone()).collect();
        let question = JournalQuery {
            limit: &limit,
            permits: scope.counted,
            sends: scope.provable,
            channels: &channels,
        };
        let seen = |line, last| {
            progress.show(|| format!("limit {limit}: the journal compared up to line {line} of {last}"));
        };
        journal_check = store.check_journal(&question, seen).await?;
    }
    let journal_since = store.journal_since().await?;
    let journal_since = journal_since.filter(|since| since.as_microsecond() > scope.counted.from_us);
    Ok(Proved { limit, period, history, scope, findings: prover.finish(), journal_check, journal_since })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channels_limits_come_with_those_derived_from_them() {
        let known = Provable {
            channels: vec![("acme".into(), vec!["acme".into(), "daily".into()]), ("free".into(), vec![])],
            limits: ["acme", "acme.slowed", "acme2", "daily", "globex.slowed"].map(String::from).to_vec(),
        };
        let of = |channel: Option<&str>, limit: Option<&str>| {
            let target =
                Target { channel: channel.map(String::from), limit: limit.map(String::from), journal: None };
            limits(&target, &known).map_err(|error| error.to_string())
        };
        assert_eq!(of(Some("acme"), None).unwrap(), ["acme", "daily", "acme.slowed"]);
        assert_eq!(of(None, Some("acme.slowed")).unwrap(), ["acme.slowed"]);
        assert!(of(Some("free"), None).unwrap_err().contains("unlimited"));
        assert!(of(Some("acne"), None).unwrap_err().ends_with("there are: acme, free"));
        assert!(
            of(None, Some("acne")).unwrap_err().ends_with("acme, acme.slowed, acme2, daily, globex.slowed")
        );
    }
}
