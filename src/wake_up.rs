//! Wake-ups: how one loop ends another loop's sleep early.
//!
//! The loops share these values, so they need not know each other. A wake-up carries no data: the loop that wakes
//! reads the rows and the buckets again. A lost wake-up costs time, never a refund.

mod sleepers;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::bucket::Purpose;
use crate::lock::Lock;
use crate::refund::ChannelName;
pub use sleepers::{Asleep, Sleepers};

/// The wake-ups around the buckets of sends, or around those of inquiries. Cheap to clone.
#[derive(Debug, Clone)]
pub struct WakeUps(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    purpose: Purpose,
    /// The ids a bucket may hold.
    capacity: AtomicU32,
    /// The channels whose buckets the feeder must look at.
    nudged: Mutex<HashSet<ChannelName>>,
    nudge: Notify,
    /// One signal for each channel, made when it is first used.
    filled: Mutex<HashMap<ChannelName, Arc<Notify>>>,
    /// The channels whose worker found its bucket empty and sleeps until it is filled.
    sleepers: Sleepers,
}

impl WakeUps {
    /// The ids that a bucket of inquiries may hold.
    const INQUIRIES: u32 = 100;

    pub fn of_sends(capacity: u32) -> Self {
        Self::new(Purpose::Send, capacity)
    }

    pub fn of_inquiries() -> Self {
        Self::new(Purpose::Inquire, Self::INQUIRIES)
    }

    fn new(purpose: Purpose, capacity: u32) -> Self {
        WakeUps(Arc::new(Inner {
            purpose,
            capacity: AtomicU32::new(capacity),
            nudged: Mutex::default(),
            nudge: Notify::new(),
            filled: Mutex::default(),
            sleepers: Sleepers::default(),
        }))
    }

    /// Whether these wake-ups are for the buckets of sends or of inquiries.
    pub fn purpose(&self) -> Purpose {
        self.0.purpose
    }

    pub fn capacity(&self) -> u32 {
        self.0.capacity.load(Ordering::Relaxed)
    }

    pub fn set_capacity(&self, capacity: u32) {
        self.0.capacity.store(capacity, Ordering::Relaxed);
    }

    /// A bucket with fewer ids than this should be filled.
    pub fn low_water(&self) -> u32 {
        self.capacity().div_ceil(2)
    }

    /// Nudges the feeder to look at a channel's bucket. Does nothing for inquiries: the due poller fills their
    /// buckets.
    pub fn nudge(&self, channel: &ChannelName) {
        if self.0.purpose == Purpose::Send {
            self.0.nudged.locked().insert(channel.clone());
            self.0.nudge.notify_one();
        }
    }

    /// The channels that were nudged since the last call.
    pub fn take_nudged(&self) -> HashSet<ChannelName> {
        std::mem::take(&mut *self.0.nudged.locked())
    }

    /// Waits for a nudge; an earlier nudge counts once.
    pub async fn wait_for_nudge(&self) {
        self.0.nudge.notified().await;
    }

    /// The signal that a channel's bucket was filled.
    pub fn filled(&self, channel: &ChannelName) -> Arc<Notify> {
        let mut signals = self.0.filled.locked();
        Arc::clone(signals.entry(channel.clone()).or_default())
    }

    /// Notes that a channel's worker sleeps until its bucket is filled. Dropping the returned value ends the note.
    pub fn sleep(&self, channel: &ChannelName) -> Asleep {
        self.0.sleepers.enter(channel)
    }

    /// The channels of this node whose worker sleeps until its bucket is filled.
    pub fn sleeping(&self) -> Vec<ChannelName> {
        self.0.sleepers.channels()
    }
}
