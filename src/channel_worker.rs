//! Takes refunds or inquiries from one channel's bucket, claims them, and makes each request under its permit.
//!
//! Each node runs one worker for sends per channel, and one worker for inquiries if the channel has an inquiry. Both
//! use this loop; [`Work`] names the differences. A worker has slots and open connections before it takes, so it can
//! send everything that it takes. It commits the claim in Postgres before the first byte leaves. It asks Redis again
//! only when there may be ids and permits.
//!
//! While the bank cannot be reached, a worker takes nothing and spends no permit. The ids stay in the bucket for a
//! node that can reach the bank. See docs/decisions/0011-a-permit-needs-an-open-connection.md.
//!
//! After the commit of a claim a refund *may have been sent*. A request is handed back only if it provably did not
//! leave, because the permit lapsed or the node stops. Every other request is settled.

mod attempt;
mod batch;
mod blocked;
mod claiming;
mod inquire;
mod lapses;
mod lead_time;
mod need;
mod send;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use crate::bank::{Bank, Pool, Reserved, Tokens, Want};
use crate::bucket::{BucketError, LimitWait, Purpose, StricterRule, Take};
use crate::channel::Channel;
use crate::node::effective_limits::EffectiveLimits;
use crate::node::reach::Reach;
use crate::node::{Node, jittered};
use crate::refund::RefundId;
use crate::store::{ClaimRequest, Claimed, Settled, Store, StoreError};
use crate::telemetry::chain;
use crate::wake_up::WakeUps;
use attempt::Attempt;
use blocked::{Blocked, Obstacle};
use claiming::Resources;
pub use inquire::Inquiries;
pub use send::Sends;

/// The differences between the worker for sends and the worker for inquiries.
pub trait Work: std::fmt::Debug + Send + Sync {
    /// A refund under a lease.
    type Leased: Send;
    const PURPOSE: Purpose;
    /// The most ids of one take.
    const MOST_AT_ONCE: u32;

    /// The expected time from asking for a permit to the first byte.
    fn lead_time(&self) -> Duration;

    /// Notes how long a claim took.
    fn note_claim(&self, node: &Node, took: Duration);

    /// The most permits that the worker can use at one time.
    fn most_permits(&self, channel: &Channel) -> u32;

    /// Asks the bucket for up to `want` ids, each under a permit.
    fn take(
        &mut self,
        node: &Node,
        wake_ups: &WakeUps,
        channel: &Channel,
        want: u32,
    ) -> impl Future<Output = Result<Take, BucketError>> + Send;

    /// Commits the claim of the taken ids. If some cannot be claimed, ids from `more` get their permits.
    fn claim(
        &self,
        store: &Store,
        claim: &ClaimRequest<'_>,
        more: &[RefundId],
    ) -> impl Future<Output = Result<Claimed<Self::Leased>, StoreError>> + Send;

    fn id(leased: &Self::Leased) -> RefundId;

    /// Makes the request in its own task, which is never cut off halfway.
    fn start(
        &self,
        attempt: Attempt,
        leased: Self::Leased,
        slot: Option<OwnedSemaphorePermit>,
        connection: Option<Reserved>,
    );
}

/// The loop for one channel on this node.
#[derive(Debug)]
pub struct ChannelWorker<W> {
    node: Node,
    wake_ups: WakeUps,
    /// The channel, with the limits that count for this work.
    channel: Arc<Channel>,
    bank: Arc<Bank>,
    connections: Pool,
    /// The tokens that the requests carry; `None` if they carry none.
    tokens: Option<Tokens>,
    slots: Arc<Semaphore>,
    /// Ends this worker: its channel is gone or changed, or the node stops.
    stop: CancellationToken,
    blocked: Blocked,
    reach: Reach,
    effective_limits: EffectiveLimits,
    work: W,
    /// How many ids the bucket had after the last take; `None` if it was filled since then.
    depth: Option<u64>,
    /// The last wait was long enough to open a connection.
    is_rare: bool,
    /// The last take failed because Redis had forgotten a limit.
    forgot: bool,
    /// The last claim met ids whose refunds can no longer be claimed; the next ids may be such ids too.
    met_unclaimable: bool,
    notices: RedisNotices,
}

/// What this worker must tell Redis before the next take. A notice stays set until Redis has received it.
#[derive(Debug, Default)]
struct RedisNotices {
    /// Granted permits were not used: long windows must be counted again from the ledger.
    wasted: bool,
    /// A node departed, and Redis may still reserve permits for it.
    departed: bool,
}

/// What a worker needs to make requests.
struct Means {
    connections: Pool,
    tokens: Option<Tokens>,
    /// The most requests in progress.
    slots: u32,
}

impl ChannelWorker<Sends> {
    /// The worker that sends a channel's refunds.
    pub fn sends(
        node: Node,
        wake_ups: WakeUps,
        channel: Arc<Channel>,
        bank: Arc<Bank>,
        outbox: mpsc::Sender<Settled>,
        stop: CancellationToken,
    ) -> Self {
        let (connections, tokens) = (bank.connections().clone(), bank.tokens().cloned());
        let means = Means { connections, tokens, slots: channel.max_in_flight };
        Self::new(node, wake_ups, channel, bank, means, Sends::new(outbox), stop)
    }
}

impl ChannelWorker<Inquiries> {
    /// The worker that asks a channel's bank; `None` for a channel without an inquiry.
    pub fn inquiries(
        node: Node,
        wake_ups: WakeUps,
        channel: Arc<Channel>,
        bank: Arc<Bank>,
        stop: CancellationToken,
    ) -> Option<Self> {
        let inquiry = Arc::clone(channel.inquiry.as_ref()?);
        let (connections, tokens) = (bank.inquiry_connections()?.clone(), bank.inquiry_tokens().cloned());
        let channel = match &inquiry.limits {
            None => channel,
            // When the bank asks to slow down, that slows the channel's limits and not the inquiry's own limits.
            Some(limits) => {
                Arc::new(Channel { limits: limits.clone(), adaptive: false, ..channel.as_ref().clone() })
            }
        };
        let means = Means { connections, tokens, slots: (channel.max_in_flight / 4).max(1) };
        Some(Self::new(node, wake_ups, channel, bank, means, Inquiries::new(inquiry), stop))
    }
}

impl<W: Work> ChannelWorker<W> {
    /// How long a free slot waits for other slots, while fewer than a quarter of them are free.
    const GATHERING: Duration = Duration::from_millis(2);
    /// The wait after a second restore in a row.
    const RESTORE_AGAIN: Duration = Duration::from_millis(50);
    /// The wait after a failed round, from its beginning: a server that did not answer has cost time already.
    const TRY_AGAIN: Duration = Duration::from_millis(500);
    /// The longest time that a connection is expected to be open before use, whatever `ahead` says.
    const MOST_AHEAD: Duration = Duration::from_millis(500);
    /// The shortest wait after the pool had no connection.
    const LEAST_REST: Duration = Duration::from_millis(5);

    fn new(
        node: Node,
        wake_ups: WakeUps,
        channel: Arc<Channel>,
        bank: Arc<Bank>,
        Means { connections, tokens, slots }: Means,
        work: W,
        stop: CancellationToken,
    ) -> Self {
        ChannelWorker {
            effective_limits: EffectiveLimits::new(node.clone(), Arc::clone(&channel)),
            reach: Reach::new(node.clone(), channel.name.clone(), W::PURPOSE),
            blocked: Blocked::new(node.clone(), channel.name.clone(), W::PURPOSE),
            node,
            wake_ups,
            channel,
            bank,
            connections,
            tokens,
            slots: Arc::new(Semaphore::new(slots as usize)),
            stop,
            work,
            depth: None,
            is_rare: false,
            forgot: false,
            met_unclaimable: false,
            notices: RedisNotices::default(),
        }
    }

    /// The name of this loop in logs and for people.
    pub fn name(&self) -> String {
        match W::PURPOSE {
            Purpose::Send => format!("channel worker of {}", self.channel.name),
            Purpose::Inquire => format!("channel worker of {}, for inquiries", self.channel.name),
        }
    }

    /// Runs until `stop` is cancelled.
    pub async fn run(mut self) {
        let filled = self.wake_ups.filled(&self.channel.name);
        let stop = self.stop.clone();
        let mut departures = self.node.departures.subscribe();
        if let Err(error) = self.node.bucket.watch_clock(&self.channel).await {
            // The first take reads the clock too.
            tracing::debug!(
                channel.name = %self.channel.name, error = %chain(&error),
                "Failed to read the clock that counts for channel `{}`", self.channel.name,
            );
        }
        // The feeder reads the depth of all buckets in one round trip, so this worker need not read its own.
        self.wake_ups.nudge(&self.channel.name);
        let mut next = Next::WhenFilled { not_before: Instant::now() };
        loop {
            let mut opens = None;
            match next {
                Next::Now => {}
                Next::Grant(at) => {
                    self.is_rare = at.saturating_duration_since(Instant::now()) > self.connections.set_up();
                    let begin = at.checked_sub(self.dials_before(at)).unwrap_or(at);
                    tokio::select! {
                        () = stop.cancelled() => return,
                        // The permit that the departed node had reserved may be free now.
                        _ = departures.changed() => self.notices.departed = true,
                        () = tokio::time::sleep_until(begin.into()) => opens = Some(at),
                    }
                }
                Next::Later(at) => tokio::select! {
                    () = stop.cancelled() => return,
                    _ = departures.changed() => self.notices.departed = true,
                    () = tokio::time::sleep_until(at.into()) => {}
                },
                Next::WhenFilled { not_before } => {
                    let asleep = self.wake_ups.sleep(&self.channel.name);
                    tokio::select! {
                        () = stop.cancelled() => {
                            // A successor may wait for the same signal: pass the signal on.
                            filled.notify_one();
                            return;
                        }
                        () = filled.notified() => self.depth = None,
                        _ = departures.changed() => {
                            self.notices.departed = true;
                            continue;
                        }
                    }
                    drop(asleep);
                    // A filled bucket ends the wait for ids. It does not end the wait after a denial.
                    if not_before > Instant::now() && !self.notices.departed {
                        next = Next::Grant(not_before);
                        continue;
                    }
                }
            }
            let ready = async {
                self.node.suspensions.wait_until_free(&self.channel.name).await;
                self.free_slots().await
            };
            let slots = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                slots = ready => slots,
            };
            let connections = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                connections = self.connect(slots.len(), opens) => connections,
            };
            let mut connections = match connections {
                Ok(connections) => connections,
                Err(retry_in) => {
                    next = Next::later(retry_in.max(Self::LEAST_REST));
                    continue;
                }
            };
            if let Some(opens) = opens.filter(|opens| *opens > Instant::now()) {
                tokio::select! {
                    () = stop.cancelled() => return,
                    _ = departures.changed() => self.notices.departed = true,
                    () = tokio::time::sleep_until(opens.into()) => {}
                }
                connections.retain(Reserved::is_open);
                let more = slots.len().saturating_sub(connections.len());
                connections.extend(self.connections.reserve_more(more, Instant::now()));
            }
            if connections.is_empty() || !self.node.suspensions.is_free(&self.channel.name) {
                next = Next::Now;
                continue;
            }
            let pass = self.node.progress.pass(self.name());
            let began = Instant::now();
            let round = match self.effective_limits.now() {
                Some(channel) => self.round(&channel, Resources { slots, connections }).await,
                // Other nodes count all shares of a limit; a share may be free soon.
                None => Ok(Next::later(jittered(EffectiveLimits::NO_SHARE))),
            };
            drop(pass);
            match &round {
                Ok(_) => self.blocked.worked(),
                Err(obstacle) => self.blocked.failed(obstacle),
            }
            next = round.unwrap_or_else(|_| {
                Next::Later((began + jittered(Self::TRY_AGAIN)).max(Instant::now() + Self::LEAST_REST))
            });
        }
    }

    /// Gets a token if requests need one, and reserves connections for the next take.
    ///
    /// # Errors
    /// When no connection can be had now; the error is the time until the next try.
    async fn connect(&mut self, slots: usize, opens: Option<Instant>) -> Result<Vec<Reserved>, Duration> {
        let until = opens.unwrap_or_else(Instant::now) + self.longest_ahead().min(Self::MOST_AHEAD);
        let want = Want { most: slots, need: self.need(slots), until };
        let reserved = async {
            if let Some(tokens) = &self.tokens {
                tokens.good_until(until).await?;
            }
            self.connections.reserve(want).await
        };
        match reserved.await {
            Ok(connections) => {
                self.reach.reached(&self.connections, &self.channel.limits);
                Ok(connections)
            }
            Err(unreachable) => {
                self.reach.failed(&self.connections, &unreachable);
                Err(unreachable.retry_in)
            }
        }
    }

    /// How long before a grant this node starts to open connections, so that they are open at the grant.
    fn dials_before(&self, grant: Instant) -> Duration {
        let need = self.need(self.slots.available_permits());
        self.connections.lead(grant + self.longest_ahead().min(Self::MOST_AHEAD), need)
    }

    /// How many connections to reserve before the next take.
    fn need(&self, slots: usize) -> usize {
        // Inquiries are few, and they are not urgent.
        if W::PURPOSE == Purpose::Inquire {
            return 1;
        }
        // A bucket that was just filled has at least one id.
        let in_bucket = self.depth.map_or(1, |depth| usize::try_from(depth).unwrap_or(usize::MAX));
        let horizon = self.connections.set_up() + self.work.lead_time() + self.longest_ahead();
        need::need(&self.channel.limits, horizon, self.is_rare).min(slots).min(in_bucket).max(1)
    }

    /// Waits for one slot and takes all free slots. While requests use more than three quarters of the slots, it
    /// waits a moment for more: one claim for several refunds costs little more than a claim for one.
    async fn free_slots(&self) -> Vec<OwnedSemaphorePermit> {
        let Ok(first) = Arc::clone(&self.slots).acquire_owned().await else { return Vec::new() };
        let mut slots = vec![first];
        let several = (self.channel.max_in_flight / 4).min(W::MOST_AT_ONCE);
        if W::PURPOSE == Purpose::Send && several > 1 {
            let others = Arc::clone(&self.slots).acquire_many_owned(several - 1);
            if let Ok(Ok(mut others)) = tokio::time::timeout(Self::GATHERING, others).await {
                slots.extend((1..several).filter_map(|_| others.split(1)));
            }
        }
        while slots.len() < W::MOST_AT_ONCE as usize {
            match Arc::clone(&self.slots).try_acquire_owned() {
                Ok(slot) => slots.push(slot),
                Err(_) => break,
            }
        }
        slots
    }

    /// One take, and the claim and the requests that follow.
    async fn round(&mut self, channel: &Arc<Channel>, resources: Resources) -> Result<Next, Obstacle> {
        let name = &channel.name;
        let want = resources.slots.len().min(resources.connections.len());
        let want = u32::try_from(want).unwrap_or(u32::MAX);
        let want = want.min(self.work.most_permits(channel));
        if self.blocked.is_by_postgres() {
            // A take would spend permits that no claim can use, and that other nodes can.
            self.node.store.ping().await?;
        }
        self.effective_limits.write_down().await?;
        if self.notices.departed {
            self.node.bucket.give_up_turns(&channel.limits).await?;
            self.notices.departed = false;
        }
        if self.notices.wasted {
            self.node.bucket.forget_long_windows(&channel.limits).await?;
            self.notices.wasted = false;
        }
        let began = Instant::now();
        let taken = self.work.take(&self.node, &self.wake_ups, channel, want).await;
        self.node.metrics.take(name, W::PURPOSE, answer_of(&taken));
        if matches!(taken, Ok(Take::Granted { .. } | Take::Denied { .. })) {
            self.forgot = false;
        }
        match taken {
            Ok(Take::Granted { taken, depth, feed, again, stricter_rules }) => {
                self.note_depth(depth);
                let longest = self.effective_limits.longest_wait(&stricter_rules);
                self.note_status(channel, again.as_ref(), stricter_rules);
                if feed {
                    self.wake_ups.nudge(name);
                }
                let next = self.claim_and_start(channel, taken, resources).await?;
                self.blocked.note_claim();
                let again = again.map(|again| began + again.span.min(longest));
                Ok(match (next, again) {
                    // If Redis forgot the bucket, rows may be due although the bucket is empty.
                    (Next::Now, again) if depth == 0 => {
                        self.wake_ups.nudge(name);
                        Next::WhenFilled { not_before: again.unwrap_or(began) }
                    }
                    // The wait counts from before the claim.
                    (Next::Now, Some(again)) => Next::Grant(again),
                    (next, _) => next,
                })
            }
            Ok(Take::Denied { wait, depth, feed, stricter_rules }) => {
                if let Some(depth) = depth {
                    self.note_depth(depth);
                }
                let longest = self.effective_limits.longest_wait(&stricter_rules);
                self.note_status(channel, Some(&wait), stricter_rules);
                if feed {
                    self.wake_ups.nudge(name);
                }
                Ok(Next::Grant(Instant::now() + wait.span.clamp(Duration::from_millis(1), longest)))
            }
            Ok(Take::Empty) => {
                self.note_depth(0);
                // If Redis forgot the bucket, rows may be due although the bucket is empty.
                self.wake_ups.nudge(name);
                Ok(Next::WhenFilled { not_before: began })
            }
            Ok(Take::Forgot(forgotten)) => {
                self.node.restore(&forgotten).await?;
                // One restore is enough, unless another node has to restore as well.
                Ok(if std::mem::replace(&mut self.forgot, true) {
                    Next::later(jittered(Self::RESTORE_AGAIN))
                } else {
                    Next::Now
                })
            }
            Ok(Take::ClockStepped { by_us }) => {
                self.notices.wasted = true;
                if by_us != 0 {
                    tracing::warn!(
                        channel.name = %name, by_ms = by_us / 1000,
                        "Redis's clock was set by {} ms; the limits rest until nothing granted by the old time \
                         can matter",
                        by_us / 1000,
                    );
                }
                Ok(Next::Now)
            }
            Err(error) => {
                // The script may have run although the call failed.
                self.notices.wasted = true;
                Err(error.into())
            }
        }
    }

    /// Notes the bucket's depth. Other loops and people see the depth of the buckets for sends only.
    fn note_depth(&mut self, depth: u64) {
        self.depth = Some(depth);
        if W::PURPOSE == Purpose::Send {
            self.node.note_depth(&self.channel.name, depth);
        }
    }

    /// Notes for people which limit makes this channel's refunds wait, and which stricter rules of other nodes count.
    fn note_status(&self, channel: &Channel, wait: Option<&LimitWait>, stricter_rules: Vec<StricterRule>) {
        let limits = channel.limits.iter().map(|limit| &limit.name);
        if W::PURPOSE == Purpose::Send
            && self.node.status_report.note(&channel.name, limits, wait, &stricter_rules)
        {
            for limit in &channel.limits {
                let is = stricter_rules.iter().any(|o| o.limit == limit.name);
                self.node.metrics.limit_has_stricter_rule(&limit.name, is);
            }
            // If all nodes have the same file, the stricter rule is this node's own rule before a reload.
            let others = self.node.differs.load(Ordering::Relaxed);
            for StricterRule { limit, by } in stricter_rules.into_iter().filter(|_| others) {
                tracing::warn!(
                    limit.name = %limit, rule = by,
                    "Another node's file is stricter about limit `{limit}` (`{by}`), and that is what counts: \
                     reload all nodes from one file",
                );
            }
        }
    }

    /// How long before its span opens a permit may be granted.
    fn longest_ahead(&self) -> Duration {
        self.channel.limits.iter().map(|limit| limit.ahead).max().unwrap_or_default()
    }
}

/// The metric's label for the result of a take.
fn answer_of(taken: &Result<Take, BucketError>) -> &'static str {
    match taken {
        Ok(Take::Granted { .. }) => "granted",
        Ok(Take::Denied { .. }) => "denied",
        Ok(Take::Empty) => "empty",
        Ok(Take::Forgot(_)) => "forgot",
        Ok(Take::ClockStepped { .. }) => "clock_stepped",
        Err(_) => "failed",
    }
}

/// When to take next.
#[derive(Debug, Clone, Copy)]
enum Next {
    Now,
    /// A grant is expected at this moment, with connections open by then.
    Grant(Instant),
    Later(Instant),
    WhenFilled {
        /// Nothing is granted before this moment.
        not_before: Instant,
    },
}

impl Next {
    fn later(wait: Duration) -> Self {
        Next::Later(Instant::now() + wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bucket::Bucket;
    use crate::config::Config;
    use crate::metrics::Metrics;

    #[tokio::test]
    async fn a_departure_is_kept_until_redis_has_received_it() {
        let text = "[postgres]\nurl = \"postgres://localhost\"\n[redis]\nurl = \"redis://localhost\"\n\
                    [limit.acme]\nalgorithm = \"paced\"\npermits = 1\nper = \"1s\"\n\
                    [channel.acme]\nendpoint = \"http://localhost/\"\nlimits = [\"acme\"]\n";
        let config = Config::parse(text, "r.toml", &|_| None).unwrap();
        let channel = Arc::clone(config.channels.values().next().unwrap());
        // No server listens at these addresses.
        let store = Store::open("postgres://refundd@127.0.0.1:9/refundd", None, 1).unwrap();
        let bucket = Bucket::open("redis://127.0.0.1:9", "refundd", Duration::from_secs(1)).unwrap();
        let node = Node::new("a", store, bucket, Arc::new(Metrics::new()));
        let bank = Arc::new(Bank::new(&channel).unwrap());
        let (outbox, _inbox) = mpsc::channel(1);
        let (wake_ups, stop) = (WakeUps::of_sends(100), CancellationToken::new());
        let mut worker = ChannelWorker::sends(node, wake_ups, Arc::clone(&channel), bank, outbox, stop);
        worker.notices.departed = true;
        let resources = || Resources { slots: Vec::new(), connections: Vec::new() };
        for _ in 0..2 {
            assert!(matches!(worker.round(&channel, resources()).await, Err(Obstacle::Redis(_))));
            assert!(worker.notices.departed, "Redis has not freed what the departed node had reserved");
        }
    }
}
