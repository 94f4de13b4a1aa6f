//! The breaker of a channel whose bank gives one reference to several refunds.

use super::super::breakers::Failure;
use super::Node;
use crate::refund::ChannelName;

impl Node {
    /// Counts an answer whose bank reference another refund has, and suspends the channel if its breaker trips.
    pub async fn note_taken_reference(&self, channel: &ChannelName, message: &str) {
        let running = self.running();
        let Some(channel) = running.channels.iter().find(|one| one.name == *channel) else { return };
        let Some(breaker) = &channel.breaker else { return };
        if let Some(times) = self.breakers.note_taken(&channel.name, breaker) {
            Box::pin(self.trip(channel, Failure::Unknown, times, breaker.probe, message)).await;
        }
    }
}
