//! Counts and logs outcomes, and those that Postgres does not take.

use crate::bank::outcome::for_the_log;
use crate::lock::Lock;
use crate::logs::{self, chain, millis};
use crate::refund::{Code, Outcome};
use crate::store::{Settled, StoreError};

use super::Writer;

impl Writer {
    /// Counts and logs the outcomes of sends.
    pub(super) fn report(&self, batch: &[Settled]) {
        logs::together(|| batch.iter().for_each(|one| self.report_one(one)));
    }

    fn report_one(&self, one: &Settled) {
        let (id, channel, number, answer) = (one.id, &one.channel, one.attempt, &one.answer);
        let (outcome, code) = (answer.outcome.as_str(), answer.code.as_str());
        self.node.metrics.attempt(channel, outcome, one.duration);
        if answer.code == Code::Unmapped {
            self.node.metrics.unmapped_answer(channel, answer.status);
        }
        let (duration_ms, waited_ms) = (millis(one.duration), millis(one.waited));
        match answer.outcome {
            Outcome::Unknown | Outcome::Conflict | Outcome::Review => tracing::warn!(
                refund.id = %id, channel.name = %channel, attempt.number = number, outcome, code, duration_ms,
                "Refund {id} is {outcome} on channel `{channel}`, attempt {number}: {}", for_the_log(answer.code, &answer.message),
            ),
            Outcome::HandedBack => tracing::debug!(
                refund.id = %id, channel.name = %channel, attempt.number = number, outcome, code, waited_ms,
                "Refund {id} was handed back unsent on channel `{channel}`: {}", answer.message,
            ),
            _ => tracing::info!(
                refund.id = %id, channel.name = %channel, attempt.number = number, outcome, code, duration_ms,
                "Refund {id} came to {outcome} on channel `{channel}`, attempt {number}",
            ),
        }
    }

    /// Notes an outcome that Postgres fails to write, though it may take others. Logs it the first time. When the fault
    /// is at all of them, the first ones say enough.
    pub(super) fn note_refused(&self, one: &Settled, error: &StoreError) {
        const LOGGED_AT_MOST: usize = 20;
        let mut refused = self.refused.locked();
        if refused.insert((one.id, one.epoch)) && refused.len() <= LOGGED_AT_MOST {
            tracing::error!(
                error = %chain(error), refund.id = %one.id, channel.name = %one.channel,
                outcome = one.answer.outcome.as_str(),
                "Postgres fails to write the outcome of refund {}: this node keeps it and tries again every second. Mend what the error names",
                one.id,
            );
        }
    }

    /// Notes that these outcomes are written. Logs those that were not written for a while.
    pub(super) fn note_written(&self, batch: &[Settled]) {
        let named = batch.iter().filter(|one| one.answer.bank_ref.is_some());
        self.node.breakers.note_kept(named.map(|one| &one.channel));
        let mut refused = self.refused.locked();
        if refused.is_empty() {
            return;
        }
        for one in batch.iter().filter(|one| refused.remove(&(one.id, one.epoch))) {
            tracing::info!(refund.id = %one.id, channel.name = %one.channel, "The outcome of refund {} is written now", one.id);
        }
    }
}

/// Logs an outcome that Postgres refuses for good.
pub(super) fn give_up(one: &Settled, error: &StoreError) {
    tracing::error!(
        error = %chain(error), refund.id = %one.id, channel.name = %one.channel,
        outcome = one.answer.outcome.as_str(),
        "Postgres refuses the outcome of refund {}; when its lease is over it becomes unknown", one.id,
    );
}
