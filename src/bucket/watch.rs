//! What this node saw last of the server behind each family: how its clock went, and what went wrong.
//!
//! Without a cluster there is one server, and all of this once.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::clock::Clock;
use super::family::{Families, Tag};
use crate::lock::Lock;

#[derive(Debug, Default)]
pub(super) struct Watches {
    clocks: Mutex<HashMap<Tag, Arc<Clock>>>,
    /// Of the last call, when it failed.
    troubles: Mutex<BTreeMap<Tag, (Instant, String)>>,
}

impl Watches {
    /// A family that nobody asked about for so long may well be in order again.
    const OLD_NEWS: Duration = Duration::from_secs(30);

    /// The watch on the clock that counts for a family.
    pub fn clock(&self, tag: &Tag) -> Arc<Clock> {
        let mut clocks = self.clocks.locked();
        match clocks.get(tag) {
            Some(clock) => Arc::clone(clock),
            None => Arc::clone(clocks.entry(tag.clone()).or_default()),
        }
    }

    /// Those whose clock this node has read.
    pub fn read_tags(&self) -> Vec<Tag> {
        self.clocks
            .locked()
            .iter()
            .filter(|(_, clock)| clock.was_read())
            .map(|(tag, _)| tag.clone())
            .collect()
    }

    /// Forgets the families that are gone.
    pub fn keep(&self, families: &Families) {
        let tags = families.tags();
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

    /// What went wrong with the last call, of any family; `None` when all worked.
    pub fn trouble(&self) -> Option<String> {
        let troubles = self.troubles.locked();
        let fresh =
            |(tag, (at, _)): &(&Tag, &(Instant, String))| tag.is_none() || at.elapsed() < Self::OLD_NEWS;
        troubles.iter().find(fresh).map(|(tag, (_, why))| match tag {
            None => why.clone(),
            Some(tag) => format!("{{{tag}}}: {why}"),
        })
    }
}
