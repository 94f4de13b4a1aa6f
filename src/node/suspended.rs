//! The suspended channels, as this node last read them from Postgres: paused, suspended by refundd, or cooling.
//!
//! A node that learns late of a suspension does no harm: the claim reads the suspensions itself. No claim reads what the
//! bank refused while Postgres could not be told. So no reading takes that away from this node.

mod reserved;
mod until;
mod unwritten;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::meter::Binds;
use crate::bucket::Purpose;
use crate::lock::Lock;
use crate::refund::ChannelName;
use crate::store::{Suspended, SuspendedBy};
use unwritten::Unwritten;

pub use reserved::ReservedProbe;
pub use until::Until;
pub use unwritten::{NotedRefusal, Refused};

/// What suspends one channel, or all.
#[derive(Debug, Clone, Default)]
struct Causes {
    /// A person's pause.
    paused: Option<Until>,
    /// The bank's refusal: of the credentials, or of so many requests.
    refused: Option<Until>,
    /// The same, and trips of the breaker, as long as only this node knows.
    unwritten: Unwritten,
    /// When the breaker's next probe is due. The breaker suspends sends alone.
    probe_at: Option<Instant>,
    /// The probe that this node has reserved, and not begun.
    reserved: Option<ReservedProbe>,
}

impl Causes {
    fn until(&self) -> Option<Until> {
        let unwritten = self.unwritten.until().map(Until::At);
        [self.paused, self.refused, unwritten].into_iter().flatten().reduce(Until::later)
    }

    /// Whether both mean the same, so that no worker has to look again.
    fn is_about(&self, other: &Causes) -> bool {
        // Each end by itself: a later one must not hide that an earlier one moved.
        let ends = |causes: &Causes| [causes.paused, causes.refused, causes.probe_at.map(Until::At)];
        let same_ends = ends(self).into_iter().zip(ends(other)).all(|(a, b)| Until::are_about(a, b));
        // What Postgres has by now must be gone from here: who resumes the channel ends it there.
        same_ends && self.unwritten == other.unwritten
    }
}

/// What a channel worker may do now, as far as this node knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clearance {
    Free,
    /// Send one refund as this probe.
    Probe(ReservedProbe),
    /// Reserve the breaker's probe.
    ProbeIsDue,
    Suspended(Until),
}

/// The suspensions; a change wakes those that wait. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Suspensions {
    /// By the channel's name; `None` is all channels.
    causes_of: Arc<watch::Sender<HashMap<Option<String>, Causes>>>,
    /// The share of its rate, in percent, that each slowed channel may use for now.
    slowed: Arc<Mutex<HashMap<String, u32>>>,
}

impl Suspensions {
    /// Replaces the suspensions by those that Postgres has now. Returns the channels whose share of their rate
    /// changed, with the new share in percent; `None` is the full rate.
    pub fn update(&self, suspended: &Suspended) -> Vec<(String, Option<u32>)> {
        let mut fresh: HashMap<Option<String>, Causes> = HashMap::new();
        for one in &suspended.suspensions {
            let causes = fresh.entry(one.channel.clone()).or_default();
            let until = Until::after(one.left);
            match one.by {
                SuspendedBy::All | SuspendedBy::Person => causes.paused = Some(until),
                SuspendedBy::Credentials | SuspendedBy::Cooling => {
                    causes.refused = Some(causes.refused.map_or(until, |other| other.later(until)));
                }
                SuspendedBy::Breaker => {
                    causes.probe_at = Some(Instant::now() + one.probe_in.unwrap_or_default());
                }
            }
        }
        // Wake waiting channel workers only for a change, so that ten thousand paused channels sleep on.
        self.causes_of.send_if_modified(|known| {
            let now = Instant::now();
            for (channel, causes) in &*known {
                let written = fresh.get(channel);
                let refused = written.and_then(|written| written.refused);
                let is_tripped = written.is_some_and(|written| written.probe_at.is_some());
                let unwritten = causes.unwritten.missing_in(refused, is_tripped, now);
                if unwritten != Unwritten::default() {
                    fresh.entry(channel.clone()).or_default().unwritten = unwritten;
                }
            }
            for (channel, causes) in &mut fresh {
                let reserved = known.get(channel).and_then(|known| known.reserved);
                causes.reserved = reserved.filter(|_| causes.probe_at.is_some());
            }
            let has_changed = known.len() != fresh.len()
                || fresh
                    .iter()
                    .any(|(channel, causes)| !known.get(channel).is_some_and(|k| k.is_about(causes)));
            if has_changed {
                *known = fresh;
            }
            has_changed
        });
        let slowed: HashMap<String, u32> = suspended.slowed.iter().cloned().collect();
        let mut old = self.slowed.locked();
        let mut changed: Vec<(String, Option<u32>)> = slowed
            .iter()
            .filter(|(channel, percent)| old.get(*channel) != Some(*percent))
            .map(|(channel, percent)| (channel.clone(), Some(*percent)))
            .collect();
        changed.extend(old.keys().filter(|c| !slowed.contains_key(*c)).map(|c| (c.clone(), None)));
        *old = slowed;
        changed
    }

    /// The share of its rate that a channel may use for now, in percent; `None` for the full rate.
    pub fn slowed(&self, channel: &ChannelName) -> Option<u32> {
        self.slowed.locked().get(channel.as_str()).copied()
    }

    fn change(&self, channel: &ChannelName, change: impl FnOnce(&mut Causes)) {
        self.causes_of.send_modify(|known| change(known.entry(Some(channel.to_string())).or_default()));
    }

    /// Notes at once a refusal that this node learned from the bank. It suspends the channel until Postgres has it, and
    /// until the end that it names at most.
    pub fn note(&self, channel: &ChannelName, refused: Refused, refusal: NotedRefusal) {
        self.change(channel, |causes| causes.unwritten.of(refused).add(refusal));
    }

    /// Forgets refused credentials and trips of the breaker that Postgres has not got: the channel changed. It may have other
    /// credentials now, or no breaker.
    pub fn note_change(&self, channel: &ChannelName) {
        self.change(channel, |causes| causes.unwritten.forget_for_change());
    }

    /// Notes that Postgres has this refusal, and suspends the channel until `until`.
    pub fn note_written(
        &self,
        channel: &ChannelName,
        refused: Refused,
        noted: &NotedRefusal,
        until: Option<Until>,
    ) {
        self.change(channel, |causes| {
            causes.unwritten.of(refused).written(noted);
            causes.refused = [causes.refused, until].into_iter().flatten().reduce(Until::later);
        });
    }

    /// Whether to write such a refusal again later: it still suspends the channel, and nobody else does so.
    pub fn begin_retries(&self, channel: &ChannelName, refused: Refused) -> bool {
        let begin = |unwritten: &mut Unwritten| unwritten.of(refused).begin_retries(refused, Instant::now());
        self.of_unwritten(channel, begin).unwrap_or(false)
    }

    /// The refusal of this kind that is still to be written. `None` ends the retries.
    pub fn next_retry(&self, channel: &ChannelName, refused: Refused) -> Option<NotedRefusal> {
        let next = |unwritten: &mut Unwritten| unwritten.of(refused).next_retry(refused, Instant::now());
        self.of_unwritten(channel, next).flatten()
    }

    /// Looks at what is unwritten of a channel, and wakes nobody.
    fn of_unwritten<T>(&self, channel: &ChannelName, look: impl FnOnce(&mut Unwritten) -> T) -> Option<T> {
        let mut answer = None;
        self.causes_of.send_if_modified(|known| {
            answer = known.get_mut(&Some(channel.to_string())).map(|causes| look(&mut causes.unwritten));
            false
        });
        answer
    }

    /// Notes at once that the breaker tripped, or, with `None`, that its suspension is over.
    pub fn note_breaker(&self, channel: &ChannelName, probe_at: Option<Instant>) {
        self.change(channel, |causes| {
            causes.probe_at = probe_at;
            causes.reserved = None;
        });
    }

    /// Notes that this node may make this probe.
    pub fn reserve_probe(&self, channel: &ChannelName, probe: ReservedProbe) {
        self.change(channel, |causes| {
            causes.probe_at = Some(probe.until);
            causes.reserved = Some(probe);
        });
    }

    /// Notes that the reserved probe is under way.
    pub fn use_probe(&self, channel: &ChannelName) {
        self.change(channel, |causes| causes.reserved = None);
    }

    /// What a channel worker may do now.
    pub fn clearance(&self, channel: &ChannelName, purpose: Purpose) -> Clearance {
        let known = self.causes_of.borrow();
        let now = Instant::now();
        let own = known.get(&Some(channel.to_string())).cloned().unwrap_or_default();
        let all = known.get(&None).and_then(Causes::until);
        let until = [all, own.until()].into_iter().flatten().filter(|until| until.holds(now));
        if let Some(until) = until.reduce(Until::later) {
            return Clearance::Suspended(until);
        }
        if let (Purpose::Send, Some(at)) = (purpose, own.unwritten.tripped_until().filter(|at| *at > now)) {
            return Clearance::Suspended(Until::At(at));
        }
        match (purpose, own.probe_at, own.reserved.filter(|probe| probe.until > now)) {
            (Purpose::Inquire, _, _) | (Purpose::Send, None, _) => Clearance::Free,
            (Purpose::Send, Some(_), Some(probe)) => Clearance::Probe(probe),
            (Purpose::Send, Some(at), None) if at > now => Clearance::Suspended(Until::At(at)),
            (Purpose::Send, Some(_), None) => Clearance::ProbeIsDue,
        }
    }

    /// What binds a suspended channel, as far as this node knows; `None` if it is not suspended.
    pub fn binds(&self, channel: &ChannelName) -> Option<Binds> {
        let known = self.causes_of.borrow();
        let now = Instant::now();
        let all = known.get(&None).cloned().unwrap_or_default();
        let own = known.get(&Some(channel.to_string())).cloned().unwrap_or_default();
        let holds = |until: Option<Until>| until.is_some_and(|until| until.holds(now));
        let holds_unwritten = |refused| own.unwritten.holds(refused, now);
        let is_let_in = own.refused != Some(Until::Ended) && !holds_unwritten(Refused::Credentials);
        if holds(all.paused) || holds(own.paused) || !is_let_in {
            Some(Binds::Paused)
        } else if holds(own.refused) || holds_unwritten(Refused::Requests) {
            Some(Binds::Cooling)
        } else {
            let is_tripped =
                own.probe_at.is_some() || own.unwritten.tripped_until().is_some_and(|at| at > now);
            is_tripped.then_some(Binds::Breaker)
        }
    }

    /// The channels whose breaker suspends them.
    pub fn tripped(&self) -> Vec<String> {
        let known = self.causes_of.borrow();
        known
            .iter()
            .filter(|(_, causes)| causes.probe_at.is_some() || causes.unwritten.tripped_until().is_some())
            .filter_map(|(name, _)| name.clone())
            .collect()
    }

    /// Whether a person stopped the permits that these channels share, and until when: everything is paused, or each
    /// of the channels is.
    pub fn pause_of<'a>(&self, channels: impl Iterator<Item = &'a str>) -> Option<Until> {
        let known = self.causes_of.borrow();
        let now = Instant::now();
        let of = |channel: Option<String>| known.get(&channel)?.paused.filter(|until| until.holds(now));
        let earlier = |one: Until, other: Until| match (one, other) {
            (Until::At(a), Until::At(b)) => Until::At(a.min(b)),
            (Until::Ended, other) => other,
            (one, Until::Ended) => one,
        };
        let each: Option<Vec<Until>> = channels.map(|channel| of(Some(channel.to_owned()))).collect();
        of(None).or_else(|| each?.into_iter().reduce(earlier))
    }

    /// Waits until the channel worker may do something, as far as this node knows.
    pub async fn wait_until_free(&self, channel: &ChannelName, purpose: Purpose) {
        let mut changes = self.causes_of.subscribe();
        loop {
            changes.mark_unchanged();
            let wait = match self.clearance(channel, purpose) {
                Clearance::Free | Clearance::Probe(_) | Clearance::ProbeIsDue => return,
                Clearance::Suspended(Until::At(at)) => at.saturating_duration_since(Instant::now()),
                Clearance::Suspended(Until::Ended) => Duration::MAX,
            };
            tokio::select! {
                _ = changes.changed() => {}
                () = tokio::time::sleep(wait.min(Duration::from_hours(1))) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
