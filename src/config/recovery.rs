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
}

impl Recovery {
    pub(super) const KEYS: &'static [&'static str] = &["keep_permits"];
    pub(super) const KEEP_PERMITS: Duration = Duration::from_hours(7 * 24);
    /// How much longer than a window its permits are kept.
    const SPARE: Duration = Duration::from_hours(1);

    /// A permit's number must stay for as long as Redis, having forgotten everything, could hand
    /// it out again: until its window is surely over.
    pub(super) fn read(section: &Section<'_>, longest_window: Duration) -> Self {
        section.keys(Self::KEYS, &[]);
        let mut keep = section.duration("keep_permits", Self::KEEP_PERMITS);
        keep.within(section.source, &(Self::SPARE..=Duration::from_hours(3_650 * 24)));
        outlives_windows(section.source, &mut keep, longest_window);
        Recovery { keep_permits: keep.value }
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
