//! Finds the slot groups: the channels and limits whose keys must live in one slot of a cluster.
//!
//! A script counts all limits of a channel at once, and the keys of a script must share a slot. So channels that
//! share a limit, directly or through another channel, are one slot group with one hash tag.
//!
//! The configuration alone decides the tag: nodes with the same channels and limits agree without asking each other.
//! Nodes with different files may disagree. Then each of them counts a limit in a slot of its own. That costs pace,
//! but the limit holds, as with two primaries (decisions/0005, decisions/0009).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::channel::Channel;
use crate::limiter::{Limit, Placement};
use crate::refund::id::{ChannelName, LimitName};

/// The hash tag of a slot group; `None` without a cluster.
pub(super) type Tag = Option<Arc<str>>;

/// The hash tag of every channel and every limit.
#[derive(Debug, Default)]
pub struct SlotGroups {
    of_channel: HashMap<ChannelName, Arc<str>>,
    of_limit: HashMap<LimitName, Arc<str>>,
}

impl SlotGroups {
    /// Finds the slot groups of a configuration. The tag of a group is its first limit by name. A channel without
    /// shared limits has its own name as tag. So a channel and a limit of the same name may share a slot, but never
    /// a key.
    pub fn of<'a>(
        channels: impl IntoIterator<Item = &'a Channel>,
        limits: impl IntoIterator<Item = &'a Limit>,
    ) -> Self {
        let channels: Vec<&Channel> = channels.into_iter().collect();
        let mut groups = Groups::default();
        for limit in limits {
            groups.least(&limit.name);
        }
        for channel in &channels {
            let mut names = shared(channel);
            if let Some(first) = names.next() {
                for other in names {
                    groups.join(first, other);
                }
            }
        }
        let mut slot_groups = SlotGroups::default();
        for channel in channels {
            let tag: Arc<str> = match shared(channel).next() {
                Some(limit) => groups.least(limit).as_str().into(),
                None => channel.name.as_str().into(),
            };
            // The limit that the channel gets while its bank answers "slow down".
            let slowed = LimitName::derived(channel.name.as_str(), Channel::SLOWED);
            slot_groups.of_limit.insert(slowed, Arc::clone(&tag));
            slot_groups.of_channel.insert(channel.name.clone(), tag);
        }
        let names: Vec<LimitName> = groups.0.keys().cloned().collect();
        for name in names {
            let tag = groups.least(&name).as_str().into();
            slot_groups.of_limit.insert(name, tag);
        }
        slot_groups
    }

    /// The tag of a channel. A channel that is not in the configuration is a slot group of its own.
    pub fn of_channel(&self, channel: &ChannelName) -> Arc<str> {
        self.of_channel.get(channel).map_or_else(|| channel.as_str().into(), Arc::clone)
    }

    /// The tag of a limit. A limit that is not in the configuration is a slot group of its own.
    pub fn of_limit(&self, limit: &LimitName) -> Arc<str> {
        self.of_limit.get(limit).map_or_else(|| limit.as_str().into(), Arc::clone)
    }

    /// The tags of all slot groups.
    pub fn tags(&self) -> BTreeSet<&str> {
        self.of_channel.values().chain(self.of_limit.values()).map(AsRef::as_ref).collect()
    }
}

/// The limits that the scripts of this channel count in Redis, for sends and for inquiries.
fn shared(channel: &Channel) -> impl Iterator<Item = &LimitName> {
    let asking = channel.inquiry.iter().flat_map(|inquiry| inquiry.limits.iter().flatten());
    let all = channel.limits.iter().chain(asking);
    all.filter(|limit| limit.placement == Placement::Shared).map(|limit| &limit.name)
}

/// For each limit, a limit of its group that comes earlier by name, or the limit itself (a union-find forest).
#[derive(Default)]
struct Groups(BTreeMap<LimitName, LimitName>);

impl Groups {
    fn least(&mut self, of: &LimitName) -> LimitName {
        let mut name = of.clone();
        loop {
            match self.0.get(&name) {
                Some(less) if *less != name => name = less.clone(),
                Some(_) => break,
                None => {
                    self.0.insert(name.clone(), name.clone());
                    break;
                }
            }
        }
        self.0.insert(of.clone(), name.clone());
        name
    }

    fn join(&mut self, a: &LimitName, b: &LimitName) {
        let (a, b) = (self.least(a), self.least(b));
        let (less, more) = if a < b { (a, b) } else { (b, a) };
        self.0.insert(more, less);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn slot_groups(text: &str) -> SlotGroups {
        let config = Config::of_tables(text);
        SlotGroups::of(config.channels.values().map(AsRef::as_ref), config.limits.values().map(AsRef::as_ref))
    }

    fn limit(name: &str, more: &str) -> String {
        format!("[limit.{name}]\npermits = 5\nper = \"1s\"\n{more}")
    }

    fn channel(name: &str, limits: &str, more: &str) -> String {
        format!("[channel.{name}]\nendpoint = \"http://localhost/\"\nlimits = {limits}\n{more}")
    }

    fn of_channel(slot_groups: &SlotGroups, name: &str) -> String {
        slot_groups.of_channel(&ChannelName::new(name).unwrap()).to_string()
    }

    #[test]
    fn channels_that_share_a_limit_even_through_others_are_one_slot_group() {
        let text = ["a", "b", "c", "d", "lone"].map(|name| limit(name, "")).concat()
            + &channel("one", "[\"c\", \"d\"]", "")
            + &channel("two", "[\"b\", \"c\"]", "")
            + &channel("three", "[\"a\"]", "")
            + &channel("free", "[]", "");
        let slot_groups = slot_groups(&text);
        assert_eq!(
            ["one", "two", "three", "free"].map(|c| of_channel(&slot_groups, c)),
            ["b", "b", "a", "free"]
        );
        let tags =
            ["a", "b", "c", "d", "lone"].map(|l| slot_groups.of_limit(&LimitName::stored(l)).to_string());
        assert_eq!(tags, ["a", "b", "b", "b", "lone"]);
        let slowed = LimitName::derived("one", Channel::SLOWED);
        assert_eq!(
            &*slot_groups.of_limit(&slowed),
            "b",
            "one script counts it together with the channel's limits"
        );
    }

    #[test]
    fn limits_of_inquiries_belong_to_the_slot_group_and_shares_counted_in_memory_do_not() {
        let asking = "on_unknown = \"inquire\"\ninquiry = { url = \"http://localhost/{request_id}\", not_found_is_final = true, grace = \"30s\", limits = [\"ask\"] }\n";
        let text = limit("ask", "")
            + &limit("own", "algorithm = \"paced\"\nplacement = \"local_share\"\nnodes = 2\n")
            + &limit("z", "")
            + &channel("one", "[\"z\", \"own\"]", asking)
            + &channel("two", "[\"own\"]", "");
        let slot_groups = slot_groups(&text);
        assert_eq!(["one", "two"].map(|c| of_channel(&slot_groups, c)), ["ask", "two"]);
        assert_eq!(&*slot_groups.of_limit(&LimitName::stored("z")), "ask");
    }
}
