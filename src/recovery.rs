//! Brings back what was left behind: due rows that stand in no line, leases that lapsed, refunds that
//! only a person can judge, deadlines that passed.
//!
//! The leading node does this on behalf of all, every few seconds. Every pass is harmless when done
//! twice. A lapsed lease becomes `unknown` and never `ready`: the request may have been made.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use crate::bucket::{End, Errand};
use crate::channel::Channel;
use crate::crash;
use crate::lock::{Lock, SharedLock};
use crate::node::failing::Failing;
use crate::node::reminding::ServerError;
use crate::node::{Node, jittered};
use crate::refund::{ChannelName, RefundId};
use crate::store::{Forecast, Turned};
use crate::telemetry::chain;
use crate::wake_up::WakeUps;

/// The loop.
#[derive(Debug)]
pub struct Recovery {
    node: Node,
    wake_ups: WakeUps,
    channels: Arc<RwLock<Vec<Arc<Channel>>>>,
    keep: Keep,
    /// Backlogs are not watched again before then.
    watch_at: Mutex<Instant>,
    /// Nor is it looked for refunds whose time to be asked about is over.
    overdue_at: Mutex<Instant>,
    /// Nor is the journal turned to its next month.
    turn_at: Mutex<Instant>,
}

/// How long evidence is kept.
#[derive(Debug, Clone, Copy)]
pub struct Keep {
    pub permits: Duration,
    /// `None` is for ever.
    pub attempts: Option<Duration>,
}

/// What one pass brought back.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub lapsed: usize,
    pub shown: usize,
    pub expired: usize,
    pub stranded: u64,
}

impl Recovery {
    const PERIOD: Duration = Duration::from_secs(3);
    /// Rows handled by one statement, so that none holds locks for long.
    const AT_ONCE: u32 = 500;
    /// Lines whose heads one statement looks before.
    const LINES: usize = 500;
    const BACKLOGS_AT_LEAST_EVERY: Duration = Duration::from_mins(1);
    const OVERDUE_AT_LEAST_EVERY: Duration = Duration::from_mins(1);
    /// After an outage of Postgres every node looks dead. The leader waits for so long, in which each living
    /// node has beaten several times, before it forgets nodes and retires channels.
    const JUDGES_AFTER: Duration = Duration::from_secs(10);
    const HOUSEKEEPING: Duration = Duration::from_secs(20);
    /// Looking whether a month holds evidence of an open refund may read the index of a long backlog.
    const TURNING: Duration = Duration::from_hours(1);
    /// Until it is tried again where somebody stood in the way.
    const TURNING_AGAIN: Duration = Duration::from_mins(1);
    /// What is kept of the journal beyond the ledger, whose tables go by whole days.
    const SPARE: Duration = Duration::from_hours(2 * 24);

    pub fn new(node: Node, wake_ups: WakeUps, channels: Arc<RwLock<Vec<Arc<Channel>>>>, keep: Keep) -> Self {
        let now = || Mutex::new(Instant::now());
        Recovery { node, wake_ups, channels, keep, watch_at: now(), overdue_at: now(), turn_at: now() }
    }

    pub async fn run(self) {
        let mut failing = Failing::default();
        let mut kept_house = Instant::now();
        while !self.node.stop.is_cancelled() {
            if self.node.leads() {
                let pass = self.node.progress.pass("recovery");
                let mut done = self.pass().await;
                if done.is_ok() && kept_house.elapsed() >= Self::HOUSEKEEPING {
                    kept_house = Instant::now();
                    let led_for = self.node.leads_for().unwrap_or_default();
                    let kept = async {
                        self.look_ahead().await?;
                        self.keep_house(led_for).await
                    };
                    if let Err(error) = kept.await {
                        done = Err(error);
                    }
                }
                drop(pass);
                failing.note(
                    &done,
                    |error| tracing::warn!(error = %chain(error), "Recovery failed, will try again"),
                    || tracing::info!("Recovery works again"),
                );
            }
            tokio::select! {
                () = self.node.stop.cancelled() => return,
                () = tokio::time::sleep(jittered(Self::PERIOD)) => {}
            }
        }
    }

    /// One round.
    pub async fn pass(&self) -> Result<Report, ServerError> {
        let mut report = Report::default();
        let store = &self.node.store;
        // Rows first: they need no Redis.
        loop {
            crash::point("lapsing");
            let lapsed = store.lapse_leases(Self::AT_ONCE).await?;
            if !lapsed.is_empty() {
                crash::point("lapsed");
            }
            for refund in &lapsed {
                tracing::warn!(
                    refund.id = %refund.id, channel.name = refund.channel, node = refund.node,
                    "The lease of refund {} on node {} lapsed; it may have been sent and is unknown now", refund.id, refund.node,
                );
            }
            report.lapsed += lapsed.len();
            if lapsed.len() < Self::AT_ONCE as usize {
                break;
            }
        }
        loop {
            let expired = store.fail_past_deadline(Self::AT_ONCE).await?;
            for (id, channel) in &expired {
                tracing::warn!(refund.id = %id, channel.name = channel, "Refund {id} could not be sent by its deadline and failed");
            }
            self.withdraw(&expired).await;
            report.expired += expired.len();
            if expired.len() < Self::AT_ONCE as usize {
                break;
            }
        }
        let (planned, dropped) = store.plan_inquiries(Self::AT_ONCE).await?;
        if planned + dropped > 0 {
            tracing::info!(
                planned,
                dropped,
                "Planned to ask banks about {planned} more refunds; {dropped} are not asked about any more"
            );
        }
        let mut shown = store.show_unknown(Self::AT_ONCE).await?;
        shown.extend(store.show_accepted(Self::AT_ONCE).await?);
        shown.extend(self.show_overdue().await?);
        for (id, channel) in shown {
            report.shown += 1;
            tracing::warn!(refund.id = %id, channel.name = channel, "Refund {id} waits for a person: see `refundd review`");
        }
        report.stranded = self.bring_back_stranded().await?;
        self.watch_backlogs().await?;
        Ok(report)
    }

    /// Takes refunds that ended out of their lines, so that nobody takes them in vain. Best effort.
    async fn withdraw(&self, ended: &[(RefundId, String)]) {
        let mut of: BTreeMap<&str, Vec<RefundId>> = BTreeMap::new();
        for (id, channel) in ended {
            of.entry(channel).or_default().push(*id);
        }
        for (channel, ids) in of {
            let Ok(channel) = ChannelName::new(channel) else { continue };
            if let Err(error) = self.node.bucket.withdraw(&channel, &ids).await {
                tracing::debug!(channel.name = %channel, error = %chain(&error), "Failed to take refunds that ended out of the line of channel `{channel}`");
                return;
            }
        }
    }

    /// Reading what a long outage left due takes a while: never more than a tenth of the time.
    async fn show_overdue(&self) -> Result<Vec<(RefundId, String)>, ServerError> {
        let began = Instant::now();
        if began < *self.overdue_at.locked() {
            return Ok(Vec::new());
        }
        let shown = self.node.store.show_overdue(Self::AT_ONCE).await?;
        let rest = (began.elapsed() * 10).min(Self::OVERDUE_AT_LEAST_EVERY);
        *self.overdue_at.locked() = Instant::now() + rest;
        Ok(shown)
    }

    /// Counting up to a bound of millions takes a while: never more than a tenth of the time.
    async fn watch_backlogs(&self) -> Result<(), ServerError> {
        let began = Instant::now();
        if began < *self.watch_at.locked() {
            return Ok(());
        }
        for (channel, full) in self.node.store.watch_backlogs().await? {
            if full {
                tracing::warn!(
                    channel.name = channel,
                    "The backlog of channel `{channel}` is full; more refunds are refused"
                );
            } else {
                tracing::info!(channel.name = channel, "The backlog of channel `{channel}` has room again");
            }
        }
        let rest = (began.elapsed() * 10).min(Self::BACKLOGS_AT_LEAST_EVERY);
        *self.watch_at.locked() = Instant::now() + rest;
        Ok(())
    }

    /// Puts due rows that should stand before the head of their line, and do not, in front of it.
    /// The due poller and the feeder look after empty and low lines.
    async fn bring_back_stranded(&self) -> Result<u64, ServerError> {
        let due = self.node.store.channels_with_due().await?;
        let due: Vec<ChannelName> = due.iter().filter_map(|name| ChannelName::new(name).ok()).collect();
        let lines = self.node.bucket.survey(Errand::Send, &due).await;
        let (mut total, mut away) = (0, None);
        let mut heads = Vec::with_capacity(due.len());
        for (channel, line) in due.iter().zip(lines) {
            match line {
                Ok(line) => heads.extend(line.head.map(|head| (channel, head))),
                Err(error) => away = Some(error),
            }
        }
        for heads in heads.chunks(Self::LINES) {
            for (channel, left) in self.node.store.left_before(heads, Self::AT_ONCE).await? {
                crash::point("bringing_back");
                let filled =
                    self.node.bucket.fill(&channel, &left, End::Front, self.wake_ups.capacity()).await;
                let added = match filled {
                    Ok(added) => added,
                    Err(error) => {
                        away = Some(error);
                        continue;
                    }
                };
                crash::point("brought_back");
                if added > 0 {
                    self.node.metrics.stranded(&channel, added);
                    tracing::info!(channel.name = %channel, refunds = added, "Put {added} refunds of channel `{channel}` back in line");
                }
                total += added;
            }
        }
        match away {
            Some(error) => Err(error.into()),
            None => Ok(total),
        }
    }

    /// Warns of refunds that will not be sent by their deadlines, while something can still be done.
    async fn look_ahead(&self) -> Result<(), ServerError> {
        let channels = self.channels.read_locked().clone();
        let rates: Vec<(&str, f64)> = channels
            .iter()
            .filter_map(|c| {
                Some((c.name.as_str(), c.limits.iter().map(|l| l.rule.per_second()).min_by(f64::total_cmp)?))
            })
            .collect();
        for Forecast { channel, late, from, .. } in self.node.store.forecast(&rates).await? {
            if let Some(from) = from {
                tracing::warn!(
                    channel.name = channel,
                    refunds = late,
                    "At its rate channel `{channel}` will be too late for {late} refunds, the first at {from:.0}; raise its limits, or cancel refunds before them",
                );
            } else {
                tracing::info!(
                    channel.name = channel,
                    "Channel `{channel}` will be in time for every deadline again"
                );
            }
        }
        Ok(())
    }

    /// What is only about tidiness. `led_for` says how long this node has led without a failed heartbeat.
    pub async fn keep_house(&self, led_for: Duration) -> Result<(), ServerError> {
        let store = &self.node.store;
        store.warm().await?;
        if led_for >= Self::JUDGES_AFTER {
            store.bury_nodes().await?;
            for channel in store.retire_channels().await? {
                tracing::info!(
                    channel.name = channel,
                    "No node runs channel `{channel}` any more; new refunds for it are refused"
                );
            }
        }
        // A window that still runs is never forgotten, however long a reload has made it.
        let longest = {
            let channels = self.channels.read_locked();
            let asking = |c: &Channel| c.inquiry.as_ref().and_then(|i| i.limits.clone()).unwrap_or_default();
            let all = channels.iter().flat_map(|c| c.limits.iter().cloned().chain(asking(c)));
            all.map(|limit| limit.rule.memory()).max().unwrap_or_default()
        };
        // Other nodes may have limits that this file does not, or with longer windows.
        let keep = store.permits_are_kept_for(self.keep.permits.max(longest * 2)).await?;
        let dropped = store.turn_permits(keep).await?;
        if dropped > 0 {
            tracing::info!(days = dropped, "Forgot {dropped} days of the ledger of permits");
        }
        // A permit is never kept for longer than what became of it.
        self.turn_journal(self.keep.attempts.map(|attempts| attempts.max(keep + Self::SPARE))).await?;
        // Last, for it is what takes longest where much has ended.
        Ok(store.count_ended().await?)
    }

    async fn turn_journal(&self, keep: Option<Duration>) -> Result<(), ServerError> {
        let now = Instant::now();
        if now < *self.turn_at.locked() {
            return Ok(());
        }
        let turn_at = |at| *self.turn_at.locked() = at;
        turn_at(now + Self::TURNING_AGAIN);
        let mut turned = self.node.store.turn_attempts(None).await?;
        // The months to come are there before those that are over are looked at, which may take long.
        if keep.is_some() {
            let made = turned.done;
            turned = self.node.store.turn_attempts(keep).await?;
            turned.done &= made;
        }
        let Turned { done, dropped, held } = turned;
        if done {
            turn_at(now + Self::TURNING);
        }
        if dropped > 0 {
            tracing::info!(months = dropped, "Forgot {dropped} months of the journal of attempts");
        }
        if let Some((month, refund)) = held {
            tracing::info!(
                refund.id = %refund,
                "The journal up to {month} is old enough to be forgotten and stays: refund {refund} did not end",
            );
        }
        Ok(())
    }
}
