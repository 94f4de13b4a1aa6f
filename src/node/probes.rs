//! What the answer to a breaker's probe does: a success ends the suspension.

use super::Node;
use super::breakers::BreakerInput;
use super::suspended::ReservedProbe;
use crate::bank::outcome::for_the_log;
use crate::channel::Channel;
use crate::logs::chain;
use crate::refund::attempt::taken_reference;
use crate::refund::{Answer, ChannelName, Outcome, RefundId};
use crate::store::StoreError;

impl Node {
    /// Acts on the answer to a probe, which sent this refund. A success ends the suspension also when it comes late, after the
    /// reservation.
    pub async fn note_probe(
        &self,
        channel: &Channel,
        refund: RefundId,
        answer: &Answer,
        is_resend: bool,
        probe: ReservedProbe,
    ) {
        let name = &channel.name;
        match BreakerInput::of(answer, is_resend) {
            // The bank was not probed: the reservation is still good. A resend that the bank refused is not sent again,
            // so there is an end to them.
            BreakerInput::Nothing => self.suspensions.reserve_probe(name, probe),
            BreakerInput::Answered if matches!(answer.outcome, Outcome::Succeeded | Outcome::Accepted) => {
                match self.end_by_probe(name, refund, answer, probe).await {
                    Ok(true) => {
                        self.breakers.start_anew(name);
                        self.suspensions.note_breaker(name, None);
                        tracing::info!(channel.name = %name, "The breaker of channel `{name}` is closed again: a probe succeeded");
                    }
                    // Another refund has the reference. Or the suspension ended before, and may have begun anew: the next reading
                    // says what holds.
                    Ok(false) => {}
                    Err(error) => tracing::warn!(
                        channel.name = %name, error = %chain(&error),
                        "Failed to end the breaker's suspension of channel `{name}` in Postgres; the next probe tries again",
                    ),
                }
            }
            BreakerInput::Failed(_) | BreakerInput::Answered => {
                log_failed(name, &answer.outcome, for_the_log(answer.code, &answer.message));
            }
        }
    }

    /// Ends the suspension, unless another refund has the bank reference in the answer. The outcome of this refund is not written
    /// yet: until Postgres refuses the reference, others would be sent.
    async fn end_by_probe(
        &self,
        channel: &ChannelName,
        refund: RefundId,
        answer: &Answer,
        probe: ReservedProbe,
    ) -> Result<bool, StoreError> {
        if let Some(reference) = &answer.bank_ref {
            let holder = self.store.bank_ref_holder(channel, reference).await?;
            if holder.is_some_and(|holder| holder != refund) {
                log_failed(channel, &Outcome::Review, &taken_reference(reference, holder, &answer.message));
                return Ok(false);
            }
        }
        self.store.end_breaker(channel, &self.name, probe.since).await
    }
}

fn log_failed(channel: &ChannelName, outcome: &Outcome, message: &str) {
    tracing::warn!(
        channel.name = %channel, outcome = outcome.as_str(),
        "A probe of channel `{channel}` failed, and its breaker keeps it suspended: {message}",
    );
}
