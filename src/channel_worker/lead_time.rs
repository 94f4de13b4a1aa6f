//! The expected time from a grant to the first byte. A permit that closes earlier is of no use, so the node does not
//! ask for such permits. The connection is already open, so this time is the duration of a claim.
//!
//! Before the first claim it is a guess, and rather too long than too short.

use std::sync::Mutex;
use std::time::Duration;

use crate::estimate::Estimate;
use crate::lock::Lock;

#[derive(Debug, Default)]
pub(super) struct LeadTime(Mutex<Estimate>);

impl LeadTime {
    const UNSEEN: Duration = Duration::from_millis(40);

    /// Notes how long a claim took.
    pub fn learn(&self, took: Duration) {
        self.0.locked().learn(took);
    }

    /// The lead time to ask with, between 0.5 ms and 1 s.
    pub fn expected(&self) -> Duration {
        let seen = *self.0.locked();
        let clamped = |took: Duration| took.clamp(Duration::from_micros(500), Duration::from_secs(1));
        seen.expected().map_or(Self::UNSEEN, clamped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_claim_makes_it_longer_and_quick_ones_shorter_again() {
        let lead_time = LeadTime::default();
        let at_rest = lead_time.expected();
        lead_time.learn(Duration::from_millis(50));
        let after = lead_time.expected();
        assert!(after > at_rest * 3, "{after:?}");
        for _ in 0..100 {
            lead_time.learn(Duration::from_millis(1));
        }
        assert!(lead_time.expected() < Duration::from_millis(2), "{:?}", lead_time.expected());
    }
}
