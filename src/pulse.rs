//! The node's pulse: it says once a second that it lives, and hears twice a second what holds
//! channels back.
//!
//! Both are hints. A node that is taken for dead still holds its leases; a channel's pause is obeyed by
//! the claim itself, whatever a node has heard.

use std::sync::atomic::Ordering;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use crate::limiter::{Limit, Placement};
use crate::lock::{Lock, SharedLock};
use crate::node::Node;
use crate::node::failing::Failing;
use crate::refund::ChannelName;
use crate::store::{Beat, ClockWitness, RedisTime, StoreError};
use crate::telemetry::chain;

/// The loop.
#[derive(Debug)]
pub struct Pulse {
    node: Node,
    channels: Arc<RwLock<Vec<ChannelName>>>,
    digest: Arc<RwLock<String>>,
    limits: Arc<RwLock<Vec<Arc<Limit>>>>,
    bucket: &'static str,
    /// The digest of the channels that the database was told of; empty until then.
    told: String,
    beats: u32,
    differing: Vec<String>,
    /// How many other nodes lived a beat ago.
    others: usize,
    /// A node beside which we cannot work, as we last said.
    alone: Option<String>,
}

impl Pulse {
    const PERIOD: Duration = Duration::from_millis(400);
    const BEAT: Duration = Duration::from_secs(1);
    /// How its channels stand is told at every so many beats: that is for people, and can be long.
    const TELLS: u32 = 5;
    /// The days of time zones are shared three days ahead, and again at every so many beats.
    const SHARES_DAYS: u32 = 1_800;

    pub fn new(
        node: Node,
        channels: Arc<RwLock<Vec<ChannelName>>>,
        digest: Arc<RwLock<String>>,
        limits: Arc<RwLock<Vec<Arc<Limit>>>>,
        bucket: &'static str,
    ) -> Self {
        Pulse {
            node,
            channels,
            digest,
            limits,
            bucket,
            told: String::new(),
            beats: 0,
            differing: Vec::new(),
            others: 0,
            alone: None,
        }
    }

    pub async fn run(mut self) {
        let mut failing = Failing::default();
        let mut beaten: Option<Instant> = None;
        loop {
            let pass = self.node.progress.pass("pulse");
            let mut done = self.hear().await;
            if done.is_ok() && beaten.is_none_or(|at| at.elapsed() >= Self::BEAT) {
                beaten = Some(Instant::now());
                done = self.beat().await;
            }
            drop(pass);
            if done.is_err() {
                // This node cannot tell who lives; it has to see the others beat again before it judges them.
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

    async fn hear(&self) -> Result<(), StoreError> {
        for (channel, percent) in self.node.held.update(&self.node.store.held().await?) {
            if let Some(percent) = percent {
                tracing::info!(
                    channel.name = channel,
                    percent,
                    "Channel `{channel}` goes at {percent} % of its rate, since the bank asked for slower"
                );
            } else {
                tracing::info!(channel.name = channel, "Channel `{channel}` is back at its full rate");
            }
        }
        Ok(())
    }

    /// Keeps this node's share of each limit that nodes count alone.
    async fn hold_shares(&self) -> Result<(), StoreError> {
        let limits = self.limits.read_locked().clone();
        for limit in limits {
            let Placement::LocalShare { nodes } = limit.placement else { continue };
            let share = self.node.store.hold_share(&limit.name, &self.node.name, nodes).await?;
            if let Some(own) = share.map(|share| limit.share(share)) {
                self.node.store.publish_rules(&self.node.name, [(&own.name, &own.rule)]).await?;
            }
            let mut shares = self.node.shares.locked();
            let old = match share {
                Some(share) => shares.insert(limit.name.clone(), share),
                None => shares.remove(&limit.name),
            };
            match share {
                Some(share) if old != Some(share) => tracing::info!(
                    limit.name = %limit.name, share,
                    "This node counts share {share} of {nodes} of limit `{}`", limit.name,
                ),
                None if old.is_some() => tracing::warn!(
                    limit.name = %limit.name,
                    "Other nodes count all {nodes} shares of limit `{}`; this one sends nothing under it", limit.name,
                ),
                _ => {}
            }
        }
        Ok(())
    }

    /// Compares Postgres's clock with this node's monotonic one, and with Redis's where this node has just started.
    async fn watch_clock(&self, leads: bool) -> Result<(), StoreError> {
        let node = &self.node;
        let is_new = node.store.clock_witness().is_some_and(ClockWitness::needs_redis);
        let notes = leads && self.beats.is_multiple_of(Self::TELLS);
        let redis = if is_new || notes { node.bucket.time().await.ok() } else { None };
        let redis = redis.map(|(us, at)| RedisTime { us, at });
        let Some(step) = node.store.watch_clock(&node.name, redis, notes || is_new).await? else {
            return Ok(());
        };
        let by_ms = step.by_us / 1000;
        tracing::error!(
            by_ms,
            witness = step.witness,
            "Postgres's clock stepped by {by_ms} ms, or another server took over: periods that began before are measured without that step",
        );
        Ok(())
    }

    async fn beat(&mut self) -> Result<(), StoreError> {
        // The digest first: a reload sets it last, so names read after it are never older.
        let digest = self.digest.read_locked().clone();
        let channels = (self.told != digest).then(|| self.channels.read_locked().clone());
        let standing = self.beats.is_multiple_of(Self::TELLS).then(|| self.node.standing.told());
        self.beats = self.beats.wrapping_add(1);
        let beat = Beat {
            node: &self.node.name,
            channels: channels.as_deref(),
            config_digest: &digest,
            redis_is_away: self.node.bucket.trouble().is_some(),
            bucket: self.bucket,
            standing: standing.as_ref(),
        };
        let company = self.node.store.beat(&beat).await?;
        self.told = if company.is_known { digest } else { String::new() };
        let (watched, read) = tokio::join!(self.watch_clock(company.leads), self.node.bucket.watch_clocks());
        watched?;
        if let Err(error) = read {
            // Takes and the feeder say that Redis is away.
            tracing::debug!(error = %chain(&error), "Failed to read Redis's clock");
        }
        self.hold_shares().await?;
        if self.beats.is_multiple_of(Self::SHARES_DAYS) {
            let limits = self.limits.read_locked().clone();
            self.node.share_days(&limits).await?;
        }
        self.node.set_leads(company.leads);
        if company.alone != self.alone {
            if let Some(other) = &company.alone {
                tracing::error!(
                    other,
                    "Node {other} runs beside this one, and a bucket in memory cannot be shared: stop one of them; the ledger keeps the limits meanwhile"
                );
            }
            self.alone = company.alone;
        }
        // Whoever waits looks again when somebody went, and when files came to differ.
        let differs = !company.differing.is_empty();
        let began_to_differ = !self.node.differs.swap(differs, Ordering::Relaxed) && differs;
        if company.others < self.others || began_to_differ {
            self.node.departures.send_modify(|times| *times += 1);
        }
        self.others = company.others;
        if company.differing != self.differing {
            if company.differing.is_empty() {
                tracing::info!("All living nodes run the same channels and limits again");
            } else {
                tracing::warn!(
                    nodes = company.differing.join(", "),
                    "Other nodes run other channels or limits than this one: reload them all from one file"
                );
            }
            self.differing = company.differing;
        }
        Ok(())
    }
}
