//! What holds channels back, as this node last heard: paused by a person or by itself, or cooling.
//!
//! Hearing of it late is harmless: the claim looks at the row itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::refund::ChannelName;
use crate::store::Held;

/// Until when a channel sends nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// Somebody resumes it.
    Resumed,
    Cooled(Instant),
}

/// The channels held back; waits can be woken by a change.
#[derive(Debug, Clone)]
pub struct HeldBack(Arc<watch::Sender<HashMap<String, Until>>>);

impl Default for HeldBack {
    fn default() -> Self {
        HeldBack(Arc::new(watch::Sender::new(HashMap::new())))
    }
}

impl HeldBack {
    /// Takes over what the database says now.
    pub fn update(&self, held: &[Held]) {
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
        self.0.send_replace(fresh);
    }

    /// Notes at once what this node just learned itself.
    pub fn note(&self, channel: &ChannelName, until: Until) {
        self.0.send_modify(|held| {
            held.insert(channel.to_string(), until);
        });
    }

    fn of(&self, channel: &ChannelName) -> Option<Until> {
        self.0.borrow().get(channel.as_str()).copied()
    }

    /// Returns when nothing holds the channel back, as far as this node knows.
    pub async fn wait_until_free(&self, channel: &ChannelName) {
        let mut changes = self.0.subscribe();
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
