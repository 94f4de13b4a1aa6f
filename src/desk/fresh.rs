//! Puts what is newer than the counts into them: what suspends channels, so that an answer right after a pause or its end agrees
//! with it, and the refund that somebody asks about.
//!
//! The other counts stay as they are. A forecast moves by the time for which its channel is suspended longer, or shorter.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

use crate::refund::{Refund, State};
use crate::store::{ChannelCensus, Suspended, Suspension};

/// The census with what suspends and slows channels now; `None` if nothing does, and nothing did.
#[must_use]
pub fn with_suspensions(census: &[ChannelCensus], now: &Suspended) -> Option<Vec<ChannelCensus>> {
    let was_free = |one: &ChannelCensus| one.suspensions.is_empty() && one.slowed.is_none();
    if now.suspensions.is_empty() && now.slowed.is_empty() && census.iter().all(was_free) {
        return None;
    }
    let mut by_channel: HashMap<Option<&str>, Vec<&Suspension>> = HashMap::new();
    for one in &now.suspensions {
        by_channel.entry(one.channel.as_deref()).or_default().push(one);
    }
    let slowed: HashMap<&str, u32> = now.slowed.iter().map(|(name, share)| (name.as_str(), *share)).collect();
    let renewed = |one: &ChannelCensus| {
        let mut one = one.clone();
        let was = stopped_for(&one.suspensions);
        one.slowed = slowed.get(one.channel.as_str()).copied();
        let causes = [None, Some(one.channel.as_str())].map(|name| by_channel.get(&name));
        let causes = causes.into_iter().flatten().flatten().map(|one| (*one).clone()).collect();
        one.note_suspensions(causes);
        match (was, stopped_for(&one.suspensions)) {
            (Some(was), Some(is)) => one.drain = one.drain.map(|drain| drain.saturating_sub(was) + is),
            (None, Some(_)) => one.forecast_is_old = true,
            (_, None) => one.drain = None,
        }
        one
    };
    Some(census.iter().map(renewed).collect())
}

/// How long these stop a channel; `None` if somebody must end one of them.
fn stopped_for(suspensions: &[Suspension]) -> Option<Duration> {
    suspensions.iter().try_fold(Duration::ZERO, |longest, one| Some(longest.max(one.left?)))
}

/// The census with this refund and those before it: the refund may have been saved after the count.
pub(super) fn with_backlog<'c>(
    census: &'c [ChannelCensus],
    refund: &Refund,
    before: &[(Duration, u64)],
) -> Cow<'c, [ChannelCensus]> {
    let least = 1 + before.iter().map(|(_, count)| count).sum::<u64>();
    let counted = |one: &ChannelCensus| one.counts.get(&State::Ready).copied().unwrap_or(0);
    let mut census = Cow::Borrowed(census);
    let place = census.iter().position(|one| one.channel == refund.channel && counted(one) < least);
    if let Some(one) = place.and_then(|place| census.to_mut().get_mut(place)) {
        one.counts.insert(State::Ready, least);
    }
    census
}
