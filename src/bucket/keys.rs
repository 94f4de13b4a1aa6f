//! Every key refundd keeps in Redis, named once.
//!
//! The part in braces is the hash tag. On one server it is the channel's or the limit's own name, and the
//! clock has none. In a cluster it is that of the [family](super::family): all keys that one script touches
//! live in one slot. None of these keys matters for correctness; deleting them all costs seconds.

use std::sync::{Arc, RwLock};

use super::Errand;
use super::family::{Families, Tag};
use crate::lock::SharedLock;
use crate::refund::id::{ChannelName, LimitName};

/// Makes keys under one prefix, so that several refundd can share a Redis.
#[derive(Debug, Clone)]
pub struct Keys {
    prefix: String,
    /// Who belongs together; only in a cluster.
    families: Option<Arc<RwLock<Families>>>,
}

impl Keys {
    pub fn new(prefix: &str) -> Self {
        Keys { prefix: prefix.to_owned(), families: None }
    }

    /// Keys of a cluster.
    pub fn in_slots(prefix: &str) -> Self {
        Keys { prefix: prefix.to_owned(), families: Some(Arc::default()) }
    }

    /// Takes over who belongs together from now on; answers whether that matters here.
    pub fn group(&self, families: Families) -> bool {
        let Some(place) = &self.families else { return false };
        *place.write_locked() = families;
        true
    }

    /// The hash tag of a channel's family.
    pub(super) fn tag(&self, channel: &ChannelName) -> Tag {
        self.look_up(|families| families.of_channel(channel))
    }

    /// The hash tag of a limit's family.
    pub(super) fn tag_of_limit(&self, limit: &LimitName) -> Tag {
        self.look_up(|families| families.of_limit(limit))
    }

    fn look_up(&self, which: impl FnOnce(&Families) -> Arc<str>) -> Tag {
        Some(which(&self.families.as_ref()?.read_locked()))
    }

    /// List: the ids in line; new ones are pushed on the left, and taken from the right.
    pub fn bucket(&self, channel: &ChannelName, errand: Errand) -> String {
        match errand {
            Errand::Send => self.of(channel, "bucket"),
            Errand::Inquire => self.of(channel, "inquiries"),
        }
    }

    /// Sorted set: the same ids, so that none is put in line twice, and those taken a moment ago.
    pub fn present(&self, channel: &ChannelName, errand: Errand) -> String {
        match errand {
            Errand::Send => self.of(channel, "present"),
            Errand::Inquire => self.of(channel, "inquiries:present"),
        }
    }

    /// Flag: somebody was asked to feed this line.
    pub fn feeding(&self, channel: &ChannelName, errand: Errand) -> String {
        match errand {
            Errand::Send => self.of(channel, "feeding"),
            Errand::Inquire => self.of(channel, "inquiries:feeding"),
        }
    }

    /// Hash: when the next permit may go to an inquiry while refunds stand in line.
    pub fn turn(&self, channel: &ChannelName) -> String {
        self.of(channel, "inquiries:turn")
    }

    fn of(&self, channel: &ChannelName, what: &str) -> String {
        self.named(self.tag(channel), channel.as_str(), what)
    }

    /// Hash: what a limit has counted.
    pub fn limit(&self, limit: &LimitName) -> String {
        self.named(self.tag_of_limit(limit), limit.as_str(), "limit")
    }

    /// Sorted set: when the permits of a limit opened that remembers each.
    pub fn log(&self, limit: &LimitName) -> String {
        self.named(self.tag_of_limit(limit), limit.as_str(), "log")
    }

    fn named(&self, tag: Tag, name: &str, what: &str) -> String {
        match tag {
            None => format!("{}:{{{name}}}:{what}", self.prefix),
            Some(tag) => format!("{}:{{{tag}}}:{name}:{what}", self.prefix),
        }
    }

    /// Hash: when Redis's clock was last seen to step, and by how much. In a cluster each family has one,
    /// because each master has a clock.
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
    fn a_family_shares_a_tag_in_a_cluster_and_on_one_server_names_are_what_they_were() {
        let (acme, limit) = (ChannelName::new("acme").unwrap(), LimitName::stored("daily"));
        let plain = Keys::new("r");
        assert_eq!(plain.bucket(&acme, Errand::Send), "r:{acme}:bucket");
        assert_eq!(plain.limit(&limit), "r:{daily}:limit");
        assert_eq!(plain.clock(&plain.tag(&acme)), "r:clock");
        assert!(!plain.group(Families::default()));

        let text = "[postgres]\nurl = \"postgres://h/d\"\n[redis]\nurl = \"redis-cluster://h\"\n\
                    [limit.daily]\npermits = 1\nper = \"1s\"\n\
                    [channel.acme]\nendpoint = \"http://h/\"\nlimits = [\"daily\"]\n";
        let config = crate::config::Config::parse(text, "r.toml", &|_| None).unwrap();
        let slots = Keys::in_slots("r");
        assert_eq!(slots.bucket(&acme, Errand::Inquire), "r:{acme}:acme:inquiries", "before it was told");
        let channels = config.channels.values().map(AsRef::as_ref);
        assert!(slots.group(Families::of(channels, config.limits.values().map(AsRef::as_ref))));
        assert_eq!(slots.bucket(&acme, Errand::Send), "r:{daily}:acme:bucket");
        assert_eq!(slots.log(&limit), "r:{daily}:daily:log");
        assert_eq!(slots.clock(&slots.tag(&acme)), "r:{daily}:clock");
    }
}
