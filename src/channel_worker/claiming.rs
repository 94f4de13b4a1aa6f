//! From a take to calls under way: the claim, and what it may turn out to be. A permit that no refund of the take needs
//! goes on to the next ids in line.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::OwnedSemaphorePermit;

use super::lapses::Course;
use super::send::Send;
use super::{ChannelWorker, Next};
use crate::bank::Reserved;
use crate::bucket::Bucket;
use crate::channel::Channel;
use crate::crash;
use crate::limiter::Permit;
use crate::node::jittered;
use crate::node::reminding::ServerError;
use crate::refund::RefundId;
use crate::store::{Asked, Claimed};
use crate::telemetry::chain;

/// What a dispatcher holds before it takes: as many of each as permits can be granted, at the least.
#[derive(Debug)]
pub(super) struct Hands {
    pub slots: Vec<OwnedSemaphorePermit>,
    pub connections: Vec<Reserved>,
}

/// What one claim means for the next step.
enum Then {
    /// These permits are left over.
    Left(Vec<Permit>),
    /// Nothing more is to be claimed now.
    Stop(Next),
}

impl ChannelWorker {
    /// The most claims that one take leads to.
    const MOST_CLAIMS: u32 = 20;
    /// The most ids that one claim looks at for permits that were left over, however few those are.
    const MOST_CANDIDATES: usize = 100;

    /// Claims what was taken and sends it. Permits of ids that cannot be claimed any more carry over to the next ids in
    /// line, as long as their span lasts for another claim.
    pub(super) async fn claim_and_send(
        &mut self,
        channel: &Arc<Channel>,
        mut taken: Vec<(RefundId, Permit)>,
        slots: Vec<OwnedSemaphorePermit>,
        connections: Vec<Reserved>,
    ) -> Result<Next, ServerError> {
        let mut hands = Hands { slots, connections };
        let is_limited = taken.iter().any(|(_, permit)| permit.span.is_some());
        let mut more = Vec::new();
        if self.met_dead && is_limited {
            more = self.more(channel, Self::MOST_CANDIDATES.saturating_sub(taken.len())).await;
        }
        let mut nth = 1;
        let unspent = loop {
            let left = match self.claim_once(channel, &taken, &more, &mut hands).await? {
                Then::Left(left) => left,
                Then::Stop(next) => return Ok(next),
            };
            // Without limits another take costs nothing.
            if left.is_empty() || !is_limited || nth == Self::MOST_CLAIMS || self.stop.is_cancelled() {
                break left.len();
            }
            let until = Instant::now() + self.lead_time.expected();
            let (open, over): (Vec<_>, Vec<_>) =
                left.into_iter().partition(|permit| permit.span.is_some_and(|span| until < span.closes));
            if open.is_empty() {
                break over.len();
            }
            let candidates = open.len().saturating_mul(4usize.saturating_pow(nth)).min(Self::MOST_CANDIDATES);
            let mut ids = self.more(channel, candidates.max(open.len())).await;
            if ids.is_empty() {
                break open.len() + over.len();
            }
            self.count_unspent(over.len());
            more = ids.split_off(ids.len().min(open.len()));
            self.count_unspent(open.len() - ids.len());
            taken = ids.into_iter().zip(open).collect();
            nth += 1;
        };
        self.count_unspent(unspent);
        if unspent > 0 && channel.limits.iter().any(|limit| limit.rule.per >= Bucket::LONG_WINDOW) {
            // The take said when there will be more; but what is left over can be had as soon as the ledger was asked.
            return Ok(Next::later(Duration::from_millis(1)));
        }
        Ok(Next::Now)
    }

    /// Further ids from the line; none where Redis does not answer.
    async fn more(&mut self, channel: &Channel, most: usize) -> Vec<RefundId> {
        // In a line that was just fed nobody knows how many stand.
        if most == 0 || self.depth == Some(0) {
            return Vec::new();
        }
        match self.node.bucket.more(&channel.name, u32::try_from(most).unwrap_or(u32::MAX)).await {
            Ok((ids, depth)) => {
                self.depth = Some(depth);
                self.node.note_depth(&channel.name, depth);
                if depth < u64::from(self.wake_ups.low_water()) {
                    self.wake_ups.nudge(&channel.name);
                }
                crash::point("taken_more");
                ids
            }
            // What left the line unseen comes back from its rows.
            Err(error) => {
                tracing::debug!(channel.name = %channel.name, error = %chain(&error), "Failed to take more ids for permits that are left over");
                Vec::new()
            }
        }
    }

    /// One claim, and the calls that follow from it.
    async fn claim_once(
        &mut self,
        channel: &Arc<Channel>,
        taken: &[(RefundId, Permit)],
        more: &[RefundId],
        hands: &mut Hands,
    ) -> Result<Then, ServerError> {
        let asked_at = Instant::now();
        let holder = self.node.next_holder();
        let asked = Asked {
            channel: &channel.name,
            node: &self.node.name,
            holder: &holder,
            lease: channel.lease,
            clock_tolerance: self.clock_tolerance + self.longest_ahead() + Bucket::MOST_HASTE,
            taken,
            resend_within: channel.resend_within(),
            most_sends: channel.retry.sends,
            bank_address: &channel.bank_address(),
        };
        let mut claimed = match self.node.store.claim_among(&asked, more).await {
            Ok(claimed) => claimed,
            Err(error) => {
                // The commit may have happened all the same; nothing of it was sent.
                self.wasted.store(true, Ordering::Relaxed);
                let ids = taken.iter().map(|(id, _)| *id).chain(more.iter().copied()).collect();
                self.take_back(ids, holder);
                return Err(error.into());
            }
        };
        crash::point("claimed");
        self.node.metrics.claim(asked_at.elapsed());
        self.lead_time.learn(asked_at.elapsed());
        let course = Course { claiming: asked_at, claimed: Instant::now() };
        self.count_unused(&claimed, taken.len());
        // From its first byte on, a call needs the whole time-out and some margin under the lease.
        let leash = asked_at + channel.lease.saturating_sub(channel.timeout + Channel::LEASE_MARGIN);
        let mut permits = std::mem::take(&mut claimed.permits);
        for refund in std::mem::take(&mut claimed.leased) {
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
                lapses: Arc::clone(&self.lapses),
                course,
                stop: self.stop.clone(),
                refund,
                permit,
                leash,
            };
            self.node.calls.spawn(send.run(hands.slots.pop(), hands.connections.pop()));
        }
        if !claimed.beyond.is_empty() {
            match self.node.bucket.put_back(&channel.name, &claimed.beyond).await {
                Ok(depth) => self.depth = Some(depth),
                Err(error) => {
                    tracing::debug!(channel.name = %channel.name, error = %chain(&error), "Failed to put ids back in line; they come back from their rows");
                }
            }
        }
        self.met_dead = !claimed.is_refused() && !claimed.stale.is_empty();
        self.heed(channel, taken, claimed).await
    }

    /// What else a claim says: of the channel, of Redis's clock, of what Redis forgot.
    async fn heed(
        &mut self,
        channel: &Channel,
        taken: &[(RefundId, Permit)],
        claimed: Claimed,
    ) -> Result<Then, ServerError> {
        if claimed.outdated {
            // Redis may still count under the old generation, if it is not the one that knows the new.
            self.refresh(channel, taken).await?;
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
            return Ok(Then::Stop(Next::later(jittered(Duration::from_secs(1)))));
        }
        if !claimed.spent_before.is_empty() {
            tracing::warn!(
                channel.name = %channel.name, refunds = claimed.spent_before.len(),
                "Redis handed out {} permits of channel `{}` a second time; the ledger refused them", claimed.spent_before.len(), channel.name,
            );
            self.refresh(channel, taken).await?;
        }
        if claimed.is_refused() {
            return Ok(Then::Stop(Next::Now));
        }
        Ok(Then::Left(claimed.unspent))
    }

    /// A permit may be claimed this much before its window opens.
    pub(super) fn longest_ahead(&self) -> Duration {
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
        }
    }

    /// Permits that nobody needs any more: they were not written down, but Redis counts them.
    fn count_unspent(&self, count: usize) {
        if count > 0 {
            self.wasted.store(true, Ordering::Relaxed);
            self.node.metrics.permits_unused(&self.channel.name, "unspent", count as u64);
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
}
