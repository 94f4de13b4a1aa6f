//! Holding a whole channel back, on all nodes, because its bank said so: to a send or to an inquiry.

use std::time::{Duration, Instant};

use super::Node;
use super::held::Until;
use crate::channel::Channel;
use crate::crash;
use crate::telemetry::chain;

/// What the bank's answer means for the whole channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// It wants to be left alone for so long.
    Wait(Duration),
    /// It does not let us in.
    NotLetIn,
}

impl Node {
    /// Holds a channel back; `message` is what the bank answered.
    pub async fn hold_back(&self, channel: &Channel, word: Word, message: &str) {
        let name = &channel.name;
        let done = match word {
            Word::Wait(wait) => {
                crash::point("holding_back");
                self.held.note(name, Until::Cooled(Instant::now() + wait));
                let slows = channel.adaptive && !channel.limits.is_empty();
                let cooled = self.store.cool(name, wait, message, slows).await;
                crash::point("held_back");
                if matches!(cooled, Ok(true)) {
                    tracing::warn!(channel.name = %name, duration_ms = wait.as_millis(), "Channel `{name}` cools for {wait:?}: the bank answered {message}");
                }
                cooled
            }
            Word::NotLetIn => {
                self.held.note(name, Until::Resumed);
                let reason = format!("the bank does not let us in: {message}");
                let paused = self.store.pause(name.as_str(), &reason, &self.name, true).await;
                if matches!(paused, Ok(true)) {
                    tracing::error!(channel.name = %name, "Channel `{name}` paused itself: {reason}. Mend the credentials, then `refundd resume {name}`");
                }
                paused
            }
        };
        if let Err(error) = done {
            tracing::warn!(channel.name = %name, error = %chain(&error), "Failed to hold channel `{name}` back in the database; this node holds it back alone");
        }
    }
}
