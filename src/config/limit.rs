//! `[limit.NAME]`: a limit with its rule, its lead time and its placement.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;

use crate::limiter::{Algorithm, Limit, Placement, Rule};
use crate::refund::id::LimitName;

use super::duration::{is_whole_microseconds, say};
use super::field::Field;
use super::section::{Section, listed, nearest};
use super::source::Source;

pub(super) const KEYS: &[&str] = &[
    "algorithm",
    "permits",
    "per",
    "lateness",
    "ahead",
    "burst",
    "gap",
    "segments",
    "time_zone",
    "placement",
    "nodes",
];
pub(super) const LATENESS: Duration = Duration::from_millis(20);
/// The default for `gap = "strict"`. There, `lateness` lengthens the gap between all requests, so the default is lower.
/// A still smaller one would lose as much rate, because more permits would lapse.
pub(super) const STRICT_LATENESS: Duration = Duration::from_millis(10);
pub(super) const AHEAD: Duration = Duration::from_millis(50);
pub(super) const SEGMENTS: i64 = 10;

const ALGORITHMS: &[&str] = &["fixed_window", "paced", "sliding_log", "sliding_window", "token_bucket"];
const DAY: Duration = Duration::from_hours(24);
const PER: std::ops::RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_hours(31 * 24);
/// The shortest time between two permits. Redis counts in whole microseconds, so rounding would cost rate below it.
const CLOSEST: Duration = Duration::from_micros(100);
const LEAST_LATENESS: Duration = Duration::from_millis(2);
/// The shortest segment. Redis keeps the segments of some seconds; a script would have to read too many shorter ones.
const LEAST_SEGMENT: Duration = Duration::from_millis(10);
const MOST_LOGGED: u32 = 100_000;
const MOST_NODES: i64 = 10_000;

/// Every limit of the file by its name there. `None` is an unlimited or a faulty limit: channels may name both.
pub(super) type Limits = BTreeMap<String, Option<Arc<Limit>>>;

pub(super) fn read_all(section: &Section<'_>) -> Limits {
    section.sections().into_iter().map(|(name, limit)| (name.clone(), read(&name, &limit))).collect()
}

fn read(name: &str, section: &Section<'_>) -> Option<Arc<Limit>> {
    let source = section.source;
    section.keys(KEYS, &[]);
    let name = LimitName::new(name).inspect_err(|error| section.complain(error.to_string())).ok();
    let kind = kind(source, section.text("algorithm", ALGORITHMS[0]));
    let mut permits = section
        .required_integer("permits", "it says how many first bytes fit in each `per`; -1 is unlimited");
    let unlimited = permits.as_ref().is_some_and(|permits| permits.value == -1);
    if let Some(permits) = &mut permits {
        let counts = i32::try_from(permits.value).is_ok_and(|number| number >= 1);
        permits.law(source, unlimited || counts, || {
            format!(
                "must be a whole number from 1 to {}, or -1 for unlimited; to send nothing, pause the channel",
                i32::MAX
            )
        });
    }
    let mut per = if unlimited {
        section.optional_duration("per")
    } else {
        section.required_duration("per", "it says how long a window is, such as \"1s\"")
    };
    if let Some(per) = &mut per {
        per.within(source, &PER);
        whole(source, per);
    }
    let shape = shape(section, kind.as_deref(), per.as_ref());
    let is_strict = shape == Some(Algorithm::PacedStrict);
    let mut lateness = section.duration("lateness", if is_strict { STRICT_LATENESS } else { LATENESS });
    whole(source, &mut lateness);
    let mut ahead = section.duration("ahead", AHEAD);
    whole(source, &mut ahead);
    let placement = placement(section, permits.as_ref(), shape.as_ref());
    let per = per.filter(Field::is_sound).map(|per| per.value)?;
    if !ahead.given {
        ahead.value = ahead.value.min(floor_to_microseconds(per / 2));
    }
    lateness.law(source, lateness.value * 2 < per, || {
        format!(
            "must be less than half of `per`, which is {}, or hardly any of a window could be used; set `lateness` \
             below \"{}\", or make the window longer",
            say(per),
            say(per / 2)
        )
    });
    ahead.law(source, ahead.value * 2 <= per, || {
        format!(
            "must be at most half of `per`, which is {}; set it to \"{}\" or less",
            say(per),
            say(per / 2)
        )
    });
    let (kind, algorithm) = (kind?, shape?);
    if unlimited {
        return None;
    }
    if kind != "fixed_window" {
        lateness.law(source, lateness.value >= LEAST_LATENESS, || {
            format!("must be at least {}: a permit of `{kind}` is good for half of it", say(LEAST_LATENESS))
        });
    }
    let mut permits = permits?;
    let count = u32::try_from(permits.value).ok()?;
    match algorithm {
        Algorithm::Paced | Algorithm::PacedStrict | Algorithm::TokenBucket { .. } => {
            permits.law(source, CLOSEST.checked_mul(count).is_some_and(|least| least <= per), || {
                format!("must be at most one in {}, for `{kind}` counts in whole microseconds; use \"fixed_window\"", say(CLOSEST))
            });
        }
        Algorithm::SlidingLog => {
            permits.law(source, count <= MOST_LOGGED, || {
                format!("must be at most {MOST_LOGGED}, for each of them may be remembered; use \"sliding_window\"")
            });
        }
        _ => {}
    }
    if !permits.is_sound() || !lateness.is_sound() || !ahead.is_sound() {
        return None;
    }
    Some(Arc::new(Limit {
        name: name?,
        rule: Rule { algorithm, permits: count, per, lateness: lateness.value },
        ahead: ahead.value,
        placement: placement?,
    }))
}

fn kind(source: &Source<'_>, mut field: Field<String>) -> Option<String> {
    let name = field.value.clone();
    let known = ALGORITHMS.contains(&name.as_str());
    let sound = field.law(source, known, || match nearest(&name, ALGORITHMS) {
        Some(near) => format!("no such algorithm; did you mean `{near}`?"),
        None => format!("no such algorithm; known: {}", listed(ALGORITHMS)),
    });
    sound.then_some(name)
}

/// The algorithm with the numbers that only it has.
fn shape(section: &Section<'_>, kind: Option<&str>, per: Option<&Field<Duration>>) -> Option<Algorithm> {
    let source = section.source;
    let only = |key: &str, owner: &str| {
        if let Some(kind) = kind
            && kind != owner
            && let Some(mut field) = section.optional_any(key)
        {
            field.law(source, false, || {
                format!("belongs to `{owner}`, and this limit is `{kind}`; leave it out")
            });
        }
    };
    only("burst", "token_bucket");
    only("gap", "paced");
    only("segments", "sliding_window");
    only("time_zone", "fixed_window");
    match kind? {
        "paced" => {
            let mut gap = section.text("gap", "even");
            let strict = gap.value == "strict";
            let sound = gap.law(source, strict || gap.value == "even", || {
                "must be \"even\", which counts the requests in any `per`, or \"strict\", for banks that measure the gap between two requests"
            });
            sound.then_some(if strict { Algorithm::PacedStrict } else { Algorithm::Paced })
        }
        "sliding_log" => Some(Algorithm::SlidingLog),
        "sliding_window" => {
            // A short `per` lowers the default number of segments, so that each is long enough.
            let most =
                per.map_or(100, |per| (per.value.as_millis() / LEAST_SEGMENT.as_millis()).clamp(1, 100));
            let most = i64::try_from(most).unwrap_or(100);
            let mut segments = section.integer("segments", SEGMENTS.min(most));
            let sound = segments.within(source, &(1..=100));
            let sound = sound
                && segments.law(source, segments.value <= most, || {
                    format!(
                        "must be at most {most}: a segment of `per` is at least {} long",
                        say(LEAST_SEGMENT)
                    )
                });
            let segments = u32::try_from(segments.value).ok().filter(|_| sound)?;
            Some(Algorithm::SlidingWindow { segments })
        }
        "token_bucket" => {
            let mut burst = section.required_integer(
                "burst",
                "it says how many requests may start at once after a quiet time",
            )?;
            let sound = burst.within(source, &(1..=1_000_000));
            let burst = u32::try_from(burst.value).ok().filter(|_| sound)?;
            Some(Algorithm::TokenBucket { burst })
        }
        _ => {
            let Some(mut named) = section.optional_text("time_zone") else {
                return Some(Algorithm::FixedWindow { zone: None });
            };
            let zone = TimeZone::get(&named.value).ok();
            named.law(source, zone.is_some(), || "no such time zone; use a name such as \"Europe/Berlin\"");
            if let Some(per) = per {
                named.law(source, per.value == DAY, || {
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

fn placement(
    section: &Section<'_>,
    permits: Option<&Field<i64>>,
    algorithm: Option<&Algorithm>,
) -> Option<Placement> {
    let source = section.source;
    let mut named = section.text("placement", "shared");
    let local = named.value == "local_share";
    named.law(source, local || named.value == "shared", || "must be \"shared\" or \"local_share\"");
    if !local {
        if let Some(mut nodes) = section.optional_any("nodes") {
            nodes.law(source, false, || "belongs to `placement` = \"local_share\"; leave it out");
        }
        return named.is_sound().then_some(Placement::Shared);
    }
    let mut nodes =
        section.required_integer("nodes", "it says among how many nodes the limit is shared out")?;
    nodes.within(source, &(1..=MOST_NODES));
    let least = permits.map_or(i64::MAX, |permits| permits.value).min(match algorithm {
        Some(Algorithm::TokenBucket { burst }) => i64::from(*burst),
        _ => i64::MAX,
    });
    nodes.law(source, least == -1 || nodes.value <= least, || {
        "must be at most `permits`, and at most `burst`: each node's share is a whole number, and at least 1"
    });
    let sound = nodes.is_sound();
    u32::try_from(nodes.value).ok().filter(|_| sound).map(|nodes| Placement::LocalShare { nodes })
}

fn whole(source: &Source<'_>, field: &mut Field<Duration>) {
    let whole = is_whole_microseconds(field.value);
    field.law(source, whole, || "must be whole microseconds, which is how Redis counts");
}

fn floor_to_microseconds(length: Duration) -> Duration {
    Duration::from_nanos_u128(length.as_nanos() / 1_000 * 1_000)
}
