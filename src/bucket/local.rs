//! Takes refunds of channels with limits of which this node counts its own share, in memory.
//!
//! The take has three steps. It looks how many permits the shares have, and when they open. It takes refunds under the
//! shared limits in Redis, whose permits open at the same time. It spends permits of the shares for as many refunds as
//! Redis gave.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::OwnedMutexGuard;

use super::server::Call;
use super::{
    Bucket, BucketError, ClockReading, LimitWait, OpeningTimes, Order, Purpose, Take, Yield, micros, misread,
    reply,
};
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
        if let Some(first) = own.first().filter(|_| order.is_too_late()) {
            // Other takes had the lock for long. The caller looks again which share it has, and comes back at once.
            let wait = LimitWait { span: Duration::ZERO, limit: first.name.clone() };
            return Ok(Take::Denied { wait, depth: None, is_low: false, stricter_rules: Vec::new() });
        }
        let within = shared.iter().map(|limit| limit.ahead).min().unwrap_or(Duration::MAX);
        let (looked, own_again) = match self.reserve(&own, order, within, "look").await? {
            Take::Granted { taken, again, .. } => (taken, again),
            denied => return Ok(denied),
        };
        let lead_time = order.lead_time.min(Self::LONGEST_LEAD_TIME);
        let looked_at = self.local.now();
        let (most, opening) = meeting(&looked, &shared, looked_at, lead_time);
        let order_of_shared = Order { want: u32::try_from(most).unwrap_or(u32::MAX), ..order };
        match self.take_shared(channel, &shared, order_of_shared, purpose, yields, opening).await? {
            Take::Granted { taken, mut depth, is_low, again, stricter_rules, .. } => {
                // If permits of the look are left, another take may get them at once.
                let own_again = own_again.filter(|_| taken.len() == looked.len());
                // Redis granted permits for the moments of the look.
                let since = if shared.is_empty() { Duration::ZERO } else { self.local.now() - looked_at };
                let order = Order { lead_time: lead_time.saturating_sub(since), ..order };
                let (taken, without) = self.spend(&own, order, within, taken).await?;
                if !without.is_empty() {
                    // If this fails, the ids come back from their rows.
                    depth = self.put_back_into(&channel.name, purpose, &without).await.unwrap_or(depth);
                }
                let again = again.or(own_again);
                Ok(Take::Granted { taken, depth, is_low, again, stricter_rules, unused: without.len() })
            }
            other => Ok(other),
        }
    }

    /// Spends permits of the shares for refunds that left the bucket. Time has passed since the look. So a refund may
    /// get no permit, or none that is open together with its other permits. Returns the refunds with their permits,
    /// and the refunds without one.
    async fn spend(
        &self,
        own: &[Arc<Limit>],
        order: Order,
        within: Duration,
        taken: Vec<(RefundId, Permit)>,
    ) -> Result<(Vec<(RefundId, Permit)>, Vec<RefundId>), BucketError> {
        let want = u32::try_from(taken.len()).unwrap_or(u32::MAX);
        let spent = match self.reserve(own, Order { want, ..order }, within, "spend").await? {
            Take::Granted { taken, .. } => taken,
            _ => Vec::new(),
        };
        let mut spent = spent.into_iter();
        let (mut both, mut without) = (Vec::with_capacity(taken.len()), Vec::new());
        for (id, theirs) in taken {
            match spent.next().and_then(|(_, ours)| joined(theirs, ours)) {
                Some(permit) => both.push((id, permit)),
                None => without.push(id),
            }
        }
        Ok((both, without))
    }

    /// Looks at permits of the shares that open at most `within` after the lead time, or spends them.
    async fn reserve(
        &self,
        own: &[Arc<Limit>],
        order: Order,
        within: Duration,
        how: &str,
    ) -> Result<Take, BucketError> {
        let here = Placement::LocalShare { nodes: 1 };
        if let Some(by_us) = self.report_step(here, &None).await? {
            return Ok(Take::ClockStepped { by_us });
        }
        let mut call = Call::default();
        call.key(self.keys.clock(&None));
        call.arg(order.most()).arg(micros(order.lead_time)).arg(micros(self.tolerance)).arg(how);
        call.arg(micros(within));
        for limit in own {
            self.add_limit(limit, &mut call);
        }
        let (reply, read): (_, ClockReading) =
            self.ask(&self.local, &self.scripts.reserve, &call, "own shares", &None).await?;
        if let Some(by_us) = self.doubt(here, &None, read).await? {
            return Ok(Take::ClockStepped { by_us });
        }
        let taken =
            reply::take(own, own, order.most(), &reply, read).ok_or_else(|| misread("own shares", &reply))?;
        Ok(match taken {
            // The shares do not know the depth of the bucket.
            Take::Denied { wait, stricter_rules, .. } => {
                Take::Denied { wait, depth: None, is_low: false, stricter_rules }
            }
            taken => taken,
        })
    }
}

/// How many permits of a look a take can use, and when Redis's permits must open for that, so that any two of them have
/// a span in common. Redis's permits open before the share's are closed. The share's permits open before Redis's are
/// closed: a permit of Redis stays open for at least half of its life.
fn meeting(
    looked: &[(RefundId, Permit)],
    shared: &[Arc<Limit>],
    now: Instant,
    lead_time: Duration,
) -> (usize, OpeningTimes) {
    let first = looked.first().and_then(|(_, permit)| permit.span);
    let Some(first) = first.filter(|_| !shared.is_empty()) else { return (looked.len(), OpeningTimes::ANY) };
    let opens = first.opens.max(now + lead_time);
    let within = first.closes.saturating_duration_since(opens) / 2;
    let dated = shared.iter().filter(|limit| !limit.rule.algorithm.is_numbered());
    let half_lives = dated.map(|limit| limit.rule.lateness / 4);
    let latest = opens + half_lives.fold(within, Duration::min);
    let is_met = |(_, permit): &&(RefundId, Permit)| permit.span.is_some_and(|span| span.opens <= latest);
    (looked.iter().take_while(is_met).count(), OpeningTimes { after: opens - now, within })
}

/// One permit out of two: its span is the common part of both spans. `None` if they have no common part.
fn joined(a: Permit, b: Permit) -> Option<Permit> {
    let span = match (a.span, b.span) {
        (Some(a), Some(b)) => Some(Span { opens: a.opens.max(b.opens), closes: a.closes.min(b.closes), ..a }),
        (a, b) => a.or(b),
    };
    let is_usable = span.is_none_or(|span| span.opens < span.closes);
    is_usable.then(|| Permit { numbers: a.numbers.into_iter().chain(b.numbers).collect(), span })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_permits_that_are_never_open_together_are_none() {
        let now = Instant::now();
        let permit = |opens_ms: i64| {
            let span = Span::translate(opens_ms * 1000, (opens_ms + 10) * 1000, 0, now, now);
            Permit { numbers: Vec::new(), span: Some(span) }
        };
        let both = joined(permit(30), permit(36)).and_then(|permit| permit.span).unwrap();
        assert_eq!(both.closes - both.opens, Duration::from_millis(4));
        assert!(joined(permit(30), permit(40)).is_none());
    }

    #[test]
    fn a_take_uses_the_permits_of_a_look_that_open_with_the_first_one() {
        let (now, lead_time) = (Instant::now(), Duration::from_millis(5));
        let permit = |opens_ms: i64| {
            let span = Span::translate(opens_ms * 1000, (opens_ms + 20) * 1000, 0, now, now);
            (RefundId(opens_ms), Permit { numbers: Vec::new(), span: Some(span) })
        };
        let rule = r#"{"algorithm":"sliding_log","permits":10,"per_us":1000000,"lateness_us":40000}"#;
        let shared = [Arc::new(Limit {
            name: LimitName::stored("acme"),
            rule: rule.parse().unwrap(),
            ahead: Duration::from_millis(50),
            placement: Placement::Shared,
        })];
        let looked = [permit(30), permit(40), permit(41)];
        let (most, opening) = meeting(&looked, &shared, now, lead_time);
        assert_eq!(most, 2);
        assert_eq!((opening.after, opening.within), (Duration::from_millis(30), Duration::from_millis(10)));
        let (most, opening) = meeting(&looked, &[], now, lead_time);
        assert_eq!((most, opening.after), (3, Duration::ZERO));
        // The permit of a window is open for long: any permit of Redis in that time meets it.
        let of_window = |opens_ms: i64| {
            let span = Span::translate(opens_ms * 1000, 10_005_000, 0, now, now);
            (RefundId(opens_ms), Permit { numbers: Vec::new(), span: Some(span) })
        };
        let (most, opening) = meeting(&[of_window(0), of_window(15), of_window(16)], &shared, now, lead_time);
        assert_eq!(most, 2);
        assert_eq!((opening.after, opening.within), (lead_time, Duration::from_secs(5)));
    }
}
