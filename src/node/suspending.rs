//! Suspending a whole channel on all nodes: its bank answered with a refusal, or its breaker tripped.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::breakers::{BreakerInput, Failure};
use super::suspended::{NotedRefusal, Refused, Until};
use super::{Node, jittered};
use crate::bank::outcome::for_the_log;
use crate::channel::Channel;
use crate::crash;
use crate::logs::{chain, millis};
use crate::refund::{Answer, ChannelName, RefundId};
use crate::store::{OwnSuspension, Refusal, StoreError, SuspendedBy, Suspension};

/// A bank's refusal that suspends the whole channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BankRefusal {
    /// "Slow down": the channel cools.
    Wait {
        /// The wait that the bank named, if it named one.
        named: Option<Duration>,
    },
    /// 401, 403 or 407: the channel is suspended until a person ends that.
    Unauthorised,
}

impl Node {
    /// How often to write a refusal, or an event, again that Postgres did not take.
    pub(super) const WRITE_AGAIN: Duration = Duration::from_secs(2);
    /// How long a node suspends a channel alone at least if the bank named no wait: long enough to write it once more.
    const UNWRITTEN_WAIT: Duration = Duration::from_secs(20);
    /// How long a node suspends a channel alone because of its credentials or its breaker: nobody can resume what Postgres does not
    /// have. Then the next request shows what the bank does. A trip ends earlier, after `probe`.
    const UNWRITTEN_STOP: Duration = Duration::from_mins(10);

    /// Reads the suspensions from Postgres. Answers the channels whose share of their rate changed; see
    /// [`super::suspended::Suspensions::update`].
    pub async fn read_suspensions(&self) -> Result<Vec<(String, Option<u32>)>, StoreError> {
        let mut suspended = self.store.suspensions().await?;
        self.correct_probes(&mut suspended.suspensions);
        let changed = self.suspensions.update(&suspended);
        for channel in self.suspensions.tripped() {
            if let Ok(channel) = ChannelName::new(&channel) {
                self.breakers.start_anew(&channel);
            }
        }
        Ok(changed)
    }

    /// Makes probes due that are planned for later than after `probe`. Postgres's clock was set back since, or a reload lowered
    /// `probe`. [`crate::store::Store::reserve_probe`] decides alike.
    fn correct_probes(&self, suspensions: &mut [Suspension]) {
        let running = self.running();
        for one in suspensions.iter_mut().filter(|one| one.by == SuspendedBy::Breaker) {
            let channel =
                running.channels.iter().find(|channel| one.channel.as_deref() == Some(channel.name.as_str()));
            let probe = channel.and_then(|channel| channel.breaker).map(|breaker| breaker.probe);
            if probe.is_some_and(|probe| one.probe_in.is_some_and(|left| left > probe)) {
                one.probe_in = None;
            }
        }
    }

    /// Suspends a channel; `message` is the bank's answer to a request about this refund, which began at `began`. A failure
    /// of Postgres is logged. Then only this node suspends the channel, and tries again until Postgres has it. Credentials that
    /// a reload has replaced meanwhile suspend nothing: the next request shows whether the bank takes the new ones.
    pub async fn suspend(
        &self,
        channel: &Arc<Channel>,
        refusal: BankRefusal,
        began: Instant,
        refund: RefundId,
        message: &str,
    ) {
        if refusal == BankRefusal::Unauthorised && self.has_other_access(channel) {
            let name = &channel.name;
            tracing::info!(
                channel.name = %name, refund.id = %refund,
                "The bank refused credentials of channel `{name}` that a reload has replaced (refund {refund}): {message}; \
                 the channel goes on with the new ones",
            );
            return;
        }
        // Suspend on this node at once, so that it makes no request until Postgres says how long to cool.
        let (refused, named, lasts, reason) = match refusal {
            BankRefusal::Wait { named } => {
                self.waits_of_banks.start_anew(&channel.name, Instant::now());
                crash::point("suspending");
                let lasts = named.unwrap_or(channel.cool_down.max(Self::UNWRITTEN_WAIT));
                (Refused::Requests, named, lasts, message.to_owned())
            }
            BankRefusal::Unauthorised => {
                let reason = format!("the bank does not let us in (refund {refund}): {message}");
                (Refused::Credentials, None, Self::UNWRITTEN_STOP, reason)
            }
        };
        let now = Instant::now();
        let named_until = named.map(|named| now + named);
        let noted = NotedRefusal { until: now + lasts, named_until, began, reason };
        self.note_and_write(channel, refused, &noted, named).await;
    }

    /// Whether a reload gave the channel another address or other credentials than this request had.
    fn has_other_access(&self, channel: &Channel) -> bool {
        self.running().channel(&channel.name).is_some_and(|now| !now.has_access_of(channel))
    }

    /// Notes a refusal on this node at once, and writes it to Postgres: now, or later if Postgres does not take it.
    async fn note_and_write(
        &self,
        channel: &Arc<Channel>,
        refused: Refused,
        noted: &NotedRefusal,
        named: Option<Duration>,
    ) {
        let name = &channel.name;
        self.suspensions.note(name, refused, noted.clone());
        if let Err(error) = self.write_refusal(channel, refused, noted, named).await {
            tracing::warn!(channel.name = %name, error = %chain(&error), "Failed to suspend channel `{name}` in Postgres; only this node suspends it meanwhile");
            self.write_refusal_later(channel, refused);
        }
    }

    /// Writes to Postgres what this node noted; the bank asked to wait for `named` from now on.
    async fn write_refusal(
        &self,
        channel: &Channel,
        refused: Refused,
        noted: &NotedRefusal,
        named: Option<Duration>,
    ) -> Result<(), StoreError> {
        let (name, reason, age) = (&channel.name, &noted.reason, noted.began.elapsed());
        let suspended = match refused {
            Refused::Requests => {
                let spacing = channel.spacing();
                let slow_down = Refusal {
                    named,
                    reason,
                    slow: channel.adaptive && spacing.is_some(),
                    spacing,
                    step: channel.climb_step(),
                    cool_down: channel.cool_down,
                    age,
                };
                let answer = self.store.refused(name, &slow_down).await;
                crash::point("suspended");
                answer?.map(|(left, is_new)| {
                    if is_new {
                        tracing::warn!(channel.name = %name, duration_ms = millis(left), "Channel `{name}` cools for {left:?}: the bank answered {reason}");
                    }
                    Until::At(Instant::now() + left)
                })
            }
            Refused::Credentials => {
                let own = OwnSuspension::Credentials { age };
                let is_new = self.store.suspend(name, own, reason, &self.name).await?;
                if is_new {
                    tracing::error!(channel.name = %name, "Channel `{name}` suspended itself: {reason}. Correct the credentials, then run `refundd resume {name} --credentials`");
                }
                // If not, it is suspended already, or a person has resumed it since: the next reading says which.
                is_new.then_some(Until::Ended)
            }
            Refused::Sends { failure, times, probe } => {
                let own = OwnSuspension::Breaker { kind: failure.as_str(), probe, age };
                if self.store.suspend(name, own, reason, &self.name).await? {
                    self.metrics.breaker_tripped(name, failure.as_str());
                    tracing::warn!(
                        channel.name = %name, kind = failure.as_str(), times, probe_ms = millis(probe),
                        "The breaker of channel `{name}` tripped: {reason}. One refund goes out every {probe:?} until one succeeds; \
                         `refundd resume {name} --breaker` ends it at once",
                    );
                }
                // Until the next reading says when the probe is due, or that the suspension ended after this trip.
                self.suspensions.note_breaker(name, Some(Instant::now() + probe));
                None
            }
        };
        self.suspensions.note_written(name, refused, noted, suspended);
        Ok(())
    }

    /// Writes the last refusal of this kind again until Postgres has it, its time on this node is over, or the node stops.
    /// One task does so for each channel and kind.
    fn write_refusal_later(&self, channel: &Arc<Channel>, refused: Refused) {
        if !self.suspensions.begin_retries(&channel.name, refused) {
            return;
        }
        let (node, channel) = (self.clone(), Arc::clone(channel));
        self.calls.spawn(async move {
            loop {
                tokio::select! {
                    () = node.stop.cancelled() => return,
                    () = tokio::time::sleep(jittered(Self::WRITE_AGAIN)) => {}
                }
                let Some(noted) = node.suspensions.next_retry(&channel.name, refused) else { return };
                let now = Instant::now();
                let rest = if noted.until <= now {
                    // The wait is over. All nodes still have to slow down.
                    Some(Duration::ZERO)
                } else {
                    noted.named_until.and_then(|until| until.checked_duration_since(now))
                };
                if let Err(error) = node.write_refusal(&channel, refused, &noted, rest).await {
                    tracing::debug!(channel.name = %channel.name, error = %chain(&error), "Failed again to suspend channel `{}` in Postgres", channel.name);
                }
            }
        });
    }

    /// Forgets what requests under the channel's earlier settings came to, as far as Postgres has not got it. Those that are
    /// still in flight do not count either.
    pub fn note_change(&self, channel: &ChannelName) {
        self.suspensions.note_change(channel);
        self.breakers.forget(channel);
        self.waits_of_banks.start_anew(channel, Instant::now());
    }

    /// Counts the answer to a send for the channel's breaker, and suspends the channel if the breaker trips.
    pub async fn note_answer(
        &self,
        channel: &Arc<Channel>,
        answer: &Answer,
        is_resend: bool,
        began: Instant,
    ) {
        let Some(breaker) = &channel.breaker else { return };
        let name = &channel.name;
        let input = BreakerInput::of(answer, is_resend);
        if let Some((failure, times)) = self.breakers.note(name, breaker, input, began) {
            let message = for_the_log(answer.code, &answer.message);
            Box::pin(self.trip(channel, failure, times, breaker.probe, message)).await;
        }
    }

    /// Suspends a channel whose breaker tripped after so many outcomes of one kind, the last of them with this message.
    pub(super) async fn trip(
        &self,
        channel: &Arc<Channel>,
        failure: Failure,
        times: u32,
        probe: Duration,
        message: &str,
    ) {
        self.breakers.start_anew(&channel.name);
        let what = match failure {
            Failure::Rejected => "the bank refused",
            Failure::Unknown => "nobody can be sure what the bank did with",
        };
        let now = Instant::now();
        let noted = NotedRefusal {
            // After `probe` a refund would go out although the breaker is open. A short one leaves no time to write it, and an old
            // trip may be a mistake by now.
            until: now + probe.clamp(Self::UNWRITTEN_WAIT, Self::UNWRITTEN_STOP),
            named_until: None,
            began: now,
            reason: format!("{what} {times} refunds one after the other, the last with: {message}"),
        };
        self.note_and_write(channel, Refused::Sends { failure, times, probe }, &noted, None).await;
    }
}
