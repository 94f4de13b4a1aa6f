//! The channels and limits that this node runs: one value, which a reload replaces as a whole.
//!
//! A reader therefore never sees the channels of one configuration beside the digest of another.

use std::sync::Arc;

use crate::channel::Channel;
use crate::limiter::Limit;
use crate::refund::ChannelName;
use crate::refund::draft::DraftLaws;

/// What one configuration says that the node runs.
#[derive(Debug, Default)]
pub struct Running {
    pub channels: Vec<Arc<Channel>>,
    /// All limits of the file, whether or not a channel has them: other services may acquire permits of them.
    pub limits: Vec<Arc<Limit>>,
    /// The digest of channels and limits; empty before the first configuration.
    pub digest: String,
}

impl Running {
    /// The names of the channels.
    pub fn names(&self) -> impl Iterator<Item = &ChannelName> {
        self.channels.iter().map(|channel| &channel.name)
    }

    /// What a channel demands of a draft.
    pub fn draft_laws(&self, name: &ChannelName) -> DraftLaws {
        let channel = self.channels.iter().find(|channel| channel.name == *name);
        channel.map(|channel| channel.draft_laws()).unwrap_or_default()
    }
}
