//! The channels of this node whose worker sleeps until its bucket is filled. Other loops look at those buckets for
//! it.
//!
//! The set counts the sleeping workers of a channel. For a moment after a reload the old worker and the new worker
//! both sleep. When one of them wakes, the bucket must still be looked at for the other.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::lock::Lock;
use crate::refund::ChannelName;

/// The set of channels with a sleeping worker. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Sleepers(Arc<Mutex<HashMap<ChannelName, usize>>>);

impl Sleepers {
    /// Notes that a worker of this channel sleeps, until the returned value is dropped.
    pub fn enter(&self, channel: &ChannelName) -> Asleep {
        *self.0.locked().entry(channel.clone()).or_default() += 1;
        Asleep { sleepers: self.clone(), channel: channel.clone() }
    }

    /// The channels with at least one sleeping worker.
    pub fn channels(&self) -> Vec<ChannelName> {
        self.0.locked().keys().cloned().collect()
    }
}

/// One sleeping worker. Dropping this value ends its sleep.
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
