//! Whether a bank that asks to wait means its channel, or one refund alone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::lock::Lock;
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
    /// How often the bank refused each refund alone, until it said what became of it.
    refused_alone: HashMap<RefundId, u32>,
}

impl WaitsOfBanks {
    /// How many refunds a bank may refuse alone. If it refuses more, it means the channel.
    pub const ALONE: usize = 8;

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

    /// Notes that a bank refuses this refund again and again. Answers how often it did so alone, because it goes on with others; `None`
    /// if it may mean the channel.
    pub fn refused_alone(&self, channel: &ChannelName, refund: RefundId) -> Option<u32> {
        let mut channels = self.0.locked();
        let since = channels.get_mut(channel).filter(|since| since.has_verdict)?;
        let known = &mut since.refused_alone;
        if known.len() >= Self::ALONE && !known.contains_key(&refund) {
            return None;
        }
        let times = known.entry(refund).or_default();
        *times = times.saturating_add(1);
        Some(*times)
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
    use std::time::Duration;

    fn acme() -> ChannelName {
        ChannelName::new("acme").unwrap()
    }

    #[test]
    fn a_bank_may_mean_a_few_refunds_alone_from_its_next_verdict_until_the_channel_cools_again() {
        let (waits, acme, mut now) = (WaitsOfBanks::default(), acme(), Instant::now());
        let alone = |id| waits.refused_alone(&acme, RefundId(id)).is_some();
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
            assert_eq!(waits.refused_alone(&acme, RefundId(1)), None);
        }
        waits.note(&acme, RefundId(99), &Outcome::Succeeded, later(11));
        assert_eq!(waits.refused_alone(&acme, RefundId(1)), Some(1));
        waits.note(&acme, RefundId(99), &Outcome::Succeeded, began);
        assert_eq!(waits.refused_alone(&acme, RefundId(1)), Some(2), "an early one takes nothing away");
    }

    #[test]
    fn refusals_are_counted_for_each_refund_until_the_channel_cools() {
        let (waits, acme, now) = (WaitsOfBanks::default(), acme(), Instant::now());
        let times = |id| waits.refused_alone(&acme, RefundId(id));
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
}
