//! Names every key that refundd keeps in Redis.
//!
//! The part in braces is the hash tag. On one server the tag is the name of the channel or of the limit, and the
//! clock has no tag. In a cluster the tag is that of the [slot group](super::slot_group), because all keys of one
//! script must live in one slot. Correctness depends on none of these keys; deleting all of them costs seconds.

use std::sync::{Arc, RwLock};

use super::Purpose;
use super::slot_group::{SlotGroups, Tag};
use crate::lock::SharedLock;
use crate::refund::id::{ChannelName, LimitName};

/// Makes keys under one prefix. With different prefixes, several installations of refundd can share one Redis.
#[derive(Debug, Clone)]
pub struct Keys {
    prefix: String,
    /// The slot groups of the configuration; only in a cluster.
    slot_groups: Option<Arc<RwLock<SlotGroups>>>,
}

impl Keys {
    pub fn new(prefix: &str) -> Self {
        Keys { prefix: prefix.to_owned(), slot_groups: None }
    }

    /// Makes keys for a cluster. Until [`Self::group`] is called, each channel and each limit has its own tag.
    pub fn in_slots(prefix: &str) -> Self {
        Keys { prefix: prefix.to_owned(), slot_groups: Some(Arc::default()) }
    }

    /// Sets the slot groups that choose the hash tags from now on. Returns false, and does nothing, outside a
    /// cluster.
    pub fn group(&self, slot_groups: SlotGroups) -> bool {
        let Some(place) = &self.slot_groups else { return false };
        *place.write_locked() = slot_groups;
        true
    }

    /// The hash tag of a channel's slot group.
    pub(super) fn tag(&self, channel: &ChannelName) -> Tag {
        self.look_up(|slot_groups| slot_groups.of_channel(channel))
    }

    /// The hash tag of a limit's slot group.
    pub(super) fn tag_of_limit(&self, limit: &LimitName) -> Tag {
        self.look_up(|slot_groups| slot_groups.of_limit(limit))
    }

    fn look_up(&self, which: impl FnOnce(&SlotGroups) -> Arc<str>) -> Tag {
        Some(which(&self.slot_groups.as_ref()?.read_locked()))
    }

    /// List: the bucket. New ids are pushed on the left, and ids are taken from the right.
    pub fn bucket(&self, channel: &ChannelName, purpose: Purpose) -> String {
        match purpose {
            Purpose::Send => self.of(channel, "bucket"),
            Purpose::Inquire => self.of(channel, "inquiries"),
        }
    }

    /// Sorted set: the ids in the bucket, and the ids that were taken a moment ago. It keeps an id from being put
    /// into the bucket twice.
    pub fn present(&self, channel: &ChannelName, purpose: Purpose) -> String {
        match purpose {
            Purpose::Send => self.of(channel, "present"),
            Purpose::Inquire => self.of(channel, "inquiries:present"),
        }
    }

    /// Flag: a taker was asked to fill this bucket.
    pub fn feeding(&self, channel: &ChannelName, purpose: Purpose) -> String {
        match purpose {
            Purpose::Send => self.of(channel, "feeding"),
            Purpose::Inquire => self.of(channel, "inquiries:feeding"),
        }
    }

    /// Hash: how many permits sends got since the last inquiry.
    pub fn inquiry_share(&self, channel: &ChannelName) -> String {
        self.of(channel, "inquiries:share")
    }

    fn of(&self, channel: &ChannelName, what: &str) -> String {
        self.named(self.tag(channel), channel.as_str(), what)
    }

    /// Hash: the rule of a limit and its count.
    pub fn limit(&self, limit: &LimitName) -> String {
        self.named(self.tag_of_limit(limit), limit.as_str(), "limit")
    }

    /// Sorted set: the moments at which permits opened, for a `sliding_log` limit.
    pub fn log(&self, limit: &LimitName) -> String {
        self.named(self.tag_of_limit(limit), limit.as_str(), "log")
    }

    fn named(&self, tag: Tag, name: &str, what: &str) -> String {
        match tag {
            None => format!("{}:{{{name}}}:{what}", self.prefix),
            Some(tag) => format!("{}:{{{tag}}}:{name}:{what}", self.prefix),
        }
    }

    /// Hash: when Redis's clock was last seen to step, and by how much. In a cluster each slot group has this key,
    /// because each master has its own clock.
    pub(super) fn clock(&self, tag: &Tag) -> String {
        match tag {
            None => format!("{}:clock", self.prefix),
            Some(tag) => format!("{}:{{{tag}}}:clock", self.prefix),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_group_shares_a_tag_in_a_cluster_and_on_one_server_keys_have_their_own_names() {
        let (acme, limit) = (ChannelName::new("acme").unwrap(), LimitName::stored("daily"));
        let plain = Keys::new("r");
        assert_eq!(plain.bucket(&acme, Purpose::Send), "r:{acme}:bucket");
        assert_eq!(plain.limit(&limit), "r:{daily}:limit");
        assert_eq!(plain.clock(&plain.tag(&acme)), "r:clock");
        assert!(!plain.group(SlotGroups::default()));

        let text = "[postgres]\nurl = \"postgres://localhost\"\n[redis]\nurl = \"redis-cluster://localhost\"\n\
                    [limit.daily]\npermits = 1\nper = \"1s\"\n\
                    [channel.acme]\nendpoint = \"http://localhost/\"\nlimits = [\"daily\"]\n";
        let config = crate::config::Config::parse(text, "r.toml", &|_| None).unwrap();
        let slots = Keys::in_slots("r");
        assert_eq!(
            slots.bucket(&acme, Purpose::Inquire),
            "r:{acme}:acme:inquiries",
            "before the groups are set"
        );
        let channels = config.channels.values().map(AsRef::as_ref);
        assert!(slots.group(SlotGroups::of(channels, config.limits.values().map(AsRef::as_ref))));
        assert_eq!(slots.bucket(&acme, Purpose::Send), "r:{daily}:acme:bucket");
        assert_eq!(slots.log(&limit), "r:{daily}:daily:log");
        assert_eq!(slots.clock(&slots.tag(&acme)), "r:{daily}:clock");
    }
}
