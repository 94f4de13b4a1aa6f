//! What the loops of one node share: who it is, how far it looks, and what holds channels back.
//!
//! Values and signals only; the loops themselves never know each other, they meet in the row.

pub mod failing;
pub mod held;
pub mod holding;
pub mod in_force;
pub mod progress;
pub mod reach;
pub mod reminding;
pub mod standing;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::bucket::Bucket;
use crate::limiter::{Limit, Placement};
use crate::lock::Lock;
use crate::metrics::Metrics;
use crate::refund::{ChannelName, LimitName};
use crate::store::{ClockWitness, Store};
use held::HeldBack;
use progress::Progress;
use standing::Standing;

/// Shared by every loop of a node. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Node {
    /// The node's name and, after `#`, this very process.
    pub name: Arc<str>,
    pub store: Store,
    pub bucket: Bucket,
    pub metrics: Arc<Metrics>,
    pub held: HeldBack,
    pub progress: Progress,
    pub standing: Standing,
    /// The shares of limits that this node counts alone.
    pub shares: Arc<Mutex<HashMap<LimitName, u32>>>,
    /// Take no more.
    pub stop: CancellationToken,
    /// Calls to banks that are under way, which stopping waits for.
    pub calls: TaskTracker,
    /// Since when this node looks out for newly due refunds on behalf of all; `None` while another node does.
    leads_since: Arc<Mutex<Option<Instant>>>,
    /// Whether another living node runs another file.
    pub differs: Arc<AtomicBool>,
    /// How often another node was found gone: those who wait for a turn behind it ask again.
    pub departures: Arc<watch::Sender<u64>>,
    /// Claims made by this process.
    claims: Arc<AtomicU64>,
    /// How many ids stood in each line, and when that was seen.
    depths: Arc<Mutex<HashMap<ChannelName, (u64, Instant)>>>,
}

impl Node {
    /// How often one asks again when Redis has to be told something first.
    pub const TRIES: u32 = 20;

    pub fn new(name: &str, store: Store, bucket: Bucket, metrics: Arc<Metrics>) -> Self {
        let process = format!("{name}#{:08x}", fastrand::u32(..));
        Node {
            name: process.into(),
            store: store.witnessed_by(ClockWitness::default()),
            bucket,
            metrics,
            held: HeldBack::default(),
            progress: Progress::default(),
            standing: Standing::default(),
            shares: Arc::default(),
            stop: CancellationToken::new(),
            calls: TaskTracker::new(),
            leads_since: Arc::default(),
            differs: Arc::default(),
            departures: Arc::new(watch::Sender::new(0)),
            claims: Arc::default(),
            depths: Arc::default(),
        }
    }

    /// A name for the leases of one claim, never used again.
    pub fn next_holder(&self) -> String {
        format!("{}/{}", self.name, self.claims.fetch_add(1, Ordering::Relaxed))
    }

    /// A limit as this node counts it: as it is, or this node's share of it, if it has one.
    pub fn counted(&self, limit: &Arc<Limit>) -> Option<Arc<Limit>> {
        if limit.placement == Placement::Shared {
            return Some(Arc::clone(limit));
        }
        let shares = self.shares.locked();
        shares.get(&limit.name).map(|share| limit.share(*share))
    }

    pub fn leads(&self) -> bool {
        self.leads_for().is_some()
    }

    /// For how long this node has led without a failed heartbeat; `None` while it does not lead.
    pub fn leads_for(&self) -> Option<Duration> {
        self.leads_since.locked().map(|since| since.elapsed())
    }

    /// The depths of this node's lines when last seen; for people.
    pub fn depths(&self) -> HashMap<ChannelName, u64> {
        let depths = self.depths.locked();
        depths.iter().map(|(channel, (depth, _))| (channel.clone(), *depth)).collect()
    }

    /// A line's depth, if it was seen within `age`.
    pub fn depth_seen_within(&self, channel: &ChannelName, age: Duration) -> Option<u64> {
        let depths = self.depths.locked();
        depths.get(channel).filter(|(_, at)| at.elapsed() <= age).map(|(depth, _)| *depth)
    }

    pub fn note_depth(&self, channel: &ChannelName, depth: u64) {
        let mut depths = self.depths.locked();
        match depths.get_mut(channel) {
            Some(seen) => *seen = (depth, Instant::now()),
            None => drop(depths.insert(channel.clone(), (depth, Instant::now()))),
        }
    }

    pub fn set_leads(&self, leads: bool) {
        let mut since = self.leads_since.locked();
        if !leads {
            *since = None;
        } else if since.is_none() {
            *since = Some(Instant::now());
            tracing::info!(node = %self.name, "Node {} now looks out for due refunds on behalf of all", self.name);
        }
    }
}

/// A wait of about `period`, so that nodes do not march in step.
pub fn jittered(period: Duration) -> Duration {
    period.mul_f64(0.75 + fastrand::f64() * 0.5)
}
