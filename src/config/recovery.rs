//! `[recovery]`: how long evidence is kept.

use std::time::Duration;

use super::duration::say;
use super::field::Field;
use super::section::Section;
use super::source::Source;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recovery {
    /// How long the numbers of spent permits stay in Postgres.
    pub keep_permits: Duration,
    /// How long the journal of attempts stays; `None` is for ever.
    pub keep_attempts: Option<Duration>,
}

/// What evidence has to outlive.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Longest {
    pub(super) window: Duration,
    pub(super) key_retention: Duration,
}

impl Recovery {
    pub(super) const KEYS: &'static [&'static str] = &["keep_permits", "keep_attempts"];
    pub(super) const KEEP_PERMITS: Duration = Duration::from_hours(7 * 24);
    /// How much longer than a window its permits are kept.
    const SPARE: Duration = Duration::from_hours(1);
    /// Longer than any refund is asked about, and than a bank takes to ask back.
    const LEAST_ATTEMPTS: Duration = Duration::from_hours(30 * 24);

    /// A permit's number must stay for as long as Redis, having forgotten everything, could hand
    /// it out again: until its window is surely over. The journal says what became of it, so it stays longer.
    pub(super) fn read(section: &Section<'_>, longest: Longest) -> Self {
        section.keys(Self::KEYS, &[]);
        let mut permits = section.duration("keep_permits", Self::KEEP_PERMITS);
        permits.within(section.source, &(Self::SPARE..=Duration::from_hours(3_650 * 24)));
        outlives_windows(section.source, &mut permits, longest.window);
        let mut attempts = section.optional_duration("keep_attempts");
        if let Some(attempts) = &mut attempts {
            outlives_what_needs_it(section.source, attempts, permits.value, longest.key_retention);
        }
        Recovery { keep_permits: permits.value, keep_attempts: attempts.map(|keep| keep.value) }
    }
}

fn outlives_windows(source: &Source<'_>, keep: &mut Field<Duration>, longest_window: Duration) {
    let least = longest_window + Recovery::SPARE;
    keep.law(source, longest_window.is_zero() || keep.value >= least, || {
        format!(
            "must outlive the longest window, {}, by {}: a number forgotten earlier could be spent twice; set it \
             to at least \"{}\"",
            say(longest_window),
            say(Recovery::SPARE),
            say(least)
        )
    });
}

fn outlives_what_needs_it(
    source: &Source<'_>,
    keep: &mut Field<Duration>,
    keep_permits: Duration,
    key_retention: Duration,
) {
    const DAY: Duration = Duration::from_hours(24);
    keep.within(source, &(Recovery::LEAST_ATTEMPTS..=36_500 * DAY));
    for (what, length, why) in [
        ("`keep_permits`", keep_permits, "`refundd prove` compares permits with what became of them"),
        ("the longest `key_retention`", key_retention, "until then a refund may be sent again"),
    ] {
        keep.law(source, keep.value >= length + 2 * DAY, || {
            format!(
                "must outlive {what}, {}, by 2d: {why}; set it to at least \"{}\", or leave it out to keep them for ever",
                say(length),
                say(length + 2 * DAY)
            )
        });
    }
}
