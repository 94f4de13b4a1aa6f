//! `[recovery]`: how long permits, attempts and events stay in Postgres.

use std::time::Duration;

use super::duration::say;
use super::field::Field;
use super::section::Section;
use super::source::Source;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecoverySection {
    /// How long spent permits stay in the ledger.
    pub keep_permits: Duration,
    /// How long attempts stay in the journal; `None` is for ever.
    pub keep_attempts: Option<Duration>,
    /// How long events stay; `None` is for ever.
    pub keep_events: Option<Duration>,
}

/// The longest times of the whole file that permits and attempts have to outlive.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Longest {
    pub(super) window: Duration,
    pub(super) key_retention: Duration,
}

impl RecoverySection {
    pub(super) const KEYS: &'static [&'static str] = &["keep_permits", "keep_attempts", "keep_events"];
    pub(super) const KEEP_PERMITS: Duration = Duration::from_hours(7 * 24);
    /// The claims of five nodes with 10 connections each can lock so many days at once with Postgres's own settings: 64 tables (two days
    /// ahead, today, and one for other days are among them) x 2 locks x 50 are 64 x 100. The longest window needs 32 days.
    const MANY_PERMITS: Duration = Duration::from_hours(60 * 24);
    /// How much longer than the longest window permits stay.
    const SPARE: Duration = Duration::from_hours(1);
    /// The least `keep_attempts`: longer than refundd inquires about a refund, and longer than a bank takes to ask
    /// about one.
    const LEAST_ATTEMPTS: Duration = Duration::from_hours(30 * 24);
    /// `refundd.retention` keeps events at least so long, too.
    const LEAST_EVENTS: Duration = Duration::from_hours(30 * 24);

    /// Reads the section. A permit must stay until its window is surely over: until then, a Redis that lost its data
    /// could grant its number again. The journal says what became of a permit's refund, so attempts stay longer.
    pub(super) fn read(section: &Section<'_>, longest: Longest) -> Self {
        section.keys(Self::KEYS, &[]);
        let mut permits = section.duration("keep_permits", Self::KEEP_PERMITS);
        permits.within(section.source, &(Self::SPARE..=Duration::from_hours(3_650 * 24)));
        outlives_windows(section.source, &mut permits, longest.window);
        let mut attempts = section.optional_duration("keep_attempts");
        if let Some(attempts) = &mut attempts {
            outlives_permits_and_keys(section.source, attempts, permits.value, longest.key_retention);
        }
        let mut events = section.optional_duration("keep_events");
        if let Some(events) = &mut events {
            events.within(section.source, &(Self::LEAST_EVENTS..=Duration::from_hours(36_500 * 24)));
        }
        RecoverySection {
            keep_permits: permits.value,
            keep_attempts: attempts.map(|keep| keep.value),
            keep_events: events.map(|keep| keep.value),
        }
    }

    /// For a file with a limit whose claims count spans.
    pub(super) fn warning(&self) -> Option<String> {
        (self.keep_permits > Self::MANY_PERMITS).then(|| {
            let (keep, most) = (say(self.keep_permits), say(Self::MANY_PERMITS));
            format!(
                "`recovery.keep_permits` is {keep}. Each day is a table, and a claim under a limit that is not a `fixed_window`, or of an \
                 `adaptive` channel whose bank asked for less, locks the tables and indexes of all days. Above {most} the first claims of a connection are slow, and Postgres may run out of locks. No refund \
                 needs old permits: only `refundd prove` reads them, to show that a limit was held. Save its reports, or export the permits \
                 themselves (docs/evidence.md), and set `recovery.keep_permits` to {most} or less"
            )
        })
    }
}

fn outlives_windows(source: &Source<'_>, keep: &mut Field<Duration>, longest_window: Duration) {
    let least = longest_window + RecoverySection::SPARE;
    keep.require(source, longest_window.is_zero() || keep.value >= least, || {
        format!(
            "must outlive the longest window, {}, by {}: a permit that is deleted earlier could be spent twice; set it \
             to at least \"{}\"",
            say(longest_window),
            say(RecoverySection::SPARE),
            say(least)
        )
    });
}

fn outlives_permits_and_keys(
    source: &Source<'_>,
    keep: &mut Field<Duration>,
    keep_permits: Duration,
    key_retention: Duration,
) {
    const DAY: Duration = Duration::from_hours(24);
    keep.within(source, &(RecoverySection::LEAST_ATTEMPTS..=36_500 * DAY));
    for (what, length, why) in [
        ("`keep_permits`", keep_permits, "`refundd prove` compares permits with attempts"),
        ("the longest `key_retention`", key_retention, "until then a refund may be sent again"),
    ] {
        keep.require(source, keep.value >= length + 2 * DAY, || {
            format!(
                "must outlive {what}, {}, by 2d: {why}; set it to at least \"{}\", or leave it out to keep them for ever",
                say(length),
                say(length + 2 * DAY)
            )
        });
    }
}
