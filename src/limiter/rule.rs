//! A rule: an algorithm and its numbers, and its JSON form in Redis and in the ledger.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use serde::{Deserialize, Serialize};

use super::algorithm::{Algorithm, Supply};

/// How a limit counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub algorithm: Algorithm,
    /// How many first bytes may leave in each `per`.
    pub permits: u32,
    pub per: Duration,
    /// How late a first byte may reach the bank and still keep the limit.
    pub lateness: Duration,
}

/// A text that is no rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a rule of this version")]
pub struct BadRule(pub String);

impl Rule {
    /// The rate in refunds a second, for people.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        f64::from(self.permits) / self.per.as_secs_f64()
    }

    /// How far back spent permits still count.
    #[must_use]
    pub fn memory(&self) -> Duration {
        let span = self.per + self.lateness;
        span + self.algorithm.segments().map_or(Duration::ZERO, |segments| span / segments)
    }

    /// The time from one slot to the next, in microseconds, as in `rule.lua`; for algorithms without slots, the mean
    /// time between two permits.
    #[must_use]
    pub fn spacing_us(&self) -> u64 {
        let permits = u128::from(self.permits.max(1));
        let (per, lateness) = (self.per.as_micros(), self.lateness.as_micros());
        let spacing = if self.algorithm.keeps_gap() {
            per.div_ceil(permits) + lateness
        } else {
            (per + lateness).div_ceil(permits)
        };
        u64::try_from(spacing).unwrap_or(u64::MAX)
    }

    /// The most permits that are ever granted at one moment.
    #[must_use]
    pub fn at_once(&self) -> u32 {
        match self.algorithm.supply() {
            Supply::Slots => 1,
            Supply::OneByOne => self.algorithm.burst().unwrap_or(self.permits),
            Supply::Together => self.permits,
        }
    }

    /// The step in which a slowed rate climbs back: the mean time between two permits, within bounds (docs/limits.md).
    ///
    /// Where permits come one at a time, a step is a tenth of that time at least. Then the bank answers a send at each
    /// share beyond the ceiling before the next share counts. Where many permits come at once, the mean time between
    /// them says nothing about the requests that the bank refused. By it, a quota of a day would climb for a week.
    #[must_use]
    pub fn climb_step(&self) -> Duration {
        let spacing = self.per / self.permits.max(1);
        let least = if self.at_once() == 1 { spacing / 10 } else { Duration::ZERO };
        spacing.clamp(Self::SHORTEST_STEP, Self::LONGEST_STEP).max(least)
    }

    /// Nodes read their share twice a second.
    const SHORTEST_STEP: Duration = Duration::from_millis(50);
    /// From the lowest share to the full rate a channel needs 947 steps, which is eight hours then.
    const LONGEST_STEP: Duration = Duration::from_secs(30);

    /// The most permits in a span of `per`; of fixed windows, in one of them.
    #[must_use]
    pub fn most(&self) -> u32 {
        self.permits.saturating_add(self.algorithm.burst().unwrap_or(0))
    }

    /// The length of a fixed window; `None` for the other algorithms. It bounds when the window's permits may be
    /// used.
    #[must_use]
    pub fn window(&self) -> Option<Duration> {
        self.algorithm.is_numbered().then_some(self.per)
    }

    /// Whether a permit that is named by this window, slot or moment may have this span, all in microseconds of one
    /// clock. A permit opens when its window does, or later for the sake of another limit. It closes half of the
    /// lateness after its slot or moment; one of a window closes with the window. So no clock is needed to see that a
    /// name and a span do not belong together.
    #[must_use]
    pub fn is_span_of(&self, named_us: i64, opens_us: i64, closes_us: i64) -> bool {
        let micros = |span: Duration| i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
        let longest = match &self.algorithm {
            // A day of a time zone may have 25 hours.
            Algorithm::FixedWindow { zone: Some(_) } => micros(self.per).saturating_add(3_600_000_000),
            Algorithm::FixedWindow { zone: None } => micros(self.per),
            _ => micros(self.lateness / 2),
        };
        named_us <= opens_us
            && opens_us <= closes_us
            && (closes_us <= named_us.saturating_add(longest)
                || self.end_of_day(named_us).is_some_and(|ends_us| closes_us <= ends_us))
    }

    /// When the day ends that begins at this moment, by this machine's time zone database. Where clocks go back by two hours or more,
    /// a day is longer than 25 hours: in Antarctica/Troll each October.
    fn end_of_day(&self, begins_us: i64) -> Option<i64> {
        let begins = Timestamp::from_microsecond(begins_us).ok()?.to_zoned(self.algorithm.zone()?.clone());
        if begins.start_of_day().ok()? != begins {
            return None;
        }
        let next = begins.checked_add(1.day()).ok()?.start_of_day().ok()?;
        Some(next.timestamp().as_microsecond())
    }

    /// The rule for people, such as `20 in each 1s`.
    #[must_use]
    pub fn describe(&self) -> String {
        let (permits, per) = (self.permits, self.per);
        match &self.algorithm {
            Algorithm::FixedWindow { zone: None } => format!("{permits} in each {per:?}"),
            Algorithm::FixedWindow { zone: Some(zone) } => {
                format!("{permits} in each day of {}", zone.iana_name().unwrap_or("UTC"))
            }
            Algorithm::Paced => format!("{permits} in any {per:?}, evenly spaced"),
            Algorithm::PacedStrict => format!("one in any {:?}", per / permits.max(1)),
            Algorithm::SlidingLog => format!("{permits} in any {per:?}"),
            Algorithm::SlidingWindow { segments } => {
                format!("{permits} in any {per:?}, counted by {segments} segments")
            }
            Algorithm::TokenBucket { burst } => format!("{burst} + {permits} in any {per:?}"),
        }
    }

    /// The name of the time zone whose days are the rule's windows; `None` for other rules.
    #[must_use]
    pub fn zone(&self) -> Option<&str> {
        self.algorithm.zone().map(|zone| zone.iana_name().unwrap_or("UTC"))
    }

    /// The days of the rule's time zone, as [`days_of`] gives them, by the time zone database from which the rule was read.
    #[must_use]
    pub fn days(&self, now: Timestamp) -> Vec<(String, i64)> {
        self.algorithm.zone().map_or_else(Vec::new, |zone| days_of(zone, now))
    }
}

/// The days of a time zone from yesterday to three days from now: each date and its first microsecond. They are a
/// proposal: all nodes count by the days that they agree on.
#[must_use]
pub fn days_of(zone: &TimeZone, now: Timestamp) -> Vec<(String, i64)> {
    let today = now.to_zoned(zone.clone());
    let days = (-1..=3).filter_map(|day: i64| {
        let midnight = today.checked_add(day.days()).ok()?.start_of_day().ok()?;
        Some((midnight.date().to_string(), midnight.timestamp().as_microsecond()))
    });
    days.collect()
}

/// A rule as JSON: its form in Redis, in `refundd.limits` and in `refundd.limit_rules`. Rust, Lua and SQL read its
/// fields by name. Times are in microseconds. A field that the algorithm does not have is absent.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    algorithm: String,
    permits: u32,
    per_us: u64,
    lateness_us: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    burst: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    segments: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    zone: Option<String>,
}

/// The rule as JSON. Equal rules have equal texts.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        let record = Record {
            algorithm: self.algorithm.name().to_owned(),
            permits: self.permits,
            per_us: micros(self.per),
            lateness_us: micros(self.lateness),
            burst: self.algorithm.burst(),
            segments: self.algorithm.segments(),
            zone: self.zone().map(str::to_owned),
        };
        f.write_str(&serde_json::to_string(&record).map_err(|_| fmt::Error)?)
    }
}

impl FromStr for Rule {
    type Err = BadRule;

    fn from_str(text: &str) -> Result<Self, BadRule> {
        let read = || {
            let record: Record = serde_json::from_str(text).ok()?;
            // Windows without a length, and windows without segments, cannot be counted.
            if record.per_us == 0 || record.segments == Some(0) {
                return None;
            }
            let all = Algorithm::all(record.burst.unwrap_or(0), record.segments.unwrap_or(0));
            let mut algorithm = all.into_iter().find(|one| {
                one.name() == record.algorithm
                    && one.burst() == record.burst
                    && one.segments() == record.segments
            })?;
            if let Some(name) = &record.zone {
                algorithm = algorithm.in_zone(TimeZone::get(name).ok()?)?;
            }
            let (per, lateness) =
                (Duration::from_micros(record.per_us), Duration::from_micros(record.lateness_us));
            Some(Rule { algorithm, permits: record.permits, per, lateness })
        };
        read().ok_or_else(|| BadRule(text.to_owned()))
    }
}

#[cfg(test)]
mod days;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_read_as_it_was_written() {
        let rules = [
            r#"{"algorithm":"fixed_window","permits":20,"per_us":1000000,"lateness_us":20000}"#,
            r#"{"algorithm":"fixed_window","permits":9,"per_us":86400000000,"lateness_us":20000,"zone":"Europe/Berlin"}"#,
            r#"{"algorithm":"paced","permits":50,"per_us":1000000,"lateness_us":20000}"#,
            r#"{"algorithm":"paced_strict","permits":20,"per_us":1000000,"lateness_us":5000}"#,
            r#"{"algorithm":"sliding_log","permits":20,"per_us":1000000,"lateness_us":20000}"#,
            r#"{"algorithm":"sliding_window","permits":20,"per_us":1000000,"lateness_us":20000,"segments":10}"#,
            r#"{"algorithm":"token_bucket","permits":20,"per_us":1000000,"lateness_us":20000,"burst":7}"#,
        ];
        for text in rules {
            assert_eq!(text.parse::<Rule>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_text_that_says_less_or_more_than_a_rule_is_refused() {
        let paced = r#"{"algorithm":"paced","permits":50,"per_us":1000000,"lateness_us":20000}"#;
        for (part, instead) in [
            ("paced", "leaky"),
            ("50", "-1"),
            ("50", "4294967296"),
            (r#""permits":50,"#, ""),
            ("}", r#","burst":7}"#),
            ("}", r#","later_version":1}"#),
            ("paced", "token_bucket"),
        ] {
            let text = paced.replace(part, instead);
            assert_eq!(text.parse::<Rule>(), Err(BadRule(text)));
        }
        let mars =
            r#"{"algorithm":"fixed_window","permits":1,"per_us":1,"lateness_us":1,"zone":"Mars/Olympus"}"#;
        assert!(mars.parse::<Rule>().is_err() && "".parse::<Rule>().is_err());
        for zero in [
            r#"{"algorithm":"sliding_window","permits":1,"per_us":1,"lateness_us":1,"segments":0}"#,
            r#"{"algorithm":"paced","permits":1,"per_us":0,"lateness_us":1}"#,
        ] {
            assert!(zero.parse::<Rule>().is_err(), "{zero}");
        }
    }
}
