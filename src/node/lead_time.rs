//! The expected time from a grant to the first byte. A permit that closes earlier is of no use, so the node does not
//! ask for such permits. The connection is already open, so this time is the duration of a claim.
//!
//! Before the first claim it is a guess, and rather too long than too short.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::estimate::Estimate;
use crate::lock::Lock;
use crate::refund::ChannelName;

/// The lead times of the sends of all channels. Inquiries under the same limits look at them. A channel that is gone keeps its entry.
#[derive(Debug, Default)]
pub struct LeadTimesOfSends(Mutex<HashMap<ChannelName, Arc<LeadTime>>>);

impl LeadTimesOfSends {
    /// The lead time of a channel's sends, which all workers of the channel share.
    pub fn of(&self, channel: &ChannelName) -> Arc<LeadTime> {
        Arc::clone(self.0.locked().entry(channel.clone()).or_default())
    }
}

/// The lead time of one worker, or of all workers for the sends of one channel.
#[derive(Debug, Default)]
pub struct LeadTime {
    estimate: Mutex<Estimate>,
    /// When a claim was noted last.
    learned_at: Mutex<Option<Instant>>,
}

impl LeadTime {
    const UNSEEN: Duration = Duration::from_millis(40);
    /// How long the last claim counts for others.
    const LATELY: Duration = Duration::from_mins(1);

    /// Notes how long a claim took.
    pub fn learn(&self, took: Duration) {
        self.estimate.locked().learn(took);
        *self.learned_at.locked() = Some(Instant::now());
    }

    /// The lead time to ask with, between 0.5 ms and 1 s.
    pub fn expected(&self) -> Duration {
        self.learned().unwrap_or(Self::UNSEEN)
    }

    /// The same; `None` if no claim was noted in the last minute before `now`.
    pub fn learned_lately(&self, now: Instant) -> Option<Duration> {
        let at = (*self.learned_at.locked())?;
        self.learned().filter(|_| now.saturating_duration_since(at) <= Self::LATELY)
    }

    /// The same; `None` before the first claim.
    fn learned(&self) -> Option<Duration> {
        let seen = *self.estimate.locked();
        seen.expected().map(|took| took.clamp(Duration::from_micros(500), Duration::from_secs(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_claim_makes_it_longer_and_quick_ones_shorter_again() {
        let lead_time = LeadTime::default();
        let at_rest = lead_time.expected();
        assert_eq!(lead_time.learned_lately(Instant::now()), None, "what is expected is a guess");
        lead_time.learn(Duration::from_millis(50));
        let after = lead_time.expected();
        assert!(after > at_rest * 3, "{after:?}");
        let now = Instant::now();
        assert_eq!(lead_time.learned_lately(now), Some(after));
        assert_eq!(lead_time.learned_lately(now + LeadTime::LATELY + Duration::from_millis(1)), None);
        for _ in 0..100 {
            lead_time.learn(Duration::from_millis(1));
        }
        assert!(lead_time.expected() < Duration::from_millis(2), "{:?}", lead_time.expected());
    }
}
