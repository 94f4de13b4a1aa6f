//! The channels and limits that this node runs: one value, which a reload replaces as a whole.
//!
//! A reader therefore never sees the channels of one configuration beside the digest of another.

use std::sync::Arc;

use crate::channel::Channel;
use crate::limiter::Limit;
use crate::refund::ChannelName;

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

    /// Whether the refunds of a channel may have numbers that look like card numbers.
    pub fn accepts_card_numbers(&self, name: &ChannelName) -> bool {
        self.channels.iter().any(|channel| channel.name == *name && channel.accepts_card_numbers)
    }
}
