//! Takes refunds from one channel's bucket, leases them, and sends each to the bank under its permit.
//!
//! One dispatcher runs for each channel on each node. It holds slots and open connections before it takes,
//! so it never takes what it cannot send; it claims in Postgres before anything is sent; and it asks Redis
//! again only when there is something to get.
//!
//! While the bank cannot be reached nothing is taken: no permit is spent, and refunds stay in line for a node
//! that can reach it. See docs/decisions/0011-a-permit-needs-an-open-connection.md.
//!
//! After the claim is committed a refund *may have been sent*. Whatever then turns out to be provably
//! unsent (a permit that lapsed, a node that stops) is handed back; everything else is settled.

mod batch;
mod claiming;
mod lapses;
mod lead_time;
mod need;
mod send;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use crate::bank::{Bank, Reserved, Want};
use crate::bucket::{Bucket, Order, Overruled, Take};
use crate::channel::Channel;
use crate::crash;
use crate::node::failing::Failing;
use crate::node::in_force::InForce;
use crate::node::reach::{Errand, Reach};
use crate::node::reminding::ServerError;
use crate::node::{Node, jittered};
use crate::store::Settled;
use crate::telemetry::chain;
use crate::wake_up::WakeUps;
use batch::Batch;
use lapses::Lapses;
use lead_time::LeadTime;

/// The loop of one channel.
#[derive(Debug)]
pub struct ChannelWorker {
    node: Node,
    wake_ups: WakeUps,
    channel: Arc<Channel>,
    bank: Arc<Bank>,
    slots: Arc<Semaphore>,
    outbox: mpsc::Sender<Settled>,
    clock_tolerance: Duration,
    /// Ends this dispatcher: its channel is gone or changed, or the node stops.
    stop: CancellationToken,
    failing: Failing<&'static str>,
    lead_time: LeadTime,
    /// How many short-lived permits this node can use at one time.
    batch: Arc<Batch>,
    lapses: Arc<Lapses>,
    reach: Reach,
    /// Ids in line after the last take; `None` if some were added since, nobody knows how many.
    depth: Option<u64>,
    /// The last wait was long enough to set up a connection.
    is_rare: bool,
    /// The last take found that Redis had forgotten a limit.
    forgot: AtomicBool,
    in_force: InForce,
    /// The last claim met ids whose refunds cannot be claimed any more; the next ones may be of that kind, too.
    met_dead: bool,
    /// Permits were granted that nobody used: long windows must ask the ledger before the next take.
    wasted: AtomicBool,
}

impl ChannelWorker {
    /// How long a free slot waits for others, as long as fewer than a quarter are free.
    const GATHERING: Duration = Duration::from_millis(2);
    const TELL_AGAIN: Duration = Duration::from_millis(50);
    /// The wait after something failed.
    const TRY_AGAIN: Duration = Duration::from_millis(500);
    /// A connection is not expected to lie open unused for longer than that, whatever `ahead` says.
    const MOST_AHEAD: Duration = Duration::from_millis(500);
    /// The least wait after a connection that could not be had.
    const LEAST_REST: Duration = Duration::from_millis(5);

    pub fn new(
        node: Node,
        wake_ups: WakeUps,
        channel: Arc<Channel>,
        bank: Arc<Bank>,
        outbox: mpsc::Sender<Settled>,
        clock_tolerance: Duration,
        stop: CancellationToken,
    ) -> Self {
        let slots = Arc::new(Semaphore::new(channel.max_in_flight as usize));
        ChannelWorker {
            in_force: InForce::new(node.clone(), Arc::clone(&channel)),
            reach: Reach::new(node.clone(), channel.name.clone(), Errand::Send),
            node,
            wake_ups,
            channel,
            bank,
            slots,
            outbox,
            clock_tolerance,
            stop,
            failing: Failing::default(),
            lead_time: LeadTime::default(),
            batch: Arc::default(),
            lapses: Arc::default(),
            depth: None,
            is_rare: false,
            forgot: AtomicBool::new(false),
            met_dead: false,
            wasted: AtomicBool::new(false),
        }
    }

    pub async fn run(mut self) {
        let fed = self.wake_ups.filled(&self.channel.name);
        let stop = self.stop.clone();
        let mut departures = self.node.departures.subscribe();
        let mut afresh = false;
        if let Err(error) = self.node.bucket.watch_clock(&self.channel).await {
            // The first take reads it.
            tracing::debug!(channel.name = %self.channel.name, error = %chain(&error), "Failed to read the clock that counts for channel `{}`", self.channel.name);
        }
        // Whether anything stands in line the feeder finds out, for all channels in one round trip.
        self.wake_ups.nudge(&self.channel.name);
        let mut next = Next::WhenFed { not_before: Instant::now() };
        loop {
            let mut turn = None;
            match next {
                Next::Now => {}
                Next::Turn(at) => {
                    self.is_rare =
                        at.saturating_duration_since(Instant::now()) > self.bank.connections().set_up();
                    let begin = at.checked_sub(self.lead(at)).unwrap_or(at);
                    tokio::select! {
                        () = stop.cancelled() => return,
                        // Those who wait for a turn behind somebody who is gone do not wait for it.
                        _ = departures.changed() => afresh = true,
                        () = tokio::time::sleep_until(begin.into()) => turn = Some(at),
                    }
                }
                Next::Later(at) => tokio::select! {
                    () = stop.cancelled() => return,
                    _ = departures.changed() => afresh = true,
                    () = tokio::time::sleep_until(at.into()) => {}
                },
                Next::WhenFed { not_before } => {
                    let asleep = self.wake_ups.sleep(&self.channel.name);
                    tokio::select! {
                        () = stop.cancelled() => {
                            // A successor may sleep on the same line: leave any signal to it.
                            fed.notify_one();
                            return;
                        }
                        () = fed.notified() => self.depth = None,
                        _ = departures.changed() => {
                            afresh = true;
                            continue;
                        }
                    }
                    drop(asleep);
                    // Being fed ends the wait for food only; a denial stands whatever is in line.
                    if not_before > Instant::now() && !afresh {
                        next = Next::Turn(not_before);
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
                connections = self.connect(slots.len(), turn) => connections,
            };
            let mut connections = match connections {
                Ok(connections) => connections,
                Err(retry_in) => {
                    next = Next::later(retry_in.max(Self::LEAST_REST));
                    continue;
                }
            };
            if let Some(turn) = turn.filter(|turn| *turn > Instant::now()) {
                tokio::select! {
                    () = stop.cancelled() => return,
                    _ = departures.changed() => afresh = true,
                    () = tokio::time::sleep_until(turn.into()) => {}
                }
                connections.retain(Reserved::is_open);
                let more = slots.len().saturating_sub(connections.len());
                connections.extend(self.bank.connections().reserve_more(more, Instant::now()));
            }
            if connections.is_empty() || !self.node.held.is_free(&self.channel.name) {
                next = Next::Now;
                continue;
            }
            let pass = self.node.progress.pass(format!("dispatcher of {}", self.channel.name));
            let round = match self.in_force.now() {
                Some(channel) => self.round(&channel, slots, connections, std::mem::take(&mut afresh)).await,
                // Other nodes count all shares of a limit; one may be free soon.
                None => Ok(Next::later(jittered(InForce::NO_SHARE))),
            };
            drop(pass);
            next = match round {
                Ok(next) => {
                    self.note(None);
                    next
                }
                Err(error) => {
                    self.note(Some(&error));
                    Next::later(jittered(Self::TRY_AGAIN))
                }
            };
        }
    }

    /// Connections for the next take: some at once, or the time until there may be one.
    async fn connect(&mut self, slots: usize, turn: Option<Instant>) -> Result<Vec<Reserved>, Duration> {
        let until = turn.unwrap_or_else(Instant::now) + self.longest_ahead().min(Self::MOST_AHEAD);
        let want = Want { most: slots, need: self.need(slots), until };
        let pool = self.bank.connections();
        match pool.reserve(want).await {
            Ok(connections) => {
                self.reach.reached(pool, &self.channel.limits);
                Ok(connections)
            }
            Err(unreachable) => {
                self.reach.failed(pool, &unreachable);
                Err(unreachable.retry_in)
            }
        }
    }

    /// How long before its turn this node sets connections up, so that they are open when it comes.
    fn lead(&self, turn: Instant) -> Duration {
        let need = self.need(self.slots.available_permits());
        self.bank.connections().lead(turn + self.longest_ahead().min(Self::MOST_AHEAD), need)
    }

    /// How many connections are wanted in hand.
    fn need(&self, slots: usize) -> usize {
        // Of a line that was just fed one refund is known.
        let in_line = self.depth.map_or(1, |depth| usize::try_from(depth).unwrap_or(usize::MAX));
        let ahead = self.longest_ahead();
        let horizon = self.bank.connections().set_up() + self.lead_time.expected() + ahead;
        need::need(&self.channel.limits, horizon, self.is_rare).min(slots).min(in_line).max(1)
    }

    /// Waits for one slot and takes all that are free. While calls take up more than three quarters, others will
    /// be free in a moment, and one claim for several costs little more than one for one.
    async fn free_slots(&self) -> Vec<OwnedSemaphorePermit> {
        let Ok(first) = Arc::clone(&self.slots).acquire_owned().await else { return Vec::new() };
        let mut slots = vec![first];
        let several = (self.channel.max_in_flight / 4).min(Bucket::MOST_AT_ONCE);
        if several > 1 {
            let others = Arc::clone(&self.slots).acquire_many_owned(several - 1);
            if let Ok(Ok(mut others)) = tokio::time::timeout(Self::GATHERING, others).await {
                slots.extend((1..several).filter_map(|_| others.split(1)));
            }
        }
        while slots.len() < Bucket::MOST_AT_ONCE as usize {
            match Arc::clone(&self.slots).try_acquire_owned() {
                Ok(slot) => slots.push(slot),
                Err(_) => break,
            }
        }
        slots
    }

    /// One take, and what follows from it.
    async fn round(
        &mut self,
        channel: &Arc<Channel>,
        slots: Vec<OwnedSemaphorePermit>,
        connections: Vec<Reserved>,
        afresh: bool,
    ) -> Result<Next, ServerError> {
        let name = &channel.name;
        let mut want = u32::try_from(slots.len().min(connections.len())).unwrap_or(u32::MAX);
        if channel.limits.iter().any(|limit| limit.rule.algorithm.comes_in_bursts()) {
            want = want.min(self.batch.most());
        }
        self.in_force.write_down().await?;
        if afresh {
            self.node.bucket.give_up_turns(&channel.limits).await?;
        }
        if self.wasted.load(Ordering::Relaxed) {
            self.node.bucket.forget_long_windows(&channel.limits).await?;
            self.wasted.store(false, Ordering::Relaxed);
        }
        let order = Order { want, low_water: self.wake_ups.low_water(), haste: self.lead_time.expected() };
        crash::point("taking");
        let asked = Instant::now();
        match self.node.bucket.take(channel, order).await {
            Ok(Take::Granted { taken, depth, feed, again, overruled }) => {
                self.node.note_depth(name, depth);
                self.depth = Some(depth);
                self.node.metrics.take(name, "granted");
                self.forgot.store(false, Ordering::Relaxed);
                let longest = self.in_force.longest_wait(&overruled);
                self.note_standing(channel, again.as_ref(), overruled);
                if feed {
                    self.wake_ups.nudge(name);
                }
                crash::point("taken");
                let next = self.claim_and_send(channel, taken, slots, connections).await?;
                let again = again.map(|again| asked + again.span.min(longest));
                Ok(match (next, again) {
                    // Rows may be due all the same, if Redis forgot the line.
                    (Next::Now, again) if depth == 0 => {
                        self.wake_ups.nudge(name);
                        Next::WhenFed { not_before: again.unwrap_or(asked) }
                    }
                    // The claim was part of the wait.
                    (Next::Now, Some(again)) => Next::Turn(again),
                    (next, _) => next,
                })
            }
            Ok(Take::Denied { wait, depth, feed, overruled }) => {
                if let Some(depth) = depth {
                    self.node.note_depth(name, depth);
                    self.depth = Some(depth);
                }
                self.node.metrics.take(name, "denied");
                self.forgot.store(false, Ordering::Relaxed);
                let longest = self.in_force.longest_wait(&overruled);
                self.note_standing(channel, Some(&wait), overruled);
                if feed {
                    self.wake_ups.nudge(name);
                }
                Ok(Next::Turn(Instant::now() + wait.span.clamp(Duration::from_millis(1), longest)))
            }
            Ok(Take::Empty) => {
                self.node.metrics.take(name, "empty");
                self.node.note_depth(name, 0);
                // Rows may be due all the same, if Redis forgot the line.
                self.wake_ups.nudge(name);
                Ok(Next::WhenFed { not_before: asked })
            }
            Ok(Take::Forgot(forgotten)) => {
                self.node.metrics.take(name, "forgot");
                self.node.remind(&forgotten).await?;
                // Once is enough, unless somebody else has to be told the same.
                Ok(if self.forgot.swap(true, Ordering::Relaxed) {
                    Next::later(jittered(Self::TELL_AGAIN))
                } else {
                    Next::Now
                })
            }
            Ok(Take::ClockStepped { by_us }) => {
                self.node.metrics.take(name, "clock_stepped");
                self.wasted.store(true, Ordering::Relaxed);
                if by_us != 0 {
                    tracing::warn!(
                        channel.name = %name, by_ms = by_us / 1000,
                        "Redis's clock was set by {} ms; the limits rest until nothing granted by the old time can matter", by_us / 1000,
                    );
                }
                Ok(Next::Now)
            }
            Err(error) => {
                self.node.metrics.take(name, "failed");
                // The script may have run all the same.
                self.wasted.store(true, Ordering::Relaxed);
                Err(error.into())
            }
        }
    }

    /// Notes for people which limit makes this channel wait, and whether another file's rule is in force.
    fn note_standing(
        &self,
        channel: &Channel,
        wait: Option<&crate::bucket::Wait>,
        overruled: Vec<Overruled>,
    ) {
        let limits = channel.limits.iter().map(|limit| &limit.name);
        if self.node.standing.note(&channel.name, limits, wait, &overruled) {
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

    /// Logs the first failure of each server, and that it is over.
    fn note(&mut self, error: Option<&ServerError>) {
        let name = &self.channel.name;
        let Some(error) = error else {
            let again = || tracing::info!(channel.name = %name, "Channel `{name}` sends again");
            return self.failing.worked(again);
        };
        let server = match error {
            ServerError::Bucket(_) => "redis",
            ServerError::Store(_) => "postgres",
        };
        self.failing.failed_by(server, || {
            tracing::warn!(
                channel.name = %name, error = %chain(error),
                "Channel `{name}` sends nothing for now: failed to take or claim; will try again",
            );
        });
    }
}

/// What to do before the next take.
#[derive(Debug, Clone, Copy)]
enum Next {
    Now,
    /// It is this node's turn then, and connections stand open.
    Turn(Instant),
    Later(Instant),
    WhenFed {
        /// Nothing is granted sooner.
        not_before: Instant,
    },
}

impl Next {
    fn later(wait: Duration) -> Self {
        Next::Later(Instant::now() + wait)
    }
}
