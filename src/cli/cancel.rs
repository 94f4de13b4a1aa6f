//! `refundd cancel`: withdraws refunds by their refs or a whole channel's backlog, and only refunds of which no byte ever left.
//!
//! Postgres decides about each refund when it is cancelled, so a refund that a node claims meanwhile is sent and stays.

use std::collections::{BTreeMap, HashMap};
use std::io::{IsTerminal, Write, stderr, stdin};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};

use super::progress::Progress;
use crate::bucket::Bucket;
use crate::config::{BucketKind, Config};
use crate::refund::text::shown;
use crate::refund::{ChannelName, Money, Refund, RefundId, State};
use crate::store::{Canceller, Store, StoreError, Waiting};

/// How many refunds one commit cancels.
const AT_ONCE: usize = 1_000;

const AFTER_HELP: &str = "\
A refund that was sent before, and that the bank provably did not execute, stays. Cancel such a refund by itself: POST \
/v1/refunds/{id}/cancel. Pause the channel first if nothing of it may go out meanwhile. A cancelled refund is never sent, \
and its refund_ref is used up.

Exit codes: 0 all named refunds are cancelled now, or were before; with --channel, all that were never sent; 1 a named \
refund stays, or the command failed; 2 the command line is wrong.";

#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    #[command(flatten)]
    which: Which,
    /// Why; kept in the journal
    #[arg(long, required_unless_present = "dry_run")]
    reason: Option<String>,
    #[command(flatten)]
    by: super::By,
    /// Show what would be cancelled, and cancel nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask before a channel's whole backlog is cancelled
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Which {
    /// The refs of the refunds
    #[arg(value_name = "REF")]
    refs: Vec<String>,
    /// A file with one ref on each line; - for standard input
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// All refunds of this channel that were never sent
    #[arg(long, value_name = "NAME")]
    channel: Option<String>,
}

pub(super) async fn cancel(args: Args, config: &Config) -> anyhow::Result<ExitCode> {
    let store = super::store(config).await?;
    let reason = args.reason.as_deref().map(str::trim);
    if reason == Some("") {
        bail!("--reason is empty: say why, it is kept in the journal; nothing was changed");
    }
    if let Some(reason) = reason {
        super::keeps_the_laws("--reason", reason)?;
    }
    let canceller = Canceller {
        channels: None,
        name: Some(args.by.name()?),
        why: reason.map(str::to_owned),
        never_sent: true,
    };
    let mut work =
        Work { store: &store, config, canceller, is_dry: args.dry_run, cancelled: Sums::default() };
    match (&args.which.channel, &args.which.file) {
        (Some(channel), _) => work.channel(channel, args.yes).await,
        (None, Some(file)) => work.refs(&read_refs(file)?).await,
        (None, None) => work.refs(&args.which.refs).await,
    }
}

fn read_refs(file: &Path) -> anyhow::Result<Vec<String>> {
    let text =
        if file == Path::new("-") { std::io::read_to_string(stdin()) } else { std::fs::read_to_string(file) };
    let text = text.with_context(|| format!("failed to read {}", file.display()))?;
    let refs: Vec<String> =
        text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect();
    if refs.is_empty() {
        bail!("{} names no refund; write one refund_ref on each line; nothing was changed", file.display());
    }
    Ok(refs)
}

/// The number of refunds of each currency, and their sum.
#[derive(Debug, Default)]
struct Sums(BTreeMap<String, (u64, i128)>);

impl Sums {
    fn add(&mut self, money: &Money) {
        let (refunds, sum) = self.0.entry(money.currency.clone()).or_default();
        *refunds += 1;
        *sum += i128::from(money.amount_minor);
    }

    fn count(&self) -> u64 {
        self.0.values().map(|(refunds, _)| refunds).sum()
    }
}

struct Work<'a> {
    store: &'a Store,
    config: &'a Config,
    canceller: Canceller,
    is_dry: bool,
    /// In a dry run, those that would be.
    cancelled: Sums,
}

impl Work<'_> {
    /// Cancels the refunds with these refs, and names each that stays.
    async fn refs(&mut self, refs: &[String]) -> anyhow::Result<ExitCode> {
        let (mut stays, mut progress) = (0_u64, Progress::new());
        for (nth, refs) in refs.chunks(AT_ONCE).enumerate() {
            let found = self.store.refunds_by_ref(refs).await?;
            let found: HashMap<&str, &Waiting> =
                found.iter().map(|waiting| (waiting.refund_ref.as_str(), waiting)).collect();
            let ready: Vec<&Waiting> = found.values().copied().filter(|waiting| may_go(waiting)).collect();
            let gone = self.cancel_these(&ready).await?;
            for name in refs {
                let why = match found.get(name.as_str()) {
                    None => "there is no such refund".to_owned(),
                    Some(waiting) if gone.contains(&waiting.id) => continue,
                    Some(waiting) if waiting.state == State::Cancelled => continue,
                    Some(waiting) => why_it_stays(waiting),
                };
                stays += 1;
                progress.clear();
                eprintln!("refundd: {}: {why}", shown(name));
            }
            progress.show(|| format!("{} refs looked at", nth * AT_ONCE + refs.len()));
        }
        progress.clear();
        self.tell(stays);
        Ok(if stays == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Cancels a channel's backlog, as far as it was saved before the command began.
    async fn channel(&mut self, channel: &str, is_agreed: bool) -> anyhow::Result<ExitCode> {
        super::channel_exists(self.store, "--channel", channel).await?;
        let newest = self.store.newest_refund().await?;
        let sums = self.store.waiting_sums(channel).await?;
        let would = if self.is_dry { "would be cancelled" } else { "can be cancelled" };
        for sum in &sums {
            let (currency, (refunds, amount)) = (&sum.currency, sum.never_sent);
            println!("{currency}: {refunds} refunds of {amount} in minor units {would}");
            let (refunds, amount) = sum.sent_before;
            if refunds > 0 {
                println!(
                    "{currency}: {refunds} refunds of {amount} in minor units were sent before and stay"
                );
            }
        }
        if self.is_dry || sums.iter().all(|sum| sum.never_sent.0 == 0) {
            println!("Nothing was changed.");
            return Ok(ExitCode::SUCCESS);
        }
        if !is_agreed && !agrees(channel)? {
            eprintln!("Nothing was changed.");
            return Ok(ExitCode::FAILURE);
        }
        let mut progress = Progress::new();
        loop {
            let most = i64::try_from(AT_ONCE).unwrap_or(i64::MAX);
            let ready = self.store.never_sent(channel, newest, most).await?;
            let gone = self.cancel_these(&ready.iter().collect::<Vec<_>>()).await?;
            // Nodes may have claimed some of them. If they claimed all, the next look finds others, or nothing.
            if ready.is_empty() {
                break;
            }
            if gone.is_empty() {
                tokio::task::yield_now().await;
            }
            progress.show(|| format!("{} cancelled", self.cancelled.count()));
        }
        progress.clear();
        self.tell(0);
        Ok(ExitCode::SUCCESS)
    }

    /// Cancels refunds in one commit, and takes their ids out of their buckets. Answers those that are cancelled, or would
    /// be.
    async fn cancel_these(&mut self, ready: &[&Waiting]) -> anyhow::Result<Vec<RefundId>> {
        let ids: Vec<RefundId> = ready.iter().map(|waiting| waiting.id).collect();
        if self.is_dry || ids.is_empty() {
            for waiting in ready {
                self.cancelled.add(&waiting.money);
            }
            return Ok(ids);
        }
        let mut done = self.store.cancel_never_sent(&ids, &self.canceller).await;
        // A claim takes some of the rows in another order. It ends soon.
        for _ in 0..3 {
            if done.as_ref().is_err_and(StoreError::is_a_lock) {
                done = self.store.cancel_never_sent(&ids, &self.canceller).await;
            }
        }
        let done = done.with_context(|| {
            format!("{} refunds were cancelled before; cancel the others again", self.cancelled.count())
        })?;
        for refund in &done {
            self.cancelled.add(&refund.money);
        }
        self.withdraw(&done).await;
        Ok(done.iter().map(|refund| refund.id).collect())
    }

    /// Takes the ids out of the buckets. A failure does no harm: claims drop the ids.
    async fn withdraw(&self, gone: &[Refund]) {
        let Some(bucket) = self.bucket() else { return };
        let mut by_channel: BTreeMap<&str, Vec<RefundId>> = BTreeMap::new();
        for refund in gone {
            by_channel.entry(&refund.channel).or_default().push(refund.id);
        }
        for (channel, ids) in by_channel {
            if let Ok(channel) = ChannelName::new(channel) {
                let _ = bucket.withdraw(&channel, &ids).await;
            }
        }
    }

    fn bucket(&self) -> Option<Bucket> {
        if self.config.bucket.kind == BucketKind::Memory {
            return None;
        }
        let bucket = self.config.redis.open().ok()?;
        let limits = self.config.limits.values().map(AsRef::as_ref);
        bucket.group(self.config.channels.values().map(AsRef::as_ref), limits);
        Some(bucket)
    }

    fn tell(&self, stays: u64) {
        let verb = if self.is_dry { "would be cancelled" } else { "cancelled" };
        let stay = if stays == 0 { String::new() } else { format!(", {stays} stay") };
        println!("{} {verb}{stay}", self.cancelled.count());
        for (currency, (refunds, amount)) in &self.cancelled.0 {
            println!("{currency}: {refunds} refunds, {amount} in minor units");
        }
    }
}

fn may_go(waiting: &Waiting) -> bool {
    waiting.state == State::Ready && !waiting.was_sent
}

fn why_it_stays(waiting: &Waiting) -> String {
    let Waiting { id, state, .. } = waiting;
    match state {
        State::Ready if waiting.was_sent => format!(
            "it was sent before, and the bank did not execute it; cancel it by POST /v1/refunds/{id}/cancel"
        ),
        State::Ready => "a node claimed it meanwhile, so it may be sent".to_owned(),
        State::Review => format!("it is in review; decide it: refundd review show {id}"),
        State::Sending | State::Accepted | State::Unknown => {
            format!("it is {state}, so it may have been sent")
        }
        State::Succeeded | State::Failed | State::Cancelled => format!("it is {state} already"),
    }
}

/// Asks a person about a channel's whole backlog.
fn agrees(channel: &str) -> anyhow::Result<bool> {
    if !stdin().is_terminal() {
        bail!(
            "--channel cancels a whole backlog, for ever: look with --dry-run, and add --yes; nothing was changed"
        );
    }
    eprint!("Cancel them, for ever, on channel {}? [y/N] ", shown(channel));
    stderr().flush()?;
    let mut answer = String::new();
    stdin().read_line(&mut answer)?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}
