//! An inquiry about a send that a failover lost with its claim, while the next send of the refund is under way or asked about.

use refundd::refund::State;
use refundd::refund::inquiry::{InquiryOutcome, LeasedInquiry};
use refundd::store::Claimed;

use super::{inquired, lease, uncertain, unlimited};
use crate::harness::Scratch;

/// An inquiry that the standby did not have when it became the primary, nor the send before it. The next send is under way.
async fn lost_and_sent_again() -> (Scratch, Claimed<LeasedInquiry>) {
    let scratch = uncertain(1).await;
    let lost = lease(&scratch, &[unlimited(1)]).await;
    let standby =
        "state = 'ready', attempts = 0, lease_epoch = 0, inquiries = 0, first_sent_at = null, due_at = now()";
    scratch.sql(&format!("update refundd.refunds set {standby}")).await;
    scratch.lease("true", "attempts = 1").await;
    (scratch, lost)
}

#[tokio::test]
async fn what_a_bank_says_of_a_lost_send_moves_nothing_although_the_next_inquiry_has_its_number() {
    for outcome in [InquiryOutcome::NotFound, InquiryOutcome::Rejected] {
        let (scratch, lost) = lost_and_sent_again().await;
        scratch.release("true", "state = 'unknown', inquire_at = now()").await;
        let next = lease(&scratch, &[unlimited(1)]).await;
        let (lost, next) = (&lost.leased[0], &next.leased[0]);
        assert_eq!((lost.state, lost.epoch, lost.number), (next.state, next.epoch, next.number));
        let late = inquired(lost, outcome);
        assert_eq!(scratch.store.settle_inquiry("a", &late).await.unwrap(), None);
        assert_eq!(scratch.count(State::Unknown).await, 1);
        let own = inquired(next, InquiryOutcome::Succeeded);
        assert_eq!(scratch.store.settle_inquiry("b", &own).await.unwrap(), Some(State::Succeeded));
    }
}

#[tokio::test]
async fn the_next_send_is_uncertain_if_the_answer_to_a_lost_inquiry_leaves_open_whether_the_bank_paid() {
    for (outcome, count) in [
        (InquiryOutcome::Nothing, 1),
        (InquiryOutcome::Succeeded, 1),
        (InquiryOutcome::NotFound, 0),
        (InquiryOutcome::Rejected, 0),
    ] {
        let (scratch, lost) = lost_and_sent_again().await;
        let late = inquired(&lost.leased[0], outcome.clone());
        assert_eq!(scratch.store.settle_inquiry("a", &late).await.unwrap(), None);
        assert_eq!(scratch.count(State::Sending).await, 1, "{outcome:?}");
        let marked = "select count(*) from refundd.refunds where uncertain_at is not null";
        assert_eq!(scratch.number(marked).await, count, "{outcome:?}");
        let events = "select count(*) from refundd.events where kind = 'late_answer_differs' and after ->> 'inquiry' = '1'";
        assert_eq!(scratch.number(events).await, count, "{outcome:?}");
    }
}
