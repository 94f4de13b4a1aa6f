//! `[limit.NAME]`: an algorithm and its numbers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::duration;
use super::section::Section;
use crate::limiter::{Algorithm, Limit};
use crate::refund::LimitName;

/// The longest window.
pub(super) const LONGEST: Duration = Duration::from_hours(31 * 24);
const SHORTEST: Duration = Duration::from_millis(10);
const LATENESS: Duration = Duration::from_millis(20);
const AHEAD: Duration = Duration::from_millis(50);

/// Every limit by name; `None` is one that was declared unlimited.
pub(super) type Limits = BTreeMap<LimitName, Option<Arc<Limit>>>;

pub(super) fn read(root: &Section<'_>) -> Limits {
    let mut limits = Limits::new();
    for (name, section) in root.section("limit").sections() {
        match LimitName::new(&name) {
            Err(error) => section.complain(error.to_string()),
            // One that is faulty has been complained about; it stands in for itself, so that the
            // channels that name it are not told that it is missing.
            Ok(name) => {
                let limit = limit(&section, &name);
                limits.insert(name, limit.map(Arc::new));
            }
        }
    }
    limits
}

fn limit(section: &Section<'_>, name: &LimitName) -> Option<Limit> {
    let source = section.source;
    section.keys(
        &["algorithm", "permits", "per", "lateness", "ahead"],
        &[
            ("burst", "belongs to `token_bucket`, which comes with a later version"),
            ("segments", "belongs to `sliding_window`, which comes with a later version"),
            ("placement", "comes with a later version; this one counts in Redis"),
            ("nodes", "belongs to `placement`, which comes with a later version"),
            ("window", "the window's length is `per`, such as per = \"1s\""),
            ("rate", "write permits = 20 and per = \"1s\""),
        ],
    );
    let mut algorithm = section.text("algorithm", "fixed_window");
    let known = algorithm.value.clone();
    algorithm.law(source, known == "fixed_window", || match known.as_str() {
        "paced" | "sliding_log" | "sliding_window" | "token_bucket" => {
            "comes with a later version; this one knows only \"fixed_window\""
        }
        _ => "must be \"fixed_window\"",
    });
    let permits = section.required_integer("permits", "say how many in each `per`, or -1 for unlimited");
    if permits.as_ref().is_some_and(|p| p.value == -1) {
        return None;
    }
    let per = section.required_duration("per", "say in how long, such as per = \"1s\"");
    let (mut permits, mut per) = (permits?, per?);
    let permits_hold = permits.law(
        source,
        (1..=1_000_000).contains(&permits.value),
        || "must lie between 1 and 1000000, or be -1 for unlimited",
    );
    let per_holds = per.within(source, &(SHORTEST..=LONGEST))
        && per.law(
            source,
            duration::is_whole_microseconds(per.value),
            || "must be whole microseconds: that is how finely Redis's clock counts",
        );

    // In a short window the defaults shrink with it; what the file says is taken at its word.
    let half = per.value / 2;
    let mut lateness = section.duration("lateness", LATENESS.min(per.value / 10));
    let lateness_holds = lateness.law(source, lateness.value < half, || {
        "must be less than half of `per`: it is cut off each window's end, so that a first byte that takes that long still counts where it was meant"
    });
    let mut ahead = section.duration("ahead", AHEAD.min(half));
    let ahead_holds = ahead.law(
        source,
        ahead.value <= half,
        || "must be at most half of `per`: permits are granted that much before their window opens",
    );
    if !(algorithm.is_sound() && permits_hold && per_holds && lateness_holds && ahead_holds) {
        return None;
    }
    Some(Limit {
        name: name.clone(),
        algorithm: Algorithm::FixedWindow { permits: u32::try_from(permits.value).ok()?, per: per.value },
        lateness: lateness.value,
        ahead: ahead.value,
    })
}
