//! `retry` of a channel: when refundd sends a refund again that was provably not executed.

use std::time::Duration;

use crate::refund::retry::RetryPolicy;

use super::duration::say;
use super::section::Section;

pub(super) const KEYS: &[&str] = &["base", "cap", "sends"];
const DAY: Duration = Duration::from_hours(24);

pub(super) fn read(section: &Section<'_>) -> RetryPolicy {
    let source = section.source;
    section.keys(KEYS, &[]);
    let default = RetryPolicy::default();
    let mut base = section.duration("base", default.base);
    base.within(source, &(Duration::from_millis(10)..=Duration::from_hours(1)));
    let mut cap = section.duration("cap", default.cap);
    cap.within(source, &(Duration::from_millis(10)..=DAY));
    cap.require(source, !base.is_sound() || cap.value >= base.value, || {
        format!("must not be shorter than `base`, which is {}; raise it, or lower `base`", say(base.value))
    });
    let mut sends = section.integer("sends", i64::from(default.sends));
    sends.within(source, &(1..=1_000));
    RetryPolicy {
        base: base.value,
        cap: cap.value,
        sends: u32::try_from(sends.value).unwrap_or(default.sends),
    }
}
