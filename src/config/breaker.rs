//! `breaker` of a channel: after which outcomes refundd suspends the channel by itself, and how often it probes the bank.

use std::time::Duration;

use crate::channel::{Breaker, Channel};

use super::duration::say;
use super::section::Section;

pub(super) const KEYS: &[&str] = &["rejected", "unknown", "unreachable", "probe"];
const MOST: i64 = 1_000_000;

/// Reads the breaker of a channel; `None` if the file switches it off.
pub(super) fn read(channel: &Section<'_>) -> Option<Breaker> {
    if channel.is_off("breaker") {
        return None;
    }
    let section = channel.section("breaker");
    section.keys(KEYS, &[]);
    let default = Breaker::default();
    let count = |key, default: u32| {
        let mut field = section.integer(key, i64::from(default));
        field.require(section.source, (1..=MOST).contains(&field.value), || {
            format!(
                "must lie between 1 and {MOST}; to switch the whole breaker off, write `breaker = \"off\"`"
            )
        });
        u32::try_from(field.value).unwrap_or(default)
    };
    let mut probe = section.duration("probe", default.probe);
    probe.within(section.source, &(Duration::from_secs(1)..=Duration::from_hours(24)));
    Some(Breaker {
        rejected: count("rejected", default.rejected),
        unknown: count("unknown", default.unknown),
        unreachable: count("unreachable", default.unreachable),
        probe: probe.value,
    })
}

/// The next probe is due after `probe`, whether or not the one before has an answer.
pub(super) fn warning(channel: &Channel) -> Option<String> {
    let Channel { name, breaker, timeout, connect_timeout, .. } = channel;
    let (probe, longest) = ((*breaker)?.probe, *timeout + *connect_timeout);
    (probe < longest).then(|| {
        format!(
            "the breaker of channel `{name}` has a `probe` of {}, and a request may take {}: `connect_timeout` and `timeout` together. So \
             a probe may go out before the one before it is answered, and each costs one refund if the bank still fails; set `probe` to {} \
             or more",
            say(probe),
            say(longest),
            say(longest)
        )
    })
}
