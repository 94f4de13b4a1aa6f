//! An inquiry about a send that a failover lost with its claim, while the next send of the refund is under way or asked about; and one
//! about a refund that a failover lost.

use refundd::refund::State;
use refundd::refund::inquiry::{InquiryOutcome, LeasedInquiry};
use refundd::store::{Claimed, InquiryEffect};

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
        assert_eq!(scratch.store.settle_inquiry("a", &late).await.unwrap(), InquiryEffect::Late);
        assert_eq!(scratch.count(State::Unknown).await, 1);
        let own = inquired(next, InquiryOutcome::Succeeded);
        assert_eq!(
            scratch.store.settle_inquiry("b", &own).await.unwrap(),
            InquiryEffect::Moved(State::Succeeded)
        );
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
        assert_eq!(scratch.store.settle_inquiry("a", &late).await.unwrap(), InquiryEffect::Late);
        assert_eq!(scratch.count(State::Sending).await, 1, "{outcome:?}");
        let marked = "select count(*) from refundd.refunds where uncertain_at is not null";
        assert_eq!(scratch.number(marked).await, count, "{outcome:?}");
        let events = "select count(*) from refundd.events where kind = 'late_answer_differs' and after ->> 'inquiry' = '1'";
        assert_eq!(scratch.number(events).await, count, "{outcome:?}");
        assert_eq!(scratch.number("select count(*) from refundd.events where kind = 'refund_lost'").await, 0);
    }
}

#[tokio::test]
async fn what_a_bank_says_of_a_refund_that_a_failover_lost_is_not_written_onto_the_next_refund_with_its_id() {
    let row = "select coalesce(string_agg(to_jsonb(r)::text, ' '), '') from refundd.refunds r";
    for state in [State::Ready, State::Unknown] {
        let scratch = uncertain(1).await;
        let lost = lease(&scratch, &[unlimited(1)]).await;
        let mut late = inquired(&lost.leased[0], InquiryOutcome::Succeeded);
        late.answer.bank_ref = Some("B-1".to_owned());
        scratch.forget(1).await;
        assert_eq!(scratch.store.settle_inquiry("a", &late).await.unwrap(), InquiryEffect::Lost);
        scratch.insert("acme", "next-", 1).await;
        if state == State::Unknown {
            scratch.lease("true", "attempts = 1").await;
            scratch.release("true", "state = 'unknown', inquire_at = now()").await;
            let same = format!(
                "update refundd.refunds set inquiries = 1, uncertain_at = timestamptz 'epoch' + {} * interval '1 microsecond'",
                lost.leased[0].uncertain_at_us.unwrap()
            );
            scratch.sql(&same).await;
        }
        assert_eq!(scratch.count(state).await, 1);
        let before = scratch.text(row).await;
        assert_eq!(scratch.store.settle_inquiry("a", &late).await.unwrap(), InquiryEffect::Lost);
        assert_eq!(scratch.text(row).await, before);
        assert_eq!(scratch.number("select count(*) from refundd.attempts where kind = 'inquiry'").await, 0);
        let event = "select string_agg(concat_ws(' ', channel, refund_id, who, before ->> 'refund_ref', before ->> 'request_id', after ->> 'inquiry',
                                               after ->> 'outcome', after ->> 'bank_ref', after ? 'started_at'), ', ')
                       from refundd.events where kind = 'refund_lost'";
        let request_id = lost.leased[0].request_id;
        assert_eq!(scratch.text(event).await, format!("acme a R-1 {request_id} 1 succeeded B-1 t"));
    }
}
