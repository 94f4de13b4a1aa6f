//! From a take to requests under way: the claim, and what it may turn out to be. A permit that no refund of the take needs
//! goes on to the next ids in the bucket.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::OwnedSemaphorePermit;

use super::attempt::{Attempt, Course};
use super::{ChannelWorker, Next, Work};
use crate::bank::Reserved;
use crate::bucket::{Bucket, Errand};
use crate::channel::Channel;
use crate::crash;
use crate::limiter::Permit;
use crate::node::jittered;
use crate::node::reminding::ServerError;
use crate::refund::RefundId;
use crate::store::{Asked, Claimed};
use crate::telemetry::chain;

/// What a worker holds before it takes: as many of each as permits can be granted, at the least.
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

impl<W: Work> ChannelWorker<W> {
    /// The most claims that one take leads to.
    const MOST_CLAIMS: u32 = 20;
    /// The most ids that one claim looks at for permits that were left over, however few those are.
    const MOST_CANDIDATES: usize = 100;

    /// Claims what was taken and makes the requests. Permits of refunds that cannot be claimed any more carry over to the
    /// next ids in the bucket, as long as their span lasts for another claim.
    pub(super) async fn claim_and_start(
        &mut self,
        channel: &Arc<Channel>,
        mut taken: Vec<(RefundId, Permit)>,
        mut hands: Hands,
    ) -> Result<Next, ServerError> {
        // Without limits another take costs nothing. And inquiries are few: the next take is soon enough.
        let carries = W::ERRAND == Errand::Send && taken.iter().any(|(_, permit)| permit.span.is_some());
        let mut more = Vec::new();
        if self.met_dead && carries {
            more = self.more(channel, Self::MOST_CANDIDATES.saturating_sub(taken.len())).await;
        }
        let mut nth = 1;
        let unspent = loop {
            let left = match self.claim_once(channel, &taken, &more, &mut hands).await? {
                Then::Left(left) => left,
                Then::Stop(next) => return Ok(next),
            };
            if left.is_empty() || !carries || nth == Self::MOST_CLAIMS || self.stop.is_cancelled() {
                break left.len();
            }
            let until = Instant::now() + self.work.lead_time();
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
            // The take said when there will be more; but what is left over can be had as soon as Redis asked the ledger.
            return Ok(Next::later(Duration::from_millis(1)));
        }
        Ok(Next::Now)
    }

    /// Further ids from the bucket of sends; none where Redis does not answer.
    async fn more(&mut self, channel: &Channel, most: usize) -> Vec<RefundId> {
        // How many ids a bucket has that was just filled, nobody knows.
        if most == 0 || self.depth == Some(0) {
            return Vec::new();
        }
        match self.node.bucket.more(&channel.name, u32::try_from(most).unwrap_or(u32::MAX)).await {
            Ok((ids, depth)) => {
                self.note_depth(depth);
                if depth < u64::from(self.wake_ups.low_water()) {
                    self.wake_ups.nudge(&channel.name);
                }
                crash::point("taken_more");
                ids
            }
            // Ids that left the bucket unseen come back from their rows.
            Err(error) => {
                tracing::debug!(channel.name = %channel.name, error = %chain(&error), "Failed to take more ids for permits that are left over");
                Vec::new()
            }
        }
    }

    /// One claim, and the requests that follow from it.
    async fn claim_once(
        &mut self,
        channel: &Arc<Channel>,
        taken: &[(RefundId, Permit)],
        more: &[RefundId],
        hands: &mut Hands,
    ) -> Result<Then, ServerError> {
        let claiming = Instant::now();
        let holder = self.node.next_holder();
        let claim = Asked {
            channel: &channel.name,
            node: &self.node.name,
            holder: &holder,
            lease: channel.lease,
            clock_tolerance: self.node.bucket.tolerance() + self.longest_ahead() + Bucket::MOST_HASTE,
            taken,
            resend_within: channel.resend_within(),
            most_sends: channel.retry.sends,
            bank_address: &channel.bank_address(),
        };
        let mut claimed = match self.work.claim(&self.node.store, &claim, more).await {
            Ok(claimed) => claimed,
            Err(error) => {
                // The commit may have happened all the same; no request of it was made.
                self.to_tell.wasted = true;
                let ids = taken.iter().map(|(id, _)| *id).chain(more.iter().copied()).collect();
                self.take_back(ids, holder);
                return Err(error.into());
            }
        };
        self.work.note_claim(&self.node, claiming.elapsed());
        let course = Course { claiming, claimed: Instant::now() };
        self.count_unused(&claimed, taken.len());
        // From its first byte on, a request needs the whole time-out and some margin under the lease.
        let send_deadline = claiming + channel.lease.saturating_sub(channel.timeout + Channel::LEASE_MARGIN);
        let mut permits = std::mem::take(&mut claimed.permits);
        for leased in std::mem::take(&mut claimed.leased) {
            let id = W::id(&leased);
            let Some(permit) = permits.remove(&id) else {
                // No request is made without its permit, whatever went wrong before.
                tracing::error!(refund.id = %id, "Refund {id} was leased without a permit; it is handed back");
                self.take_back(vec![id], holder.clone());
                continue;
            };
            let attempt = Attempt {
                node: self.node.clone(),
                channel: Arc::clone(channel),
                bank: Arc::clone(&self.bank),
                stop: self.stop.clone(),
                permit,
                course,
                send_deadline,
            };
            self.work.start(attempt, leased, hands.slots.pop(), hands.connections.pop());
        }
        if !claimed.beyond.is_empty() {
            match self.node.bucket.put_back(&channel.name, &claimed.beyond).await {
                Ok(depth) => self.depth = Some(depth),
                Err(error) => {
                    tracing::debug!(channel.name = %channel.name, error = %chain(&error), "Failed to put ids back into the bucket; they come back from their rows");
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
        claimed: Claimed<W::Leased>,
    ) -> Result<Then, ServerError> {
        if claimed.held_back || claimed.clocks_apart {
            self.to_tell.wasted = true;
        }
        if claimed.outdated {
            // Redis may still count under the old generation, if it is not the one that knows the new.
            self.refresh(channel, taken).await?;
        }
        if claimed.held_back {
            // The channel was suspended a moment ago; read it before taking again.
            self.node.held.update(&self.node.store.held().await?);
        }
        if claimed.clocks_apart {
            tracing::error!(
                channel.name = %channel.name,
                "Redis's clock is more than {:?} from Postgres's; nothing is sent until they agree: check both hosts' time service",
                self.node.bucket.tolerance(),
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

    fn count_unused(&self, claimed: &Claimed<W::Leased>, taken: usize) {
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

    /// Permits that nobody needs any more: they are not in the ledger, but Redis counts them.
    fn count_unspent(&mut self, count: usize) {
        if count > 0 {
            self.to_tell.wasted = true;
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
    ///
    /// An inquiry needs no taking back: the bank is asked when its lease is over.
    fn take_back(&self, ids: Vec<RefundId>, holder: String) {
        if W::ERRAND == Errand::Inquire {
            return;
        }
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
