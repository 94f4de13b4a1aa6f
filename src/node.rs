//! The node: what its loops share, such as its name, its leadership, suspended channels and the depths of buckets.
//!
//! It has values and signals only, no loop. The loops do not call each other; they work together through the rows.

pub mod breakers;
pub mod effective_limits;
mod late_answers;
mod late_bytes;
pub mod lead_time;
pub mod liveness;
pub mod meter;
mod own_shares;
mod probes;
pub mod progress;
pub mod reach;
mod reach_events;
pub mod restoring;
pub mod running;
pub mod saving;
pub mod slots;
pub mod status_report;
pub mod suspended;
pub mod suspending;
mod taken_references;
pub mod waits_of_banks;
mod zones;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::bucket::Bucket;
use crate::limiter::{Limit, Placement};
use crate::lock::Lock;
use crate::metrics::Metrics;
use crate::refund::{ChannelName, LimitName};
use crate::store::{ClockWitness, Store};
use crate::traces::Traces;
use breakers::Breakers;
use lead_time::LeadTimesOfSends;
use own_shares::OwnShares;
pub use own_shares::ShareLook;
use progress::Progress;
use reach_events::ReachEvents;
use running::Running;
use saving::Saving;
use slots::SlotsOfChannels;
use status_report::StatusReport;
use suspended::Suspensions;
use waits_of_banks::WaitsOfBanks;
use zones::FailingZones;

/// Shared by every loop of a node, and by every request. A clone counts a few references.
#[derive(Debug, Clone)]
pub struct Node {
    state: Arc<NodeState>,
    /// The store, as the loops or as requests of callers may use it.
    pub store: Store,
}

impl std::ops::Deref for Node {
    type Target = NodeState;

    fn deref(&self) -> &NodeState {
        &self.state
    }
}

impl From<NodeState> for Node {
    fn from(state: NodeState) -> Self {
        Node { store: state.store.clone(), state: Arc::new(state) }
    }
}

/// What a node's loops share.
#[derive(Debug)]
pub struct NodeState {
    /// The node's name, `#`, and a random number of this process.
    pub name: Arc<str>,
    /// With all of its connections, also where all nodes wait for what a caller's request does.
    store: Store,
    /// Restores of Redis that use [`NodeState::store`], one at a time.
    restores: Semaphore,
    pub bucket: Bucket,
    pub metrics: Arc<Metrics>,
    /// Spans for a collector; they go nowhere unless the daemon sets this.
    pub traces: Traces,
    pub suspensions: Suspensions,
    pub breakers: Breakers,
    pub waits_of_banks: WaitsOfBanks,
    /// What the events say of the banks that this node cannot reach.
    reach_events: ReachEvents,
    pub slots: SlotsOfChannels,
    pub lead_times_of_sends: LeadTimesOfSends,
    pub progress: Progress,
    pub status_report: StatusReport,
    pub saving: Saving,
    running: watch::Sender<Arc<Running>>,
    /// When Postgres last took this node's liveness row.
    heartbeat_at: Mutex<Option<Instant>>,
    pub shares: OwnShares,
    /// Limits of which Redis may count permits that other services asked for and did not get.
    pub wasted: Mutex<HashSet<LimitName>>,
    /// Whether the ledger refused the last permits for another service because the clocks of Redis and Postgres are apart.
    pub clocks_apart: AtomicBool,
    /// Time zones that this machine's database does not have any more.
    unreadable_zones: FailingZones,
    /// Time zones of which no day is published for the time that their limits' clock shows.
    zones_without_day: FailingZones,
    /// Cancelled when the node stops: loops then take no more work.
    pub stop: CancellationToken,
    /// What the node waits for when it stops: calls to banks, and what follows from them.
    pub calls: TaskTracker,
    /// The sends and inquiries among [`NodeState::calls`].
    pub requests: TaskTracker,
    /// Since when this node is the leading node; `None` while another node is.
    leads_since: Mutex<Option<Instant>>,
    /// Whether another living node runs other channels or limits than this one.
    pub differs: AtomicBool,
    /// Whether Postgres showed that it lost what this node published, as after a failover. The publisher then publishes it again.
    pub publication_lost: AtomicBool,
    /// Grows when another node has left or files began to differ. Loops that wait for a limit then ask again.
    pub departures: watch::Sender<u64>,
    /// How many claims this process has made.
    claims: AtomicU64,
    /// How many ids each bucket had when last seen, and when that was.
    depths: Mutex<HashMap<ChannelName, (u64, Instant)>>,
}

impl NodeState {
    /// A node called `name` that does not lead yet, whose spans go nowhere.
    pub fn new(name: &str, store: Store, bucket: Bucket, metrics: Arc<Metrics>) -> Self {
        let process = format!("{name}#{:08x}", fastrand::u32(..));
        NodeState {
            name: process.into(),
            store: store.witnessed_by(ClockWitness::default()),
            restores: Semaphore::new(1),
            bucket,
            metrics,
            traces: Traces::default(),
            suspensions: Suspensions::default(),
            breakers: Breakers::default(),
            waits_of_banks: WaitsOfBanks::default(),
            reach_events: ReachEvents::default(),
            slots: SlotsOfChannels::default(),
            lead_times_of_sends: LeadTimesOfSends::default(),
            progress: Progress::default(),
            status_report: StatusReport::default(),
            saving: Saving::default(),
            running: watch::Sender::default(),
            heartbeat_at: Mutex::default(),
            shares: OwnShares::default(),
            wasted: Mutex::default(),
            clocks_apart: AtomicBool::default(),
            unreadable_zones: FailingZones::default(),
            zones_without_day: FailingZones::default(),
            stop: CancellationToken::new(),
            calls: TaskTracker::new(),
            requests: TaskTracker::new(),
            leads_since: Mutex::default(),
            differs: AtomicBool::default(),
            publication_lost: AtomicBool::default(),
            departures: watch::Sender::new(0),
            claims: AtomicU64::default(),
            depths: Mutex::default(),
        }
    }
}

impl Node {
    /// How many times a caller asks Redis for permits when Redis must be restored from the ledger first.
    pub const TRIES: u32 = 20;

    /// A node called `name` that does not lead yet.
    pub fn new(name: &str, store: Store, bucket: Bucket, metrics: Arc<Metrics>) -> Self {
        NodeState::new(name, store, bucket, metrics).into()
    }

    /// The same node, for requests of callers. All requests together use a part of its connections to Postgres.
    #[must_use]
    pub fn for_callers(&self) -> Self {
        Node { store: self.store.for_callers(), ..self.clone() }
    }

    /// A new name for the leases of one claim; no other claim gets it.
    pub fn next_holder(&self) -> String {
        format!("{}/{}", self.name, self.claims.fetch_add(1, Ordering::Relaxed))
    }

    /// A limit as this node counts it: the limit itself, or this node's share of it. `None` while this node has no
    /// share.
    pub fn counted(&self, limit: &Arc<Limit>) -> Option<Arc<Limit>> {
        if limit.placement == Placement::Shared {
            return Some(Arc::clone(limit));
        }
        self.shares.number(limit).map(|share| limit.share(share))
    }

    /// Notes that Postgres took this node's liveness row.
    pub fn note_heartbeat(&self) {
        *self.heartbeat_at.locked() = Some(Instant::now());
    }

    /// Whether this node has joined the others: Postgres and its schema are fit, and its first liveness row is written.
    pub fn has_joined(&self) -> bool {
        self.heartbeat_at.locked().is_some()
    }

    /// Whether Postgres took this node's liveness row lately. A heartbeat comes every second.
    pub fn writes_to_postgres(&self) -> bool {
        self.heartbeat_at.locked().is_some_and(|at| at.elapsed() < liveness::NO_WRITES_AFTER)
    }

    /// The channels and limits that this node runs now.
    pub fn running(&self) -> Arc<Running> {
        Arc::clone(&self.running.borrow())
    }

    /// Replaces the channels and limits that this node runs.
    pub fn set_running(&self, running: Running) {
        self.running.send_replace(Arc::new(running));
    }

    /// Whether this node is the leading node.
    pub fn leads(&self) -> bool {
        self.leads_for().is_some()
    }

    /// For how long this node has led without a failed or late heartbeat; `None` while it does not lead.
    pub fn leads_for(&self) -> Option<Duration> {
        self.leads_since.locked().map(|since| since.elapsed())
    }

    /// Counts anew for how long this node has led.
    pub fn restart_leading(&self) {
        if let Some(since) = self.leads_since.locked().as_mut() {
            *since = Instant::now();
        }
    }

    /// The depths of the buckets as this node last saw them; for people.
    pub fn depths(&self) -> HashMap<ChannelName, u64> {
        let depths = self.depths.locked();
        depths.iter().map(|(channel, (depth, _))| (channel.clone(), *depth)).collect()
    }

    /// The depth of a channel's bucket, if this node saw it within `age`.
    pub fn depth_seen_within(&self, channel: &ChannelName, age: Duration) -> Option<u64> {
        let depths = self.depths.locked();
        depths.get(channel).filter(|(_, at)| at.elapsed() <= age).map(|(depth, _)| *depth)
    }

    /// Notes the depth of a channel's bucket.
    pub fn note_depth(&self, channel: &ChannelName, depth: u64) {
        let mut depths = self.depths.locked();
        match depths.get_mut(channel) {
            Some(seen) => *seen = (depth, Instant::now()),
            None => drop(depths.insert(channel.clone(), (depth, Instant::now()))),
        }
    }

    /// Forgets what this node counted and saw of a channel that it runs no more. What still ends of it later, such as a request in
    /// flight, is counted and seen anew.
    pub fn forget(&self, channel: &ChannelName) {
        self.metrics.forget(channel);
        self.status_report.forget(channel);
        self.depths.locked().remove(channel);
    }

    /// Notes whether this node is the leading node, and logs when it begins to lead.
    pub fn set_leads(&self, leads: bool) {
        let mut since = self.leads_since.locked();
        if !leads {
            *since = None;
        } else if since.is_none() {
            *since = Some(Instant::now());
            tracing::info!(node = %self.name, "Node {} is now the leading node: it looks for due refunds for all nodes", self.name);
        }
    }
}

/// A random wait from 75 to 125 % of `period`, so that nodes do not all act at the same moment.
pub fn jittered(period: Duration) -> Duration {
    period.mul_f64(0.75 + fastrand::f64() * 0.5)
}
