//! The bars of a limit's chart: how long each of them is, and from when to when they go.
//!
//! The read of the permits and the chart use the same bars, so the page counts every bar that it shows as a whole.

use super::watch::MINUTES;
use crate::limiter::Rule;

/// The bars of one limit's last minutes. A bar begins where a fixed window does, and all of them have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LimitBars {
    /// Seconds since 1970.
    pub from: i64,
    pub until: i64,
    pub seconds_per_bar: i64,
}

impl LimitBars {
    /// The bars of the minutes before a second since 1970. `None` for a rule whose span is longer than the minutes.
    pub(super) fn before(now: i64, rule: &Rule) -> Option<Self> {
        let seconds = i64::try_from(rule.per.as_millis().div_ceil(1000)).unwrap_or(i64::MAX).max(1);
        if seconds > MINUTES * 60 {
            return None;
        }
        let until = now - now.rem_euclid(seconds);
        let from = (until - MINUTES * 60).div_euclid(seconds) * seconds;
        Some(LimitBars { from, until, seconds_per_bar: seconds })
    }

    /// The length of all bars together, in seconds.
    pub(super) fn seconds(self) -> u64 {
        self.until.abs_diff(self.from)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::limiter::Algorithm;

    fn rule(per_ms: u64) -> Rule {
        let algorithm = Algorithm::FixedWindow { zone: None };
        let lateness = Duration::from_millis(1);
        Rule { algorithm, permits: 20, per: Duration::from_millis(per_ms), lateness }
    }

    fn bars(now: i64, per_ms: u64) -> Option<(i64, i64, i64)> {
        LimitBars::before(now, &rule(per_ms)).map(|bars| (bars.from, bars.until, bars.seconds_per_bar))
    }

    #[test]
    fn bars_are_whole_windows_that_have_ended_and_go_back_for_the_minutes_at_least() {
        for (now, per_ms, expected) in [
            (10_807, 1_000, (9_907, 10_807, 1)),
            (10_807, 60_000, (9_900, 10_800, 60)),
            (10_807, 300_000, (9_900, 10_800, 300)),
            (11_399, 300_000, (10_200, 11_100, 300)),
            // Fifteen minutes are one and a half of these windows.
            (10_807, 600_000, (9_600, 10_800, 600)),
            (10_807, 900_000, (9_900, 10_800, 900)),
            (11_699, 900_000, (9_900, 10_800, 900)),
        ] {
            assert_eq!(bars(now, per_ms), Some(expected), "{now} {per_ms}");
        }
        assert_eq!(bars(10_807, 900_001), None);
    }
}
