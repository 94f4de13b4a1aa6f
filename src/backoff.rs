//! Pauses between tries that fail in a row: each is twice as long as the one before.
//!
//! It draws no jitter: who pauses knows how far to spread its tries.

use std::time::Duration;

/// How pauses grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The pause after the first failure.
    pub first: Duration,
    /// No pause is longer.
    pub last: Duration,
}

impl Backoff {
    /// The pause after so many failures in a row.
    #[must_use]
    pub fn after(self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(30);
        self.first.saturating_mul(1 << doublings).min(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pause_is_twice_as_long_as_the_one_before_up_to_the_last() {
        let backoff = Backoff { first: Duration::from_millis(200), last: Duration::from_secs(3) };
        let pauses: Vec<u128> = (0..=6).map(|failures| backoff.after(failures).as_millis()).collect();
        assert_eq!(pauses, [200, 200, 400, 800, 1600, 3000, 3000]);
        assert_eq!(backoff.after(u32::MAX), backoff.last);
        let longest = Backoff { first: Duration::MAX, last: Duration::MAX };
        assert_eq!(longest.after(9), Duration::MAX);
    }
}
