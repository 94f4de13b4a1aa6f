//! Asks banks what became of refunds that may have happened, and of those they accepted.
//!
//! One inquirer runs for each channel that has an inquiry, on each node, beside its dispatcher. It takes
//! ids from a small line of its own, under the same limits by the same scripts, leases the inquiry in the
//! statement that spends the permit, and asks. What an answer proves is `refund::inquiry`'s business.
//!
//! Refunds go first: while some stand in the channel's line, at most one permit in ten goes to an
//! inquiry, unless inquiries have limits of their own; and that one it gets. An inquiry that fails proves nothing, and losing
//! the line loses nothing: the row says when it is to be asked about.
//!
//! As with sends, a permit is asked for only with an open connection in hand. While the inquiry's address cannot be
//! reached nothing is taken and no schedule moves on.

mod ask;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::bank::{Bank, Pool, Reserved, Want};
use crate::bucket::{Bucket, Order, Take};
use crate::channel::{Channel, Inquiry};
use crate::crash;
use crate::limiter::{Permit, Placement};
use crate::node::failing::Failing;
use crate::node::in_force::InForce;
use crate::node::reach::{Errand, Reach};
use crate::node::reminding::ServerError;
use crate::node::{Node, jittered};
use crate::refund::RefundId;
use crate::store::Asked;
use crate::telemetry::chain;
use crate::wake_up::WakeUps;
use ask::Ask;

/// The loop of one channel.
#[derive(Debug)]
pub struct Inquirer {
    node: Node,
    wake_ups: WakeUps,
    /// With the limits that inquiries go under.
    channel: Arc<Channel>,
    inquiry: Arc<Inquiry>,
    in_force: InForce,
    bank: Arc<Bank>,
    connections: Pool,
    reach: Reach,
    slots: Arc<Semaphore>,
    clock_tolerance: Duration,
    stop: CancellationToken,
    failing: Failing,
    /// Permits were granted that nobody used: long windows must ask the ledger before the next take.
    wasted: bool,
    /// When a permit was last granted under limits that this node counts alone.
    granted: Option<Instant>,
}

impl Inquirer {
    /// One permit in so many, while refunds stand in line.
    const SHARE: u32 = 10;
    /// Inquiries taken at one time.
    const AT_ONCE: usize = 4;
    /// The wait after something failed.
    const TRY_AGAIN: Duration = Duration::from_millis(500);
    /// The least wait after a connection that could not be had.
    const LEAST_REST: Duration = Duration::from_millis(5);

    /// `None` for a channel without an inquiry.
    pub fn new(
        node: Node,
        wake_ups: WakeUps,
        channel: Arc<Channel>,
        bank: Arc<Bank>,
        clock_tolerance: Duration,
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
        Some(Inquirer {
            in_force: InForce::new(node.clone(), Arc::clone(&channel)),
            reach: Reach::new(node.clone(), channel.name.clone(), Errand::Inquire),
            connections,
            slots: Arc::new(Semaphore::new((channel.max_in_flight as usize / 4).max(1))),
            node,
            wake_ups,
            channel,
            inquiry,
            bank,
            clock_tolerance,
            stop,
            failing: Failing::default(),
            wasted: false,
            granted: None,
        })
    }

    pub async fn run(mut self) {
        let fed = self.wake_ups.filled(&self.channel.name);
        let stop = self.stop.clone();
        let mut wait = Wait::UntilFed;
        loop {
            match wait {
                Wait::No => {}
                Wait::For(span) => {
                    let now = Instant::now();
                    let turn = now + span;
                    let begin = now + span.saturating_sub(self.connections.lead(turn, 1));
                    tokio::select! {
                        () = stop.cancelled() => return,
                        () = tokio::time::sleep_until(begin.into()) => {}
                    }
                    // Held until then, so that it is noticed if none can be had.
                    let connections = tokio::select! {
                        () = stop.cancelled() => return,
                        connections = self.connect(1) => connections,
                    };
                    tokio::select! {
                        () = stop.cancelled() => return,
                        () = tokio::time::sleep_until(turn.into()) => drop(connections),
                    }
                }
                Wait::Rest(span) => tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(span) => {}
                },
                Wait::UntilFed => {
                    let _asleep = self.wake_ups.sleep(&self.channel.name);
                    tokio::select! {
                        () = stop.cancelled() => {
                            // A successor may sleep on the same line: leave any signal to it.
                            fed.notify_one();
                            return;
                        }
                        () = fed.notified() => {}
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
                connections = self.connect(slots.len()) => connections,
            };
            let connections = match connections {
                Ok(connections) => connections,
                Err(retry_in) => {
                    wait = Wait::Rest(retry_in.max(Self::LEAST_REST));
                    continue;
                }
            };
            if !self.node.held.is_free(&self.channel.name) {
                wait = Wait::No;
                continue;
            }
            let pass = self.node.progress.pass(format!("inquirer of {}", self.channel.name));
            let round = match self.in_force.now() {
                Some(channel) => self.round(&channel, slots, connections).await,
                None => Ok(Wait::Rest(jittered(InForce::NO_SHARE))),
            };
            drop(pass);
            wait = match round {
                Ok(wait) => {
                    self.note(None);
                    wait
                }
                Err(error) => {
                    self.note(Some(&error));
                    Wait::Rest(jittered(Self::TRY_AGAIN))
                }
            };
        }
    }

    /// Connections for the next take: some at once, or the time until there may be one.
    async fn connect(&mut self, most: usize) -> Result<Vec<Reserved>, Duration> {
        let want = Want { most, need: 1, until: Instant::now() + Bucket::MOST_HASTE };
        match self.connections.reserve(want).await {
            Ok(connections) => {
                self.reach.reached(&self.connections, &[]);
                Ok(connections)
            }
            Err(unreachable) => {
                self.reach.failed(&self.connections, &unreachable);
                Err(unreachable.retry_in)
            }
        }
    }

    /// Waits for one slot and takes some more that are free.
    async fn free_slots(&self) -> Vec<OwnedSemaphorePermit> {
        let Ok(first) = Arc::clone(&self.slots).acquire_owned().await else { return Vec::new() };
        let more = std::iter::from_fn(|| Arc::clone(&self.slots).try_acquire_owned().ok());
        std::iter::once(first).chain(more.take(Self::AT_ONCE - 1)).collect()
    }

    /// One take, and what follows from it.
    async fn round(
        &mut self,
        channel: &Arc<Channel>,
        slots: Vec<OwnedSemaphorePermit>,
        connections: Vec<Reserved>,
    ) -> Result<Wait, ServerError> {
        self.in_force.write_down().await?;
        if self.wasted {
            self.node.bucket.forget_long_windows(&channel.limits).await?;
            self.wasted = false;
        }
        let mut between = self.between(channel);
        if channel.limits.iter().any(|limit| limit.placement != Placement::Shared) {
            // Nobody else spends these permits, so this node gives way by itself.
            let refunds_wait =
                self.node.depth_seen_within(&channel.name, Duration::from_secs(2)).is_some_and(|d| d > 0);
            let rested = self.granted.map_or(Duration::MAX, |at| at.elapsed());
            if refunds_wait && rested < between {
                return Ok(Wait::For(between.saturating_sub(rested)));
            }
            between = Duration::ZERO;
        }
        let want = u32::try_from(slots.len().min(connections.len())).unwrap_or(1);
        // As far ahead as anybody may ask: dispatchers, who ask later, would leave nothing of a window.
        let order = Order { want, low_water: 0, haste: Bucket::MOST_HASTE };
        match self.node.bucket.take_inquiries(channel, order, between).await {
            Ok(Take::Granted { taken, again, overruled, depth, .. }) => {
                self.granted = Some(Instant::now());
                let longest = self.in_force.longest_wait(&overruled);
                let asked = Instant::now();
                let wait = self.claim_and_ask(channel, taken, slots, connections).await?;
                Ok(match (wait, again) {
                    (Wait::No, _) if depth == 0 => Wait::UntilFed,
                    (Wait::No, Some(again)) => {
                        Wait::For(again.span.min(longest).saturating_sub(asked.elapsed()))
                    }
                    (wait, _) => wait,
                })
            }
            Ok(Take::Denied { wait, overruled, .. }) => {
                let longest = self.in_force.longest_wait(&overruled);
                Ok(Wait::For(wait.span.clamp(Duration::from_millis(1), longest)))
            }
            Ok(Take::Empty) => Ok(Wait::UntilFed),
            Ok(Take::Forgot(forgotten)) => {
                self.node.remind(&forgotten).await?;
                Ok(Wait::Rest(jittered(Duration::from_millis(20))))
            }
            Ok(Take::ClockStepped { .. }) => {
                self.wasted = true;
                Ok(Wait::Rest(jittered(Duration::from_millis(20))))
            }
            Err(error) => {
                // The script may have run all the same.
                self.wasted = true;
                Err(error.into())
            }
        }
    }

    /// The time in which the channel's slowest limit grants ten permits; none if inquiries need not give way.
    fn between(&self, channel: &Channel) -> Duration {
        if self.inquiry.limits.is_some() {
            return Duration::ZERO;
        }
        let spacing = |rule: &crate::limiter::Rule| rule.per / rule.permits.max(1);
        channel.limits.iter().map(|limit| spacing(&limit.rule)).max().unwrap_or_default() * Self::SHARE
    }

    async fn claim_and_ask(
        &mut self,
        channel: &Arc<Channel>,
        taken: Vec<(RefundId, Permit)>,
        mut slots: Vec<OwnedSemaphorePermit>,
        mut connections: Vec<Reserved>,
    ) -> Result<Wait, ServerError> {
        crash::point("inquiring");
        let asked_at = Instant::now();
        let ahead = channel.limits.iter().map(|limit| limit.ahead).max().unwrap_or_default();
        let asked = Asked {
            channel: &channel.name,
            node: &self.node.name,
            holder: &self.node.name,
            lease: channel.lease,
            clock_tolerance: self.clock_tolerance + ahead + Bucket::MOST_HASTE,
            taken: &taken,
            resend_within: None,
            most_sends: channel.retry.sends,
            bank_address: &channel.bank_address(),
        };
        let claimed = match self.node.store.claim_inquiries(&asked).await {
            Ok(claimed) => claimed,
            Err(error) => {
                // The commit may have happened all the same; then they are asked about after the lease.
                self.wasted = true;
                return Err(error.into());
            }
        };
        crash::point("inquired");
        let leash = asked_at + channel.lease.saturating_sub(channel.timeout + Channel::LEASE_MARGIN);
        let mut permits = claimed.permits;
        for asked in claimed.leased {
            // Nothing is asked without its permit, whatever went wrong before.
            let Some(permit) = permits.remove(&asked.id) else { continue };
            let ask = Ask {
                node: self.node.clone(),
                channel: Arc::clone(channel),
                trust: self.inquiry.trust,
                bank: Arc::clone(&self.bank),
                stop: self.stop.clone(),
                asked,
                permit,
                leased_at: asked_at,
                leash,
            };
            self.node.calls.spawn(ask.run(slots.pop(), connections.pop()));
        }
        drop(connections);
        if claimed.outdated || !claimed.spent_before.is_empty() {
            let permits: Vec<Permit> = taken.iter().take(1).map(|(_, permit)| permit.clone()).collect();
            for limit in &channel.limits {
                self.node.catch_up(limit, &permits).await?;
            }
        }
        if !claimed.unspent.is_empty() {
            self.wasted = true;
        }
        if claimed.held_back {
            self.wasted = true;
            // Somebody paused or cooled the channel a moment ago; hear of it before asking again.
            self.node.held.update(&self.node.store.held().await?);
        }
        if claimed.clocks_apart {
            self.wasted = true;
            return Ok(Wait::Rest(jittered(Duration::from_secs(1))));
        }
        Ok(Wait::No)
    }

    /// Logs the first failure of a row, and that it is over.
    fn note(&mut self, error: Option<&ServerError>) {
        let name = &self.channel.name;
        let Some(error) = error else {
            let again =
                || tracing::info!(channel.name = %name, "The bank of channel `{name}` is asked again");
            return self.failing.worked(again);
        };
        self.failing.failed(|| {
            tracing::warn!(
                channel.name = %name, error = %chain(error),
                "The bank of channel `{name}` is not asked for now: failed to take or claim; will try again",
            );
        });
    }
}

/// What to do before the next take.
enum Wait {
    No,
    /// A connection stands open then.
    For(Duration),
    Rest(Duration),
    UntilFed,
}
