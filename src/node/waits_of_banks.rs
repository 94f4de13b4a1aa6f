//! Whether a bank that asks to wait means its channel, or one refund alone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::lock::Lock;
use crate::refund::retry::RetryPolicy;
use crate::refund::{ChannelName, Outcome, RefundId};

/// What banks did since their channels last cooled for an answer to this node. In memory, so that no send writes a row for it. Cheap to
/// clone.
#[derive(Debug, Clone, Default)]
pub struct WaitsOfBanks(Arc<Mutex<HashMap<ChannelName, SinceCooling>>>);

#[derive(Debug, Default)]
struct SinceCooling {
    /// When the channel cooled, or got other settings; `None` if it never did.
    cooled_at: Option<Instant>,
    /// Whether the bank has said of a refund what became of it. The send began after the channel cooled.
    has_verdict: bool,
    /// The refunds that the bank refused alone, until it said what became of them.
    refused_alone: HashMap<RefundId, LoneRefusals>,
}

/// How often a bank refused one refund alone.
#[derive(Debug)]
struct LoneRefusals {
    times: u32,
    last: Instant,
    longest_wait: Duration,
}

impl LoneRefusals {
    /// Whether the refund should have come back long ago. It may have ended without a verdict on this node. While the machine
    /// sleeps, `now` stands still: then the refund is kept for longer.
    fn are_old(&self, now: Instant) -> bool {
        let most = WaitsOfBanks::LEAST_KEPT.max(self.longest_wait.saturating_mul(2));
        now.saturating_duration_since(self.last) >= most
    }
}

impl WaitsOfBanks {
    /// How many refunds a bank may refuse alone. If it refuses more, it means the channel.
    pub const ALONE: usize = 8;
    /// A refund keeps its place among them for this long after its last refusal, and for twice its longest wait.
    const LEAST_KEPT: Duration = Duration::from_hours(1);

    /// Notes the answer to a send of this refund that began at `began`.
    pub fn note(&self, channel: &ChannelName, refund: RefundId, outcome: &Outcome, began: Instant) {
        if !matches!(outcome, Outcome::Succeeded | Outcome::Accepted | Outcome::Rejected) {
            return;
        }
        let mut channels = self.0.locked();
        if let Some(since) = channels.get_mut(channel) {
            since.has_verdict |= since.cooled_at.is_none_or(|cooled_at| began > cooled_at);
            since.refused_alone.remove(&refund);
        } else {
            channels.insert(channel.clone(), SinceCooling { has_verdict: true, ..SinceCooling::default() });
        }
    }

    /// Notes at `now` that a bank refuses this refund again and again, and `asked` for this wait. Answers how often it did so alone,
    /// because it goes on with others, and the wait of the refund; `None` if it may mean the channel.
    pub fn refused_alone(
        &self,
        channel: &ChannelName,
        refund: RefundId,
        retry: &RetryPolicy,
        asked: Duration,
        now: Instant,
    ) -> Option<(u32, Duration)> {
        let mut channels = self.0.locked();
        let since = channels.get_mut(channel).filter(|since| since.has_verdict)?;
        let known = &mut since.refused_alone;
        known.retain(|id, refusals| *id == refund || !refusals.are_old(now));
        if known.len() >= Self::ALONE && !known.contains_key(&refund) {
            return None;
        }
        let first = LoneRefusals { times: 0, last: now, longest_wait: Duration::ZERO };
        let refusals = known.entry(refund).or_insert(first);
        refusals.times = refusals.times.saturating_add(1);
        let wait = retry.wait_alone(asked, refusals.times);
        refusals.last = now;
        refusals.longest_wait = refusals.longest_wait.max(wait);
        Some((refusals.times, wait))
    }

    /// The channel cools, or has other settings, from `now` on.
    pub fn start_anew(&self, channel: &ChannelName, now: Instant) {
        let cooled = SinceCooling { cooled_at: Some(now), ..SinceCooling::default() };
        self.0.locked().insert(channel.clone(), cooled);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn acme() -> ChannelName {
        ChannelName::new("acme").unwrap()
    }

    /// How often the bank of `acme` has refused the refund alone, and asked for a second.
    fn times(waits: &WaitsOfBanks, refund: i64, now: Instant) -> Option<u32> {
        let alone = waits.refused_alone(&acme(), RefundId(refund), &RetryPolicy::default(), SECOND, now);
        alone.map(|(times, _)| times)
    }

    #[test]
    fn a_bank_may_mean_a_few_refunds_alone_from_its_next_verdict_until_the_channel_cools_again() {
        let (waits, acme, mut now) = (WaitsOfBanks::default(), acme(), Instant::now());
        let began = now;
        let alone = |id| times(&waits, id, began).is_some();
        assert!(!alone(1), "nothing is known");
        for nothing in [Outcome::Unknown, Outcome::SlowDown { retry_after: None }] {
            waits.note(&acme, RefundId(99), &nothing, now);
            assert!(!alone(1), "{nothing:?}");
        }
        for verdict in [Outcome::Succeeded, Outcome::Accepted, Outcome::Rejected] {
            waits.note(&acme, RefundId(99), &verdict, now);
            assert!(alone(1) && alone(1) && (2..=8).all(alone), "{verdict:?}");
            waits.note(&acme, RefundId(99), &verdict, now);
            assert!(!alone(9) && alone(8), "it means the channel if it refuses more");
            waits.start_anew(&acme, now);
            assert!(!alone(1), "it cooled");
            now += Duration::from_millis(1);
        }
        waits.note(&ChannelName::new("globex").unwrap(), RefundId(99), &Outcome::Succeeded, now);
        assert!(!alone(1), "another channel says nothing");
    }

    #[test]
    fn a_verdict_on_a_send_that_began_before_the_channel_cooled_does_not_count() {
        let (waits, acme, began) = (WaitsOfBanks::default(), acme(), Instant::now());
        let later = |ms| began + Duration::from_millis(ms);
        waits.start_anew(&acme, later(10));
        for early in [began, later(10)] {
            waits.note(&acme, RefundId(99), &Outcome::Succeeded, early);
            assert_eq!(times(&waits, 1, began), None);
        }
        waits.note(&acme, RefundId(99), &Outcome::Succeeded, later(11));
        assert_eq!(times(&waits, 1, began), Some(1));
        waits.note(&acme, RefundId(99), &Outcome::Succeeded, began);
        assert_eq!(times(&waits, 1, began), Some(2), "an early one takes nothing away");
    }

    #[test]
    fn refusals_are_counted_for_each_refund_until_the_channel_cools() {
        let (waits, acme, now) = (WaitsOfBanks::default(), acme(), Instant::now());
        let times = |id| times(&waits, id, now);
        waits.note(&acme, RefundId(99), &Outcome::Succeeded, now);
        assert_eq!([1, 1, 2, 1].map(times), [Some(1), Some(2), Some(1), Some(3)]);
        waits.note(&acme, RefundId(1), &Outcome::Succeeded, now);
        assert_eq!(
            [1, 2].map(times),
            [Some(1), Some(2)],
            "its verdict ends its count, and gives its place back"
        );
        waits.start_anew(&acme, now);
        waits.note(&acme, RefundId(99), &Outcome::Succeeded, now + Duration::from_millis(1));
        assert_eq!(times(1), Some(1));
    }

    #[test]
    fn a_refund_that_was_not_refused_again_for_an_hour_and_twice_its_wait_gives_its_place_to_another() {
        let (waits, acme, began) = (WaitsOfBanks::default(), acme(), Instant::now());
        let (hours, moment) = (|hours| began + Duration::from_hours(hours), Duration::from_millis(1));
        waits.note(&acme, RefundId(99), &Outcome::Succeeded, began);
        assert!((1..=7).all(|id| times(&waits, id, began) == Some(1)));
        let three_hours = Duration::from_hours(3);
        let long = waits.refused_alone(&acme, RefundId(8), &RetryPolicy::default(), three_hours, began);
        assert_eq!(long, Some((1, three_hours)));
        assert_eq!(times(&waits, 9, hours(1).checked_sub(moment).unwrap()), None, "each may come back");
        assert_eq!(times(&waits, 7, hours(1)), Some(2), "a refund that comes back is counted on");
        assert!((9..=14).all(|id| times(&waits, id, hours(1)) == Some(1)), "six have not come back");
        assert_eq!(times(&waits, 15, hours(1)), None);
        // All but the eighth have not come back for hours.
        assert!((15..=21).all(|id| times(&waits, id, hours(6).checked_sub(moment).unwrap()) == Some(1)));
        assert_eq!(times(&waits, 22, hours(6).checked_sub(moment).unwrap()), None);
        assert_eq!(times(&waits, 22, hours(6)), Some(1), "the eighth has not come back for twice its wait");
    }
}
