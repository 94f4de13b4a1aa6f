//! From a take to calls under way: the claim, and what it may turn out to be.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::OwnedSemaphorePermit;

use super::lapses::Course;
use super::send::Send;
use super::{Dispatcher, Next};
use crate::bank::Reserved;
use crate::bucket::Bucket;
use crate::channel::Channel;
use crate::crash;
use crate::limiter::Permit;
use crate::node::jittered;
use crate::node::reminding::ServerError;
use crate::refund::RefundId;
use crate::store::{Asked, Claimed};

impl Dispatcher {
    pub(super) async fn claim_and_send(
        &self,
        channel: &Arc<Channel>,
        taken: Vec<(RefundId, Permit)>,
        mut slots: Vec<OwnedSemaphorePermit>,
        mut connections: Vec<Reserved>,
    ) -> Result<Next, ServerError> {
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
            bank_address: &channel.bank_address(),
        };
        let mut claimed = match self.node.store.claim(&asked).await {
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
        let course = Course { claiming: asked_at, claimed: Instant::now() };
        self.count_unused(&claimed, taken.len());
        // From its first byte on, a call needs the whole time-out and some margin under the lease.
        let leash = asked_at + channel.lease.saturating_sub(channel.timeout + Channel::LEASE_MARGIN);
        let mut permits = std::mem::take(&mut claimed.permits);
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
                lapses: Arc::clone(&self.lapses),
                course,
                stop: self.stop.clone(),
                refund,
                permit,
                leash,
            };
            self.node.calls.spawn(send.run(slots.pop(), connections.pop()));
        }
        // Those left over lie idle for the next take.
        drop(connections);
        if claimed.outdated {
            // Redis may still count under the old generation, if it is not the one that knows the new.
            self.refresh(channel, &taken).await?;
        }
        if claimed.held_back || claimed.clocks_apart || !claimed.unspent.is_empty() {
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
            return Ok(Next::later(jittered(Duration::from_secs(1))));
        }
        if !claimed.spent_before.is_empty() {
            tracing::warn!(
                channel.name = %channel.name, refunds = claimed.spent_before.len(),
                "Redis handed out {} permits of channel `{}` a second time; the ledger refused them", claimed.spent_before.len(), channel.name,
            );
            self.refresh(channel, &taken).await?;
        }
        if !claimed.unspent.is_empty()
            && channel.limits.iter().any(|limit| limit.rule.per >= Bucket::LONG_WINDOW)
        {
            // The take said when there will be more; but what is left over can be had as soon as the ledger was asked.
            return Ok(Next::later(Duration::from_millis(1)));
        }
        Ok(Next::Now)
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
            unused("unspent", claimed.unspent.len());
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
