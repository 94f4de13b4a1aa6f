//! `[limit.NAME]`: a limit and its numbers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::limiter::{Algorithm, Limit};
use crate::refund::id::LimitName;

use super::duration::{is_whole_microseconds, say};
use super::field::Field;
use super::section::{Section, listed, nearest};
use super::source::Source;

pub(super) const KEYS: &[&str] = &["algorithm", "permits", "per", "lateness", "ahead"];
pub(super) const LATENESS: Duration = Duration::from_millis(20);
pub(super) const AHEAD: Duration = Duration::from_millis(50);

const FIXED_WINDOW: &str = "fixed_window";
const LATER: [&str; 4] = ["paced", "sliding_log", "sliding_window", "token_bucket"];
const PER: std::ops::RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_hours(31 * 24);

/// Every limit of the file by the name that stands there. `None` is an unlimited one, or one that
/// was complained about; either way the name exists.
pub(super) type Limits = BTreeMap<String, Option<Arc<Limit>>>;

pub(super) fn read_all(section: &Section<'_>) -> Limits {
    section.sections().into_iter().map(|(name, limit)| (name.clone(), read(&name, &limit))).collect()
}

fn read(name: &str, section: &Section<'_>) -> Option<Arc<Limit>> {
    let source = section.source;
    section.keys(
        KEYS,
        &[
            ("burst", "belongs to `token_bucket`, which comes with a later version"),
            ("segments", "belongs to `sliding_window`, which comes with a later version"),
            ("placement", "comes with a later version; every limit is shared by all nodes"),
            ("nodes", "comes with a later version; every limit is shared by all nodes"),
        ],
    );
    let name = LimitName::new(name).inspect_err(|error| section.complain(error.to_string())).ok();
    algorithm(source, section.text("algorithm", FIXED_WINDOW));
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
    let mut lateness = section.duration("lateness", LATENESS);
    whole(source, &mut lateness);
    let mut ahead = section.duration("ahead", AHEAD);
    whole(source, &mut ahead);
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
    if unlimited {
        return None;
    }
    let permits = u32::try_from(permits?.value).ok()?;
    Some(Arc::new(Limit {
        name: name?,
        algorithm: Algorithm::FixedWindow { permits, per },
        lateness: lateness.value,
        ahead: ahead.value,
    }))
}

fn algorithm(source: &Source<'_>, mut field: Field<String>) {
    let name = field.value.clone();
    let law = if LATER.contains(&name.as_str()) {
        format!("`{name}` is not in this version; use \"fixed_window\", which is the default")
    } else {
        let all: Vec<&str> = LATER.into_iter().chain([FIXED_WINDOW]).collect();
        match nearest(&name, &all) {
            Some(near) => format!("no such algorithm; did you mean `{near}`?"),
            None => format!("no such algorithm; known in this version: {}", listed(&[FIXED_WINDOW])),
        }
    };
    field.law(source, name == FIXED_WINDOW, || law);
}

fn whole(source: &Source<'_>, field: &mut Field<Duration>) {
    let whole = is_whole_microseconds(field.value);
    field.law(source, whole, || "must be whole microseconds, which is how Redis counts");
}

fn floor_to_microseconds(length: Duration) -> Duration {
    Duration::from_nanos_u128(length.as_nanos() / 1_000 * 1_000)
}
