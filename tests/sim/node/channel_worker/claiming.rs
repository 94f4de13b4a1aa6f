//! `ChannelWorker::claim_and_start` and `take_back`.

use std::sync::Arc;
use std::time::Duration;

use refundd::bucket::{Bucket, Purpose};
use refundd::channel::Channel;
use refundd::limiter::Permit;
use refundd::refund::inquiry;
use refundd::refund::{Leased, RefundId};
use refundd::store::{ClaimRequest, Claimed};

use super::left_over::MOST_CANDIDATES;
use crate::clock::micros;
use crate::mistake::Mistake;
use crate::violation::{Checked, taken};
use crate::world::node::{Ask, Chore, LostClaim, Node, Send, TOLERANCE};
use crate::world::{LateClaim, World, note};

/// A refund under a lease, for a send or for an inquiry: `Work::Leased`.
enum Begun {
    Send(Leased),
    Ask(inquiry::LeasedInquiry),
}

impl Begun {
    fn id(&self) -> RefundId {
        match self {
            Begun::Send(refund) => refund.id,
            Begun::Ask(inquiry) => inquiry.id,
        }
    }
}

fn begun<T>(claimed: Claimed<T>, of: impl Fn(T) -> Begun) -> Claimed<Begun> {
    Claimed {
        leased: claimed.leased.into_iter().map(of).collect(),
        permits: claimed.permits,
        unspent: claimed.unspent,
        beyond: claimed.beyond,
        spent_before: claimed.spent_before,
        stale: claimed.stale,
        is_suspended: claimed.is_suspended,
        clocks_apart: claimed.clocks_apart,
        outdated: claimed.outdated,
        is_address_lost: claimed.is_address_lost,
        overspent: claimed.overspent,
    }
}

impl World<'_> {
    /// `ChannelWorker::claim_and_start`.
    pub async fn claim(&mut self, n: usize, purpose: Purpose, channel_index: usize) -> Checked<bool> {
        let Some((channel, granted)) = self.nodes[n].worker(purpose, channel_index).taken.take() else {
            return Ok(false);
        };
        let mut more = std::mem::take(&mut self.nodes[n].worker(purpose, channel_index).more);
        let carries = purpose == Purpose::Send && granted.iter().any(|(_, permit)| permit.span.is_some());
        let worker = self.nodes[n].worker(purpose, channel_index);
        worker.claims += 1;
        if worker.claims == 1 && worker.met_unclaimable && carries {
            more = self.more(n, channel_index, &channel, MOST_CANDIDATES.saturating_sub(granted.len())).await;
        }
        let (leased_at, started) = (self.now(), self.stage.clock.instant());
        let ahead = channel.limits.iter().map(|limit| limit.ahead).max().unwrap_or_default();
        let tolerance = TOLERANCE + ahead + Bucket::LONGEST_LEAD_TIME;
        let node = &mut self.nodes[n];
        let holder = format!("{}/{}", node.name, node.claims);
        node.claims += 1;
        let name = node.name.clone();
        if purpose == Purpose::Send && self.is(Mistake::SendBeforeTheClaim) {
            self.lease_blindly(n, channel_index, &channel, &granted, &holder, started);
        }
        self.travel();
        let (lost, late) = (self.troubled(), self.rng.bool());
        let ran = !lost || self.rng.bool();
        let mut claimed = None;
        if ran {
            let request = ClaimRequest {
                channel: &channel.name,
                node: &name,
                holder: &holder,
                lease: channel.lease,
                clock_tolerance: tolerance,
                taken: &granted,
                resend_within: channel.resend_within(),
                most_sends: channel.retry.sends,
                bank_address: &channel.bank_address(),
            };
            self.stage.tell_time_and_look().await;
            let store = &self.nodes[n].store;
            claimed = Some(match purpose {
                Purpose::Send => begun(taken(store.claim_among(&request, &more).await)?, Begun::Send),
                Purpose::Inquire => begun(taken(store.claim_inquiries(&request).await)?, Begun::Ask),
            });
            self.observe().await?;
            self.travel();
        } else if late {
            let taken = granted.clone();
            self.late_claims.push(LateClaim {
                purpose,
                channel: channel_index,
                node: name,
                holder: holder.clone(),
                lease: channel.lease,
                taken,
                more: more.clone(),
                tolerance,
                resend_within: channel.resend_within(),
                most_sends: channel.retry.sends,
                bank_address: channel.bank_address(),
                store: self.store_as_of_now(n),
            });
        }
        if lost {
            note!(
                self,
                "node {n} does not hear of its claim {holder} ({})",
                if ran { "it was made" } else { "it was not made, so far" }
            );
            if purpose == Purpose::Send && self.is(Mistake::SendAfterALostClaim) {
                self.lease_blindly(n, channel_index, &channel, &granted, &holder, started);
            }
            self.nodes[n].worker(purpose, channel_index).wasted = true;
            if purpose == Purpose::Send {
                let ids = granted.into_iter().map(|(id, _)| id).chain(more).collect();
                let until = self.now() + micros(channel.lease);
                self.nodes[n].lost_claims.push(LostClaim { ids, holder, next: 0, until });
            }
            self.stumble(n, purpose, channel_index, "claim");
            return Ok(true);
        }
        let Some(mut claimed) = claimed else { return Ok(true) };
        let is_refused = claimed.is_refused();
        if purpose == Purpose::Send {
            claimed.leased.sort_by_key(Begun::id);
        }
        note!(
            self,
            "node {n} claims {purpose:?} {:?}{}{}{}, overspent {:?}, spent before {:?}, stale {:?}",
            claimed.leased.iter().map(|leased| leased.id().0).collect::<Vec<_>>(),
            if claimed.is_suspended { ", held back" } else { "" },
            if claimed.clocks_apart { ", clocks apart" } else { "" },
            if claimed.outdated { ", outdated" } else { "" },
            claimed.overspent.iter().map(|id| id.0).collect::<Vec<_>>(),
            claimed.spent_before.iter().map(|id| id.0).collect::<Vec<_>>(),
            claimed.stale.iter().map(|id| id.0).collect::<Vec<_>>(),
        );
        let first_byte_by = started + channel.lease.saturating_sub(channel.timeout + Channel::LEASE_MARGIN);
        let first_byte_by = if purpose == Purpose::Send && self.is(Mistake::NoSendDeadline) {
            first_byte_by + Duration::from_hours(1)
        } else {
            first_byte_by
        };
        for leased in claimed.leased {
            let Some(permit) = claimed.permits.get(&leased.id()).cloned() else { continue };
            let channel = Arc::clone(&channel);
            match leased {
                Begun::Send(refund) => {
                    self.nodes[n].sends.push(Send { channel, channel_index, refund, permit, first_byte_by });
                }
                Begun::Ask(inquiry) => {
                    let ask = Ask { channel, channel_index, inquiry, permit, leased_at, first_byte_by };
                    self.nodes[n].asks.push(ask);
                }
            }
        }
        let refresh = claimed.outdated || !claimed.overspent.is_empty() || !claimed.spent_before.is_empty();
        let is_overspent = !claimed.overspent.is_empty();
        if purpose == Purpose::Send && is_overspent {
            let until = self.now() + micros(channel.lease);
            self.nodes[n].lost_claims.push(LostClaim { ids: claimed.overspent, holder, next: 0, until });
        }
        if let Some((_, permit)) = granted.first().filter(|_| refresh) {
            for limit in &channel.limits {
                let catch_up = Chore::CatchUp(Arc::clone(limit), permit.clone());
                self.nodes[n].worker(purpose, channel_index).chores.push_back(catch_up);
            }
        }
        let waits = granted.first().and_then(|(_, permit)| permit.wait_after_refusal(&channel.limits));
        if let Some(wait) = waits.filter(|_| is_overspent || claimed.outdated) {
            self.nodes[n].worker(purpose, channel_index).not_before = self.now() + micros(wait);
        }
        if is_overspent {
            self.nodes[n].worker(purpose, channel_index).wasted = true;
            return Ok(true);
        }
        if !claimed.beyond.is_empty() {
            let fate = self.fate();
            self.nodes[n].link.fares(fate);
            let bucket = self.nodes[n].bucket.clone();
            // Ids that are lost here come back from their rows.
            if let Ok(depth) = bucket.put_back(&channel.name, &claimed.beyond).await {
                self.nodes[n].worker(purpose, channel_index).depth = Some(depth);
            }
        }
        let now = self.now();
        let worker = self.nodes[n].worker(purpose, channel_index);
        worker.outdated_claims = if claimed.outdated { worker.outdated_claims + 1 } else { 0 };
        if worker.outdated_claims > 1 && waits.is_none() {
            worker.not_before = now + Node::RESTORE_AGAIN;
        }
        worker.met_unclaimable = !is_refused && !claimed.stale.is_empty();
        worker.wasted |= claimed.is_suspended || claimed.clocks_apart || claimed.is_address_lost;
        if claimed.is_suspended {
            self.read_suspensions(n).await?;
        }
        if claimed.clocks_apart || claimed.is_address_lost {
            self.nodes[n].worker(purpose, channel_index).not_before = self.now() + Node::TRY_AGAIN;
        }
        if is_refused {
            return Ok(true);
        }
        let wasted = self.carry_over(n, purpose, channel_index, &channel, claimed.unspent, carries).await;
        if wasted {
            let now = self.now();
            let worker = self.nodes[n].worker(purpose, channel_index);
            worker.wasted = true;
            if worker.taken.is_none()
                && channel.limits.iter().any(|limit| limit.rule.per >= Bucket::LONG_WINDOW)
            {
                // The left-over permits can be granted again as soon as Redis counts the window from the ledger.
                worker.not_before = now + 1_000;
            }
        }
        Ok(true)
    }

    /// A mistaken worker: it does not wait for its claim, or goes on without the answer to it.
    fn lease_blindly(
        &mut self,
        n: usize,
        channel_index: usize,
        channel: &Arc<Channel>,
        granted: &[(RefundId, Permit)],
        holder: &str,
        started: std::time::Instant,
    ) {
        for (id, permit) in granted {
            let epoch = self.rows.get(&id.0).map_or(0, |row| row.epoch) + 1;
            let refund = Leased {
                id: *id,
                epoch,
                holder: Arc::from(holder),
                attempt: 1,
                is_resend: false,
                is_first: true,
                expected: refundd::refund::ExpectedEcho {
                    refund_id: *id,
                    refund_ref: String::new(),
                    money: refundd::refund::Money { amount_minor: 0, currency: String::new() },
                    bank_ref: None,
                },
                request_id: refundd::refund::RequestId(uuid::Uuid::nil()),
                body: Arc::from(Vec::new()),
                traceparent: None,
            };
            let first_byte_by = started + channel.timeout;
            self.nodes[n].sends.push(Send {
                channel: Arc::clone(channel),
                channel_index,
                refund,
                permit: permit.clone(),
                first_byte_by,
            });
        }
    }

    /// `ChannelWorker::take_back`.
    pub async fn take_back(&mut self, n: usize) -> Checked<bool> {
        let now = self.now();
        let Some(at) = self.nodes[n].lost_claims.iter().position(|claim| claim.next <= now) else {
            return Ok(false);
        };
        let mut claim = self.nodes[n].lost_claims.remove(at);
        self.travel();
        let lost = self.troubled();
        let mut count = 0;
        if !lost {
            self.stage.tell_time_and_look().await;
            count = taken(self.nodes[n].store.unclaim(&claim.ids, &claim.holder).await)?;
            note!(self, "node {n} takes back {count} of {:?} under {}", claim.ids, claim.holder);
            self.observe().await?;
        }
        if count == 0 && self.now() < claim.until {
            claim.next = self.now() + 1_000_000;
            self.nodes[n].lost_claims.push(claim);
        }
        Ok(true)
    }
}
