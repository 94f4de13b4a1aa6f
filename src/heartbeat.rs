//! The heartbeat: writes this node's liveness row every second, and reads the suspended channels every 400 ms.
//!
//! Both are hints, and no promise depends on them. A node that others take for dead keeps its leases. The claim
//! checks for itself in Postgres whether a channel is suspended.
//!
//! It also reserves this node's shares of limits, once a second. That is no hint: a node uses no share that it could not
//! reserve again within five seconds.

mod days;
mod lateness;
mod peers;
mod shares;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::bucket::BucketKind;
use crate::failing::Failing;
use crate::logs::chain;
use crate::node::Node;
use crate::node::meter::Binds;
use crate::node::running::Running;
use crate::refund::{ChannelName, LimitName};
use crate::store::{ClockWitness, Liveness, NodeReport, Peers, RedisTime, ReservedShare, StoreError};
use days::DaysDue;
use lateness::{Certainty, Lateness};
use peers::KnownPeers;

/// The heartbeat loop.
#[derive(Debug)]
pub struct Heartbeat {
    node: Node,
    bucket: BucketKind,
    /// The configuration of which Postgres has the channels and the settings; `None` if it has those of none.
    written: Option<Arc<Running>>,
    heartbeats: u32,
    peers: KnownPeers,
    lateness: Lateness,
    /// The limits of which this node has no share, and why, as last logged.
    without_share: HashMap<LimitName, ReservedShare>,
    /// Whether another transaction holds a lock on shares that this node asked for.
    locked_shares: Failing,
    /// The place among the limits with local shares at which the next heartbeat begins.
    shares_from: usize,
    days: DaysDue,
    /// Whether the days of time zones could not be published.
    failing_days: Failing,
    /// The channels that something binds, as last reported.
    bound: HashSet<ChannelName>,
    /// Whether a report came before its time since the last regular one.
    has_reported_early: bool,
}

/// A status report that is due.
struct DueReport {
    report: NodeReport,
    /// The channels that something binds.
    bound: HashSet<ChannelName>,
    is_regular: bool,
}

impl Heartbeat {
    /// How often to read the suspensions.
    const PERIOD: Duration = Duration::from_millis(400);
    /// How often, at most, to write the liveness row.
    const WRITE_EVERY: Duration = Duration::from_secs(1);
    /// Every fifth heartbeat carries the status report, which can be long. So does one heartbeat between two of these,
    /// after something began or ceased to bind a channel.
    const REPORT_EVERY: u32 = 5;

    pub fn new(node: Node, bucket: BucketKind) -> Self {
        Heartbeat {
            node,
            bucket,
            written: None,
            heartbeats: 0,
            peers: KnownPeers::default(),
            lateness: Lateness::default(),
            without_share: HashMap::new(),
            locked_shares: Failing::default(),
            shares_from: 0,
            // A configuration's days are published before it is in force.
            days: DaysDue::after_success(Instant::now()),
            failing_days: Failing::default(),
            bound: HashSet::new(),
            has_reported_early: false,
        }
    }

    pub async fn run(mut self) {
        let mut failing = Failing::default();
        let mut last_try: Option<Instant> = None;
        loop {
            let pass = self.node.progress.pass("heartbeat");
            let mut done = self.read_suspensions().await;
            if done.is_ok() && last_try.is_none_or(|at| at.elapsed() >= Self::WRITE_EVERY) {
                last_try = Some(Instant::now());
                done = self.write_liveness().await;
            }
            drop(pass);
            if done.is_err() {
                // Without Postgres this node cannot know which nodes live. It must see the heartbeats of the others
                // again before it takes one for dead.
                self.node.set_leads(false);
            }
            failing.note(
                &done,
                |error| {
                    tracing::warn!(
                        error = %chain(error),
                        "Postgres does not answer; nothing is claimed until it does"
                    );
                },
                || tracing::info!("Postgres answers again"),
            );
            tokio::select! {
                () = self.node.stop.cancelled() => return,
                () = tokio::time::sleep(Self::PERIOD) => {}
            }
        }
    }

    /// Reads which channels are suspended or slowed, and logs each change of a rate.
    async fn read_suspensions(&self) -> Result<(), StoreError> {
        for (channel, percent) in self.node.read_suspensions().await? {
            if let Some(percent) = percent {
                tracing::info!(
                    channel.name = channel,
                    percent,
                    "Channel `{channel}` uses {percent} % of its rate, because the bank asked for fewer requests"
                );
            } else {
                tracing::info!(channel.name = channel, "Channel `{channel}` is back at its full rate");
            }
        }
        Ok(())
    }

    /// Compares Postgres's clock with this node's monotonic clock. A node that just started compares it with
    /// Redis's clock too.
    async fn watch_clock(&self, leads: bool) -> Result<(), StoreError> {
        let node = &self.node;
        let is_new = node.store.clock_witness().is_some_and(ClockWitness::needs_redis);
        let notes = leads && self.heartbeats.is_multiple_of(Self::REPORT_EVERY);
        let redis = if is_new || notes { node.bucket.time().await.ok() } else { None };
        let redis = redis.map(|(us, at)| RedisTime { us, at });
        let Some(step) = node.store.watch_clock(&node.name, redis, notes || is_new).await? else {
            return Ok(());
        };
        let by_ms = step.by_us / 1000;
        tracing::error!(
            by_ms,
            witness = step.witness,
            "Postgres's clock stepped by {by_ms} ms, or another server took over; leases, deadlines and graces that began before leave the step out",
        );
        Ok(())
    }

    /// Writes the liveness row, learns which other nodes live, and does the work that goes with each heartbeat.
    async fn write_liveness(&mut self) -> Result<(), StoreError> {
        let running = self.node.running();
        let peers = self.write_row(&running).await?;
        self.node.note_heartbeat();
        let Certainty { is_sure, restarts_lead } = self.lateness.note(Instant::now());
        if restarts_lead {
            self.node.restart_leading();
        }
        let (watched, read) = tokio::join!(self.watch_clock(peers.leads), self.node.bucket.watch_clocks());
        watched?;
        if let Err(error) = read {
            // The channel workers and the feeder warn when Redis is away.
            tracing::debug!(error = %chain(&error), "Failed to read Redis's clock");
        }
        self.node.set_leads(peers.leads);
        self.renew_shares().await?;
        self.publish_days_if_due(&running).await;
        if is_sure {
            self.compare_with(peers, &running);
        }
        Ok(())
    }

    /// Publishes the days of time zones, if that is due. A failure costs no heartbeat: the days that are published reach
    /// three days ahead.
    async fn publish_days_if_due(&mut self, running: &Running) {
        if !self.days.are_due(Instant::now()) {
            return;
        }
        let shared = self.node.publish_days(&running.limits).await;
        self.days.note(shared.is_ok(), Instant::now());
        self.failing_days.note(
            &shared,
            |error| {
                tracing::warn!(
                    error = %chain(error),
                    "Failed to publish the days of time zones in Postgres; this node tries again every 10 s. Limits with \
                     `time_zone` stop when the published days end"
                );
            },
            || tracing::info!("The days of time zones are published again"),
        );
    }

    /// Writes the liveness row, with what changed since Postgres took it last. Answers the other living nodes.
    async fn write_row(&mut self, running: &Arc<Running>) -> Result<Peers, StoreError> {
        let is_written = self.written.as_ref().is_some_and(|written| Arc::ptr_eq(written, running));
        let channels: Option<Vec<ChannelName>> = (!is_written).then(|| running.names().cloned().collect());
        let redis_trouble = self.node.bucket.trouble();
        let due = self.report_if_due(redis_trouble.as_deref());
        self.heartbeats = self.heartbeats.wrapping_add(1);
        let liveness = Liveness {
            node: &self.node.name,
            channels: channels.as_deref(),
            config_digest: &running.digest,
            redis_is_away: redis_trouble.is_some(),
            bucket: self.bucket,
            status_report: due.as_ref().map(|due| &due.report),
            settings: (!is_written).then_some(&running.settings),
        };
        let peers = self.node.store.heartbeat(&liveness).await?;
        if let Some(DueReport { bound, is_regular, .. }) = due {
            (self.bound, self.has_reported_early) = (bound, !is_regular);
        }
        self.written = peers.is_known.then(|| Arc::clone(running));
        if !peers.is_known {
            // The row went back, or it is gone. The same failover may have lost what this node published before.
            self.node.publication_lost.store(true, Ordering::Relaxed);
        }
        Ok(peers)
    }

    /// The status report, if this heartbeat carries one.
    fn report_if_due(&self, redis_trouble: Option<&str>) -> Option<DueReport> {
        let bound = self.node.status_report.bound().into_iter().filter(|(_, binds)| *binds != Binds::Nothing);
        let bound: HashSet<ChannelName> = bound.map(|(channel, _)| channel).collect();
        let is_regular = self.heartbeats.is_multiple_of(Self::REPORT_EVERY);
        // With many channels something changes all the time, so only one such report comes between two regular ones.
        let is_early = bound != self.bound && !self.has_reported_early;
        (is_regular || is_early).then(|| {
            let report = self.node.status_report.report(redis_trouble);
            DueReport { report, bound, is_regular }
        })
    }
}
