//! Counts and logs outcomes, and those that Postgres does not take, or not yet.

use std::sync::Arc;
use std::time::Duration;

use crate::bank::outcome::for_the_log;
use crate::lock::Lock;
use crate::logs::{chain, millis};
use crate::refund::attempt::taken_reference;
use crate::refund::{Answer, Code, Outcome, Settlement, State};
use crate::store::{Settled, SettledBatch, StoreError};

use super::Writer;

impl Writer {
    /// Counts and logs the outcomes of sends, without those that [`Writer::log_all`] has logged.
    pub(super) fn report(&self, batch: &[Settled]) {
        for one in self.unlogged.take(batch) {
            self.report_one(one);
        }
    }

    pub(super) fn report_one(&self, one: &Settled) {
        let (id, channel, number, answer) = (one.id, &one.channel, one.attempt, &one.answer);
        let (outcome, code) = (answer.outcome.as_str(), answer.code.as_str());
        self.node.metrics.attempt(channel, outcome, one.duration);
        if answer.code == Code::Unmapped {
            self.node.metrics.unmapped_answer(channel, answer.status);
        }
        let bank_ref = answer.bank_ref.as_deref();
        let (duration_ms, waited_ms) = (millis(one.duration), millis(one.waited));
        match answer.outcome {
            Outcome::Unknown | Outcome::Conflict | Outcome::Review => tracing::warn!(
                refund.id = %id, channel.name = %channel, attempt.number = number, outcome, code, duration_ms, bank_ref,
                "Refund {id} is {outcome} on channel `{channel}`, attempt {number}: {}", for_the_log(answer.code, &answer.message),
            ),
            Outcome::HandedBack => tracing::debug!(
                refund.id = %id, channel.name = %channel, attempt.number = number, outcome, code, waited_ms,
                "Refund {id} was handed back unsent on channel `{channel}`: {}", answer.message,
            ),
            _ => tracing::info!(
                refund.id = %id, channel.name = %channel, attempt.number = number, outcome, code, duration_ms, bank_ref,
                "Refund {id} came to {outcome} on channel `{channel}`, attempt {number}",
            ),
        }
    }

    /// Turns an outcome into one for a person: the bank reference in the answer belongs to another refund.
    pub(super) async fn without_reference(&self, settled: &Settled) -> Settled {
        let mut shown = settled.clone();
        let reference = shown.answer.bank_ref.take().unwrap_or_default();
        let holder = self.node.store.bank_ref_holder(&settled.channel, &reference).await.ok().flatten();
        let message = taken_reference(&reference, holder, &shown.answer.message);
        self.node.note_taken_reference(&settled.channel, settled.started, &message);
        shown.answer = Answer {
            status: settled.answer.status,
            ..Answer::new(Outcome::Review, Code::BankRefTaken, message)
        };
        shown.settlement =
            Settlement { next: State::Review, wait: Duration::ZERO, counted: true, inquire_in: None };
        shown
    }

    /// Notes an outcome that Postgres refuses or fails to write, though it may take others. Logs it the first time: if the
    /// node ends before it is written, nothing else has the bank's reference.
    pub(super) fn note_refused(&self, one: &Settled, error: &StoreError) {
        if self.refused.locked().insert((one.id, Arc::clone(&one.holder))) {
            tracing::error!(
                error = %chain(error), refund.id = %one.id, channel.name = %one.channel, attempt.number = one.attempt,
                outcome = one.answer.outcome.as_str(), bank_ref = one.answer.bank_ref.as_deref(),
                "Postgres fails to write the outcome of refund {}: this node keeps it and tries again every second. Mend what the error names",
                one.id,
            );
        }
    }

    /// Notes that these outcomes are written, without those of lost refunds. Logs those that were not written for a while. The
    /// breaker learns of references alone whose outcomes moved their refunds: a late outcome's reference may stand in no row.
    pub(super) fn note_written(&self, batch: &[Settled], settled: &SettledBatch) {
        let all_moved = settled.moved.len() == batch.len();
        let named =
            |one: &&Settled| one.answer.bank_ref.is_some() && (all_moved || settled.moved.contains(&one.id));
        self.node.breakers.note_kept(batch.iter().filter(named).map(|one| &one.channel));
        let mut refused = self.refused.locked();
        if refused.is_empty() {
            return;
        }
        let were_refused = batch.iter().filter(|one| refused.remove(&(one.id, Arc::clone(&one.holder))));
        for one in were_refused.filter(|one| !settled.has_lost(one)) {
            tracing::info!(refund.id = %one.id, channel.name = %one.channel, "The outcome of refund {} is written now", one.id);
        }
    }
}
