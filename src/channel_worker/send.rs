//! Sends: the part of the worker that only sends need, and one refund from its claim to its outcome.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use tokio::sync::mpsc;

use super::Work;
use super::attempt::Attempt;
use super::lapses::Lapses;
use crate::bank::{Reserved, Sent};
use crate::bucket::{Bucket, BucketError, Order, Purpose, Take};
use crate::channel::Channel;
use crate::crash;
use crate::logs::millis;
use crate::node::Node;
use crate::node::lead_time::LeadTime;
use crate::node::meter::Meter;
use crate::node::slots::Slot;
use crate::node::suspending::BankRefusal;
use crate::refund::{Answer, Code, Leased, Outcome, RefundId, Sending, Settlement};
use crate::store::{ClaimRequest, Claimed, Settled, Store, StoreError};
use crate::traces::{Attribute, OpenSpan, SpanKind};
use crate::wake_up::WakeUps;

/// The work of sending refunds.
#[derive(Debug)]
pub struct Sends {
    outbox: mpsc::Sender<Settled>,
    lead_time: Arc<LeadTime>,
    lapses: Arc<Lapses>,
    meter: Arc<Meter>,
}

impl Sends {
    pub(super) fn new(outbox: mpsc::Sender<Settled>, lead_time: Arc<LeadTime>, meter: Arc<Meter>) -> Self {
        Sends { outbox, lead_time, lapses: Arc::default(), meter }
    }
}

impl Work for Sends {
    type Leased = Leased;
    const PURPOSE: Purpose = Purpose::Send;
    const MOST_AT_ONCE: u32 = Bucket::MOST_AT_ONCE;

    fn lead_time(&self) -> Duration {
        self.lead_time.expected()
    }

    fn note_claim(&self, node: &Node, took: Duration) {
        node.metrics.claim(took);
        self.lead_time.learn(took);
    }

    async fn take(
        &mut self,
        node: &Node,
        wake_ups: &WakeUps,
        channel: &Channel,
        want: u32,
        until: Option<Instant>,
    ) -> Result<Take, BucketError> {
        crash::point("taking");
        let (low_water, lead_time) = (wake_ups.low_water(), self.lead_time.expected());
        let order = Order { want, low_water, lead_time, until };
        node.bucket.take(channel, order).await
    }

    async fn claim(
        &self,
        store: &Store,
        claim: &ClaimRequest<'_>,
        more: &[RefundId],
    ) -> Result<Claimed<Leased>, StoreError> {
        crash::point("taken");
        let claimed = store.claim_among(claim, more).await?;
        crash::point("claimed");
        Ok(claimed)
    }

    fn id(leased: &Leased) -> RefundId {
        leased.id
    }

    fn start(&self, attempt: Attempt, refund: Leased, slot: Option<Slot>, connection: Option<Reserved>) {
        let (calls, requests) = (attempt.node.calls.clone(), attempt.node.requests.clone());
        let (outbox, meter) = (self.outbox.clone(), Arc::clone(&self.meter));
        let lapses = Arc::clone(&self.lapses);
        let send = SendAttempt { attempt, refund, outbox, lapses, meter };
        calls.spawn(requests.track_future(send.run(slot, connection)));
    }
}

/// One POST to the bank. Each has a task of its own, whose memory is moved and allocated for every refund; the futures of rare
/// cases are boxed, so that the task stays small.
#[derive(Debug)]
struct SendAttempt {
    attempt: Attempt,
    refund: Leased,
    outbox: mpsc::Sender<Settled>,
    lapses: Arc<Lapses>,
    meter: Arc<Meter>,
}

impl SendAttempt {
    async fn run(mut self, slot: Option<Slot>, connection: Option<Reserved>) {
        let span = self.begin_span();
        let began = Instant::now();
        let sent = self.send(connection).await;
        let duration = sent.started.map_or(Duration::ZERO, |at| at.elapsed());
        let waited = began.elapsed().saturating_sub(duration);
        let Attempt { node, channel, permit, .. } = &self.attempt;
        // It ends with the answer of the bank, and not when the node has written what follows from it.
        if let Some(span) = span {
            end_span(span, &self.refund, channel, &sent.answer, waited);
        }
        let send = Sending {
            number: u32::try_from(self.refund.attempt).unwrap_or(u32::MAX),
            is_resend: self.refund.is_resend,
            uncounted_leases: self.refund.uncounted_leases(),
        };
        let mut settlement = Settlement::of(&sent.answer, send, &channel.policy(), fastrand::f64());
        let started = sent.started.unwrap_or(began);
        // The slot stays in use until the channel is suspended, so that no other request starts meanwhile.
        let waits = &node.waits_of_banks;
        waits.note(&channel.name, self.refund.id, &sent.answer.outcome, started);
        let alone = match sent.answer.outcome {
            Outcome::SlowDown { .. } if !send.keeps_place() => {
                let (id, asked) = (self.refund.id, settlement.wait);
                waits.refused_alone(&channel.name, id, &channel.retry, asked, Instant::now())
            }
            _ => None,
        };
        if let Some((times, wait)) = alone {
            settlement.wait = wait;
            report_alone(self.refund.id, channel, times, wait);
        }
        let refusal = match sent.answer.outcome {
            // The bank goes on with others, so it means this refund, which waits alone.
            Outcome::SlowDown { .. } if alone.is_some() => None,
            Outcome::SlowDown { retry_after } => Some(Attempt::slow_down(retry_after)),
            // The next request has another token.
            Outcome::Unauthorised if sent.answer.code == Code::TokenRefused => None,
            Outcome::Unauthorised => Some(BankRefusal::Unauthorised),
            _ => None,
        };
        if let Some(refusal) = refusal {
            Box::pin(node.suspend(channel, refusal, started, self.refund.id, &sent.answer.message)).await;
        }
        let answer = &sent.answer;
        match self.attempt.probe {
            Some(reserved) => {
                Box::pin(node.note_probe(channel, self.refund.id, answer, send.is_resend, reserved)).await;
            }
            None => node.note_answer(channel, answer, send.is_resend, started).await,
        }
        if sent.started.is_some() {
            self.meter.answered(duration, self.attempt.preparing() + duration);
        }
        let settled = Settled {
            id: self.refund.id,
            refund_ref: self.refund.expected.refund_ref,
            money: self.refund.expected.money,
            request_id: self.refund.request_id,
            epoch: self.refund.epoch,
            holder: Arc::clone(&self.refund.holder),
            channel: channel.name.clone(),
            attempt: self.refund.attempt,
            started: sent.started,
            is_first: self.refund.is_first,
            permit: permit.describe(),
            answer: sent.answer,
            settlement,
            duration,
            waited,
        };
        crash::point("judged");
        let taken = self.outbox.send(settled).await;
        // Not before: while no outcome can be written, no more requests start than there are slots.
        drop(slot);
        if let Err(mpsc::error::SendError(lost)) = taken {
            tracing::error!(
                refund.id = %lost.id, channel.name = %lost.channel, attempt.number = lost.attempt,
                outcome = lost.answer.outcome.as_str(), code = lost.answer.code.as_str(),
                bank_ref = lost.answer.bank_ref.as_deref(),
                "The settler has stopped; refund {} becomes unknown when its lease is over", lost.id,
            );
        }
    }

    /// The span of this send. The bank gets it as the parent of what the bank does. Without a trace of the caller's the sends of one
    /// refund have a trace of their own. Its number shows nothing of the request id, which leaves the node for the bank alone.
    fn begin_span(&mut self) -> Option<OpenSpan> {
        let Leased { traceparent, request_id, .. } = &mut self.refund;
        let traces = &self.attempt.node.traces;
        let own_trace = || {
            let digest = Sha256::digest(request_id.0.as_bytes());
            digest.iter().take(16).fold(0, |number, byte| (number << 8) | u128::from(*byte))
        };
        let span = traces.begin("refundd.send", SpanKind::Client, *traceparent, own_trace)?;
        *traceparent = traceparent.map(|parent| parent.with_span(span.id()));
        Some(span)
    }

    async fn send(&self, connection: Option<Reserved>) -> Sent {
        let Attempt { node, channel, bank, permit, claim_times, .. } = &self.attempt;
        let sent = self.attempt.make(connection, async |deadline, connection| {
            crash::point("sending");
            bank.send(&self.refund, deadline, connection).await
        });
        let Some(sent) = sent.await else {
            let (code, message) = Attempt::STOPPING;
            return Sent { answer: Answer::new(Outcome::HandedBack, code, message), started: None };
        };
        match (sent.started, permit.span) {
            (Some(_), _) => self.lapses.used(node, channel),
            (None, Some(span)) if sent.answer.code == Code::PermitLapsed => {
                self.lapses.lapsed(node, channel, span, *claim_times);
            }
            (None, _) => {}
        }
        if sent.started.is_none() {
            self.attempt.count_unused(sent.answer.code);
        }
        sent
    }
}

/// Logs that a refund waits alone: at first, and each time after twice as many refusals.
fn report_alone(refund: RefundId, channel: &Channel, times: u32, wait: Duration) {
    if times.is_power_of_two() {
        tracing::warn!(
            refund.id = %refund, channel.name = %channel.name, refused = times, duration_ms = millis(wait),
            "The bank of channel `{}` refuses refund {refund} again and again, and goes on with others: the refund waits alone, now for {wait:?}. Ask the bank why",
            channel.name,
        );
    }
}

fn end_span(span: OpenSpan, refund: &Leased, channel: &Channel, answer: &Answer, waited: Duration) {
    let Answer { outcome, status, code, .. } = answer;
    let mut values = vec![
        ("refundd.channel", Attribute::from(channel.name.as_str())),
        ("refundd.refund_id", Attribute::Number(refund.id.0)),
        ("refundd.attempt", Attribute::Number(refund.attempt.into())),
        ("refundd.outcome", Attribute::from(outcome.as_str())),
        ("refundd.code", Attribute::from(code.as_str())),
        // Until its permit opened, after its claim.
        ("refundd.wait", Attribute::Real(waited.as_secs_f64())),
        ("http.request.method", Attribute::from("POST")),
    ];
    values.extend(status.map(|status| ("http.response.status_code", Attribute::Number(status.into()))));
    let failed = !matches!(outcome, Outcome::Succeeded | Outcome::Accepted);
    span.end(values, failed.then(|| code.as_str()));
}
