//! The slots of this node's channels: each is room for one request in progress.
//!
//! The slots of a channel outlive its workers. A reload gives a changed channel new workers while requests of the old
//! ones are in progress, and all together are never more than the new file allows.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::bucket::Purpose;
use crate::lock::Lock;
use crate::refund::ChannelName;

/// The slots of all channels. A channel that is gone keeps its entry: it may come back while its requests are in
/// progress.
#[derive(Debug, Default)]
pub struct SlotsOfChannels(Mutex<HashMap<(ChannelName, Purpose), Arc<Slots>>>);

impl SlotsOfChannels {
    /// The slots for a channel's sends or inquiries. From now on they are so many.
    pub fn of(&self, channel: &ChannelName, purpose: Purpose, most: u32) -> Arc<Slots> {
        let slots = Arc::clone(self.0.locked().entry((channel.clone(), purpose)).or_default());
        slots.change(|counts| counts.most = most as usize);
        slots
    }

    /// Counts the outcomes of sends that the settler keeps because it could not write them: one more of each channel in `more`, and one
    /// less of each in `fewer`.
    pub fn count_kept<'a>(
        &self,
        more: impl Iterator<Item = &'a ChannelName>,
        fewer: impl Iterator<Item = &'a ChannelName>,
    ) {
        let of_sends = |channel: &ChannelName| {
            Arc::clone(self.0.locked().entry((channel.clone(), Purpose::Send)).or_default())
        };
        for channel in more {
            of_sends(channel).change(|counts| counts.kept = counts.kept.saturating_add(1));
        }
        for channel in fewer {
            of_sends(channel).change(|counts| counts.kept = counts.kept.saturating_sub(1));
        }
    }
}

/// The slots for the sends or the inquiries of one channel.
#[derive(Debug, Default)]
pub struct Slots {
    counts: Mutex<Counts>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct Counts {
    most: usize,
    /// More than `most` for a while after a reload that lowered it.
    used: usize,
    /// How many outcomes wait to be written though their requests gave their slots back.
    kept: usize,
    /// The smallest number of free slots that somebody waits for.
    wanted: Option<usize>,
}

impl Counts {
    fn free(&self) -> usize {
        self.most.saturating_sub(self.used).saturating_sub(self.kept.saturating_sub(Slots::ROOM))
    }
}

impl Slots {
    /// How many outcomes of one channel's sends, or of its inquiries, may wait to be written without a slot. Each further one uses a
    /// slot until it is written, so that no more requests begin.
    pub const ROOM: usize = 256;

    /// How many slots are free now.
    pub fn free(&self) -> usize {
        self.counts.locked().free()
    }

    /// Takes the free slots, but no more than `most`.
    pub fn take(self: &Arc<Self>, most: usize) -> Vec<Slot> {
        let mut counts = self.counts.locked();
        let count = counts.free().min(most);
        counts.used += count;
        (0..count).map(|_| Slot(Arc::clone(self))).collect()
    }

    /// Waits until so many slots are free. Another worker may take them first.
    pub async fn wait_for(&self, count: usize) {
        loop {
            // It learns of slots that become free from here on, although it is polled later.
            let freed = self.freed.notified();
            {
                let mut counts = self.counts.locked();
                if counts.free() >= count {
                    return;
                }
                counts.wanted = Some(counts.wanted.map_or(count, |wanted| wanted.min(count)));
            }
            freed.await;
        }
    }

    fn change(&self, change: impl FnOnce(&mut Counts)) {
        let mut counts = self.counts.locked();
        change(&mut counts);
        // Waiting for many slots wakes nobody for each single one.
        if counts.wanted.is_some_and(|wanted| counts.free() >= wanted) {
            counts.wanted = None;
            drop(counts);
            self.freed.notify_waiters();
        }
    }
}

/// A slot in use; free again when it is dropped.
#[derive(Debug)]
pub struct Slot(Arc<Slots>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.change(|counts| counts.used = counts.used.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn of(all: &SlotsOfChannels, most: u32) -> Arc<Slots> {
        all.of(&ChannelName::new("acme").unwrap(), Purpose::Send, most)
    }

    #[test]
    fn workers_of_one_channel_share_its_slots_and_a_lower_number_counts_at_once() {
        let all = SlotsOfChannels::default();
        let (old, other) = (of(&all, 4), all.of(&ChannelName::new("other").unwrap(), Purpose::Send, 4));
        let inquiries = all.of(&ChannelName::new("acme").unwrap(), Purpose::Inquire, 1);
        let mut used = old.take(10);
        assert_eq!((used.len(), of(&all, 4).take(10).len()), (4, 0));
        assert_eq!((other.free(), inquiries.free()), (4, 1));
        let new = of(&all, 2);
        used.truncate(2);
        assert_eq!(new.take(10).len(), 0, "two of the old worker are still in use");
        used.truncate(1);
        assert_eq!(new.take(10).len(), 1);
        assert_eq!(of(&all, 3).take(10).len(), 2, "a higher number, too");
    }

    #[test]
    fn outcomes_that_are_kept_beyond_the_room_use_slots_of_their_channel_alone_until_they_are_written() {
        let all = SlotsOfChannels::default();
        let (acme, name) = (ChannelName::new("acme").unwrap(), ChannelName::new("other").unwrap());
        let (slots, other) = (of(&all, 4), all.of(&name, Purpose::Send, 4));
        let inquiries = all.of(&acme, Purpose::Inquire, 1);
        let keep = |more, fewer| {
            all.count_kept(std::iter::repeat_n(&acme, more), std::iter::repeat_n(&acme, fewer));
        };
        keep(Slots::ROOM, 0);
        assert_eq!(slots.free(), 4);
        let used = slots.take(2);
        keep(1, 0);
        assert_eq!(slots.free(), 1);
        keep(9, 0);
        assert_eq!((slots.take(4).len(), other.free(), inquiries.free()), (0, 4, 1));
        drop(used);
        let mut one = Box::pin(slots.wait_for(1));
        assert!(one.as_mut().now_or_never().is_none());
        keep(5, 5 + 7);
        assert!(one.as_mut().now_or_never().is_some(), "three are left beyond the room");
        keep(0, Slots::ROOM + 3);
        assert_eq!(slots.free(), 4);
    }

    #[test]
    fn a_waiter_is_woken_when_enough_slots_are_free() {
        let all = SlotsOfChannels::default();
        let slots = of(&all, 3);
        let mut used = slots.take(3);
        let (mut one, mut two) = (Box::pin(slots.wait_for(1)), Box::pin(slots.wait_for(2)));
        assert!(two.as_mut().now_or_never().is_none() && one.as_mut().now_or_never().is_none());
        used.pop();
        assert!(one.as_mut().now_or_never().is_some() && two.as_mut().now_or_never().is_none());
        used.pop();
        assert!(two.as_mut().now_or_never().is_some());
        let mut more = Box::pin(slots.wait_for(3));
        assert!(more.as_mut().now_or_never().is_none());
        of(&all, 4);
        assert!(more.as_mut().now_or_never().is_some(), "a higher number frees slots");
    }
}
