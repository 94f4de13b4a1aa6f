//! The channels and limits that this node runs: one value, which a reload replaces as a whole.
//!
//! A reader therefore never sees the channels of one configuration beside the digest of another.

use std::sync::Arc;

use crate::channel::Channel;
use crate::limiter::Limit;
use crate::refund::draft::DraftRules;
use crate::refund::{ChannelName, LimitName};

/// What one configuration says that the node runs.
#[derive(Debug, Default)]
pub struct Running {
    pub channels: Vec<Arc<Channel>>,
    /// All limits of the file, whether or not a channel has them: other services may acquire permits of them.
    pub limits: Vec<Arc<Limit>>,
    /// The digest of channels and limits; empty before the first configuration.
    pub digest: String,
    /// The other sections of the file that a reload takes over, without secrets. Nodes publish them for people.
    pub settings: serde_json::Value,
}

impl Running {
    pub fn names(&self) -> impl Iterator<Item = &ChannelName> {
        self.channels.iter().map(|channel| &channel.name)
    }

    pub fn channel(&self, name: &ChannelName) -> Option<&Arc<Channel>> {
        self.channels.iter().find(|channel| channel.name == *name)
    }

    /// The channels that have this limit, for their refunds or for their inquiries.
    pub fn with_limit(&self, limit: &LimitName) -> impl Iterator<Item = &ChannelName> {
        let is_it = move |other: &Arc<Limit>| other.name == *limit;
        let asks = move |channel: &Channel| {
            channel.inquiry.iter().filter_map(|inquiry| inquiry.limits.as_ref()).flatten().any(is_it)
        };
        let channels = self.channels.iter();
        channels.filter(move |c| c.limits.iter().any(is_it) || asks(c)).map(|channel| &channel.name)
    }

    /// What a channel demands of a draft.
    pub fn draft_rules(&self, name: &ChannelName) -> DraftRules {
        self.channel(name).map(|channel| channel.draft_rules()).unwrap_or_default()
    }
}
