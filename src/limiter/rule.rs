//! A rule: an algorithm and its numbers, and its JSON form in Redis and in the ledger.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use serde::{Deserialize, Serialize};

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

/// The five algorithms, one of them in two forms; docs/limits.md draws each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Algorithm {
    /// `permits` in each aligned window of Redis's clock, or in each day of a time zone.
    FixedWindow { zone: Option<TimeZone> },
    /// `permits` in any span of `per`, evenly spaced.
    Paced,
    /// As `Paced`, and any two first bytes are at least `per` / `permits` apart.
    PacedStrict,
    /// `permits` in any span of `per`, with bursts; counted exactly.
    SlidingLog,
    /// `permits` in any span of `per`, with bursts; counted by segments.
    SlidingWindow { segments: u32 },
    /// At most `permits` + `burst` in any span of `per`.
    TokenBucket { burst: u32 },
}

/// A text that is no rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a rule of this version")]
pub struct BadRule(pub String);

impl Algorithm {
    /// The name in a rule's JSON form; in the configuration file `paced_strict` is `paced` with `gap = "strict"`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Algorithm::FixedWindow { .. } => "fixed_window",
            Algorithm::Paced => "paced",
            Algorithm::PacedStrict => "paced_strict",
            Algorithm::SlidingLog => "sliding_log",
            Algorithm::SlidingWindow { .. } => "sliding_window",
            Algorithm::TokenBucket { .. } => "token_bucket",
        }
    }

    /// Whether permits are numbered within windows that all nodes know. Then the ledger's key alone keeps the limit.
    #[must_use]
    pub fn is_numbered(&self) -> bool {
        matches!(self, Algorithm::FixedWindow { .. })
    }

    /// Whether many permits open at one moment and stay open for half of `lateness`.
    #[must_use]
    pub fn comes_in_bursts(&self) -> bool {
        !self.is_numbered() && !self.is_paced()
    }

    /// Whether each permit is a slot at a fixed moment.
    #[must_use]
    pub fn is_paced(&self) -> bool {
        matches!(self, Algorithm::Paced | Algorithm::PacedStrict)
    }
}

impl Rule {
    /// The rate in refunds a second, for people.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        f64::from(self.permits) / self.per.as_secs_f64()
    }

    /// How far back spent permits still count.
    #[must_use]
    pub fn memory(&self) -> Duration {
        let segment = match self.algorithm {
            Algorithm::SlidingWindow { segments } => (self.per + self.lateness) / segments,
            _ => Duration::ZERO,
        };
        self.per + self.lateness + segment
    }

    /// The time from one slot to the next, in microseconds, as in `rule.lua`; for algorithms without slots, the mean
    /// time between two permits.
    #[must_use]
    pub fn spacing_us(&self) -> u64 {
        let permits = u128::from(self.permits.max(1));
        let (per, lateness) = (self.per.as_micros(), self.lateness.as_micros());
        let spacing = match self.algorithm {
            Algorithm::PacedStrict => per.div_ceil(permits) + lateness,
            _ => (per + lateness).div_ceil(permits),
        };
        u64::try_from(spacing).unwrap_or(u64::MAX)
    }

    /// The most first bytes that may leave in any span of `per`.
    #[must_use]
    pub fn most_in_a_span(&self) -> u64 {
        let permits = u64::from(self.permits);
        match self.algorithm {
            Algorithm::FixedWindow { .. } => 2 * permits,
            Algorithm::TokenBucket { burst } => permits + u64::from(burst),
            _ => permits,
        }
    }

    /// The most permits that are ever granted at one moment.
    #[must_use]
    pub fn at_once(&self) -> u32 {
        match self.algorithm {
            Algorithm::Paced | Algorithm::PacedStrict => 1,
            Algorithm::TokenBucket { burst } => burst,
            _ => self.permits,
        }
    }

    /// The length of a fixed window; `None` for the other algorithms. It bounds when the window's permits may be
    /// used.
    #[must_use]
    pub fn window(&self) -> Option<Duration> {
        matches!(self.algorithm, Algorithm::FixedWindow { .. }).then_some(self.per)
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
        match &self.algorithm {
            Algorithm::FixedWindow { zone: Some(zone) } => Some(zone.iana_name().unwrap_or("UTC")),
            _ => None,
        }
    }

    /// The days of the rule's time zone from yesterday to three days from now: each date and its first microsecond,
    /// by this machine's time zone database. They are a proposal: all nodes count by the days that they agree on.
    #[must_use]
    pub fn days(&self, now: Timestamp) -> Vec<(String, i64)> {
        let Algorithm::FixedWindow { zone: Some(zone) } = &self.algorithm else { return Vec::new() };
        let today = now.to_zoned(zone.clone());
        let days = (-1..=3).filter_map(|day: i64| {
            let midnight = today.checked_add(day.days()).ok()?.start_of_day().ok()?;
            Some((midnight.date().to_string(), midnight.timestamp().as_microsecond()))
        });
        days.collect()
    }
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
        let (burst, segments) = match self.algorithm {
            Algorithm::TokenBucket { burst } => (Some(burst), None),
            Algorithm::SlidingWindow { segments } => (None, Some(segments)),
            _ => (None, None),
        };
        let record = Record {
            algorithm: self.algorithm.name().to_owned(),
            permits: self.permits,
            per_us: micros(self.per),
            lateness_us: micros(self.lateness),
            burst,
            segments,
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
            let algorithm = match (record.algorithm.as_str(), record.burst, record.segments, &record.zone) {
                ("fixed_window", None, None, None) => Algorithm::FixedWindow { zone: None },
                ("fixed_window", None, None, Some(zone)) => {
                    Algorithm::FixedWindow { zone: Some(TimeZone::get(zone).ok()?) }
                }
                ("paced", None, None, None) => Algorithm::Paced,
                ("paced_strict", None, None, None) => Algorithm::PacedStrict,
                ("sliding_log", None, None, None) => Algorithm::SlidingLog,
                ("sliding_window", None, Some(segments), None) => Algorithm::SlidingWindow { segments },
                ("token_bucket", Some(burst), None, None) => Algorithm::TokenBucket { burst },
                _ => return None,
            };
            let (per, lateness) =
                (Duration::from_micros(record.per_us), Duration::from_micros(record.lateness_us));
            Some(Rule { algorithm, permits: record.permits, per, lateness })
        };
        read().ok_or_else(|| BadRule(text.to_owned()))
    }
}

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
    }

    #[test]
    fn a_day_begins_at_the_banks_midnight_and_may_have_23_hours() {
        let rule: Rule = r#"{"algorithm":"fixed_window","permits":5,"per_us":86400000000,"lateness_us":20000,"zone":"Europe/Berlin"}"#
                .parse()
                .unwrap();
        // The clocks go forward in the night to 2026-03-29.
        let days = rule.days("2026-03-29T12:00:00Z".parse().unwrap());
        assert_eq!(days[1].0, "2026-03-29");
        let said: Vec<String> =
            days.iter().map(|(_, us)| Timestamp::from_microsecond(*us).unwrap().to_string()).collect();
        assert_eq!(
            said,
            [
                "2026-03-27T23:00:00Z",
                "2026-03-28T23:00:00Z",
                "2026-03-29T22:00:00Z",
                "2026-03-30T22:00:00Z",
                "2026-03-31T22:00:00Z"
            ]
        );
    }
}
