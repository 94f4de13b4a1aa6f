//! The bars of a limit's chart: how long each of them is, from when to when they go, and how much the limit allows in them.
//!
//! The read of the permits and the chart use the same bars, so the page counts every bar that it shows as a whole.

use crate::limiter::Rule;

/// How far back the page of a channel looks.
pub(super) const MINUTES: i64 = 15;
const SECOND_US: i64 = 1_000_000;
/// Bars of whole spans are at most so many seconds long, or twice the span.
const LONGEST: i64 = 60;

/// The bars of one limit's last minutes. All of them have ended. Where whole spans of the rule make a bar that is not too long,
/// each bar begins where a fixed window does, and has as many windows as any other.
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
        let per_us = i64::try_from(rule.per.as_micros()).unwrap_or(i64::MAX).max(1);
        if per_us > MINUTES * 60 * SECOND_US {
            return None;
        }
        let least = (per_us - 1) / SECOND_US + 1;
        let has_whole_spans = |seconds: &i64| seconds * SECOND_US % per_us == 0;
        let seconds = (least..=LONGEST.max(2 * least)).find(has_whole_spans).unwrap_or(least);
        let until = now - now.rem_euclid(seconds);
        let from = (until - MINUTES * 60).div_euclid(seconds) * seconds;
        Some(LimitBars { from, until, seconds_per_bar: seconds })
    }

    /// The length of all bars together, in seconds.
    pub(super) fn seconds(self) -> u64 {
        self.until.abs_diff(self.from)
    }
}

/// The most permits that the rule allows in so many seconds, wherever they begin, without its burst. In a second there may begin
/// four windows of 300 ms.
pub(super) fn most_permits(rule: &Rule, seconds: u64) -> u64 {
    let spans = (u128::from(seconds) * 1_000_000).div_ceil(rule.per.as_micros().max(1));
    u64::from(rule.permits).saturating_mul(u64::try_from(spans).unwrap_or(u64::MAX))
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
            // No bar of one second has whole spans.
            (10_807, 1_500, (9_906, 10_806, 3)),
            (10_807, 300, (9_906, 10_806, 3)),
            (10_807, 250, (9_907, 10_807, 1)),
            (10_807, 61_500, (9_717, 10_701, 123)),
            // Nor has any bar that is short.
            (10_807, 999, (9_907, 10_807, 1)),
            (10_807, 7_777, (9_896, 10_800, 8)),
        ] {
            assert_eq!(bars(now, per_ms), Some(expected), "{now} {per_ms}");
        }
        assert_eq!(bars(10_807, 900_001), None);
    }
    #[test]
    fn a_rule_allows_as_much_as_windows_can_begin_in_a_bar_and_in_all_bars() {
        for (per_ms, of_bar) in [
            (1_000, 20),
            (60_000, 20),
            (250, 80),
            (1_500, 40),
            (300, 200),
            (999, 40),
            (7_777, 40),
            (61_500, 40),
            (899_999, 40),
        ] {
            let (rule, per) = (rule(per_ms), i64::try_from(per_ms).unwrap());
            let windows_before = |second: i64| (second * 1_000 + per - 1).div_euclid(per);
            let permits = |from, until| 20 * (windows_before(until) - windows_before(from)).unsigned_abs();
            for now in 1_000_000..1_002_000 {
                let bars = LimitBars::before(now, &rule).unwrap();
                let one = bars.seconds_per_bar;
                assert_eq!(most_permits(&rule, one.unsigned_abs()), of_bar, "{per_ms}");
                let fullest = (bars.from..bars.until)
                    .step_by(usize::try_from(one).unwrap())
                    .map(|from| permits(from, from + one))
                    .max();
                assert!(fullest <= Some(of_bar), "{per_ms} {now}: {fullest:?}");
                let all = permits(bars.from, bars.until);
                assert!(all <= most_permits(&rule, bars.seconds()), "{per_ms} {now}: {all}");
            }
        }
    }
}
