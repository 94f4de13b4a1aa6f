//! Every key refundd keeps in Redis, named once.
//!
//! The part in braces is the hash tag: all keys of a channel live in one slot. None of these keys
//! matters for correctness; deleting them all costs seconds.

use super::Errand;
use crate::refund::id::{ChannelName, LimitName};

/// Makes keys under one prefix, so that several refundd can share a Redis.
#[derive(Debug, Clone)]
pub struct Keys {
    prefix: String,
}

impl Keys {
    pub fn new(prefix: &str) -> Self {
        Keys { prefix: prefix.to_owned() }
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
        format!("{}:{{{channel}}}:{what}", self.prefix)
    }

    /// Hash: what a limit has counted.
    pub fn limit(&self, limit: &LimitName) -> String {
        format!("{}:{{{limit}}}:limit", self.prefix)
    }

    /// Sorted set: when the permits of a limit opened that remembers each.
    pub fn log(&self, limit: &LimitName) -> String {
        format!("{}:{{{limit}}}:log", self.prefix)
    }

    /// Hash: when Redis's clock was last seen to step, and by how much.
    pub fn clock(&self) -> String {
        format!("{}:clock", self.prefix)
    }
}
