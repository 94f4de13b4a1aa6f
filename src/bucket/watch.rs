//! Keeps, for each slot group, the watch on its server's clock and the last failure of a call.
//!
//! Without a cluster there is one server, so there is one clock and one last failure.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::clock::Clock;
use super::slot_group::{SlotGroups, Tag};
use crate::lock::Lock;

#[derive(Debug, Default)]
pub(super) struct Watches {
    clocks: Mutex<HashMap<Tag, Arc<Clock>>>,
    /// When the last call of a slot group failed, and why. A call that works removes its entry.
    troubles: Mutex<BTreeMap<Tag, (Instant, String)>>,
}

impl Watches {
    /// In a cluster, failures older than this are no longer reported: the master may be back, and nothing called it.
    const REPORTED_FOR: Duration = Duration::from_secs(30);

    /// The watch on the clock by which a slot group counts.
    pub fn clock(&self, tag: &Tag) -> Arc<Clock> {
        let mut clocks = self.clocks.locked();
        match clocks.get(tag) {
            Some(clock) => Arc::clone(clock),
            None => Arc::clone(clocks.entry(tag.clone()).or_default()),
        }
    }

    /// The tags of the slot groups whose clock this node has read.
    pub fn read_tags(&self) -> Vec<Tag> {
        self.clocks
            .locked()
            .iter()
            .filter(|(_, clock)| clock.was_read())
            .map(|(tag, _)| tag.clone())
            .collect()
    }

    /// Removes clocks and failures of slot groups that are no longer in the configuration.
    pub fn keep(&self, slot_groups: &SlotGroups) {
        let tags = slot_groups.tags();
        let stays = |tag: &Tag| tag.as_deref().is_none_or(|tag| tags.contains(tag));
        self.clocks.locked().retain(|tag, _| stays(tag));
        self.troubles.locked().retain(|tag, _| stays(tag));
    }

    pub fn failed(&self, tag: &Tag, why: String) {
        self.troubles.locked().insert(tag.clone(), (Instant::now(), why));
    }

    pub fn worked(&self, tag: &Tag) {
        self.troubles.locked().remove(tag);
    }

    /// Why the last call of a slot group failed: the first group by tag. `None` when all calls worked.
    pub fn trouble(&self) -> Option<String> {
        let troubles = self.troubles.locked();
        let fresh =
            |(tag, (at, _)): &(&Tag, &(Instant, String))| tag.is_none() || at.elapsed() < Self::REPORTED_FOR;
        troubles.iter().find(fresh).map(|(tag, (_, why))| match tag {
            None => why.clone(),
            Some(tag) => format!("{{{tag}}}: {why}"),
        })
    }
}
