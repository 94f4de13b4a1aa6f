//! Takes refunds of channels with limits of which this node counts its own share, in memory.
//!
//! The take has three steps. It looks how many permits the shares have. It takes refunds under the shared limits in
//! Redis. It spends permits of the shares for as many refunds as Redis gave.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use tokio::sync::OwnedMutexGuard;

use super::server::Call;
use super::{Bucket, BucketError, ClockReading, Order, Purpose, Take, Yield, micros, misread, reply};
use crate::channel::Channel;
use crate::limiter::{Limit, Permit, Placement, Span};
use crate::lock::Lock;
use crate::refund::id::{LimitName, RefundId};

/// A lock for each limit of which this node has counted a share.
#[derive(Default)]
pub(super) struct ShareLocks(Mutex<HashMap<LimitName, Arc<tokio::sync::Mutex<()>>>>);

impl ShareLocks {
    /// Locks these limits, in the order of their names, so that no two tasks wait for each other.
    pub async fn lock(&self, limits: &[Arc<Limit>]) -> Vec<OwnedMutexGuard<()>> {
        let names: BTreeSet<&LimitName> = limits.iter().map(|limit| &limit.name).collect();
        let mut locked = Vec::with_capacity(names.len());
        for name in names {
            let lock = Arc::clone(self.0.locked().entry(name.clone()).or_default());
            locked.push(lock.lock_owned().await);
        }
        locked
    }
}

impl Bucket {
    /// Takes refunds of a channel that has at least one limit with a share.
    pub(super) async fn take_with_shares(
        &self,
        channel: &Channel,
        order: Order,
        purpose: Purpose,
        yields: Yield,
    ) -> Result<Take, BucketError> {
        let (shared, own): (Vec<_>, Vec<_>) =
            channel.limits.iter().cloned().partition(|limit| limit.placement == Placement::Shared);
        // No other task of this node may spend permits between the look and the spending.
        let _alone = self.counting.lock(&own).await;
        let (most, own_again) = match self.reserve(&own, order, "look").await? {
            Take::Granted { taken, again, .. } => (u32::try_from(taken.len()).unwrap_or(u32::MAX), again),
            denied => return Ok(denied),
        };
        let order_of_shared = Order { want: most, ..order };
        match self.take_shared(channel, &shared, order_of_shared, purpose, yields).await? {
            Take::Granted { taken, mut depth, feed, again, stricter_rules, .. } => {
                let (taken, without) = self.spend(&own, order, taken).await?;
                if !without.is_empty() {
                    // If this fails, the ids come back from their rows.
                    depth = self.put_back_into(&channel.name, purpose, &without).await.unwrap_or(depth);
                }
                let again = again.or(own_again);
                Ok(Take::Granted { taken, depth, feed, again, stricter_rules, unused: without.len() })
            }
            other => Ok(other),
        }
    }

    /// Spends permits of the shares for refunds that left the bucket. Time has passed since the look, so a refund may
    /// get no permit. Returns the refunds with their permits, and the refunds without one.
    async fn spend(
        &self,
        own: &[Arc<Limit>],
        order: Order,
        taken: Vec<(RefundId, Permit)>,
    ) -> Result<(Vec<(RefundId, Permit)>, Vec<RefundId>), BucketError> {
        let want = u32::try_from(taken.len()).unwrap_or(u32::MAX);
        let spent = match self.reserve(own, Order { want, ..order }, "spend").await? {
            Take::Granted { taken, .. } => taken,
            _ => Vec::new(),
        };
        let mut spent = spent.into_iter();
        let (mut both, mut without) = (Vec::with_capacity(taken.len()), Vec::new());
        for (id, theirs) in taken {
            match spent.next() {
                Some((_, ours)) => both.push((id, joined(theirs, ours))),
                None => without.push(id),
            }
        }
        Ok((both, without))
    }

    async fn reserve(&self, own: &[Arc<Limit>], order: Order, how: &str) -> Result<Take, BucketError> {
        let here = Placement::LocalShare { nodes: 1 };
        if let Some(by_us) = self.report_step(here, &None).await? {
            return Ok(Take::ClockStepped { by_us });
        }
        let mut call = Call::default();
        call.key(self.keys.clock(&None));
        call.arg(order.most()).arg(micros(order.lead_time)).arg(micros(self.tolerance)).arg(how);
        for limit in own {
            self.add_limit(limit, &mut call);
        }
        let (reply, read): (_, ClockReading) =
            self.ask(&self.local, &self.scripts.reserve, &call, "own shares", &None).await?;
        if let Some(by_us) = self.doubt(here, &None, read).await? {
            return Ok(Take::ClockStepped { by_us });
        }
        let taken =
            reply::take(own, order.most(), &reply, read).ok_or_else(|| misread("own shares", &reply))?;
        Ok(match taken {
            // The shares do not know the depth of the bucket.
            Take::Denied { wait, stricter_rules, .. } => {
                Take::Denied { wait, depth: None, feed: false, stricter_rules }
            }
            taken => taken,
        })
    }
}

/// One permit out of two: its span is the common part of both spans.
fn joined(a: Permit, b: Permit) -> Permit {
    let span = match (a.span, b.span) {
        (Some(a), Some(b)) => Some(Span { opens: a.opens.max(b.opens), closes: a.closes.min(b.closes), ..a }),
        (a, b) => a.or(b),
    };
    Permit { numbers: a.numbers.into_iter().chain(b.numbers).collect(), span }
}
