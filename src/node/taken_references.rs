//! The breaker of a channel whose bank gives one reference to several refunds.

use std::sync::Arc;
use std::time::Instant;

use super::Node;
use super::breakers::Failure;
use crate::refund::ChannelName;

impl Node {
    /// Counts an answer, to a send that began at `began`, whose bank reference another refund has. Suspends the channel if its breaker
    /// trips, in a task of its own: the caller has other outcomes to write.
    pub fn note_taken_reference(&self, channel: &ChannelName, began: Option<Instant>, message: &str) {
        let running = self.running();
        let Some(channel) = running.channel(channel) else { return };
        let (Some(breaker), Some(began)) = (channel.breaker, began) else { return };
        let Some(times) = self.breakers.note_taken(&channel.name, &breaker, began) else { return };
        let (node, channel, message) = (self.clone(), Arc::clone(channel), message.to_owned());
        self.calls.spawn(async move {
            node.trip(&channel, Failure::Unknown, times, breaker.probe, &message).await;
        });
    }
}
