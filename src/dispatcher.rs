//! Takes refunds from one channel's bucket, leases them, and sends each to the bank under its permit.
//!
//! One dispatcher runs for each channel on each node. It holds slots before it takes, so it never
//! takes what it cannot send; it claims in Postgres before anything is sent; and it asks Redis again
//! only when there is something to get.
//!
//! After the claim is committed a refund *may have been sent*. Whatever then turns out to be provably
//! unsent (a permit that lapsed, a node that stops) is handed back; everything else is settled.

mod batch;
mod haste;
mod send;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use crate::bank::Bank;
use crate::bucket::{Bucket, Order, Overruled, Take};
use crate::channel::Channel;
use crate::crash;
use crate::feeder::Feed;
use crate::limiter::Permit;
use crate::node::in_force::InForce;
use crate::node::reminding::ServerError;
use crate::node::{Node, jittered};
use crate::refund::RefundId;
use crate::store::{Asked, Claimed, Settled};
use crate::telemetry::chain;
use batch::Batch;
use haste::Haste;
use send::Send;

/// The loop of one channel.
#[derive(Debug)]
pub struct Dispatcher {
    node: Node,
    feed: Feed,
    channel: Arc<Channel>,
    bank: Arc<Bank>,
    slots: Arc<Semaphore>,
    outbox: mpsc::Sender<Settled>,
    clock_tolerance: Duration,
    /// Ends this dispatcher: its channel is gone or changed, or the node stops.
    stop: CancellationToken,
    trouble: Option<&'static str>,
    haste: Haste,
    /// How many short-lived permits this node can use at one time.
    batch: Arc<Batch>,
    /// The last take found that Redis had forgotten a limit.
    forgot: AtomicBool,
    in_force: InForce,
    /// Permits were granted that nobody used: long windows must ask the ledger before the next take.
    wasted: AtomicBool,
}

impl Dispatcher {
    /// How long a free slot waits for others, as long as fewer than a quarter are free.
    const GATHERING: Duration = Duration::from_millis(2);
    const TELL_AGAIN: Duration = Duration::from_millis(50);
    /// The wait after something failed.
    const TRY_AGAIN: Duration = Duration::from_millis(500);

    pub fn new(
        node: Node,
        feed: Feed,
        channel: Arc<Channel>,
        bank: Arc<Bank>,
        outbox: mpsc::Sender<Settled>,
        clock_tolerance: Duration,
        stop: CancellationToken,
    ) -> Self {
        let slots = Arc::new(Semaphore::new(channel.max_in_flight as usize));
        Dispatcher {
            in_force: InForce::new(node.clone(), Arc::clone(&channel)),
            node,
            feed,
            channel,
            bank,
            slots,
            outbox,
            clock_tolerance,
            stop,
            trouble: None,
            haste: Haste::default(),
            batch: Arc::default(),
            forgot: AtomicBool::new(false),
            wasted: AtomicBool::new(false),
        }
    }

    pub async fn run(mut self) {
        let fed = self.feed.fed(&self.channel.name);
        let stop = self.stop.clone();
        let mut departures = self.node.departures.subscribe();
        let mut afresh = false;
        loop {
            let ready = async {
                self.node.held.wait_until_free(&self.channel.name).await;
                self.free_slots().await
            };
            let slots = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                slots = ready => slots,
            };
            let pass = self.node.progress.pass(format!("dispatcher of {}", self.channel.name));
            let round = match self.in_force.now() {
                Some(channel) => self.round(&channel, slots, std::mem::take(&mut afresh)).await,
                // Other nodes count all shares of a limit; one may be free soon.
                None => Ok(Wait::For(jittered(InForce::NO_SHARE))),
            };
            drop(pass);
            let wait = match round {
                Ok(Wait::No) => {
                    self.note(None);
                    continue;
                }
                Ok(Wait::For(wait)) => {
                    self.note(None);
                    wait
                }
                Ok(Wait::UntilFed) => {
                    self.note(None);
                    Duration::MAX
                }
                Err(error) => {
                    self.note(Some(&error));
                    jittered(Self::TRY_AGAIN)
                }
            };
            if wait == Duration::MAX {
                self.feed.wait_for_food(&self.channel.name, true);
            }
            tokio::select! {
                () = stop.cancelled() => {
                    // A successor may sleep on the same line: leave its entry, and any signal, to it.
                    fed.notify_one();
                    return;
                }
                // Being fed ends the wait for food only; a denial stands whatever is in line.
                () = fed.notified(), if wait == Duration::MAX => {}
                // Those who wait for a turn behind somebody who is gone do not wait for it.
                _ = departures.changed() => afresh = true,
                () = tokio::time::sleep(wait), if wait != Duration::MAX => {}
            }
            if wait == Duration::MAX {
                self.feed.wait_for_food(&self.channel.name, false);
            }
        }
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
        &self,
        channel: &Arc<Channel>,
        slots: Vec<OwnedSemaphorePermit>,
        afresh: bool,
    ) -> Result<Wait, ServerError> {
        let name = &channel.name;
        let mut want = u32::try_from(slots.len()).unwrap_or(u32::MAX);
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
        let order = Order { want, low_water: self.feed.low_water(), haste: self.haste.expected() };
        crash::point("taking");
        let asked = Instant::now();
        match self.node.bucket.take(channel, order).await {
            Ok(Take::Granted { taken, depth, feed, again, overruled }) => {
                self.node.note_depth(name, depth);
                self.node.metrics.take(name, "granted");
                self.forgot.store(false, Ordering::Relaxed);
                let longest = self.in_force.longest_wait(&overruled);
                self.note_standing(channel, again.as_ref(), overruled);
                if feed {
                    self.feed.ask(name);
                }
                crash::point("taken");
                let wait = self.claim_and_send(channel, taken, slots).await?;
                Ok(match (wait, again) {
                    // The claim was part of the wait.
                    (Wait::No, Some(again)) => {
                        Wait::For(again.span.min(longest).saturating_sub(asked.elapsed()))
                    }
                    (wait, _) => wait,
                })
            }
            Ok(Take::Denied { wait, depth, feed, overruled }) => {
                if let Some(depth) = depth {
                    self.node.note_depth(name, depth);
                }
                self.node.metrics.take(name, "denied");
                self.forgot.store(false, Ordering::Relaxed);
                let longest = self.in_force.longest_wait(&overruled);
                self.note_standing(channel, Some(&wait), overruled);
                if feed {
                    self.feed.ask(name);
                }
                Ok(Wait::For(wait.span.clamp(Duration::from_millis(1), longest)))
            }
            Ok(Take::Empty) => {
                self.node.metrics.take(name, "empty");
                self.node.note_depth(name, 0);
                // Rows may be due all the same, if Redis forgot the line.
                self.feed.ask(name);
                Ok(Wait::UntilFed)
            }
            Ok(Take::Forgot(forgotten)) => {
                self.node.metrics.take(name, "forgot");
                self.node.remind(&forgotten).await?;
                // Once is enough, unless somebody else has to be told the same.
                Ok(if self.forgot.swap(true, Ordering::Relaxed) {
                    Wait::For(jittered(Self::TELL_AGAIN))
                } else {
                    Wait::No
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
                Ok(Wait::No)
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

    async fn claim_and_send(
        &self,
        channel: &Arc<Channel>,
        taken: Vec<(RefundId, Permit)>,
        mut slots: Vec<OwnedSemaphorePermit>,
    ) -> Result<Wait, ServerError> {
        let asked_at = Instant::now();
        let holder = self.node.next_holder();
        let asked = Asked {
            channel: &channel.name,
            node: &self.node.name,
            holder: &holder,
            lease: channel.lease,
            clock_tolerance: self.clock_tolerance + self.longest_ahead() + Bucket::MOST_HASTE,
            taken: &taken,
            resend_within: channel.resend_within(),
            most_sends: channel.retry.sends,
        };
        let claimed = match self.node.store.claim(&asked).await {
            Ok(claimed) => claimed,
            Err(error) => {
                // The commit may have happened all the same; nothing of it was sent.
                self.wasted.store(true, Ordering::Relaxed);
                self.take_back(taken.into_iter().map(|(id, _)| id).collect(), holder);
                return Err(error.into());
            }
        };
        crash::point("claimed");
        self.node.metrics.claim(asked_at.elapsed());
        self.haste.learn(asked_at.elapsed());
        self.count_unused(&claimed, taken.len());
        // From its first byte on, a call needs the whole time-out and some margin under the lease.
        let leash = asked_at + channel.lease.saturating_sub(channel.timeout + Channel::LEASE_MARGIN);
        let mut permits: std::collections::HashMap<RefundId, Permit> = taken.iter().cloned().collect();
        let opens_later = claimed.leased.first().and_then(|l| permits.get(&l.id)).and_then(|p| p.span);
        if opens_later.is_some_and(|span| span.opens > Instant::now()) {
            let bank = Arc::clone(&self.bank);
            self.node.calls.spawn(async move { bank.warm_up().await });
        }
        for refund in claimed.leased {
            let Some(permit) = permits.remove(&refund.id) else {
                // Nothing is sent without its permit, whatever went wrong before.
                tracing::error!(refund.id = %refund.id, "Refund {} was leased without a permit; it is handed back", refund.id);
                self.take_back(vec![refund.id], holder.clone());
                continue;
            };
            let send = Send {
                node: self.node.clone(),
                channel: Arc::clone(channel),
                bank: Arc::clone(&self.bank),
                outbox: self.outbox.clone(),
                batch: Arc::clone(&self.batch),
                stop: self.stop.clone(),
                refund,
                permit,
                leash,
            };
            let slot = slots.pop();
            self.node.calls.spawn(send.run(slot));
        }
        if claimed.outdated {
            // Redis may still count under the old generation, if it is not the one that knows the new.
            self.refresh(channel, &taken).await?;
        }
        if claimed.held_back || claimed.clocks_apart {
            self.wasted.store(true, Ordering::Relaxed);
        }
        if claimed.held_back {
            // Somebody paused or cooled the channel a moment ago; hear of it before asking again.
            self.node.held.update(&self.node.store.held().await?);
        }
        if claimed.clocks_apart {
            tracing::error!(
                channel.name = %channel.name,
                "Redis's clock is more than {:?} from Postgres's; nothing is sent until they agree: check both hosts' time service",
                self.clock_tolerance,
            );
            return Ok(Wait::For(jittered(Duration::from_secs(1))));
        }
        if !claimed.spent_before.is_empty() {
            tracing::warn!(
                channel.name = %channel.name, refunds = claimed.spent_before.len(),
                "Redis handed out {} permits of channel `{}` a second time; the ledger refused them", claimed.spent_before.len(), channel.name,
            );
            self.refresh(channel, &taken).await?;
        }
        Ok(Wait::No)
    }

    /// A permit may be claimed this much before its window opens.
    fn longest_ahead(&self) -> Duration {
        self.channel.limits.iter().map(|limit| limit.ahead).max().unwrap_or_default()
    }

    fn count_unused(&self, claimed: &Claimed, taken: usize) {
        let name = &self.channel.name;
        let unused = |reason: &str, count: usize| {
            if count > 0 {
                self.node.metrics.permits_unused(name, reason, count as u64);
            }
        };
        if claimed.held_back {
            unused("held_back", taken);
        } else if claimed.clocks_apart {
            unused("clocks_apart", taken);
        } else if claimed.outdated {
            unused("outdated", taken);
        } else {
            unused("spent_before", claimed.spent_before.len());
            unused("stale", claimed.stale.len());
        }
    }

    /// Tells Redis what the ledger knows of the limits just granted from.
    async fn refresh(&self, channel: &Channel, taken: &[(RefundId, Permit)]) -> Result<(), ServerError> {
        let permits: Vec<Permit> = taken.iter().take(1).map(|(_, permit)| permit.clone()).collect();
        for limit in &channel.limits {
            self.node.catch_up(limit, &permits).await?;
        }
        Ok(())
    }

    /// Keeps trying to take back a claim whose commit was not seen. The statement may still be running
    /// over there, so finding nothing once is not the end.
    fn take_back(&self, ids: Vec<RefundId>, holder: String) {
        let node = self.node.clone();
        let channel = Arc::clone(&self.channel);
        self.node.calls.spawn(async move {
            let until = Instant::now() + channel.lease;
            while Instant::now() < until && !node.stop.is_cancelled() {
                crash::point("taking_back");
                if let Ok(back @ 1..) = node.store.unclaim(&ids, &holder).await {
                    crash::point("taken_back");
                    tracing::info!(
                        channel.name = %channel.name, refunds = back,
                        "Took back a claim of {back} refunds whose commit was not seen; none was sent",
                    );
                    return;
                }
                tokio::time::sleep(jittered(Duration::from_secs(1))).await;
            }
            // The last try of a node that stops.
            let _ = node.store.unclaim(&ids, &holder).await;
        });
    }

    /// Logs the first failure of a row, and that it is over.
    fn note(&mut self, error: Option<&ServerError>) {
        let kind = error.map(|error| match error {
            ServerError::Bucket(_) => "redis",
            ServerError::Store(_) => "postgres",
        });
        if kind == self.trouble {
            return;
        }
        if let Some(error) = error {
            tracing::warn!(
                channel.name = %self.channel.name, error = %chain(error),
                "Channel `{}` sends nothing for now: failed to take or claim; will try again", self.channel.name,
            );
        } else {
            tracing::info!(channel.name = %self.channel.name, "Channel `{}` sends again", self.channel.name);
        }
        self.trouble = kind;
    }
}

/// What to do before the next take.
enum Wait {
    No,
    For(Duration),
    UntilFed,
}
