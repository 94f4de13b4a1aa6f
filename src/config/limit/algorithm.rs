//! The algorithm of a limit, and the keys that only some algorithms have.

use std::time::Duration;

use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::SEGMENTS;
use crate::config::duration::say;
use crate::config::field::Field;
use crate::config::section::{Section, listed, nearest};
use crate::config::source::Source;
use crate::limiter::Algorithm;

const DAY: Duration = Duration::from_hours(24);
/// The shortest time between two permits. Redis counts in whole microseconds, so rounding would cost rate below it.
const CLOSEST: Duration = Duration::from_micros(100);
/// The shortest segment. Redis keeps the segments of some seconds; a script would have to read too many shorter ones.
const LEAST_SEGMENT: Duration = Duration::from_millis(10);
const MOST_LOGGED: u32 = 100_000;

/// The value of the key `algorithm`. Both forms of `paced` have the same one.
pub fn key(algorithm: &Algorithm) -> &'static str {
    if algorithm.keeps_gap() { Algorithm::Paced.name() } else { algorithm.name() }
}

/// The values that the key `algorithm` may have, for the algorithms that are like this.
fn keys_of(is_like: impl Fn(&Algorithm) -> bool) -> Vec<&'static str> {
    let mut keys: Vec<&str> = Algorithm::all(1, 1).iter().filter(|one| is_like(one)).map(key).collect();
    keys.dedup();
    keys
}

/// The algorithm that a limit names; its own numbers are not read yet.
pub fn kind(source: &Source<'_>, mut field: Field<String>) -> Option<Algorithm> {
    let name = field.value.clone();
    let kind = Algorithm::all(1, 1).into_iter().find(|one| one.name() == name && key(one) == name);
    let all = keys_of(|_| true);
    field.require(source, kind.is_some(), || match nearest(&name, &all) {
        Some(near) => format!("no such algorithm; did you mean `{near}`?"),
        None => format!("no such algorithm; known: {}", listed(&all)),
    });
    kind
}

/// The algorithm with the numbers that only it has.
pub fn read(
    section: &Section<'_>,
    kind: Option<&Algorithm>,
    per: Option<&Field<Duration>>,
) -> Option<Algorithm> {
    let source = section.source;
    let only = |own: &str, has_it: &dyn Fn(&Algorithm) -> bool| {
        if let Some(kind) = kind
            && !has_it(kind)
            && let Some(mut field) = section.optional_any(own)
        {
            field.require(source, false, || {
                let owners = keys_of(has_it).join("`, `");
                format!("belongs to `{owners}`, and this limit is `{}`; leave it out", key(kind))
            });
        }
    };
    only("burst", &|one| one.burst().is_some());
    only("gap", &Algorithm::is_paced);
    only("segments", &|one| one.segments().is_some());
    only("time_zone", &Algorithm::is_numbered);
    match kind? {
        Algorithm::Paced | Algorithm::PacedStrict => {
            let mut gap = section.text("gap", "even");
            let strict = gap.value == "strict";
            let sound = gap.require(source, strict || gap.value == "even", || {
                "must be \"even\", which counts the requests in any `per`, or \"strict\", for banks that measure the gap between two requests"
            });
            sound.then_some(if strict { Algorithm::PacedStrict } else { Algorithm::Paced })
        }
        Algorithm::SlidingLog => Some(Algorithm::SlidingLog),
        Algorithm::SlidingWindow { .. } => {
            // A short `per` lowers the default number of segments, so that each is long enough.
            let most =
                per.map_or(100, |per| (per.value.as_millis() / LEAST_SEGMENT.as_millis()).clamp(1, 100));
            let most = i64::try_from(most).unwrap_or(100);
            let mut segments = section.integer("segments", SEGMENTS.min(most));
            let sound = segments.within(source, &(1..=100));
            let sound = sound
                && segments.require(source, segments.value <= most, || {
                    format!(
                        "must be at most {most}: a segment of `per` is at least {} long",
                        say(LEAST_SEGMENT)
                    )
                });
            let segments = u32::try_from(segments.value).ok().filter(|_| sound)?;
            Some(Algorithm::SlidingWindow { segments })
        }
        Algorithm::TokenBucket { .. } => {
            let mut burst = section.required_integer(
                "burst",
                "it says how many requests may start at once after a quiet time",
            )?;
            let sound = burst.within(source, &(1..=1_000_000));
            let burst = u32::try_from(burst.value).ok().filter(|_| sound)?;
            Some(Algorithm::TokenBucket { burst })
        }
        Algorithm::FixedWindow { .. } => {
            let Some(mut named) = section.optional_text("time_zone") else {
                return Some(Algorithm::FixedWindow { zone: None });
            };
            let zone = TimeZone::get(&named.value).ok();
            named.require(
                source,
                zone.is_some(),
                || "no such time zone; use a name such as \"Europe/Berlin\"",
            );
            if let Some(per) = per {
                named.require(source, per.value == DAY, || {
                    format!(
                        "needs `per` = \"1d\", for it says when a day begins, and `per` is {}",
                        say(per.value)
                    )
                });
            }
            zone.filter(|_| named.is_sound()).map(|zone| Algorithm::FixedWindow { zone: Some(zone) })
        }
    }
}

/// Checks that the algorithm can count so many permits in `per`.
pub fn bound(
    source: &Source<'_>,
    algorithm: &Algorithm,
    count: u32,
    per: Duration,
    permits: &mut Field<i64>,
) {
    let kind = key(algorithm);
    match algorithm {
        Algorithm::Paced | Algorithm::PacedStrict | Algorithm::TokenBucket { .. } => {
            permits.require(source, CLOSEST.checked_mul(count).is_some_and(|least| least <= per), || {
                format!("must be at most one in {}, for `{kind}` counts in whole microseconds; use \"fixed_window\"", say(CLOSEST))
            });
        }
        Algorithm::SlidingLog => {
            permits.require(source, count <= MOST_LOGGED, || {
                format!("must be at most {MOST_LOGGED}, for each of them may be remembered; use \"sliding_window\"")
            });
        }
        Algorithm::FixedWindow { .. } | Algorithm::SlidingWindow { .. } => {}
    }
}

/// Adds the keys that only some algorithms have.
pub fn show(algorithm: &Algorithm, shown: &mut Value) {
    match algorithm {
        Algorithm::FixedWindow { zone: Some(zone) } => shown["time_zone"] = json!(zone.iana_name()),
        Algorithm::FixedWindow { zone: None } | Algorithm::Paced | Algorithm::SlidingLog => {}
        Algorithm::PacedStrict => shown["gap"] = json!("strict"),
        Algorithm::SlidingWindow { segments } => shown["segments"] = json!(segments),
        Algorithm::TokenBucket { burst } => shown["burst"] = json!(burst),
    }
}
