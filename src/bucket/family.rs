//! What has to stand in one slot of a cluster: the channels and limits of one family.
//!
//! A script counts all limits of a channel at once, and a script's keys must share a slot. So channels that
//! share a limit, directly or through another channel, are one family, with one hash tag. It is named by
//! the configuration alone: nodes with the same channels and limits agree without asking each other. Nodes with
//! different ones may not; then each has state of its own for a limit, which costs pace, not the limit,
//! as with two primaries (decisions/0005, decisions/0009).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::channel::Channel;
use crate::limiter::{Limit, Placement};
use crate::refund::id::{ChannelName, LimitName};

/// A family's hash tag; `None` where there is no cluster, and so nothing to keep together.
pub(super) type Tag = Option<Arc<str>>;

/// The hash tag of every channel and every limit.
#[derive(Debug, Default)]
pub struct Families {
    of_channel: HashMap<ChannelName, Arc<str>>,
    of_limit: HashMap<LimitName, Arc<str>>,
}

impl Families {
    /// Finds the families of a configuration. A family is named after the least of its limits, a channel
    /// without any after itself. A channel and a limit of the same name may so share a slot, but never a key.
    pub fn of<'a>(
        channels: impl IntoIterator<Item = &'a Channel>,
        limits: impl IntoIterator<Item = &'a Limit>,
    ) -> Self {
        let channels: Vec<&Channel> = channels.into_iter().collect();
        let mut kin = Kin::default();
        for limit in limits {
            kin.least(&limit.name);
        }
        for channel in &channels {
            let mut names = shared(channel);
            if let Some(first) = names.next() {
                for other in names {
                    kin.join(first, other);
                }
            }
        }
        let mut found = Families::default();
        for channel in channels {
            let tag: Arc<str> = match shared(channel).next() {
                Some(limit) => kin.least(limit).as_str().into(),
                None => channel.name.as_str().into(),
            };
            // The limit that it gets while its bank wants it slower.
            let slowed = LimitName::derived(channel.name.as_str(), Channel::SLOWED);
            found.of_limit.insert(slowed, Arc::clone(&tag));
            found.of_channel.insert(channel.name.clone(), tag);
        }
        let names: Vec<LimitName> = kin.0.keys().cloned().collect();
        for name in names {
            let tag = kin.least(&name).as_str().into();
            found.of_limit.insert(name, tag);
        }
        found
    }

    /// A channel that the configuration does not have is a family by itself.
    pub fn of_channel(&self, channel: &ChannelName) -> Arc<str> {
        self.of_channel.get(channel).map_or_else(|| channel.as_str().into(), Arc::clone)
    }

    pub fn of_limit(&self, limit: &LimitName) -> Arc<str> {
        self.of_limit.get(limit).map_or_else(|| limit.as_str().into(), Arc::clone)
    }

    /// All tags there are.
    pub fn tags(&self) -> BTreeSet<&str> {
        self.of_channel.values().chain(self.of_limit.values()).map(AsRef::as_ref).collect()
    }
}

/// The limits that scripts of this channel count in Redis.
fn shared(channel: &Channel) -> impl Iterator<Item = &LimitName> {
    let asking = channel.inquiry.iter().flat_map(|inquiry| inquiry.limits.iter().flatten());
    let all = channel.limits.iter().chain(asking);
    all.filter(|limit| limit.placement == Placement::Shared).map(|limit| &limit.name)
}

/// Of each limit another one of its family that is less, or itself.
#[derive(Default)]
struct Kin(BTreeMap<LimitName, LimitName>);

impl Kin {
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

    fn families(text: &str) -> Families {
        let file = format!("[postgres]\nurl = \"postgres://h/d\"\n[redis]\nurl = \"redis://h\"\n{text}");
        let config = Config::parse(&file, "r.toml", &|_| None).unwrap();
        Families::of(config.channels.values().map(AsRef::as_ref), config.limits.values().map(AsRef::as_ref))
    }

    fn limit(name: &str, more: &str) -> String {
        format!("[limit.{name}]\npermits = 5\nper = \"1s\"\n{more}")
    }

    fn channel(name: &str, limits: &str, more: &str) -> String {
        format!("[channel.{name}]\nendpoint = \"http://h/\"\nlimits = {limits}\n{more}")
    }

    fn of_channel(families: &Families, name: &str) -> String {
        families.of_channel(&ChannelName::new(name).unwrap()).to_string()
    }

    #[test]
    fn channels_that_share_a_limit_even_through_others_are_one_family() {
        let text = ["a", "b", "c", "d", "lone"].map(|name| limit(name, "")).concat()
            + &channel("one", "[\"c\", \"d\"]", "")
            + &channel("two", "[\"b\", \"c\"]", "")
            + &channel("three", "[\"a\"]", "")
            + &channel("free", "[]", "");
        let found = families(&text);
        assert_eq!(["one", "two", "three", "free"].map(|c| of_channel(&found, c)), ["b", "b", "a", "free"]);
        let tags = ["a", "b", "c", "d", "lone"].map(|l| found.of_limit(&LimitName::stored(l)).to_string());
        assert_eq!(tags, ["a", "b", "b", "b", "lone"]);
        let slowed = LimitName::derived("one", Channel::SLOWED);
        assert_eq!(&*found.of_limit(&slowed), "b", "it is counted together with the channel's own");
    }

    #[test]
    fn limits_of_inquiries_belong_to_the_family_and_shares_counted_in_memory_do_not() {
        let asking = "on_unknown = \"inquire\"\ninquiry = { url = \"http://h/{request_id}\", not_found_is_final = true, grace = \"30s\", limits = [\"ask\"] }\n";
        let text = limit("ask", "")
            + &limit("own", "algorithm = \"paced\"\nplacement = \"local_share\"\nnodes = 2\n")
            + &limit("z", "")
            + &channel("one", "[\"z\", \"own\"]", asking)
            + &channel("two", "[\"own\"]", "");
        let found = families(&text);
        assert_eq!(["one", "two"].map(|c| of_channel(&found, c)), ["ask", "two"]);
        assert_eq!(&*found.of_limit(&LimitName::stored("z")), "ask");
    }
}
