//! The suspended channels, as this node last read them from Postgres: paused or cooling.
//!
//! A node that learns late of a suspension does no harm: the claim reads the channel's row itself.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::lock::Lock;
use crate::refund::ChannelName;
use crate::store::Suspension;

/// Until when a channel sends nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// Until a person resumes it.
    Resumed,
    /// Until its cooling ends at this moment.
    Cooled(Instant),
}

impl Until {
    /// Two readings of one cooling differ by less than this: by the time to Postgres and back.
    const SAME: Duration = Duration::from_millis(100);

    fn is_about(self, other: Until) -> bool {
        match (self, other) {
            (Until::Resumed, Until::Resumed) => true,
            (Until::Cooled(a), Until::Cooled(b)) => a.max(b).duration_since(a.min(b)) < Self::SAME,
            (Until::Resumed, Until::Cooled(_)) | (Until::Cooled(_), Until::Resumed) => false,
        }
    }
}

/// The suspended channels; a change wakes those that wait. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Suspensions {
    until: Arc<watch::Sender<HashMap<String, Until>>>,
    /// The share of its rate, in percent, that each slowed channel may use for now.
    slowed: Arc<Mutex<HashMap<String, u32>>>,
}

impl Suspensions {
    /// Replaces the suspensions by those that Postgres has now. Returns the channels whose share of their rate
    /// changed, with the new share in percent; `None` is the full rate.
    pub fn update(&self, suspensions: &[Suspension]) -> Vec<(String, Option<u32>)> {
        let now = Instant::now();
        let fresh: HashMap<String, Until> = suspensions
            .iter()
            .filter_map(|suspension| {
                let until = match (&suspension.paused, &suspension.cooling) {
                    (Some(_), _) => Until::Resumed,
                    (None, Some((left, _))) => Until::Cooled(now + *left),
                    (None, None) => return None,
                };
                Some((suspension.channel.clone(), until))
            })
            .collect();
        // Wake waiting channel workers only for a change, so that ten thousand paused channels sleep on.
        self.until.send_if_modified(|known| {
            let has_changed = known.len() != fresh.len()
                || fresh
                    .iter()
                    .any(|(channel, until)| !known.get(channel).is_some_and(|k| k.is_about(*until)));
            if has_changed {
                *known = fresh;
            }
            has_changed
        });
        let slowed: HashMap<String, u32> =
            suspensions.iter().filter_map(|one| Some((one.channel.clone(), one.slowed?))).collect();
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

    /// Notes at once a suspension that this node learned from the bank.
    pub fn note(&self, channel: &ChannelName, until: Until) {
        self.until.send_modify(|known| {
            known.insert(channel.to_string(), until);
        });
    }

    fn of(&self, channel: &ChannelName) -> Option<Until> {
        self.until.borrow().get(channel.as_str()).copied()
    }

    /// Until when the channel is suspended, as far as this node knows; `None` if it is not.
    pub fn until(&self, channel: &ChannelName) -> Option<Until> {
        self.of(channel).filter(|_| !self.is_free(channel))
    }

    /// Whether the channel is not suspended, as far as this node knows.
    pub fn is_free(&self, channel: &ChannelName) -> bool {
        match self.of(channel) {
            None => true,
            Some(Until::Cooled(at)) => at <= Instant::now(),
            Some(Until::Resumed) => false,
        }
    }

    /// Waits until the channel is not suspended, as far as this node knows.
    pub async fn wait_until_free(&self, channel: &ChannelName) {
        let mut changes = self.until.subscribe();
        loop {
            changes.mark_unchanged();
            let wait = match self.of(channel) {
                None => return,
                Some(Until::Cooled(at)) => at.saturating_duration_since(Instant::now()),
                Some(Until::Resumed) => Duration::MAX,
            };
            if wait.is_zero() {
                return;
            }
            tokio::select! {
                _ = changes.changed() => {}
                () = tokio::time::sleep(wait.min(Duration::from_hours(1))) => {}
            }
        }
    }
}
