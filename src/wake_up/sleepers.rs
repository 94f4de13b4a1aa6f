//! The channels of this node whose loop sleeps until its line is fed, and which somebody therefore looks at.
//!
//! Counted, since for a moment after a reload the old loop of a channel and the new one both sleep: when one of them
//! wakes up the other must still be looked at.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::lock::Lock;
use crate::refund::ChannelName;

/// Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Sleepers(Arc<Mutex<HashMap<ChannelName, usize>>>);

impl Sleepers {
    /// One more loop of this channel sleeps, until what is returned is dropped.
    pub fn enter(&self, channel: &ChannelName) -> Asleep {
        *self.0.locked().entry(channel.clone()).or_default() += 1;
        Asleep { sleepers: self.clone(), channel: channel.clone() }
    }

    pub fn channels(&self) -> Vec<ChannelName> {
        self.0.locked().keys().cloned().collect()
    }
}

/// One loop that sleeps.
#[derive(Debug)]
pub struct Asleep {
    sleepers: Sleepers,
    channel: ChannelName,
}

impl Drop for Asleep {
    fn drop(&mut self) {
        let mut sleeping = self.sleepers.0.locked();
        if let Some(count) = sleeping.get_mut(&self.channel) {
            *count -= 1;
            if *count == 0 {
                sleeping.remove(&self.channel);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_loop_that_wakes_up_leaves_its_successor_to_be_looked_at() {
        let (sleepers, acme) = (Sleepers::default(), ChannelName::new("acme").unwrap());
        let old = sleepers.enter(&acme);
        let new = sleepers.enter(&acme);
        drop(old);
        assert_eq!(sleepers.channels(), [acme]);
        drop(new);
        assert!(sleepers.channels().is_empty());
    }
}
