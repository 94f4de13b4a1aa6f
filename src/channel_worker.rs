//! Takes refunds or inquiries from one channel's bucket, claims them, and makes each request under its permit.
//!
//! One worker for sends runs for each channel on each node, and one worker for inquiries where the channel has an
//! inquiry. Both are this loop; [`Work`] says what differs. A worker holds slots and open connections before it takes,
//! so it never takes what it cannot send. It commits the claim in Postgres before the first byte leaves. It asks Redis
//! again only when there is something to get.
//!
//! While the bank cannot be reached a worker takes nothing: no permit is spent, and the ids stay in the bucket for a
//! node that can reach the bank. See docs/decisions/0011-a-permit-needs-an-open-connection.md.
//!
//! After the commit of a claim a refund *may have been sent*. A request that provably did not leave, because the
//! permit lapsed or the node stops, is handed back; everything else is settled.

mod attempt;
mod batch;
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

use crate::bank::{Bank, Pool, Reserved, Want};
use crate::bucket::{BucketError, Errand, Overruled, Take, Wait};
use crate::channel::Channel;
use crate::node::failing::Failing;
use crate::node::in_force::InForce;
use crate::node::reach::Reach;
use crate::node::reminding::ServerError;
use crate::node::{Node, jittered};
use crate::refund::RefundId;
use crate::store::{Asked, Claimed, Settled, Store, StoreError};
use crate::telemetry::chain;
use crate::wake_up::WakeUps;
use attempt::Attempt;
use claiming::Hands;
pub use inquire::Inquiries;
pub use send::Sends;

/// What the workers for sends and for inquiries do differently.
pub trait Work: std::fmt::Debug + Send + Sync {
    /// A refund under a lease.
    type Leased: Send;
    const ERRAND: Errand;
    /// The most ids of one take.
    const MOST_AT_ONCE: u32;

    /// How long it takes from asking for a permit to the first byte.
    fn lead_time(&self) -> Duration;

    /// Notes how long a claim took.
    fn note_claim(&self, node: &Node, took: Duration);

    /// The most permits that are of use at one time.
    fn most_permits(&self, channel: &Channel) -> u32;

    /// How long to leave all permits to the other worker of the channel.
    fn gives_way(&self, node: &Node, channel: &Channel) -> Option<Duration>;

    /// Asks the bucket for up to `want` ids, each under a permit.
    fn take(
        &mut self,
        node: &Node,
        wake_ups: &WakeUps,
        channel: &Channel,
        want: u32,
    ) -> impl Future<Output = Result<Take, BucketError>> + Send;

    /// Commits the claim of what was taken, and of ids beyond the permits.
    fn claim(
        &self,
        store: &Store,
        claim: &Asked<'_>,
        more: &[RefundId],
    ) -> impl Future<Output = Result<Claimed<Self::Leased>, StoreError>> + Send;

    fn id(leased: &Self::Leased) -> RefundId;

    /// Makes the request, in a task of its own that is never cut off halfway.
    fn start(
        &self,
        attempt: Attempt,
        leased: Self::Leased,
        slot: Option<OwnedSemaphorePermit>,
        connection: Option<Reserved>,
    );
}

/// The loop of one channel.
#[derive(Debug)]
pub struct ChannelWorker<W> {
    node: Node,
    wake_ups: WakeUps,
    /// With the limits that this work goes under.
    channel: Arc<Channel>,
    bank: Arc<Bank>,
    connections: Pool,
    slots: Arc<Semaphore>,
    /// Ends this worker: its channel is gone or changed, or the node stops.
    stop: CancellationToken,
    failing: Failing<&'static str>,
    reach: Reach,
    in_force: InForce,
    work: W,
    /// Ids in the bucket after the last take; `None` if the bucket was filled since, and nobody knows with how many.
    depth: Option<u64>,
    /// The last wait was long enough to set up a connection.
    is_rare: bool,
    /// The last take found that Redis had forgotten a limit.
    forgot: bool,
    /// The last claim met ids whose refunds cannot be claimed any more; the next ones may be of that kind, too.
    met_dead: bool,
    to_tell: ToTell,
}

/// What Redis must hear before the next take; kept until it has.
#[derive(Debug, Default)]
struct ToTell {
    /// Permits were granted that nobody used: long windows must ask the ledger.
    wasted: bool,
    /// A node departed, and Redis may still keep turns for it.
    departed: bool,
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
        let (connections, slots) = (bank.connections().clone(), channel.max_in_flight);
        Self::new(node, wake_ups, channel, bank, (connections, slots), Sends::new(outbox), stop)
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
        let connections = bank.connections_to_ask()?.clone();
        let channel = match &inquiry.limits {
            None => channel,
            // What the bank says about its pace is about the channel's limits, not about these.
            Some(limits) => {
                Arc::new(Channel { limits: limits.clone(), adaptive: false, ..channel.as_ref().clone() })
            }
        };
        let slots = (channel.max_in_flight / 4).max(1);
        Some(Self::new(node, wake_ups, channel, bank, (connections, slots), Inquiries::new(inquiry), stop))
    }
}

impl<W: Work> ChannelWorker<W> {
    /// How long a free slot waits for others, as long as fewer than a quarter are free.
    const GATHERING: Duration = Duration::from_millis(2);
    const TELL_AGAIN: Duration = Duration::from_millis(50);
    /// The wait after something failed.
    const TRY_AGAIN: Duration = Duration::from_millis(500);
    /// A connection is not expected to lie open unused for longer than that, whatever `ahead` says.
    const MOST_AHEAD: Duration = Duration::from_millis(500);
    /// The least wait after a connection that could not be had.
    const LEAST_REST: Duration = Duration::from_millis(5);

    fn new(
        node: Node,
        wake_ups: WakeUps,
        channel: Arc<Channel>,
        bank: Arc<Bank>,
        (connections, slots): (Pool, u32),
        work: W,
        stop: CancellationToken,
    ) -> Self {
        ChannelWorker {
            in_force: InForce::new(node.clone(), Arc::clone(&channel)),
            reach: Reach::new(node.clone(), channel.name.clone(), W::ERRAND),
            node,
            wake_ups,
            channel,
            bank,
            connections,
            slots: Arc::new(Semaphore::new(slots as usize)),
            stop,
            failing: Failing::default(),
            work,
            depth: None,
            is_rare: false,
            forgot: false,
            met_dead: false,
            to_tell: ToTell::default(),
        }
    }

    /// How people and logs name this loop.
    pub fn name(&self) -> String {
        match W::ERRAND {
            Errand::Send => format!("channel worker of {}", self.channel.name),
            Errand::Inquire => format!("channel worker of {}, for inquiries", self.channel.name),
        }
    }

    pub async fn run(mut self) {
        let filled = self.wake_ups.filled(&self.channel.name);
        let stop = self.stop.clone();
        let mut departures = self.node.departures.subscribe();
        if let Err(error) = self.node.bucket.watch_clock(&self.channel).await {
            // The first take reads it.
            tracing::debug!(channel.name = %self.channel.name, error = %chain(&error), "Failed to read the clock that counts for channel `{}`", self.channel.name);
        }
        // The feeder looks into the buckets of all channels in one round trip.
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
                        // The permit that another node had before this one may be free now.
                        _ = departures.changed() => self.to_tell.departed = true,
                        () = tokio::time::sleep_until(begin.into()) => opens = Some(at),
                    }
                }
                Next::Later(at) => tokio::select! {
                    () = stop.cancelled() => return,
                    _ = departures.changed() => self.to_tell.departed = true,
                    () = tokio::time::sleep_until(at.into()) => {}
                },
                Next::WhenFilled { not_before } => {
                    let asleep = self.wake_ups.sleep(&self.channel.name);
                    tokio::select! {
                        () = stop.cancelled() => {
                            // A successor may sleep beside the same bucket: leave any signal to it.
                            filled.notify_one();
                            return;
                        }
                        () = filled.notified() => self.depth = None,
                        _ = departures.changed() => {
                            self.to_tell.departed = true;
                            continue;
                        }
                    }
                    drop(asleep);
                    // A filled bucket ends the wait for ids only; a denial stands whatever is in the bucket.
                    if not_before > Instant::now() && !self.to_tell.departed {
                        next = Next::Grant(not_before);
                        continue;
                    }
                }
            }
            let ready = async {
                self.node.held.wait_until_free(&self.channel.name).await;
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
                    _ = departures.changed() => self.to_tell.departed = true,
                    () = tokio::time::sleep_until(opens.into()) => {}
                }
                connections.retain(Reserved::is_open);
                let more = slots.len().saturating_sub(connections.len());
                connections.extend(self.connections.reserve_more(more, Instant::now()));
            }
            if connections.is_empty() || !self.node.held.is_free(&self.channel.name) {
                next = Next::Now;
                continue;
            }
            let pass = self.node.progress.pass(self.name());
            let round = match self.in_force.now() {
                Some(channel) => self.round(&channel, Hands { slots, connections }).await,
                // Other nodes count all shares of a limit; one may be free soon.
                None => Ok(Next::later(jittered(InForce::NO_SHARE))),
            };
            drop(pass);
            self.note(round.as_ref().err());
            next = round.unwrap_or_else(|_| Next::later(jittered(Self::TRY_AGAIN)));
        }
    }

    /// Connections for the next take: some at once, or the time until there may be one.
    async fn connect(&mut self, slots: usize, opens: Option<Instant>) -> Result<Vec<Reserved>, Duration> {
        let until = opens.unwrap_or_else(Instant::now) + self.longest_ahead().min(Self::MOST_AHEAD);
        let want = Want { most: slots, need: self.need(slots), until };
        match self.connections.reserve(want).await {
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

    /// How long before a grant this node sets connections up, so that they are open when the grant comes.
    fn dials_before(&self, grant: Instant) -> Duration {
        let need = self.need(self.slots.available_permits());
        self.connections.lead(grant + self.longest_ahead().min(Self::MOST_AHEAD), need)
    }

    /// How many connections are wanted in hand.
    fn need(&self, slots: usize) -> usize {
        // Inquiries are few, and nobody waits for them.
        if W::ERRAND == Errand::Inquire {
            return 1;
        }
        // Of a bucket that was just filled one id is known.
        let in_bucket = self.depth.map_or(1, |depth| usize::try_from(depth).unwrap_or(usize::MAX));
        let horizon = self.connections.set_up() + self.work.lead_time() + self.longest_ahead();
        need::need(&self.channel.limits, horizon, self.is_rare).min(slots).min(in_bucket).max(1)
    }

    /// Waits for one slot and takes all that are free. While calls take up more than three quarters, others will
    /// be free in a moment, and one claim for several costs little more than one for one.
    async fn free_slots(&self) -> Vec<OwnedSemaphorePermit> {
        let Ok(first) = Arc::clone(&self.slots).acquire_owned().await else { return Vec::new() };
        let mut slots = vec![first];
        let several = (self.channel.max_in_flight / 4).min(W::MOST_AT_ONCE);
        if W::ERRAND == Errand::Send && several > 1 {
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

    /// One take, and what follows from it.
    async fn round(&mut self, channel: &Arc<Channel>, hands: Hands) -> Result<Next, ServerError> {
        let name = &channel.name;
        let want = u32::try_from(hands.slots.len().min(hands.connections.len())).unwrap_or(u32::MAX);
        let want = want.min(self.work.most_permits(channel));
        self.in_force.write_down().await?;
        if self.to_tell.departed {
            self.node.bucket.give_up_turns(&channel.limits).await?;
            self.to_tell.departed = false;
        }
        if self.to_tell.wasted {
            self.node.bucket.forget_long_windows(&channel.limits).await?;
            self.to_tell.wasted = false;
        }
        if let Some(rest) = self.work.gives_way(&self.node, channel) {
            return Ok(Next::Grant(Instant::now() + rest));
        }
        let began = Instant::now();
        let taken = self.work.take(&self.node, &self.wake_ups, channel, want).await;
        self.node.metrics.take(name, W::ERRAND, answer_of(&taken));
        if matches!(taken, Ok(Take::Granted { .. } | Take::Denied { .. })) {
            self.forgot = false;
        }
        match taken {
            Ok(Take::Granted { taken, depth, feed, again, overruled }) => {
                self.note_depth(depth);
                let longest = self.in_force.longest_wait(&overruled);
                self.note_standing(channel, again.as_ref(), overruled);
                if feed {
                    self.wake_ups.nudge(name);
                }
                let next = self.claim_and_start(channel, taken, hands).await?;
                let again = again.map(|again| began + again.span.min(longest));
                Ok(match (next, again) {
                    // Rows may be due all the same, if Redis forgot the bucket.
                    (Next::Now, again) if depth == 0 => {
                        self.wake_ups.nudge(name);
                        Next::WhenFilled { not_before: again.unwrap_or(began) }
                    }
                    // The claim was part of the wait.
                    (Next::Now, Some(again)) => Next::Grant(again),
                    (next, _) => next,
                })
            }
            Ok(Take::Denied { wait, depth, feed, overruled }) => {
                if let Some(depth) = depth {
                    self.note_depth(depth);
                }
                let longest = self.in_force.longest_wait(&overruled);
                self.note_standing(channel, Some(&wait), overruled);
                if feed {
                    self.wake_ups.nudge(name);
                }
                Ok(Next::Grant(Instant::now() + wait.span.clamp(Duration::from_millis(1), longest)))
            }
            Ok(Take::Empty) => {
                self.note_depth(0);
                // Rows may be due all the same, if Redis forgot the bucket.
                self.wake_ups.nudge(name);
                Ok(Next::WhenFilled { not_before: began })
            }
            Ok(Take::Forgot(forgotten)) => {
                self.node.remind(&forgotten).await?;
                // Once is enough, unless another node has to tell Redis as well.
                Ok(if std::mem::replace(&mut self.forgot, true) {
                    Next::later(jittered(Self::TELL_AGAIN))
                } else {
                    Next::Now
                })
            }
            Ok(Take::ClockStepped { by_us }) => {
                self.to_tell.wasted = true;
                if by_us != 0 {
                    tracing::warn!(
                        channel.name = %name, by_ms = by_us / 1000,
                        "Redis's clock was set by {} ms; the limits rest until nothing granted by the old time can matter", by_us / 1000,
                    );
                }
                Ok(Next::Now)
            }
            Err(error) => {
                // The script may have run all the same.
                self.to_tell.wasted = true;
                Err(error.into())
            }
        }
    }

    /// Other loops and people are shown the buckets of sends only.
    fn note_depth(&mut self, depth: u64) {
        self.depth = Some(depth);
        if W::ERRAND == Errand::Send {
            self.node.note_depth(&self.channel.name, depth);
        }
    }

    /// Notes for people which limit makes this channel's refunds wait, and whether another file's rule is in force.
    fn note_standing(&self, channel: &Channel, wait: Option<&Wait>, overruled: Vec<Overruled>) {
        let limits = channel.limits.iter().map(|limit| &limit.name);
        if W::ERRAND == Errand::Send && self.node.standing.note(&channel.name, limits, wait, &overruled) {
            for limit in &channel.limits {
                let is = overruled.iter().any(|o| o.limit == limit.name);
                self.node.metrics.limit_overruled(&limit.name, is);
            }
            // Without another file it is our own rule of a moment ago.
            let others = self.node.differs.load(Ordering::Relaxed);
            for Overruled { limit, by } in overruled.into_iter().filter(|_| others) {
                tracing::warn!(
                    limit.name = %limit, rule = by,
                    "Another node's file is stricter about limit `{limit}` (`{by}`), and that is what counts: reload all nodes from one file",
                );
            }
        }
    }

    /// A permit may be claimed this much before its window opens.
    fn longest_ahead(&self) -> Duration {
        self.channel.limits.iter().map(|limit| limit.ahead).max().unwrap_or_default()
    }

    /// Logs the first failure of each server, and that it is over.
    fn note(&mut self, error: Option<&ServerError>) {
        let name = &self.channel.name;
        let Some(error) = error else {
            return self.failing.worked(|| match W::ERRAND {
                Errand::Send => tracing::info!(channel.name = %name, "Channel `{name}` sends again"),
                Errand::Inquire => {
                    tracing::info!(channel.name = %name, "The bank of channel `{name}` is asked again");
                }
            });
        };
        let server = match error {
            ServerError::Bucket(_) => "redis",
            ServerError::Store(_) => "postgres",
        };
        self.failing.failed_by(server, || match W::ERRAND {
            Errand::Send => tracing::warn!(
                channel.name = %name, error = %chain(error),
                "Channel `{name}` sends nothing for now: failed to take or claim; will try again",
            ),
            Errand::Inquire => tracing::warn!(
                channel.name = %name, error = %chain(error),
                "The bank of channel `{name}` is not asked for now: failed to take or claim; will try again",
            ),
        });
    }
}

/// For the metrics.
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

/// What to do before the next take.
#[derive(Debug, Clone, Copy)]
enum Next {
    Now,
    /// A grant is expected then, and connections stand open.
    Grant(Instant),
    Later(Instant),
    WhenFilled {
        /// Nothing is granted sooner.
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
    async fn a_departure_is_kept_until_redis_has_heard_of_it() {
        let text = "[postgres]\nurl = \"postgres://d\"\n[redis]\nurl = \"redis://c\"\n\
                    [limit.acme]\nalgorithm = \"paced\"\npermits = 1\nper = \"1s\"\n\
                    [channel.acme]\nendpoint = \"http://b/\"\nlimits = [\"acme\"]\n";
        let config = Config::parse(text, "r.toml", &|_| None).unwrap();
        let channel = Arc::clone(config.channels.values().next().unwrap());
        // Nothing listens there.
        let store = Store::open("postgres://refundd@127.0.0.1:9/refundd", None, 1).unwrap();
        let bucket = Bucket::open("redis://127.0.0.1:9", "refundd", Duration::from_secs(1)).unwrap();
        let node = Node::new("a", store, bucket, Arc::new(Metrics::new()));
        let bank = Arc::new(Bank::new(&channel).unwrap());
        let (outbox, _inbox) = mpsc::channel(1);
        let (wake_ups, stop) = (WakeUps::of_sends(100), CancellationToken::new());
        let mut worker = ChannelWorker::sends(node, wake_ups, Arc::clone(&channel), bank, outbox, stop);
        worker.to_tell.departed = true;
        let hands = || Hands { slots: Vec::new(), connections: Vec::new() };
        for _ in 0..2 {
            assert!(matches!(worker.round(&channel, hands()).await, Err(ServerError::Bucket(_))));
            assert!(worker.to_tell.departed, "Redis has not given up the turns of the node that departed");
        }
    }
}
