//! One refund under its lease, with a connection in hand: wait for the permit's span, send, judge, pass the outcome on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_util::sync::CancellationToken;

use super::batch::Batch;
use super::lapses::{Course, Lapses};
use crate::bank::{Bank, Leave, Reserved, Sent};
use crate::channel::Channel;
use crate::crash;
use crate::limiter::Permit;
use crate::node::Node;
use crate::node::holding::Word;
use crate::refund::{Answer, Leased, Outcome, Sending, Settlement};
use crate::store::Settled;

/// One call to the bank, from claim to outcome.
#[derive(Debug)]
pub(super) struct Send {
    pub node: Node,
    pub channel: Arc<Channel>,
    pub bank: Arc<Bank>,
    pub outbox: mpsc::Sender<Settled>,
    pub batch: Arc<Batch>,
    pub lapses: Arc<Lapses>,
    pub course: Course,
    /// The channel's dispatcher ends: what was not begun is handed back.
    pub stop: CancellationToken,
    pub refund: Leased,
    pub permit: Permit,
    /// No first byte after this, so that the lease outlives the call.
    pub leash: Instant,
}

impl Send {
    /// Never cut off halfway: it is spawned and runs to its end.
    pub async fn run(self, slot: Option<OwnedSemaphorePermit>, connection: Option<Reserved>) {
        let began = Instant::now();
        let sent = self.wait_and_send(connection).await;
        let send = Sending {
            number: u32::try_from(self.refund.attempt).unwrap_or(u32::MAX),
            is_resend: self.refund.is_resend,
            in_vain: self.refund.in_vain(),
        };
        let settlement = Settlement::of(&sent.answer, send, &self.channel.policy(), fastrand::f64());
        // The slot stays taken until the channel is held back, so that nobody slips through meanwhile.
        let word = match sent.answer.outcome {
            Outcome::AskedToWait { retry_after } => Some(Word::Wait {
                named: retry_after.map(|wait| wait.max(Duration::from_secs(1))),
                age: sent.started.map_or(Duration::ZERO, |at| at.elapsed()),
            }),
            Outcome::Unauthorised => Some(Word::NotLetIn),
            _ => None,
        };
        if let Some(word) = word {
            self.node.hold_back(&self.channel, word, &sent.answer.message).await;
        }
        drop(slot);
        self.report(&sent, began);
        let settled = Settled {
            id: self.refund.id,
            epoch: self.refund.epoch,
            channel: self.channel.name.clone(),
            attempt: self.refund.attempt,
            started: sent.started,
            is_first: self.refund.is_first,
            permit: self.permit.describe(),
            answer: sent.answer,
            settlement,
        };
        crash::point("judged");
        if self.outbox.send(settled).await.is_err() {
            tracing::error!(refund.id = %self.refund.id, "The settler is gone; refund {} becomes unknown when its lease is over", self.refund.id);
        }
    }

    async fn wait_and_send(&self, connection: Option<Reserved>) -> Sent {
        let handed_back =
            |code, message| Sent { answer: Answer::new(Outcome::HandedBack, code, message), started: None };
        if let Some(span) = self.permit.span {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => {}
                () = tokio::time::sleep_until(span.opens.into()) => {}
            }
        }
        if self.stop.is_cancelled() {
            return handed_back(
                "stopping",
                "the node stops, or the channel's settings changed, before the first byte",
            );
        }
        let closes = self.permit.span.map_or(self.leash, |span| span.closes.min(self.leash));
        crash::point("sending");
        let (leave, was_late) = Leave::until(closes);
        let (sent, ()) = tokio::join!(
            self.bank.send(&self.refund, leave, connection),
            self.node.watch_leaving(&self.channel, &self.permit, was_late),
        );
        match (sent.started, self.permit.span) {
            (Some(_), _) => {
                self.batch.used();
                self.lapses.used(&self.node, &self.channel);
            }
            (None, Some(span)) if sent.answer.code == "permit_lapsed" => {
                self.batch.lapsed(Instant::now());
                self.lapses.lapsed(&self.node, &self.channel, span, self.course);
            }
            (None, _) => {}
        }
        if sent.started.is_none() && self.permit.span.is_some() {
            self.node.metrics.permits_unused(&self.channel.name, sent.answer.code, 1);
        }
        sent
    }

    fn report(&self, sent: &Sent, began: Instant) {
        let duration = sent.started.map_or(Duration::ZERO, |at| at.elapsed());
        let (id, channel, number) = (self.refund.id, &self.channel.name, self.refund.attempt);
        let outcome = sent.answer.outcome.as_str();
        self.node.metrics.attempt(channel, outcome, duration);
        if sent.answer.code == "unmapped" {
            self.node.metrics.unmapped_answer(channel, sent.answer.status);
        }
        let duration_ms = duration.as_secs_f64() * 1000.0;
        let waited_ms = began.elapsed().saturating_sub(duration).as_secs_f64() * 1000.0;
        match sent.answer.outcome {
            Outcome::Unknown | Outcome::Review => tracing::warn!(
                refund.id = %id, channel.name = %channel, attempt.number = number, outcome, code = sent.answer.code, duration_ms,
                "Refund {id} is {outcome} on channel `{channel}`, attempt {number}: {}", sent.answer.message,
            ),
            Outcome::HandedBack => tracing::debug!(
                refund.id = %id, channel.name = %channel, attempt.number = number, outcome, code = sent.answer.code, waited_ms,
                "Refund {id} was handed back unsent on channel `{channel}`: {}", sent.answer.message,
            ),
            _ => tracing::info!(
                refund.id = %id, channel.name = %channel, attempt.number = number, outcome, code = sent.answer.code, duration_ms,
                "Refund {id} came to {outcome} on channel `{channel}`, attempt {number}",
            ),
        }
    }
}
