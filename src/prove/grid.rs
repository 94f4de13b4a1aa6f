//! The windows of a fixed window rule, as all nodes know them.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::Period;
use crate::limiter::Rule;

/// The edges of fixed windows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Grid {
    Every(i64),
    Days(TimeZone),
}

impl Grid {
    pub(super) fn of(rule: &Rule) -> Option<Grid> {
        let window = rule.window()?;
        Some(match rule.algorithm.zone() {
            None => Grid::Every(i64::try_from(window.as_micros()).unwrap_or(i64::MAX / 4).max(1)),
            Some(zone) => Grid::Days(zone.clone()),
        })
    }

    /// The window that holds a moment.
    pub(super) fn window(&self, us: i64) -> Period {
        let every = |length: i64| {
            let from_us = us - us.rem_euclid(length);
            Period { from_us, to_us: from_us + length }
        };
        match self {
            Grid::Every(length) => every(*length),
            Grid::Days(zone) => day(zone, us).unwrap_or_else(|| every(86_400_000_000)),
        }
    }

    /// How many windows a period touches.
    pub(super) fn windows(&self, period: Period) -> u64 {
        let (first, last) = (self.window(period.from_us), self.window(period.to_us - 1));
        let length = match self {
            Grid::Every(length) => *length,
            // Days have 23 to 25 hours, so the mean of a longer time is rounded.
            Grid::Days(_) => 86_400_000_000,
        };
        let between = (last.to_us - first.from_us + length / 2) / length;
        u64::try_from(between).unwrap_or(0).max(1)
    }
}

fn day(zone: &TimeZone, us: i64) -> Option<Period> {
    let begin = Timestamp::from_microsecond(us).ok()?.to_zoned(zone.clone()).start_of_day().ok()?;
    let end = begin.tomorrow().ok()?.start_of_day().ok()?;
    Some(Period { from_us: begin.timestamp().as_microsecond(), to_us: end.timestamp().as_microsecond() })
}
