//! Inquiries are leased and settled like sends: by the store alone.

mod lost;

use std::time::{Duration, Instant};

use refundd::limiter::Permit;
use refundd::refund::inquiry::{InquiryAnswer, InquiryOutcome, InquirySettlement, Trust};
use refundd::refund::retry::RetryPolicy;
use refundd::refund::{Code, RefundId, State};
use refundd::store::{Claimed, Inquired, InquiryEffect};

use super::acme;
use crate::harness::anywhere::{add_address, add_limit, claim_of, numbered, unlimited, window};
use crate::harness::{Scratch, until};

async fn uncertain(refunds: u32) -> Scratch {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    add_address(&scratch, "acme").await;
    scratch.insert("acme", "R-", refunds).await;
    add_limit(&scratch, "acme").await;
    scratch.lease("true", "attempts = 1").await;
    scratch.release("true", "state = 'unknown', inquire_at = now()").await;
    scratch
}

async fn lease(
    scratch: &Scratch,
    taken: &[(RefundId, Permit)],
) -> Claimed<refundd::refund::inquiry::LeasedInquiry> {
    scratch.store.claim_inquiries(&claim_of("a", taken)).await.unwrap()
}

fn inquired(inquiry: &refundd::refund::inquiry::LeasedInquiry, outcome: InquiryOutcome) -> Inquired {
    let trust = Trust { not_found_is_final: true, grace: Duration::ZERO };
    let settlement = InquirySettlement::of(
        &outcome,
        inquiry,
        Duration::ZERO,
        trust,
        &RetryPolicy::default(),
        Duration::ZERO,
        0.0,
    );
    Inquired {
        inquiry: inquiry.clone(),
        channel: acme(),
        started: Some(Instant::now()),
        permit: None,
        answer: InquiryAnswer::new(outcome, Code::Unmapped, "test"),
        settlement,
    }
}

#[tokio::test]
async fn an_inquiry_needs_a_permit_whose_number_was_not_spent() {
    let scratch = uncertain(2).await;
    let w = window(&scratch).await;
    let numbered = |id| numbered(id, w, 1);
    assert_eq!(lease(&scratch, &[numbered(1)]).await.leased.len(), 1);
    let second = lease(&scratch, &[numbered(2)]).await;
    assert!(second.leased.is_empty());
    assert_eq!(second.spent_before, [RefundId(2)]);
    scratch.sql("update refundd.limits set generation = 2").await;
    assert!(lease(&scratch, &[numbered(2)]).await.outdated);
}

#[tokio::test]
async fn of_two_nodes_that_lease_the_same_inquiry_one_gets_it() {
    let scratch = uncertain(1).await;
    let taken = [unlimited(1)];
    let (a, b) = tokio::join!(lease(&scratch, &taken), lease(&scratch, &taken));
    assert_eq!(a.leased.len() + b.leased.len(), 1);
    assert_eq!(a.stale.len() + b.stale.len(), 1);
}

#[tokio::test]
async fn what_the_bank_says_too_late_moves_nothing() {
    let scratch = uncertain(2).await;
    let claimed = lease(&scratch, &[unlimited(1), unlimited(2)]).await;
    let late = inquired(&claimed.leased[0], InquiryOutcome::Rejected);
    // It was asked about again meanwhile.
    scratch.sql("update refundd.refunds set inquire_at = now()").await;
    let again = lease(&scratch, &[unlimited(1)]).await;
    assert_eq!(scratch.store.settle_inquiry("a", &late).await.unwrap(), InquiryEffect::Late);
    assert_eq!(scratch.count(State::Unknown).await, 2);
    let second = inquired(&again.leased[0], InquiryOutcome::NotFound);
    assert_eq!(scratch.store.settle_inquiry("a", &second).await.unwrap(), InquiryEffect::Moved(State::Ready));
    assert_eq!(scratch.count(State::Ready).await, 1);
    // A try whose commit was not seen adds nothing.
    assert_eq!(scratch.store.settle_inquiry("a", &second).await.unwrap(), InquiryEffect::Late);
    let evidence = scratch.store.evidence(claimed.leased[0].id).await.unwrap();
    let moved: Vec<Option<&str>> = evidence.iter().map(|e| e.moved_to.as_deref()).collect();
    assert_eq!(moved, [None, Some("ready")]);
    // A person decided meanwhile.
    let other = inquired(&claimed.leased[1], InquiryOutcome::Rejected);
    scratch.decide(claimed.leased[1].id, State::Succeeded, "seen", "ann").await;
    assert_eq!(scratch.store.settle_inquiry("a", &other).await.unwrap(), InquiryEffect::Late);
    assert_eq!(scratch.count(State::Succeeded).await, 1);
}

#[tokio::test]
async fn what_contradicts_an_earlier_answer_that_the_bank_paid_goes_to_a_person() {
    for (said, says) in [
        ("succeeded", InquiryOutcome::NotFound),
        ("succeeded", InquiryOutcome::Rejected),
        ("accepted", InquiryOutcome::NotFound),
    ] {
        let scratch = uncertain(2).await;
        // The answers came too late to move anything: one to the first send, one to an inquiry.
        scratch
            .sql(&format!(
                "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, started_at, outcome, code)
                 values (1, 'acme', 'send', 1, 1, 'a', now(), '{said}', 'mapped'), (2, 'acme', 'inquiry', 7, 1, 'a', now(), '{said}', 'mapped')"
            ))
            .await;
        assert_eq!(scratch.count(State::Unknown).await, 2, "the next inquiry settles them");
        let error = scratch.sql_error("update refundd.refunds set state = 'ready'").await;
        assert!(
            error.to_string().contains("so it cannot become ready"),
            "nor a node of the last version: {error}"
        );
        // The refused statement may have the rows locked for a moment still.
        let mut leased = Vec::new();
        until("both are leased", async || {
            leased.extend(lease(&scratch, &[unlimited(1), unlimited(2)]).await.leased);
            leased.len() == 2
        })
        .await;
        for inquiry in &leased {
            let now = inquired(inquiry, says.clone());
            assert_eq!(
                scratch.store.settle_inquiry("a", &now).await.unwrap(),
                InquiryEffect::Moved(State::Review)
            );
        }
        let reasons = scratch
            .text("select string_agg(distinct split_part(reason, ':', 1), ',') from refundd.refunds")
            .await;
        assert_eq!(reasons, "said_paid");
        let moved = scratch
            .text("select string_agg(moved_to, ',') from refundd.attempts where moved_to is not null")
            .await;
        assert_eq!(moved, "review,review");
        // People who have looked into it may have it sent, and from then on it is a refund like others.
        scratch.decide(RefundId(1), State::Ready, "the bank's report of Monday has it not", "ann").await;
        assert_eq!(scratch.count(State::Ready).await, 1);
        scratch.lease("id = 1", "attempts = 1").await;
        scratch.release("id = 1", "state = 'unknown', inquire_at = now()").await;
        let claimed = lease(&scratch, &[unlimited(1)]).await;
        let now = inquired(&claimed.leased[0], InquiryOutcome::NotFound);
        assert_eq!(
            scratch.store.settle_inquiry("a", &now).await.unwrap(),
            InquiryEffect::Moved(State::Ready)
        );
    }
}

#[tokio::test]
async fn an_inquiry_whose_commit_is_still_under_way_is_kept_once() {
    let scratch = uncertain(1).await;
    let claimed = lease(&scratch, &[unlimited(1)]).await;
    let answer = inquired(&claimed.leased[0], InquiryOutcome::Succeeded);
    let line = format!(
        "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, started_at, outcome, moved_to)
         values (1, 'acme', 'inquiry', {}, 1, 'a', now(), 'succeeded', 'succeeded')",
        answer.inquiry.number
    );
    let first = ["update refundd.refunds set state = 'succeeded', settled_at = now() where id = 1", &line];
    let again = scratch.while_a_commit_hangs(&first, scratch.store.settle_inquiry("a", &answer)).await;
    assert_eq!(again.unwrap(), InquiryEffect::Late);
    assert_eq!(scratch.store.evidence(RefundId(1)).await.unwrap().len(), 1);
}

/// Two inquiries with one number: a failover to a standby that lags forgot the lease of the first.
async fn lost_and_next(outcome: InquiryOutcome, permits: [Option<&str>; 2]) -> (Scratch, Inquired, Inquired) {
    let scratch = uncertain(1).await;
    let lost = lease(&scratch, &[unlimited(1)]).await;
    scratch.sql("update refundd.refunds set inquiries = 0, inquire_at = now()").await;
    let next = lease(&scratch, &[unlimited(1)]).await;
    assert_eq!(lost.leased[0].number, next.leased[0].number);
    let mut lost = inquired(&lost.leased[0], outcome);
    let mut next = inquired(&next.leased[0], InquiryOutcome::Rejected);
    [lost.permit, next.permit] = permits.map(|permit| permit.map(str::to_owned));
    (scratch, lost, next)
}

#[tokio::test]
async fn the_answers_to_an_inquiry_that_a_failover_lost_and_to_the_next_one_are_each_written_once() {
    let lines = "select string_agg(concat_ws(' ', node, outcome, moved_to), ', ' order by id) from refundd.attempts where kind = 'inquiry'";
    for (node, permits) in
        [("b", [None, None]), ("a", [Some("acme@1#1"), Some("acme@1#2")]), ("a", [None, None])]
    {
        // The lost one is answered before the next one is leased.
        let (scratch, lost, next) = lost_and_next(InquiryOutcome::Rejected, permits).await;
        scratch.sql("update refundd.refunds set inquiries = 0").await;
        assert_eq!(scratch.store.settle_inquiry("a", &lost).await.unwrap(), InquiryEffect::Late);
        scratch.sql("update refundd.refunds set inquiries = 1").await;
        assert_eq!(
            scratch.store.settle_inquiry(node, &next).await.unwrap(),
            InquiryEffect::Moved(State::Failed)
        );
        assert_eq!(scratch.store.settle_inquiry(node, &next).await.unwrap(), InquiryEffect::Late);
        assert_eq!(scratch.text(lines).await, format!("a rejected, {node} rejected failed"));

        // The lost one is answered last, and the bank has paid.
        let (scratch, lost, next) = lost_and_next(InquiryOutcome::Succeeded, permits).await;
        assert_eq!(
            scratch.store.settle_inquiry(node, &next).await.unwrap(),
            InquiryEffect::Moved(State::Failed)
        );
        for _ in 0..2 {
            assert_eq!(scratch.store.settle_inquiry("a", &lost).await.unwrap(), InquiryEffect::Late);
        }
        assert_eq!(scratch.text(lines).await, format!("{node} rejected failed, a succeeded"));
        assert_eq!(scratch.count(State::Review).await, 1);
    }
}

#[tokio::test]
async fn a_refund_that_is_not_asked_about_any_more_spends_no_permit() {
    let scratch = uncertain(2).await;
    scratch.decide(RefundId(1), State::Succeeded, "seen", "ann").await;
    let w = window(&scratch).await;
    let claimed = lease(&scratch, &[numbered(1, w, 1), numbered(2, w, 2)]).await;
    assert_eq!(claimed.leased.iter().map(|inquiry| inquiry.id).collect::<Vec<_>>(), [RefundId(2)]);
    assert_eq!((claimed.stale, claimed.unspent.len()), (vec![RefundId(1)], 1));
    assert_eq!(scratch.number("select count(*) from refundd.permits").await, 1);
}

#[tokio::test]
async fn an_inquiry_that_names_another_reference_than_a_late_answer_goes_to_a_person() {
    for (outcome, other) in [
        (InquiryOutcome::Succeeded, "B-2"),
        (InquiryOutcome::Pending, "B-2"),
        (InquiryOutcome::Succeeded, "B-1"),
    ] {
        let scratch = uncertain(1).await;
        let leased = lease(&scratch, &[unlimited(1)]).await.leased;
        // The send is answered after its lease, and while the inquiry is under way.
        scratch.sql("update refundd.refunds set bank_ref = 'B-1'").await;
        let mut answered = inquired(&leased[0], outcome);
        answered.answer.bank_ref = Some(other.to_owned());
        let effect = scratch.store.settle_inquiry("a", &answered).await.unwrap();
        let last = scratch.text("select message from refundd.attempts order by id desc limit 1").await;
        if other == "B-1" {
            assert_eq!((effect, last.as_str()), (InquiryEffect::Moved(State::Succeeded), "test"));
            continue;
        }
        assert_eq!(
            (effect, last.as_str()),
            (InquiryEffect::Moved(State::Review), "test; bank reference B-2")
        );
        assert_eq!(
            scratch.text("select concat_ws(' ', reason, bank_ref, settled_at) from refundd.refunds").await,
            "bank_ref_differs: the bank said B-1 before, and says now: B-2 B-1"
        );
    }
}
