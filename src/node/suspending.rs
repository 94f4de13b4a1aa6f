//! Suspending a whole channel on all nodes: its bank answered with a refusal, or its breaker tripped.

use std::time::{Duration, Instant};

use super::Node;
use super::breakers::{Failure, Says};
use super::suspended::Until;
use crate::channel::Channel;
use crate::crash;
use crate::refund::{Answer, ChannelName, Outcome, RefundId};
use crate::store::{OwnSuspension, Refusal, StoreError};
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
    /// 401, 403 or 407: the channel is suspended until a person ends that.
    Unauthorised,
}

impl Node {
    /// Reads the suspensions from Postgres. Answers the channels whose share of their rate changed; see
    /// [`super::suspended::Suspensions::update`].
    pub async fn read_suspensions(&self) -> Result<Vec<(String, Option<u32>)>, StoreError> {
        let changed = self.suspensions.update(&self.store.suspensions().await?);
        for channel in self.suspensions.tripped() {
            if let Ok(channel) = ChannelName::new(&channel) {
                self.breakers.start_anew(&channel);
            }
        }
        Ok(changed)
    }

    /// Suspends a channel; `message` is the bank's answer to a request about this refund. A failure of Postgres is
    /// logged, and then only this node suspends the channel.
    pub async fn suspend(&self, channel: &Channel, refusal: BankRefusal, refund: RefundId, message: &str) {
        let name = &channel.name;
        let done = match refusal {
            BankRefusal::Wait { named, age } => {
                crash::point("suspending");
                let spacing = channel.spacing();
                // Suspend on this node at once, so that it makes no request until Postgres says how long to cool.
                let guess = spacing.map_or(channel.cool_down, |spacing| (spacing * 2).min(channel.cool_down));
                self.suspensions.note(name, Until::At(Instant::now() + named.unwrap_or(guess)));
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
                    self.suspensions.note(name, Until::At(Instant::now() + left));
                    if is_new {
                        tracing::warn!(channel.name = %name, duration_ms = millis(left), "Channel `{name}` cools for {left:?}: the bank answered {message}");
                    }
                })
            }
            BankRefusal::Unauthorised => {
                self.suspensions.note(name, Until::Ended);
                let reason = format!("the bank does not let us in (refund {refund}): {message}");
                let done = self.store.suspend(name, OwnSuspension::Credentials, &reason, &self.name).await;
                if matches!(done, Ok(true)) {
                    tracing::error!(channel.name = %name, "Channel `{name}` suspended itself: {reason}. Correct the credentials, then run `refundd resume {name} --credentials`");
                }
                done.map(drop)
            }
        };
        log_failure(name, done);
    }

    /// Counts the answer to a send for the channel's breaker, and suspends the channel if the breaker trips.
    pub async fn note_answer(&self, channel: &Channel, answer: &Answer, is_resend: bool, began: Instant) {
        let Some(breaker) = &channel.breaker else { return };
        let name = &channel.name;
        let says = Says::of(answer, is_resend);
        if let Some((failure, times)) = self.breakers.note(name, breaker, says, began) {
            Box::pin(self.trip(name, failure, times, breaker.probe, &answer.message)).await;
        }
    }

    /// Suspends a channel whose breaker tripped after so many outcomes of one kind, the last of them with this message.
    async fn trip(&self, name: &ChannelName, failure: Failure, times: u32, probe: Duration, message: &str) {
        // On this node at once; the slot of this send is still in use.
        self.suspensions.note_breaker(name, Some(Instant::now() + probe));
        self.breakers.start_anew(name);
        let what = match failure {
            Failure::Rejected => "the bank refused",
            Failure::Unknown => "nobody can be sure what the bank did with",
        };
        let reason = format!("{what} {times} refunds one after the other, the last with: {message}");
        let own = OwnSuspension::Breaker { kind: failure.as_str(), probe };
        let done = self.store.suspend(name, own, &reason, &self.name).await;
        if matches!(done, Ok(true)) {
            self.metrics.breaker_tripped(name, failure.as_str());
            tracing::warn!(
                channel.name = %name, kind = failure.as_str(), times, probe_ms = millis(probe),
                "The breaker of channel `{name}` tripped: {reason}. One refund goes out every {probe:?} until one succeeds; \
                 `refundd resume {name} --breaker` ends it at once",
            );
        }
        log_failure(name, done.map(drop));
    }

    /// Acts on the answer to a probe, which this node had reserved until `reserved`.
    pub async fn note_probe(&self, channel: &Channel, answer: &Answer, is_resend: bool, reserved: Instant) {
        let name = &channel.name;
        let Answer { outcome, message, .. } = answer;
        match Says::of(answer, is_resend) {
            // The bank was not probed: the reservation is still good. A resend that the bank refused is not sent again,
            // so there is an end to them.
            Says::Nothing => self.suspensions.reserve_probe(name, reserved),
            Says::Answered if matches!(outcome, Outcome::Succeeded | Outcome::Accepted) => {
                match self.store.end_breaker(name, &self.name).await {
                    Ok(is_ended) => {
                        self.breakers.start_anew(name);
                        self.suspensions.note_breaker(name, None);
                        if is_ended {
                            tracing::info!(channel.name = %name, "The breaker of channel `{name}` is closed again: a probe succeeded");
                        }
                    }
                    Err(error) => tracing::warn!(
                        channel.name = %name, error = %chain(&error),
                        "Failed to end the breaker's suspension of channel `{name}` in Postgres; the next probe tries again",
                    ),
                }
            }
            Says::Failed(_) | Says::Answered => tracing::warn!(
                channel.name = %name, outcome = outcome.as_str(),
                "A probe of channel `{name}` failed, and its breaker keeps it suspended: {message}",
            ),
        }
    }
}

/// Logs that a suspension could not be written.
fn log_failure(name: &ChannelName, done: Result<(), StoreError>) {
    if let Err(error) = done {
        tracing::warn!(channel.name = %name, error = %chain(&error), "Failed to suspend channel `{name}` in Postgres; only this node suspends it");
    }
}
