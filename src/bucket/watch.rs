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
    /// The last failures of each slot group, by verb.
    troubles: Mutex<BTreeMap<(Tag, &'static str), Trouble>>,
}

/// Why a verb failed.
#[derive(Debug)]
struct Trouble {
    at: Instant,
    why: String,
    /// The server answered, and refused this verb: it is out of memory or a replica, or its user may not run the script. Another
    /// verb that works proves nothing then.
    is_refusal: bool,
}

impl Watches {
    /// Failures older than this are no longer reported, because the cause may have gone without a call that shows it: in
    /// a cluster a master may be back, and a refused verb may not be called again. Without a cluster each heartbeat shows
    /// whether the way to the server is open.
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
        self.troubles.locked().retain(|(tag, _), _| stays(tag));
    }

    pub fn failed(&self, tag: &Tag, verb: &'static str, why: String, is_refusal: bool) {
        self.troubles.locked().insert((tag.clone(), verb), Trouble { at: Instant::now(), why, is_refusal });
    }

    /// Ends the failures that a call which worked disproves: those of the same verb, and those of the way to the server.
    pub fn worked(&self, tag: &Tag, verb: &'static str) {
        let mut troubles = self.troubles.locked();
        if !troubles.is_empty() {
            troubles.retain(|(of, failed), trouble| of != tag || (trouble.is_refusal && *failed != verb));
        }
    }

    /// Why the last call of a slot group failed: the first group by tag. `None` when all calls worked.
    pub fn trouble(&self) -> Option<String> {
        let troubles = self.troubles.locked();
        let is_fresh = |((tag, _), trouble): &(&(Tag, &str), &Trouble)| {
            (tag.is_none() && !trouble.is_refusal) || trouble.at.elapsed() < Self::REPORTED_FOR
        };
        troubles.iter().find(is_fresh).map(|((tag, _), trouble)| match tag {
            None => trouble.why.clone(),
            Some(tag) => format!("{{{tag}}}: {}", trouble.why),
        })
    }
}
