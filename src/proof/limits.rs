//! Which limits a channel has, and which channels need the permits of a limit.

use crate::store::Provable;

/// The limits of a channel's sends and inquiries, with those that refundd derived from them; empty for an unlimited
/// channel. `None` if no such channel was ever run.
#[must_use]
pub fn limits_of(channel: &str, known: &Provable) -> Option<Vec<String>> {
    let (_, sends) = known.channels.iter().find(|(name, _)| name == channel)?;
    let inquiries = known.inquiries.iter().filter(|(name, _)| name == channel).flat_map(|(_, limits)| limits);
    let mut limits: Vec<String> = Vec::new();
    for limit in sends.iter().chain(inquiries) {
        if !limits.contains(limit) {
            limits.push(limit.clone());
        }
    }
    if limits.is_empty() {
        return Some(limits);
    }
    let is_derived = |of: &str| {
        let (owner, what) = of.split_once('.').unwrap_or((of, ""));
        !what.is_empty() && (owner == channel || limits.iter().any(|limit| limit == owner))
    };
    let derived = known.limits.iter().filter(|limit| is_derived(limit) && !limits.contains(limit));
    Some(limits.iter().chain(derived).cloned().collect())
}

/// The channels among these that name a limit.
pub(super) fn channels_with(limit: &str, channels: &[(String, Vec<String>)]) -> Vec<String> {
    let holds = channels.iter().filter(|(_, limits)| limits.iter().any(|named| named == limit));
    holds.map(|(channel, _)| channel.clone()).collect()
}
