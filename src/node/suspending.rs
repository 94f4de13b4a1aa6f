//! Suspending a whole channel on all nodes, because its bank answered a send or an inquiry with a refusal.

use std::time::{Duration, Instant};

use super::Node;
use super::suspended::Until;
use crate::channel::Channel;
use crate::crash;
use crate::store::Refusal;
use crate::telemetry::{chain, millis};

/// A bank's refusal that suspends the whole channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BankRefusal {
    /// "Slow down": the channel cools.
    Wait {
        /// The wait that the bank named, if it named one.
        named: Option<Duration>,
        /// How long ago the refused request began.
        age: Duration,
    },
    /// 401, 403 or 407: the channel is paused until a person resumes it.
    Unauthorised,
}

impl Node {
    /// Suspends a channel; `message` is the bank's answer. A failure of Postgres is logged, and then only this node
    /// suspends the channel.
    pub async fn suspend(&self, channel: &Channel, refusal: BankRefusal, message: &str) {
        let name = &channel.name;
        let done = match refusal {
            BankRefusal::Wait { named, age } => {
                crash::point("suspending");
                let spacing = channel.spacing();
                // Suspend on this node at once, so that it makes no request until Postgres says how long to cool.
                let guess = spacing.map_or(channel.cool_down, |spacing| (spacing * 2).min(channel.cool_down));
                self.suspensions.note(name, Until::Cooled(Instant::now() + named.unwrap_or(guess)));
                let slow_down = Refusal {
                    named,
                    reason: message,
                    slow: channel.adaptive && spacing.is_some(),
                    spacing,
                    cool_down: channel.cool_down,
                    age,
                };
                let refused = self.store.refused(name, &slow_down).await;
                crash::point("suspended");
                refused.map(|pause| {
                    let Some((left, is_new)) = pause else { return };
                    self.suspensions.note(name, Until::Cooled(Instant::now() + left));
                    if is_new {
                        tracing::warn!(channel.name = %name, duration_ms = millis(left), "Channel `{name}` cools for {left:?}: the bank answered {message}");
                    }
                })
            }
            BankRefusal::Unauthorised => {
                self.suspensions.note(name, Until::Resumed);
                let reason = format!("the bank does not let us in: {message}");
                let paused = self.store.pause(name.as_str(), &reason, &self.name, true).await;
                if matches!(paused, Ok(true)) {
                    tracing::error!(channel.name = %name, "Channel `{name}` paused itself: {reason}. Correct the credentials, then run `refundd resume {name}`");
                }
                paused.map(drop)
            }
        };
        if let Err(error) = done {
            tracing::warn!(channel.name = %name, error = %chain(&error), "Failed to suspend channel `{name}` in Postgres; only this node suspends it");
        }
    }
}
