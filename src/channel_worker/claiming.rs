//! From a take to running requests: the claim, and the handling of each result that a claim may have.
//!
//! A permit that no refund of the take can use passes to the next ids in the bucket.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::attempt::{Attempt, ClaimTimes};
use super::blocked::Obstacle;
use super::resources::Resources;
use super::{ChannelWorker, Next, Work};
use crate::bank::Slept;
use crate::bucket::{Bucket, Purpose};
use crate::channel::Channel;
use crate::crash;
use crate::limiter::Permit;
use crate::logs::chain;
use crate::node::jittered;
use crate::refund::RefundId;
use crate::store::{ClaimRequest, Claimed};

/// The next step after one claim.
enum AfterClaim {
    /// Claim more ids for these permits, which are left over.
    Left(Vec<Permit>),
    /// Claim nothing more now.
    Stop(Next),
}

impl<W: Work> ChannelWorker<W> {
    /// The most claims after one take.
    const MOST_CLAIMS: u32 = 20;
    /// The most ids that one claim tries for left-over permits, however few permits are left.
    const MOST_CANDIDATES: usize = 100;

    /// Claims the taken ids and makes the requests; `slept` is the machine's sleep before the take. A permit whose refund
    /// can no longer be claimed passes to the next ids in the bucket, while its span leaves time for another claim.
    pub(super) async fn claim_and_start(
        &mut self,
        channel: &Arc<Channel>,
        mut taken: Vec<(RefundId, Permit)>,
        slept: Slept,
        mut resources: Resources,
    ) -> Result<Next, Obstacle> {
        // Without limits another take costs nothing. Inquiries are few, so the next take is soon enough for them.
        let carries = W::PURPOSE == Purpose::Send && taken.iter().any(|(_, permit)| permit.span.is_some());
        let mut more = Vec::new();
        if self.met_unclaimable && carries {
            more = self.more(channel, Self::MOST_CANDIDATES.saturating_sub(taken.len())).await;
        }
        let mut nth = 1;
        let unspent = loop {
            let left = match self.claim_once(channel, &taken, &more, slept, &mut resources).await? {
                AfterClaim::Left(left) => left,
                AfterClaim::Stop(next) => return Ok(next),
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
            // The take said when further permits open. The left-over permits can be granted again earlier: as soon as
            // Redis counts the window from the ledger.
            return Ok(Next::later(Duration::from_millis(1)));
        }
        Ok(Next::Now)
    }

    /// Further ids from the bucket for sends; none if Redis does not answer.
    async fn more(&mut self, channel: &Channel, most: usize) -> Vec<RefundId> {
        // An unknown depth (`None`) counts as not empty: the bucket was just filled.
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
            // Ids may have left the bucket although the call failed. Recovery puts them back from their rows.
            Err(error) => {
                tracing::debug!(
                    channel.name = %channel.name, error = %chain(&error),
                    "Failed to take more ids for permits that are left over",
                );
                Vec::new()
            }
        }
    }

    /// Commits one claim and starts its requests.
    async fn claim_once(
        &mut self,
        channel: &Arc<Channel>,
        taken: &[(RefundId, Permit)],
        more: &[RefundId],
        slept: Slept,
        resources: &mut Resources,
    ) -> Result<AfterClaim, Obstacle> {
        let claiming = Instant::now();
        let holder = self.node.next_holder();
        let claim = ClaimRequest {
            channel: &channel.name,
            node: &self.node.name,
            holder: &holder,
            lease: channel.lease,
            clock_tolerance: self.node.bucket.tolerance() + self.longest_ahead() + Bucket::LONGEST_LEAD_TIME,
            taken,
            resend_within: channel.resend_within(),
            most_sends: channel.retry.sends,
            bank_address: &channel.bank_address(),
        };
        let mut claimed = match self.work.claim(&self.node.store, &claim, more).await {
            Ok(claimed) => claimed,
            Err(error) => {
                // No request was made under it.
                self.notices.wasted = true;
                if !error.is_refused_claim() {
                    // The commit may have happened although the call failed.
                    let ids = taken.iter().map(|(id, _)| *id).chain(more.iter().copied()).collect();
                    self.take_back(ids, holder);
                }
                return Err(error.into());
            }
        };
        self.work.note_claim(&self.node, claiming.elapsed());
        let claim_times = ClaimTimes { claiming, slept, claimed: Instant::now() };
        self.count_unused(&claimed, taken.len());
        if !claimed.overspent.is_empty() {
            self.notices.wasted = true;
            self.take_back(std::mem::take(&mut claimed.overspent), holder.clone());
            self.refresh(channel, taken).await?;
            return Ok(AfterClaim::Stop(after_refusal(channel, taken)));
        }
        // After its first byte a request needs the whole time-out and a margin under the lease.
        let send_deadline = claiming + channel.lease.saturating_sub(channel.timeout + Channel::LEASE_MARGIN);
        let mut permits = std::mem::take(&mut claimed.permits);
        for leased in std::mem::take(&mut claimed.leased) {
            let id = W::id(&leased);
            let Some(permit) = permits.remove(&id) else {
                // No request is made without its permit, even after a fault elsewhere.
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
                claim_times,
                connecting: self.waits.connecting,
                send_deadline,
                probe: self.probe.take(),
            };
            if attempt.probe.is_some() {
                self.node.suspensions.use_probe(&channel.name);
            }
            self.work.start(attempt, leased, resources.slots.pop(), resources.connections.pop());
        }
        if !claimed.beyond.is_empty() {
            self.put_back(&claimed.beyond).await;
        }
        self.met_unclaimable = !claimed.is_refused() && !claimed.stale.is_empty();
        self.follow_up(channel, taken, claimed).await
    }

    /// Acts on what else a claim reports: the channel is suspended, the clocks are apart, Postgres lost the node's address, or Redis
    /// forgot permits.
    async fn follow_up(
        &mut self,
        channel: &Channel,
        taken: &[(RefundId, Permit)],
        claimed: Claimed<W::Leased>,
    ) -> Result<AfterClaim, Obstacle> {
        self.outdated_claims = if claimed.outdated { self.outdated_claims.saturating_add(1) } else { 0 };
        if claimed.is_suspended || claimed.clocks_apart || claimed.is_address_lost {
            self.notices.wasted = true;
        }
        if claimed.outdated {
            // This Redis may still count under the old generation, if another Redis received the new one.
            self.refresh(channel, taken).await?;
        }
        if claimed.is_suspended {
            // The channel was suspended a moment ago, or another node has the probe that this one reserved: read the suspensions
            // before the next take.
            if self.probe.take().is_some() {
                self.node.suspensions.use_probe(&channel.name);
            }
            self.node.read_suspensions().await?;
        }
        if claimed.clocks_apart {
            return Err(Obstacle::ClocksApart(self.node.bucket.tolerance()));
        }
        if claimed.is_address_lost {
            self.node.publication_lost.store(true, Ordering::Relaxed);
            // Nodes whose address Postgres has send these refunds meanwhile.
            self.put_back(&taken.iter().map(|(id, _)| *id).collect::<Vec<_>>()).await;
            return Err(Obstacle::AddressLost);
        }
        if !claimed.spent_before.is_empty() {
            tracing::warn!(
                channel.name = %channel.name, refunds = claimed.spent_before.len(),
                "Redis handed out {} permits of channel `{}` a second time; the ledger refused them",
                claimed.spent_before.len(), channel.name,
            );
            self.refresh(channel, taken).await?;
        }
        if claimed.outdated {
            let mut next = after_refusal(channel, taken);
            if self.outdated_claims > 1 && matches!(next, Next::Now) {
                next = Next::later(jittered(Self::RESTORE_AGAIN));
            }
            if !matches!(next, Next::Now) {
                // Nodes with the stricter rule in their own file send these refunds meanwhile.
                self.put_back(&taken.iter().map(|(id, _)| *id).collect::<Vec<_>>()).await;
            }
            return Ok(AfterClaim::Stop(next));
        }
        if claimed.is_refused() {
            return Ok(AfterClaim::Stop(Next::Now));
        }
        Ok(AfterClaim::Left(claimed.unspent))
    }

    /// Restores in Redis the counts of the limits that granted these permits, from the ledger.
    async fn refresh(&self, channel: &Channel, taken: &[(RefundId, Permit)]) -> Result<(), Obstacle> {
        let permits: Vec<Permit> = taken.iter().take(1).map(|(_, permit)| permit.clone()).collect();
        for limit in &channel.limits {
            self.node.catch_up(limit, &permits).await?;
        }
        Ok(())
    }

    /// Takes back a claim whose commit was not seen. It tries until the lease is over: the claim's statement may
    /// still run in Postgres, so a try that takes nothing back proves nothing.
    ///
    /// Does nothing for inquiries: when the lease of an inquiry is over, another inquiry is made.
    fn take_back(&self, ids: Vec<RefundId>, holder: String) {
        if W::PURPOSE == Purpose::Inquire {
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
            // A node that stops tries one last time.
            let _ = node.store.unclaim(&ids, &holder).await;
        });
    }
}

/// When to take again after the ledger refused permits.
fn after_refusal(channel: &Channel, taken: &[(RefundId, Permit)]) -> Next {
    let wait = taken.first().and_then(|(_, permit)| permit.wait_after_refusal(&channel.limits));
    wait.map_or(Next::Now, |wait| Next::later(jittered(wait)))
}
