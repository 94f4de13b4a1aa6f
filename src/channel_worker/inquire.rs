//! Inquiries: the part of the worker that only inquiries need, and one inquiry from its claim to its settlement.
//!
//! The worker asks the bank about refunds that may have been executed, and about refunds that the bank accepted. It
//! takes ids from a small bucket for inquiries, under the channel's limits or under the inquiry's own limits.
//! `refund::inquiry` decides what an answer proves; this file does not.
//!
//! Sends go first. While refunds wait in the channel's bucket, one permit in ten goes to inquiries that are due, unless
//! they have their own limits. While the address for sends is away and nobody sends, it is one in the time of ten. A
//! failed inquiry proves nothing. A lost bucket loses nothing: the row says when its inquiry is due.

mod reporting;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use super::Work;
use super::attempt::Attempt;
use crate::bank::{Reserved, SentInquiry};
use crate::bucket::{Bucket, BucketError, Order, Purpose, Take, Yield};
use crate::channel::{Channel, Inquiry};
use crate::crash;
use crate::limiter::{Limit, Supply};
use crate::node::lead_time::LeadTime;
use crate::node::slots::{Slot, Slots};
use crate::node::suspended::Clearance;
use crate::node::suspending::BankRefusal;
use crate::node::{Node, jittered};
use crate::refund::attempt::taken_reference;
use crate::refund::inquiry::{self, InquiryAnswer, InquiryOutcome, InquirySettlement, Trust};
use crate::refund::{Code, RefundId};
use crate::store::{ClaimRequest, Claimed, Inquired, Store, StoreError};
use crate::wake_up::WakeUps;
use reporting::{report, report_dropped, report_kept};

/// The work of making inquiries.
#[derive(Debug)]
pub struct Inquiries {
    inquiry: Arc<Inquiry>,
    lead_time: LeadTime,
    /// The lead time of the sends under the same limits; `None` if inquiries have limits of their own.
    of_sends: Option<Arc<LeadTime>>,
    /// All limits free many permits at one moment, and workers for sends may take all of them.
    asks_first: bool,
    /// Room for outcomes that wait to be written and have no slot any more.
    room: Arc<Semaphore>,
}

impl Inquiries {
    pub(super) fn new(inquiry: Arc<Inquiry>, limits: &[Arc<Limit>], of_sends: Arc<LeadTime>) -> Self {
        let of_sends = inquiry.limits.is_none().then_some(of_sends);
        Inquiries {
            inquiry,
            lead_time: LeadTime::default(),
            of_sends,
            asks_first: Self::ask_first(limits),
            room: Arc::new(Semaphore::new(Slots::ROOM)),
        }
    }

    /// Whether inquiries under these limits ask with the longest lead time: each limit frees many permits at one moment.
    pub fn ask_first(limits: &[Arc<Limit>]) -> bool {
        limits.iter().all(|limit| limit.rule.algorithm.supply() == Supply::Together)
    }
}

impl Work for Inquiries {
    type Leased = inquiry::LeasedInquiry;
    const PURPOSE: Purpose = Purpose::Inquire;
    const MOST_AT_ONCE: u32 = 4;

    /// Where many permits become free at one moment, the longest lead time that a node may ask with. Workers for sends ask later,
    /// so they cannot take all permits of a window first. Where permits come one by one, each waiting node has a turn. There a
    /// longer lead time than that of sends would pass over the slots that sends have not asked for yet, and these slots would be
    /// lost. With a shorter one, sends see each slot first and take it, turn or not. Sends that rest take no slots.
    fn lead_time(&self) -> Duration {
        if self.asks_first {
            return Bucket::LONGEST_LEAD_TIME;
        }
        let of_sends = self.of_sends.as_ref().and_then(|lead_time| lead_time.learned_lately(Instant::now()));
        self.lead_time.expected().max(of_sends.unwrap_or_default())
    }

    /// The metric counts the claims of sends only.
    fn note_claim(&self, _: &Node, took: Duration) {
        self.lead_time.learn(took);
    }

    async fn take(
        &mut self,
        node: &Node,
        _: &WakeUps,
        channel: &Channel,
        want: u32,
        until: Option<Instant>,
    ) -> Result<Take, BucketError> {
        let order = Order { want, low_water: 0, lead_time: self.lead_time(), until };
        let yields = match node.suspensions.clearance(&channel.name, Purpose::Send) {
            Clearance::Free if node.status_report.bank_of(&channel.name).unreachable.is_some() => {
                Yield::ToActiveSends
            }
            Clearance::Free => Yield::ToSends,
            // Refunds that the breaker keeps in their bucket would hold back the inquiries that are to clear up its cause.
            Clearance::Probe(_) | Clearance::ProbeIsDue | Clearance::Suspended(_) => Yield::Never,
        };
        node.bucket.take_inquiries(channel, order, yields).await
    }

    async fn claim(
        &self,
        store: &Store,
        claim: &ClaimRequest<'_>,
        _: &[RefundId],
    ) -> Result<Claimed<inquiry::LeasedInquiry>, StoreError> {
        crash::point("inquiring");
        let claimed = store.claim_inquiries(claim).await?;
        crash::point("inquired");
        Ok(claimed)
    }

    fn id(leased: &inquiry::LeasedInquiry) -> RefundId {
        leased.id
    }

    fn start(
        &self,
        attempt: Attempt,
        leased: inquiry::LeasedInquiry,
        slot: Option<Slot>,
        connection: Option<Reserved>,
    ) {
        let (calls, requests) = (attempt.node.calls.clone(), attempt.node.requests.clone());
        let inquiry =
            InquiryAttempt { attempt, leased, trust: self.inquiry.trust, room: Arc::clone(&self.room) };
        calls.spawn(requests.track_future(inquiry.run(slot, connection)));
    }
}

#[derive(Debug)]
struct InquiryAttempt {
    attempt: Attempt,
    leased: inquiry::LeasedInquiry,
    trust: Trust,
    room: Arc<Semaphore>,
}

impl InquiryAttempt {
    /// The pause before an outcome is written again.
    const PAUSE: Duration = Duration::from_millis(300);
    /// The same if Postgres answers, and refuses the outcome or fails at it. More tries would fill Postgres's log.
    const REFUSED: Duration = Duration::from_secs(5);
    /// How long a stopping node still tries to write that the bank has a refund. `Daemon::stop` waits longer.
    const AT_A_STOP: Duration = Duration::from_secs(10);

    async fn run(self, slot: Option<Slot>, connection: Option<Reserved>) {
        let SentInquiry { answer, started } = self.inquire(connection).await;
        crash::point("inquiry_answered");
        let Attempt { node, channel, .. } = &self.attempt;
        let settlement = self.settlement_of(&answer);
        let refusal = match answer.outcome {
            InquiryOutcome::SlowDown { retry_after } => Some(Attempt::slow_down(retry_after)),
            // The next request has another token.
            InquiryOutcome::Unauthorised if answer.code == Code::TokenRefused => None,
            InquiryOutcome::Unauthorised => Some(BankRefusal::Unauthorised),
            _ => None,
        };
        // The slot stays in use until the channel is suspended, so that no other request starts meanwhile.
        if let Some(refusal) = refusal {
            let began = started.unwrap_or_else(Instant::now);
            node.suspend(channel, refusal, began, self.leased.id, &answer.message).await;
        }
        // As a rule the slot is free before the outcome is written, which may take a while.
        let room = self.room.try_acquire().ok();
        let slot = slot.filter(|_| room.is_none());
        if answer.code == Code::Unmapped {
            node.metrics.unmapped_answer(&channel.name, answer.status);
        }
        let settled = self.settle(answer, started, settlement).await;
        drop((slot, room));
        node.metrics.inquiry(&channel.name, settled.answer.outcome.as_str());
    }

    fn settlement_of(&self, answer: &InquiryAnswer) -> InquirySettlement {
        let channel = &self.attempt.channel;
        InquirySettlement::of(
            &answer.outcome,
            &self.leased,
            self.attempt.claim_times.claiming.elapsed(),
            self.trust,
            &channel.retry,
            channel.cool_down,
            fastrand::f64(),
        )
    }

    async fn inquire(&self, connection: Option<Reserved>) -> SentInquiry {
        let bank = &self.attempt.bank;
        let made = self.attempt.make(connection, async |deadline, connection| {
            bank.inquire(&self.leased, deadline, connection).await
        });
        let made = made.await.unwrap_or_else(|| {
            let (code, message) = Attempt::STOPPING;
            SentInquiry {
                answer: InquiryAnswer::new(InquiryOutcome::HandedBack, code, message),
                started: None,
            }
        });
        if made.started.is_none() {
            self.attempt.count_unused(made.answer.code);
        }
        made
    }

    /// Writes the result to Postgres, and returns it as written: Postgres may refuse the bank's reference. If that fails,
    /// it tries again until the lease is over; after that another inquiry is made anyway. But an answer that the bank
    /// has the refund is kept until it is written, whatever the failure is: a later answer may contradict it.
    async fn settle(
        &self,
        answer: InquiryAnswer,
        started: Option<Instant>,
        settlement: InquirySettlement,
    ) -> Inquired {
        let Attempt { node, channel, permit, claim_times, .. } = &self.attempt;
        let mut inquired = Inquired {
            inquiry: self.leased.clone(),
            channel: channel.name.clone(),
            started,
            permit: permit.describe(),
            answer,
            settlement,
        };
        let (mut is_told, mut again) = (false, false);
        // When it first failed while the node stops.
        let mut stopping: Option<Instant> = None;
        loop {
            match node.store.settle_inquiry(&node.name, &inquired).await {
                Ok(effect) => {
                    crash::point("resolved");
                    report(node, &inquired, effect, again);
                    return inquired;
                }
                Err(error) if error.is_taken_reference() => self.move_to_review(&mut inquired).await,
                Err(error) => {
                    // The commit may have happened although the call failed.
                    again |= error.is_away();
                    let is_kept = inquired.answer.outcome.has_refund();
                    let stops = node.stop.is_cancelled();
                    let is_over =
                        stops || error.is_about_the_row() || claim_times.claiming.elapsed() > channel.lease;
                    let is_late =
                        stops && stopping.get_or_insert_with(Instant::now).elapsed() > Self::AT_A_STOP;
                    if is_late || (is_over && !is_kept) {
                        report_dropped(&inquired, &error);
                        return inquired;
                    }
                    if is_over && !std::mem::replace(&mut is_told, true) {
                        report_kept(&inquired, &error);
                    }
                    let pause = if is_over && !error.is_outage() { Self::REFUSED } else { Self::PAUSE };
                    tokio::time::sleep(jittered(pause)).await;
                }
            }
        }
    }

    /// Changes the settlement to `review`, because the bank's reference belongs to another refund. The breaker does not count it,
    /// because it stops no inquiries.
    async fn move_to_review(&self, inquired: &mut Inquired) {
        let Attempt { node, channel, .. } = &self.attempt;
        let reference = inquired.answer.bank_ref.take().unwrap_or_default();
        let holder = node.store.bank_ref_holder(&channel.name, &reference).await.ok().flatten();
        let message = taken_reference(&reference, holder, &inquired.answer.message);
        let status = inquired.answer.status;
        let answer = InquiryAnswer::new(InquiryOutcome::Review, Code::BankRefTaken, message);
        inquired.answer = InquiryAnswer { status, ..answer };
        inquired.settlement = self.settlement_of(&inquired.answer);
    }
}
