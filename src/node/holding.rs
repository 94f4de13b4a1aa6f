//! Holding a whole channel back, on all nodes, because its bank said so: to a send or to an inquiry.

use std::time::{Duration, Instant};

use super::Node;
use super::held::Until;
use crate::channel::Channel;
use crate::crash;
use crate::store::Refusal;
use crate::telemetry::chain;

/// What the bank's answer means for the whole channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// It wants to be left alone, for so long if it says how long; said to a request that began so long ago.
    Wait { named: Option<Duration>, age: Duration },
    /// It does not let us in.
    NotLetIn,
}

impl Node {
    /// Holds a channel back; `message` is what the bank answered.
    pub async fn hold_back(&self, channel: &Channel, word: Word, message: &str) {
        let name = &channel.name;
        let done = match word {
            Word::Wait { named, age } => {
                crash::point("holding_back");
                let spacing = channel.spacing();
                // Until the database says how long: others of this node must not slip through meanwhile.
                let guess = spacing.map_or(channel.cool_down, |spacing| (spacing * 2).min(channel.cool_down));
                self.held.note(name, Until::Cooled(Instant::now() + named.unwrap_or(guess)));
                let refusal = Refusal {
                    named,
                    reason: message,
                    slow: channel.adaptive && spacing.is_some(),
                    spacing,
                    cool_down: channel.cool_down,
                    age,
                };
                let refused = self.store.refused(name, &refusal).await;
                crash::point("held_back");
                refused.map(|pause| {
                    let Some((left, is_news)) = pause else { return };
                    self.held.note(name, Until::Cooled(Instant::now() + left));
                    if is_news {
                        tracing::warn!(channel.name = %name, duration_ms = left.as_millis(), "Channel `{name}` cools for {left:?}: the bank answered {message}");
                    }
                })
            }
            Word::NotLetIn => {
                self.held.note(name, Until::Resumed);
                let reason = format!("the bank does not let us in: {message}");
                let paused = self.store.pause(name.as_str(), &reason, &self.name, true).await;
                if matches!(paused, Ok(true)) {
                    tracing::error!(channel.name = %name, "Channel `{name}` paused itself: {reason}. Mend the credentials, then `refundd resume {name}`");
                }
                paused.map(drop)
            }
        };
        if let Err(error) = done {
            tracing::warn!(channel.name = %name, error = %chain(&error), "Failed to hold channel `{name}` back in the database; this node holds it back alone");
        }
    }
}
