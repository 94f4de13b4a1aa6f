//! Recovery: puts stranded refunds back into their buckets, ends lapsed leases, shows a person the refunds that need
//! one, and fails refunds whose deadline passed.
//!
//! The leading node does this for all nodes, every few seconds. A pass that is done twice does no harm. A refund
//! whose lease lapsed becomes `unknown`, never `ready`: its request may have been made.
//!
//! The leading node also does the housekeeping: it forgets old evidence, dead nodes and channels that no node runs. And it
//! seals the journal (`recovery/sealing.rs`).

mod batch_size;
mod first_failure;
mod housekeeping;
mod isolation;
mod looks;
mod recent_failure;
mod refusals;
mod sealing;
mod warnings;

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use crate::bucket::{End, Purpose};
use crate::crash;
use crate::failing::Failing;
use crate::logs::chain;
use crate::node::restoring::ServerError;
use crate::node::{Node, jittered};
use crate::refund::{ChannelName, RefundId};
use crate::store::{Recovered, RecoveryLook, RecoveryMove};
use crate::wake_up::WakeUps;

use first_failure::FirstFailure;
use isolation::Isolation;
use looks::LookProgress;
use recent_failure::RecentFailure;
use sealing::Sealer;

/// The recovery loop.
#[derive(Debug)]
pub struct Recovery {
    node: Node,
    wake_ups: WakeUps,
    keep: Keep,
    /// The earliest moment to look at the backlogs again.
    watch_at: Instant,
    isolations: HashMap<RecoveryMove, Isolation>,
    looks: HashMap<RecoveryLook, LookProgress>,
    /// The earliest moment to rotate the journal's months again.
    rotate_journal_at: Instant,
    /// The earliest moment to rotate the ledger's days again.
    rotate_ledger_at: Instant,
    sealer: Sealer,
}

/// How long evidence is kept.
#[derive(Debug, Clone, Copy)]
pub struct Keep {
    pub permits: Duration,
    /// `None` keeps the journal for ever.
    pub attempts: Option<Duration>,
    /// `None` keeps events for ever.
    pub events: Option<Duration>,
}

/// How many refunds one pass moved.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Their lease lapsed, and they became `unknown`.
    pub lapsed: usize,
    /// They are now shown to a person.
    pub shown: usize,
    /// They failed, because their deadline passed.
    pub expired: usize,
    /// They were put back into their bucket.
    pub stranded: u64,
}

impl Report {
    /// Counts and logs refunds that a person sees now: the first ones of a pass by id, the others by channel.
    fn note_shown(&mut self, shown: &[Recovered]) {
        const LOGGED_AT_MOST: usize = 20;
        let (first, others) = shown.split_at(LOGGED_AT_MOST.saturating_sub(self.shown).min(shown.len()));
        self.shown += shown.len();
        for refund in first {
            let id = refund.id;
            tracing::warn!(refund.id = %id, channel.name = refund.channel, "Refund {id} waits for a person: see `refundd review`");
        }
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for refund in others {
            *counts.entry(&refund.channel).or_default() += 1;
        }
        for (channel, count) in counts {
            tracing::warn!(
                channel.name = channel,
                refunds = count,
                "{count} more refunds of channel `{channel}` wait for a person: see `refundd review`"
            );
        }
    }
}

impl Recovery {
    const PERIOD: Duration = Duration::from_secs(3);
    /// The moves of one pass, in their order. Plans come before the review: a refund whose plan was dropped is shown at once.
    pub const MOVES: [RecoveryMove; 7] = [
        RecoveryMove::Lapse,
        RecoveryMove::FailLate,
        RecoveryMove::Plan,
        RecoveryMove::DropPlans,
        RecoveryMove::ShowHad,
        RecoveryMove::ShowUnknown,
        RecoveryMove::ShowAccepted,
    ];
    /// The most rows that one statement moves, so that no statement keeps locks for long.
    const AT_ONCE: u32 = 500;
    /// Millions of leases or deadlines may be over at the same moment. One pass spends about this time on each kind, so
    /// that the other kinds get their turn and the watchdog sees an end. The next pass goes on.
    const LONGEST_PART: Duration = Duration::from_secs(5);
    /// How many buckets one statement compares with the rows.
    const BUCKETS_AT_ONCE: usize = 500;
    const BACKLOGS_AT_LEAST_EVERY: Duration = Duration::from_mins(1);
    const HOUSEKEEPING: Duration = Duration::from_secs(20);

    pub fn new(node: Node, wake_ups: WakeUps, keep: Keep) -> Self {
        let now = Instant::now();
        Recovery {
            node,
            wake_ups,
            keep,
            watch_at: now,
            isolations: HashMap::new(),
            looks: HashMap::new(),
            rotate_journal_at: now,
            rotate_ledger_at: now,
            sealer: Sealer::default(),
        }
    }

    pub async fn run(mut self) {
        let (mut failing, mut recent) = (Failing::default(), RecentFailure::default());
        let mut kept_house = Instant::now();
        while !self.node.stop.is_cancelled() {
            let mut is_failing = false;
            if self.node.leads() {
                let mut done = self.pass().await;
                // A part that failed holds up nothing else, and a Redis that is away only what needs Redis.
                if !matches!(&done, Err(error) if error.is_postgres_away())
                    && let Err(error) = self.look_after_evidence(&mut kept_house).await
                {
                    done = done.and(Err(error));
                }
                failing.note(
                    &done,
                    |error| tracing::warn!(error = %chain(error), "Recovery failed, will try again"),
                    || tracing::info!("Recovery works again"),
                );
                let now = Instant::now();
                // A refund that is left out is no failure of the round, but a person has to mend something.
                is_failing = recent.note(&done, now)
                    || self.isolations.values().any(|one| one.leaves_out(now))
                    || self.looks.values().any(|one| one.leaves_out(now));
            } else {
                recent = RecentFailure::default();
            }
            self.node.metrics.recovery_fails(is_failing);
            tokio::select! {
                () = self.node.stop.cancelled() => break,
                () = tokio::time::sleep(jittered(Self::PERIOD)) => {}
            }
        }
        // A stopping node leads no more, and its metrics can still be read.
        self.node.metrics.recovery_fails(false);
    }

    /// Seals the journal, and does the housekeeping when it is due.
    async fn look_after_evidence(&mut self, kept_house: &mut Instant) -> Result<(), ServerError> {
        let mut first = FirstFailure::default();
        first.go_on(part(&self.node, self.sealer.seal(&self.node.store)).await)?;
        first.go_on(part(&self.node, self.sealer.log_heads(&self.node.store)).await)?;
        if kept_house.elapsed() >= Self::HOUSEKEEPING {
            *kept_house = Instant::now();
            let led_for = self.node.leads_for().unwrap_or_default();
            first.go_on(part(&self.node, self.look_ahead()).await)?;
            first.go_on(self.keep_house(led_for).await)?;
        }
        first.or(())
    }

    /// Does one round.
    ///
    /// # Errors
    /// The first failure. A part that failed is left for the next round, and the other parts are done. While Postgres
    /// is away, all of the rest is left.
    pub async fn pass(&mut self) -> Result<Report, ServerError> {
        let (mut report, mut first) = (Report::default(), FirstFailure::default());
        let node = self.node.clone();
        let store = &node.store;
        first.go_on(part(&node, store.end_pauses()).await)?;
        // Do the rows first: that works without Redis.
        for which in Self::MOVES {
            first.go_on(self.recover(which, &mut report).await)?;
        }
        for which in [RecoveryLook::Moved, RecoveryLook::UsedUp, RecoveryLook::Overdue] {
            let looked = first.go_on(part(&node, self.look(which)).await)?.unwrap_or_default();
            report.note_shown(&looked.shown);
            if looked.planned > 0 {
                let planned = looked.planned;
                tracing::info!(planned, "Planned inquiries about {planned} more refunds");
            }
        }
        report.stranded = first.go_on(self.bring_back_stranded().await)?.unwrap_or_default();
        first.go_on(part(&node, self.watch_backlogs()).await)?;
        first.or(report)
    }

    /// When a part that began at `began` may be done again: after ten times as long as it took. So a slow part takes a
    /// tenth of one connection, also while it fails.
    fn next_after(began: Instant, rests_at_most: Duration) -> Instant {
        Instant::now() + (began.elapsed() * 10).min(rests_at_most)
    }

    /// Takes refunds that ended out of their buckets, so that no channel worker takes them in vain. A failure does no
    /// harm: the claim drops an id whose refund has ended.
    async fn withdraw(&self, ended: &[Recovered]) {
        let mut of: BTreeMap<&str, Vec<RefundId>> = BTreeMap::new();
        for refund in ended {
            of.entry(&refund.channel).or_default().push(refund.id);
        }
        for (channel, ids) in of {
            let Ok(channel) = ChannelName::new(channel) else { continue };
            if let Err(error) = self.node.bucket.withdraw(&channel, &ids).await {
                tracing::debug!(channel.name = %channel, error = %chain(&error), "Failed to take refunds that ended out of the bucket of channel `{channel}`");
                return;
            }
        }
    }

    /// Puts stranded refunds back: those that are due before the first id of their bucket and are not in it. They go
    /// to the front. The due poller and the feeder look after empty and low buckets.
    async fn bring_back_stranded(&self) -> Result<u64, ServerError> {
        let due = part(&self.node, self.node.store.channels_with_due()).await?;
        let due: Vec<ChannelName> = due.iter().filter_map(|name| ChannelName::new(name).ok()).collect();
        let buckets = part(&self.node, self.node.bucket.survey(Purpose::Send, &due)).await;
        let (mut total, mut away) = (0, None);
        let mut heads = Vec::with_capacity(due.len());
        for (channel, bucket) in due.iter().zip(buckets) {
            match bucket {
                Ok(bucket) => heads.extend(bucket.head.map(|head| (channel, head))),
                Err(error) => away = Some(error),
            }
        }
        for heads in heads.chunks(Self::BUCKETS_AT_ONCE) {
            for (channel, left) in part(&self.node, self.node.store.left_before(heads, Self::AT_ONCE)).await?
            {
                crash::point("bringing_back");
                let fill = self.node.bucket.fill(&channel, &left, End::Front, self.wake_ups.capacity());
                let added = match part(&self.node, fill).await {
                    Ok(added) => added,
                    // Each further channel would wait a second for the same server.
                    Err(error) if self.node.bucket.is_away_by(&error) => return Err(error.into()),
                    Err(error) => {
                        away = Some(error);
                        continue;
                    }
                };
                crash::point("brought_back");
                if added > 0 {
                    self.node.metrics.stranded(&channel, added);
                    tracing::info!(channel.name = %channel, refunds = added, "Put {added} stranded refunds of channel `{channel}` back into its bucket");
                }
                total += added;
            }
        }
        match away {
            Some(error) => Err(error.into()),
            None => Ok(total),
        }
    }
}

/// Does one part of a round, as a pass of its own. Each statement may take half a minute, and a round has many. So
/// only a part that does not end counts as stuck.
async fn part<T>(node: &Node, work: impl Future<Output = T>) -> T {
    let _pass = node.progress.pass("recovery");
    work.await
}

#[cfg(test)]
mod tests;
