//! The retry policy: how long a refund waits before its next send, and when a person decides instead.
//!
//! The module does not decide whether a refund may be sent again.

use std::time::Duration;

use crate::backoff::Backoff;

/// The retry policy of a channel. Each wait is drawn between zero and a ceiling, and the ceiling doubles.
/// In the end a person decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The first ceiling.
    pub base: Duration,
    /// The largest ceiling.
    pub cap: Duration,
    /// A person decides after this many counted sends.
    pub sends: u32,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        RetryPolicy { base: Duration::from_secs(2), cap: Duration::from_mins(5), sends: 12 }
    }
}

impl RetryPolicy {
    /// The wait after send number `sent`, or `None` when the sends are used up.
    ///
    /// `jitter` is drawn from [0, 1). Full jitter (Amazon Architecture Blog, "Exponential Backoff And Jitter")
    /// spreads the sends over the whole span. So a bank that comes back does not get all of them at once.
    #[must_use]
    pub fn wait_after(&self, sent: u32, jitter: f64) -> Option<Duration> {
        if sent >= self.sends {
            return None;
        }
        let ceiling = Backoff { first: self.base, last: self.cap }.after(sent);
        Some(ceiling.mul_f64(jitter.clamp(0.0, 1.0)))
    }

    /// The wait of a refund that its bank has refused alone so many times: at first what the bank `asked` for, then twice as long each
    /// time up to the cap.
    #[must_use]
    pub fn wait_alone(&self, asked: Duration, times: u32) -> Duration {
        Backoff { first: asked, last: self.cap.max(asked) }.after(times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_refund_that_is_refused_alone_waits_as_long_as_the_bank_asks_then_longer_up_to_the_cap() {
        let policy = RetryPolicy { cap: Duration::from_mins(1), ..RetryPolicy::default() };
        let waits = |asked| {
            let asked = Duration::from_secs(asked);
            [1, 2, 3, 7, u32::MAX].map(|times| policy.wait_alone(asked, times).as_secs())
        };
        assert_eq!(waits(1), [1, 2, 4, 60, 60]);
        assert_eq!(waits(90), [90; 5], "never less than the bank asked for");
    }

    proptest! {
        #[test]
        fn a_wait_stays_under_its_ceiling_and_the_cap(sent in 1u32..40, jitter in 0.0f64..1.0) {
            let policy = RetryPolicy::default();
            match policy.wait_after(sent, jitter) {
                Some(wait) => {
                    prop_assert!(sent < policy.sends);
                    prop_assert!(wait <= policy.cap);
                    prop_assert!(wait <= policy.base * (1 << (sent - 1).min(20)));
                }
                None => prop_assert!(sent >= policy.sends),
            }
        }
    }

    #[test]
    fn the_ceiling_doubles_from_two_seconds_to_five_minutes() {
        let policy = RetryPolicy::default();
        let ceilings: Vec<u64> = (1..12).map(|n| policy.wait_after(n, 1.0).unwrap().as_secs()).collect();
        assert_eq!(ceilings, [2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
        assert_eq!(policy.wait_after(12, 0.5), None);
    }
}
