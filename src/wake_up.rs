//! Wake-ups: how one loop ends another loop's sleep early.
//!
//! The loops share these values and so need not know each other. A wake-up carries no data: the loop that wakes
//! reads the rows and the buckets again. A lost wake-up costs time, never a refund.

mod sleepers;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::lock::Lock;
use crate::refund::ChannelName;
pub use sleepers::{Asleep, Sleepers};

/// Where the loops ask for food, and learn that it came. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Feed(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The ids a line may hold.
    capacity: AtomicU32,
    asked: Mutex<HashSet<ChannelName>>,
    wake: Notify,
    /// Woken when something stands in line.
    fed: Signals,
    /// The channels whose dispatcher found its line empty and sleeps until it is fed.
    hungry: Sleepers,
}

impl Feed {
    pub fn new(capacity: u32) -> Self {
        Feed(Arc::new(Inner {
            capacity: AtomicU32::new(capacity),
            asked: Mutex::default(),
            wake: Notify::new(),
            fed: Signals::default(),
            hungry: Sleepers::default(),
        }))
    }

    pub fn capacity(&self) -> u32 {
        self.0.capacity.load(Ordering::Relaxed)
    }

    pub fn set_capacity(&self, capacity: u32) {
        self.0.capacity.store(capacity, Ordering::Relaxed);
    }

    /// The depth below which a line is low.
    pub fn low_water(&self) -> u32 {
        self.capacity().div_ceil(2)
    }

    /// Asks for a channel's line to be fed.
    pub fn ask(&self, channel: &ChannelName) {
        self.0.asked.locked().insert(channel.clone());
        self.0.wake.notify_one();
    }

    /// The channels that were asked for since the last call.
    pub fn take_asked(&self) -> HashSet<ChannelName> {
        std::mem::take(&mut *self.0.asked.locked())
    }

    /// Waits until a loop asks; an earlier call of `ask` counts once.
    pub async fn wait_until_asked(&self) {
        self.0.wake.notified().await;
    }

    /// The signal that something stands in a channel's line.
    pub fn fed(&self, channel: &ChannelName) -> Arc<Notify> {
        self.0.fed.of(channel)
    }

    /// A dispatcher sleeps until its line is fed, or what is returned is dropped.
    pub fn wait_for_food(&self, channel: &ChannelName) -> Asleep {
        self.0.hungry.enter(channel)
    }

    /// The channels of this node that sleep until they are fed.
    pub fn hungry(&self) -> Vec<ChannelName> {
        self.0.hungry.channels()
    }
}

/// Where inquirers learn that there is something to ask. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Desk(Arc<Inquiries>);

#[derive(Debug, Default)]
struct Inquiries {
    fed: Signals,
    /// The channels whose inquirer found its line empty.
    idle: Sleepers,
}

impl Desk {
    /// The signal that something stands in a channel's line.
    pub fn fed(&self, channel: &ChannelName) -> Arc<Notify> {
        self.0.fed.of(channel)
    }

    /// An inquirer sleeps until its line is fed, or what is returned is dropped.
    pub fn wait_for_work(&self, channel: &ChannelName) -> Asleep {
        self.0.idle.enter(channel)
    }

    /// The channels of this node whose inquirer sleeps.
    pub fn idle(&self) -> Vec<ChannelName> {
        self.0.idle.channels()
    }
}

/// One signal for each channel, made when it is first asked for.
#[derive(Debug, Default)]
struct Signals(Mutex<HashMap<ChannelName, Arc<Notify>>>);

impl Signals {
    fn of(&self, channel: &ChannelName) -> Arc<Notify> {
        let mut signals = self.0.locked();
        Arc::clone(signals.entry(channel.clone()).or_default())
    }
}
