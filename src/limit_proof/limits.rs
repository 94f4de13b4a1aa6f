//! Which limits a channel has, which channels need the permits of a limit, and what these are named after.

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

/// The names of a limit's permits: its own, and those of its shares if nodes count it by shares.
pub(super) fn names_of(limit: &str, known: &Provable) -> Vec<String> {
    let is_shared_out = known.local_shares.iter().any(|one| one == limit);
    let is_share = |name: &&String| {
        let number = || name.strip_prefix(limit)?.strip_prefix(".share")?.parse::<u32>().ok();
        is_shared_out && number().is_some()
    };
    let shares = known.limits.iter().filter(is_share).cloned();
    std::iter::once(limit.to_owned()).chain(shares).collect()
}

/// The channels among these that name a limit.
pub(super) fn channels_with(limit: &str, channels: &[(String, Vec<String>)]) -> Vec<String> {
    let holds = channels.iter().filter(|(_, limits)| limits.iter().any(|named| named == limit));
    holds.map(|(channel, _)| channel.clone()).collect()
}
