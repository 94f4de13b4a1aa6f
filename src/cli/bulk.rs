//! What `refundd cancel` and `refundd move` share: many refunds by their refs, or a whole channel's backlog.
//!
//! `crate::bulk` does the work. This file asks, and prints.

mod backlog;
mod which;

use std::process::ExitCode;

use anyhow::{Context, bail};

pub(super) use which::Which;

use super::namesakes;
use super::progress::ProgressDisplay;
use super::totals::{ExpectedTotals, Totals};
use crate::bucket::{Bucket, BucketKind};
use crate::bulk::{AT_ONCE, Bulk, BulkOutcome, BulkResult, NamedRef};
use crate::config::Config;
use crate::refund::Refund;
use crate::refund::text::{counted, shown};
use crate::store::Store;

/// How many refunds that refs named, and that were changed, are shown.
const MOST_SHOWN: usize = 20;

/// Why and by whom, and how careful.
#[derive(Debug, clap::Args)]
pub(super) struct Manner {
    /// Why; kept in the journal
    #[arg(long, required_unless_present = "dry_run")]
    reason: Option<String>,
    #[command(flatten)]
    pub by: super::By,
    /// Show what would be done, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask before a channel's whole backlog is changed
    #[arg(long)]
    yes: bool,
    /// Change nothing unless the refunds of a channel that go have these totals, such as count=1200,EUR=340050; --dry-run
    /// shows them
    #[arg(long, value_name = "TOTALS", value_parser = ExpectedTotals::read)]
    expect: Option<ExpectedTotals>,
}

impl Manner {
    /// The reason, checked; `None` in a dry run that gives none.
    pub(super) fn reason(&self) -> anyhow::Result<Option<String>> {
        let reason = self.reason.as_deref().map(str::trim);
        if reason == Some("") {
            bail!("--reason is empty: say why, it is kept in the journal; nothing was changed");
        }
        if let Some(reason) = reason {
            super::check_text("--reason", 400, reason)?;
        }
        Ok(reason.map(str::to_owned))
    }
}

/// How a command speaks of what it does.
#[derive(Debug, Clone, Copy)]
pub(super) struct Words<'a> {
    /// Such as `cancelled`.
    pub done: &'a str,
    /// Such as `was cancelled before`.
    pub before: &'a str,
    /// The question before a whole backlog is changed.
    pub question: &'a str,
    /// Why nothing is changed where nobody can be asked.
    pub unasked: &'a str,
    /// The channel that refunds move to.
    pub target: &'a str,
}

pub(super) struct BulkWork<'a> {
    store: &'a Store,
    bulk: Bulk,
    is_dry: bool,
    words: Words<'a>,
    /// In a dry run, those that would be.
    done: Totals,
    /// The first of them that refs named.
    shown: Vec<String>,
    bucket: Option<Bucket>,
    /// What to do about the rest after this run.
    go_on: &'static str,
}

impl<'a> BulkWork<'a> {
    pub(super) fn new(
        store: &'a Store,
        config: Option<&Config>,
        bulk: Bulk,
        is_dry: bool,
        words: Words<'a>,
    ) -> BulkWork<'a> {
        let bucket = config.filter(|_| !is_dry).and_then(bucket);
        let (done, shown, go_on) = (Totals::default(), Vec::new(), "repeat the command");
        BulkWork { store, bulk, is_dry, words, done, shown, bucket, go_on }
    }

    pub(super) async fn run(mut self, which: &Which, manner: &Manner) -> anyhow::Result<ExitCode> {
        if manner.expect.is_some() {
            self.go_on = "look again with --dry-run, because the totals may have changed";
        }
        match which {
            Which::Refs(_) if manner.expect.is_some() => {
                bail!(
                    "--expect goes with a whole channel: refs name the refunds themselves; nothing was changed"
                )
            }
            Which::Refs(refs) => self.refs(refs).await,
            Which::Channel(channel) => self.channel(channel, manner).await,
        }
    }

    /// Changes the refunds with these refs, and names each that stays.
    async fn refs(&mut self, refs: &[NamedRef]) -> anyhow::Result<ExitCode> {
        let (mut stays, mut missing, mut before, mut progress) =
            (0_u64, 0_u64, 0_u64, ProgressDisplay::new());
        for (nth, refs) in refs.chunks(AT_ONCE).enumerate() {
            let results = self.bulk.named(refs).await.with_context(|| self.so_far())?;
            progress.clear();
            for result in &results {
                if let (Some(refund), BulkOutcome::Done(_) | BulkOutcome::WouldBeDone) =
                    (&result.refund, &result.outcome)
                {
                    self.done.add(&refund.money);
                    if self.shown.len() < MOST_SHOWN {
                        self.shown.push(namesakes::title(refund.id, &refund.refund_ref));
                    }
                }
                let is_missing = matches!(result.outcome, BulkOutcome::NoSuchRefund);
                missing += u64::from(is_missing);
                stays += u64::from(result.stays() && !is_missing);
                before += u64::from(matches!(result.outcome, BulkOutcome::DoneBefore));
            }
            self.name(&results);
            self.withdraw(results.iter().filter_map(BulkResult::done)).await;
            progress.show(|| format!("{} refs looked at", nth * AT_ONCE + refs.len()));
        }
        progress.clear();
        self.tell(before, stays, missing);
        Ok(if stays + missing == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Names each refund that is as it was, and why.
    fn name(&self, results: &[BulkResult]) {
        for result in results {
            let why = match result.outcome {
                BulkOutcome::DoneBefore => Some(format!("it {}", self.words.before)),
                _ => self.bulk.why(result),
            };
            if let Some(why) = why {
                eprintln!("refundd: {}: {why}", shown(&result.refund_ref));
            }
        }
    }

    async fn withdraw(&self, gone: impl IntoIterator<Item = &Refund>) {
        if let Some(bucket) = &self.bucket {
            self.bulk.withdraw(bucket, gone).await;
        }
    }

    fn so_far(&self) -> String {
        let (refunds, were) =
            (counted(self.done.count(), "refund"), if self.done.count() == 1 { "was" } else { "were" });
        format!("{refunds} {were} {} so far; {}", self.words.done, self.go_on)
    }

    fn tell(&self, before: u64, stays: u64, missing: u64) {
        let would = if self.is_dry { "would be " } else { "" };
        let before = match before {
            0 => String::new(),
            1 => format!(", 1 {}", self.words.before),
            many => format!(", {many} {}", self.words.before.replacen("was ", "were ", 1)),
        };
        let stay = match stays {
            0 => String::new(),
            1 => ", 1 stays".to_owned(),
            many => format!(", {many} stay"),
        };
        let missing = if missing == 0 { String::new() } else { format!(", {missing} not found") };
        println!("{} {would}{}{before}{stay}{missing}", self.done.count(), self.words.done);
        for part in self.done.parts() {
            println!("{part}");
        }
        for refund in &self.shown {
            println!("{would}{}: {refund}", self.words.done);
        }
        let more = self.done.count().saturating_sub(u64::try_from(self.shown.len()).unwrap_or(u64::MAX));
        if more > 0 && !self.shown.is_empty() {
            println!("and {more} more");
        }
    }
}

fn bucket(config: &Config) -> Option<Bucket> {
    if config.bucket.kind == BucketKind::Memory {
        return None;
    }
    let bucket = config.redis.open().ok()?;
    config.group(&bucket);
    Some(bucket)
}
