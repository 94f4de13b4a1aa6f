//! Inquiries: what a worker for inquiries does differently, and one inquiry from its claim to its settlement.
//!
//! The worker asks what became of refunds that may have been executed, and of those that the bank accepted. It takes ids from a
//! small bucket of its own, under the same limits. What an answer proves is decided in `refund::inquiry`.
//!
//! Refunds go first: while some stand in the channel's bucket, at most one permit in ten goes to an
//! inquiry, unless inquiries have limits of their own; and that one it gets. An inquiry that fails proves nothing, and losing
//! the bucket loses nothing: the row says when its inquiry is due.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::OwnedSemaphorePermit;

use super::Work;
use super::attempt::Attempt;
use crate::bank::{Reserved, Told};
use crate::bucket::{Bucket, BucketError, Errand, Order, Take};
use crate::channel::{Channel, Inquiry};
use crate::crash;
use crate::limiter::Placement;
use crate::node::holding::Word;
use crate::node::{Node, jittered};
use crate::refund::attempt::taken_reference;
use crate::refund::inquiry::{self, Finding, Found, Resolution, Trust};
use crate::refund::{Code, RefundId, State};
use crate::store::{Asked, Claimed, Inquired, Store, StoreError};
use crate::telemetry::chain;
use crate::wake_up::WakeUps;

/// The work of asking the bank.
#[derive(Debug)]
pub struct Inquiries {
    inquiry: Arc<Inquiry>,
    /// When permits were last granted.
    granted: Option<Instant>,
}

impl Inquiries {
    /// One permit in so many, while refunds stand in the bucket.
    const SHARE: u32 = 10;

    pub(super) fn new(inquiry: Arc<Inquiry>) -> Self {
        Inquiries { inquiry, granted: None }
    }

    /// The time in which the channel's slowest limit grants ten permits; none if inquiries need not give way.
    fn between(&self, channel: &Channel) -> Duration {
        if self.inquiry.limits.is_some() {
            return Duration::ZERO;
        }
        let spacing = |rule: &crate::limiter::Rule| rule.per / rule.permits.max(1);
        channel.limits.iter().map(|limit| spacing(&limit.rule)).max().unwrap_or_default() * Self::SHARE
    }
}

fn counts_alone(channel: &Channel) -> bool {
    channel.limits.iter().any(|limit| limit.placement != Placement::Shared)
}

impl Work for Inquiries {
    type Leased = inquiry::Asked;
    const ERRAND: Errand = Errand::Inquire;
    const MOST_AT_ONCE: u32 = 4;

    /// As far ahead as any node may ask: workers for sends, which ask later, would leave nothing of a window.
    fn lead_time(&self) -> Duration {
        Bucket::MOST_HASTE
    }

    /// The metric and the lead time are those of sends.
    fn note_claim(&self, _: &Node, _: Duration) {}

    fn most_permits(&self, _: &Channel) -> u32 {
        Self::MOST_AT_ONCE
    }

    /// Of limits that this node counts alone no other node spends permits, so the script need not decide this.
    fn gives_way(&self, node: &Node, channel: &Channel) -> Option<Duration> {
        if !counts_alone(channel) {
            return None;
        }
        let refunds_wait =
            node.depth_seen_within(&channel.name, Duration::from_secs(2)).is_some_and(|depth| depth > 0);
        let rested = self.granted.map_or(Duration::MAX, |at| at.elapsed());
        let rest = self.between(channel).saturating_sub(rested);
        (refunds_wait && !rest.is_zero()).then_some(rest)
    }

    async fn take(
        &mut self,
        node: &Node,
        _: &WakeUps,
        channel: &Channel,
        want: u32,
    ) -> Result<Take, BucketError> {
        let order = Order { want, low_water: 0, haste: self.lead_time() };
        let between = if counts_alone(channel) { Duration::ZERO } else { self.between(channel) };
        let taken = node.bucket.take_inquiries(channel, order, between).await;
        if matches!(taken, Ok(Take::Granted { .. })) {
            self.granted = Some(Instant::now());
        }
        taken
    }

    async fn claim(
        &self,
        store: &Store,
        claim: &Asked<'_>,
        _: &[RefundId],
    ) -> Result<Claimed<inquiry::Asked>, StoreError> {
        crash::point("inquiring");
        let claimed = store.claim_inquiries(claim).await?;
        crash::point("inquired");
        Ok(claimed)
    }

    fn id(leased: &inquiry::Asked) -> RefundId {
        leased.id
    }

    fn start(
        &self,
        attempt: Attempt,
        leased: inquiry::Asked,
        slot: Option<OwnedSemaphorePermit>,
        connection: Option<Reserved>,
    ) {
        let calls = attempt.node.calls.clone();
        let inquiry = InquiryAttempt { attempt, leased, trust: self.inquiry.trust };
        calls.spawn(inquiry.run(slot, connection));
    }
}

/// One inquiry.
#[derive(Debug)]
struct InquiryAttempt {
    attempt: Attempt,
    leased: inquiry::Asked,
    trust: Trust,
}

impl InquiryAttempt {
    async fn run(self, slot: Option<OwnedSemaphorePermit>, connection: Option<Reserved>) {
        let Told { found, started } = self.inquire(connection).await;
        crash::point("told");
        let Attempt { node, channel, .. } = &self.attempt;
        let resolution = self.resolve(&found);
        let word = match found.finding {
            Finding::AskedToWait { retry_after } => Some(Attempt::slow_down(retry_after, started)),
            Finding::Unauthorised => Some(Word::NotLetIn),
            _ => None,
        };
        // The slot stays taken until the channel is suspended, so that no other request slips through meanwhile.
        if let Some(word) = word {
            node.hold_back(channel, word, &found.message).await;
        }
        drop(slot);
        node.metrics.inquiry(&channel.name, found.finding.as_str());
        if found.code == Code::Unmapped {
            node.metrics.unmapped_answer(&channel.name, found.status);
        }
        self.settle(found, started, resolution).await;
    }

    fn resolve(&self, found: &Found) -> Resolution {
        let channel = &self.attempt.channel;
        Resolution::of(
            &found.finding,
            &self.leased,
            self.attempt.course.claiming.elapsed(),
            self.trust,
            &channel.retry,
            channel.cool_down,
            fastrand::f64(),
        )
    }

    async fn inquire(&self, connection: Option<Reserved>) -> Told {
        let bank = &self.attempt.bank;
        let made = self.attempt.make(async |leave| bank.inquire(&self.leased, leave, connection).await).await;
        let made = made.unwrap_or_else(|| {
            let (code, message) = Attempt::STOPPING;
            Told { found: Found::new(Finding::HandedBack, code, message), started: None }
        });
        if made.started.is_none() {
            self.attempt.count_unused(made.found.code);
        }
        made
    }

    /// Writes the result down. Tries again while Postgres is away, as long as the lease lasts: after that the
    /// bank is asked again anyway.
    async fn settle(&self, found: Found, started: Option<Instant>, resolution: Resolution) {
        let Attempt { node, channel, permit, course, .. } = &self.attempt;
        let mut inquired = Inquired {
            asked: self.leased.clone(),
            channel: channel.name.clone(),
            started,
            permit: permit.describe(),
            found,
            resolution,
        };
        let id = self.leased.id;
        loop {
            match node.store.settle_inquiry(&node.name, &inquired).await {
                Ok(moved) => {
                    crash::point("resolved");
                    return report(&inquired, moved);
                }
                Err(error) if error.is_taken_reference() => self.show(&mut inquired).await,
                Err(error) if error.is_about_the_row() => {
                    tracing::error!(refund.id = %id, error = %chain(&error), "Postgres refuses what the bank said of refund {id}; it is asked again");
                    return;
                }
                Err(error) => {
                    if course.claiming.elapsed() > channel.lease || node.stop.is_cancelled() {
                        tracing::warn!(refund.id = %id, error = %chain(&error), "Failed to write down what the bank said of refund {id}; it is asked again");
                        return;
                    }
                    tokio::time::sleep(jittered(Duration::from_millis(300))).await;
                }
            }
        }
    }

    /// The bank's reference belongs to another refund: a person has to look.
    async fn show(&self, inquired: &mut Inquired) {
        let Attempt { node, channel, .. } = &self.attempt;
        let reference = inquired.found.bank_ref.take().unwrap_or_default();
        let holder = node.store.bank_ref_holder(&channel.name, &reference).await.ok().flatten();
        let message = taken_reference(holder, &inquired.found.message);
        let status = inquired.found.status;
        inquired.found = Found { status, ..Found::new(Finding::Review, Code::BankRefTaken, &message) };
        inquired.resolution = self.resolve(&inquired.found);
    }
}

fn report(inquired: &Inquired, moved: bool) {
    let Inquired { asked: leased, channel, found, resolution, .. } = inquired;
    let (id, number, outcome) = (leased.id, leased.number, found.finding.as_str());
    if !moved {
        tracing::warn!(
            refund.id = %id, channel.name = %channel, attempt.number = number, outcome,
            "What the bank said of refund {id} came too late; it is kept as evidence and moves nothing",
        );
    } else if resolution.next == State::Review {
        tracing::warn!(
            refund.id = %id, channel.name = %channel, attempt.number = number, outcome, code = found.code.as_str(),
            "Refund {id} waits for a person after inquiry {number} on channel `{channel}`: {}", found.message,
        );
    } else if resolution.next == leased.state {
        tracing::info!(
            refund.id = %id, channel.name = %channel, attempt.number = number, outcome, code = found.code.as_str(),
            next_ms = resolution.inquire_in.unwrap_or_default().as_millis(),
            "Refund {id} is still {} after inquiry {number} on channel `{channel}`: {}", leased.state, found.message,
        );
    } else {
        tracing::info!(
            refund.id = %id, channel.name = %channel, attempt.number = number, outcome, code = found.code.as_str(),
            "Refund {id} is {} after inquiry {number} on channel `{channel}`", resolution.next,
        );
    }
}
