//! What holds channels back, as this node last heard: paused by a person or by itself, or cooling.
//!
//! Hearing of it late is harmless: the claim looks at the row itself.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::lock::Lock;
use crate::refund::ChannelName;
use crate::store::Held;

/// Until when a channel sends nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// Somebody resumes it.
    Resumed,
    Cooled(Instant),
}

impl Until {
    /// Two readings of one cooling differ by the way to Postgres and back.
    const SAME: Duration = Duration::from_millis(100);

    fn is_about(self, other: Until) -> bool {
        match (self, other) {
            (Until::Resumed, Until::Resumed) => true,
            (Until::Cooled(a), Until::Cooled(b)) => a.max(b).duration_since(a.min(b)) < Self::SAME,
            (Until::Resumed, Until::Cooled(_)) | (Until::Cooled(_), Until::Resumed) => false,
        }
    }
}

/// The channels held back; waits can be woken by a change.
#[derive(Debug, Clone, Default)]
pub struct HeldBack {
    until: Arc<watch::Sender<HashMap<String, Until>>>,
    /// The share of its rate that a channel may use for now, in percent.
    slowed: Arc<Mutex<HashMap<String, u32>>>,
}

impl HeldBack {
    /// Takes over what the database says now; answers the channels whose share of their rate changed.
    pub fn update(&self, held: &[Held]) -> Vec<(String, Option<u32>)> {
        let now = Instant::now();
        let fresh: HashMap<String, Until> = held
            .iter()
            .filter_map(|h| {
                let until = match (&h.paused, &h.cooling) {
                    (Some(_), _) => Until::Resumed,
                    (None, Some((left, _))) => Until::Cooled(now + *left),
                    (None, None) => return None,
                };
                Some((h.channel.clone(), until))
            })
            .collect();
        // Whoever waits is woken by news only: ten thousand paused channels sleep through.
        self.until.send_if_modified(|known| {
            let is_news = known.len() != fresh.len()
                || fresh
                    .iter()
                    .any(|(channel, until)| !known.get(channel).is_some_and(|k| k.is_about(*until)));
            if is_news {
                *known = fresh;
            }
            is_news
        });
        let slowed: HashMap<String, u32> =
            held.iter().filter_map(|h| Some((h.channel.clone(), h.slowed?))).collect();
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

    /// The share of its rate a channel may use for now, in percent; `None` for all of it.
    pub fn slowed(&self, channel: &ChannelName) -> Option<u32> {
        self.slowed.locked().get(channel.as_str()).copied()
    }

    /// Notes at once what this node just learned itself.
    pub fn note(&self, channel: &ChannelName, until: Until) {
        self.until.send_modify(|held| {
            held.insert(channel.to_string(), until);
        });
    }

    fn of(&self, channel: &ChannelName) -> Option<Until> {
        self.until.borrow().get(channel.as_str()).copied()
    }

    /// Whether nothing holds the channel back, as far as this node knows.
    pub fn is_free(&self, channel: &ChannelName) -> bool {
        match self.of(channel) {
            None => true,
            Some(Until::Cooled(at)) => at <= Instant::now(),
            Some(Until::Resumed) => false,
        }
    }

    /// Returns when nothing holds the channel back, as far as this node knows.
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
