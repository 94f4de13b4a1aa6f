//! `[limit.NAME]`: a limit with its rule, its lead time and its placement.

mod algorithm;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::caller::Callers;
use crate::caller::scope::CallerScope;
use crate::channel::Channel;
use crate::limiter::{Algorithm, Limit, Placement, Rule};
use crate::refund::id::{ChannelName, LimitName};

use super::duration::{is_whole_microseconds, say};
use super::field::Field;
use super::section::Section;
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

const PER: std::ops::RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_hours(31 * 24);
const LEAST_LATENESS: Duration = Duration::from_millis(2);
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
    let kind = algorithm::kind(source, section.text("algorithm", "fixed_window"));
    let mut permits = section
        .required_permits("permits", "it says how many first bytes fit in each `per`; -1 is unlimited");
    let unlimited = permits.as_ref().is_some_and(|permits| permits.value == -1);
    if let Some(permits) = &mut permits {
        let counts = i32::try_from(permits.value).is_ok_and(|number| number >= 1);
        permits.require(source, unlimited || counts, || {
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
    let shape = algorithm::read(section, kind.as_ref(), per.as_ref());
    let is_strict = shape.as_ref().is_some_and(Algorithm::keeps_gap);
    let mut lateness = section.duration("lateness", if is_strict { STRICT_LATENESS } else { LATENESS });
    whole(source, &mut lateness);
    let mut ahead = section.duration("ahead", AHEAD);
    whole(source, &mut ahead);
    let placement = placement(section, permits.as_ref(), shape.as_ref());
    let per = per.filter(Field::is_sound).map(|per| per.value)?;
    if !ahead.given {
        ahead.value = ahead.value.min(floor_to_microseconds(per / 2));
    }
    lateness.require(source, lateness.value * 2 < per, || {
        format!(
            "must be less than half of `per`, which is {}, or hardly any of a window could be used; set `lateness` \
             below \"{}\", or make the window longer",
            say(per),
            say(per / 2)
        )
    });
    ahead.require(source, ahead.value * 2 <= per, || {
        format!(
            "must be at most half of `per`, which is {}; set it to \"{}\" or less",
            say(per),
            say(per / 2)
        )
    });
    let algorithm = shape?;
    let kind = algorithm::key(&algorithm);
    if unlimited {
        return None;
    }
    if !algorithm.is_numbered() {
        lateness.require(source, lateness.value >= LEAST_LATENESS, || {
            format!("must be at least {}: a permit of `{kind}` is good for half of it", say(LEAST_LATENESS))
        });
    }
    let mut permits = permits?;
    let count = u32::try_from(permits.value).ok()?;
    algorithm::bound(source, &algorithm, count, per, &mut permits);
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

fn placement(
    section: &Section<'_>,
    permits: Option<&Field<i64>>,
    algorithm: Option<&Algorithm>,
) -> Option<Placement> {
    let source = section.source;
    let mut named = section.text("placement", "shared");
    let local = named.value == "local_share";
    named.require(source, local || named.value == "shared", || "must be \"shared\" or \"local_share\"");
    if !local {
        if let Some(mut nodes) = section.optional_any("nodes") {
            nodes.require(source, false, || "belongs to `placement` = \"local_share\"; leave it out");
        }
        return named.is_sound().then_some(Placement::Shared);
    }
    let mut nodes =
        section.required_integer("nodes", "it says among how many nodes the limit is shared out")?;
    nodes.within(source, &(1..=MOST_NODES));
    let burst = algorithm.and_then(Algorithm::burst).map_or(i64::MAX, i64::from);
    let least = permits.map_or(i64::MAX, |permits| permits.value).min(burst);
    nodes.require(source, least == -1 || nodes.value <= least, || {
        "must be at most `permits`, and at most `burst`: each node's share is a whole number, and at least 1"
    });
    // Each node counts by its own clock and sees no request of another node.
    let keeps_gap = algorithm.is_some_and(Algorithm::keeps_gap);
    named.require(source, least == -1 || !keeps_gap || nodes.value <= 1, || {
        "keeps no gap between the requests of two nodes, and `gap` is \"strict\"; leave `placement` and `nodes` out, or set \
         `nodes` = 1 or `gap` = \"even\""
    });
    let sound = nodes.is_sound() && named.is_sound();
    u32::try_from(nodes.value).ok().filter(|_| sound).map(|nodes| Placement::LocalShare { nodes })
}

/// The shortest `lateness` with which other services get along. A permit of most kinds lives for half of it.
const LATENESS_TO_ACQUIRE: Duration = Duration::from_millis(20);

/// A claim takes a permit that opens up to `ahead` from now, so a clock may be ahead by that, too. A caller that acquires a permit
/// needs time for its own first byte.
pub(super) fn warnings(
    limits: &BTreeMap<LimitName, Arc<Limit>>,
    clock_tolerance: Duration,
    callers: &Callers,
) -> Vec<String> {
    let is_acquired = |name: &LimitName| {
        let mut callers = callers.0.values();
        callers.any(|caller| caller.may.contains(&CallerScope::Acquire) && caller.limits.has(name.as_str()))
    };
    let mut warnings = Vec::new();
    for limit in limits.values() {
        let (name, ahead, tolerance) = (&limit.name, say(limit.ahead), say(clock_tolerance));
        if limit.ahead > clock_tolerance {
            warnings.push(format!(
                "limit `{name}` has an `ahead` of {ahead}, and a claim under it takes permits of a clock that is wrong by that much and \
                 `clock_tolerance` ({tolerance}); set `ahead` to {tolerance} or less"
            ));
        }
        let Rule { algorithm, per, lateness, .. } = &limit.rule;
        // `lateness` is less than half of `per`.
        let may_be_longer = *per > 2 * LATENESS_TO_ACQUIRE;
        if may_be_longer && !algorithm.is_numbered() && *lateness < LATENESS_TO_ACQUIRE && is_acquired(name) {
            let (lateness, least) = (say(*lateness), say(LATENESS_TO_ACQUIRE));
            let costs = if algorithm.keeps_gap() {
                "; with `gap = \"strict\"` that costs some of the rate"
            } else {
                ""
            };
            warnings.push(format!(
                "limit `{name}` has a `lateness` of {lateness}, and a permit that a caller acquires lives for half of it; set `lateness` \
                 to {least} or more{costs}"
            ));
        }
    }
    warnings
}

/// How early the sends or the inquiries of a channel get permits: by the least `ahead` of their limits.
struct Reach<'a> {
    kind: &'static str,
    channel: &'a ChannelName,
    least: &'a Limit,
}

/// Of two channels that share a limit in full use, the one that gets permits earlier takes each permit before the other one may.
pub(super) fn uneven_aheads(channels: &BTreeMap<ChannelName, Arc<Channel>>) -> Vec<String> {
    let mut reaches: BTreeMap<&LimitName, Vec<Reach<'_>>> = BTreeMap::new();
    for channel in channels.values() {
        let of_inquiries = channel.inquiry.as_ref().and_then(|inquiry| inquiry.limits.as_deref());
        for (kind, limits) in [("", Some(channel.limits.as_slice())), ("the inquiries of ", of_inquiries)] {
            let limits = limits.unwrap_or_default();
            let Some(least) = limits.iter().min_by_key(|limit| limit.ahead) else { continue };
            for limit in limits {
                let reach = Reach { kind, channel: &channel.name, least };
                reaches.entry(&limit.name).or_default().push(reach);
            }
        }
    }
    let warning = |(shared, reaches): (&LimitName, Vec<Reach<'_>>)| {
        let late = reaches.iter().min_by_key(|reach| reach.least.ahead)?;
        let early = reaches.iter().max_by_key(|reach| reach.least.ahead)?;
        let (short, long) = (say(late.least.ahead), say(early.least.ahead));
        (late.least.ahead < early.least.ahead).then(|| {
            format!(
                "{}channel `{}` may stand still while {}channel `{}` uses up limit `{shared}`, which both have: it gets permits at most {short} \
                 ahead, by limit `{}`, and the other {long} ahead, by limit `{}`; set the `ahead` of `{shared}` to {short}",
                late.kind, late.channel, early.kind, early.channel, late.least.name, early.least.name
            )
        })
    };
    reaches.into_iter().filter_map(warning).collect()
}

/// A limit for the configuration's digest and for people.
pub(super) fn shown(limit: &Limit) -> Value {
    let Limit { name, rule, ahead, placement } = limit;
    let mut shown = json!({
        "name": name.as_str(),
        "algorithm": algorithm::key(&rule.algorithm),
        "permits": rule.permits,
        "per": say(rule.per),
        "lateness": say(rule.lateness),
        "ahead": say(*ahead),
    });
    algorithm::show(&rule.algorithm, &mut shown);
    if let Placement::LocalShare { nodes } = placement {
        shown["placement"] = json!("local_share");
        shown["nodes"] = json!(nodes);
    }
    shown
}

fn whole(source: &Source<'_>, field: &mut Field<Duration>) {
    let whole = is_whole_microseconds(field.value);
    field.require(source, whole, || "must be whole microseconds, which is how Redis counts");
}

fn floor_to_microseconds(length: Duration) -> Duration {
    Duration::from_nanos_u128(length.as_nanos() / 1_000 * 1_000)
}
