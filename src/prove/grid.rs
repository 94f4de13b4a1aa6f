//! The windows of a fixed window rule, as all nodes know them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::Period;
use crate::limiter::Rule;
use crate::limiter::timing::micros;

/// The first microsecond of each day of one time zone, in microseconds since 1970.
type Days = BTreeMap<Date, i64>;

/// The days on which the nodes agreed, by the name of the time zone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct AgreedDays(HashMap<String, Arc<Days>>);

impl AgreedDays {
    pub(super) fn insert(&mut self, zone: String, days: Days) {
        self.0.insert(zone, Arc::new(days));
    }
}

/// The edges of fixed windows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Grid {
    Every(i64),
    /// A day on which the nodes did not agree begins where this machine's time zone database says.
    Days {
        zone: TimeZone,
        agreed: Arc<Days>,
    },
}

impl Grid {
    pub(super) fn of(rule: &Rule, agreed: &AgreedDays) -> Option<Grid> {
        let window = rule.window()?;
        Some(match rule.algorithm.zone() {
            None => Grid::Every(micros(window).max(1)),
            Some(zone) => {
                let agreed = rule.zone().and_then(|name| agreed.0.get(name));
                Grid::Days { zone: zone.clone(), agreed: agreed.cloned().unwrap_or_default() }
            }
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
            Grid::Days { zone, agreed } => day(zone, agreed, us).unwrap_or_else(|| every(86_400_000_000)),
        }
    }

    /// How many windows a period touches.
    pub(super) fn windows(&self, period: Period) -> u64 {
        let (first, last) = (self.window(period.from_us), self.window(period.to_us - 1));
        let length = match self {
            Grid::Every(length) => *length,
            // Days have 23 to 25 hours, so the mean of a longer time is rounded.
            Grid::Days { .. } => 86_400_000_000,
        };
        let between = (last.to_us - first.from_us + length / 2) / length;
        u64::try_from(between).unwrap_or(0).max(1)
    }
}

/// The day that holds a moment.
fn day(zone: &TimeZone, agreed: &Days, us: i64) -> Option<Period> {
    let begins_us = |day: Date| {
        let by_this_machine = || day.to_zoned(zone.clone()).ok()?.start_of_day().ok();
        agreed.get(&day).copied().or_else(|| Some(by_this_machine()?.timestamp().as_microsecond()))
    };
    // The day by this machine's database. The agreed days may begin earlier or later.
    let mut day = Timestamp::from_microsecond(us).ok()?.to_zoned(zone.clone()).date();
    let mut to_us = begins_us(day.tomorrow().ok()?)?;
    while to_us <= us {
        day = day.tomorrow().ok()?;
        to_us = begins_us(day.tomorrow().ok()?)?;
    }
    let mut from_us = begins_us(day)?;
    while from_us > us {
        to_us = from_us;
        day = day.yesterday().ok()?;
        from_us = begins_us(day)?;
    }
    Some(Period { from_us, to_us })
}
