//! Two answers "executed" to two sends of one refund: a person hears of it, unless both can be one payment.

use std::sync::Arc;

use refundd::refund::{Outcome, RefundId, State};
use refundd::store::{Claimed, Settled};

use super::{answered, claim, lapse, limited_scratch_with, unlimited};
use crate::harness::Scratch;

const EVENTS: &str = "select coalesce(string_agg(concat_ws(' ', before ->> 'state', after ->> 'attempt', reason), ', ' order by event_id), '')
                        from refundd.events where kind = 'late_answer_differs' and refund_id = 1";
const EXECUTED: &str = "the bank says too late that it executed an earlier send, too: it may be paid twice";
const TOOK: &str = "the bank says too late that it took an earlier send, too: it may be paid twice";

async fn settle(scratch: &Scratch, node: &str, claimed: &Claimed, outcome: Outcome) {
    scratch.store.settle(node, &answered(claimed, outcome, None), false).await.unwrap();
}

/// An inquiry ends the uncertainty about the last send.
async fn inquiry_says(scratch: &Scratch, outcome: &str, moved_to: &str) {
    scratch
        .sql(&format!(
            "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, moved_to)
             select id, channel, 'inquiry', 1, lease_epoch, 'b', '{outcome}', '{moved_to}' from refundd.refunds"
        ))
        .await;
    scratch
        .sql(&format!(
            "update refundd.refunds set state = '{moved_to}', settled_at = case '{moved_to}' when 'succeeded' then now() end"
        ))
        .await;
}

/// The answer to an inquiry about the first send, which moves nothing any more.
async fn late_inquiry_says(scratch: &Scratch, outcome: &str, message: &str) {
    scratch
        .sql(&format!(
            "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, message)
             values (1, 'acme', 'inquiry', 1, 1, 'c', '{outcome}', '{message}')"
        ))
        .await;
}

async fn person_says(scratch: &Scratch, next: State) {
    scratch.sql("update refundd.refunds set state = 'review'").await;
    scratch.decide(RefundId(1), next, "the bank's statement", "ann").await;
    assert_eq!(scratch.count(next).await, 1);
}

#[derive(Debug, Clone, Copy)]
enum Proof {
    Inquiry,
    Person,
}

/// Two sends. The lease of the first lapsed, and then somebody said that the bank had not executed it.
async fn two_sends(proof: Proof) -> (Scratch, Claimed, Claimed) {
    let scratch = limited_scratch_with(1).await;
    let first = claim(&scratch, "a", &[unlimited(1)]).await;
    lapse(&scratch).await;
    match proof {
        Proof::Inquiry => inquiry_says(&scratch, "not_executed", "ready").await,
        Proof::Person => person_says(&scratch, State::Ready).await,
    }
    let second = claim(&scratch, "b", &[unlimited(1)]).await;
    assert_eq!(second.leased.len(), 1);
    (scratch, first, second)
}

/// Two sends by the policy of a channel whose bank knows the keys. No proof stands between them.
async fn send_and_resend() -> (Scratch, Vec<Settled>, Vec<Settled>) {
    let scratch = limited_scratch_with(1).await;
    let first = claim(&scratch, "a", &[unlimited(1)]).await;
    lapse(&scratch).await;
    scratch
        .sql("update refundd.refunds set state = 'sending', attempts = 2, lease_epoch = 2, lease_node = 'b', lease_until = now() + interval '1 minute'")
        .await;
    let first = answered(&first, Outcome::Succeeded, None);
    let mut second = first.clone();
    (second[0].epoch, second[0].holder) = (2, Arc::from("b"));
    second[0].attempt = 2;
    (scratch, first, second)
}

#[tokio::test]
async fn a_late_success_of_a_send_that_counted_as_not_executed_is_an_event_if_a_later_send_was_executed() {
    for proof in [Proof::Inquiry, Proof::Person] {
        for (outcome, state) in [(Outcome::Succeeded, State::Succeeded), (Outcome::Accepted, State::Accepted)]
        {
            let (scratch, first, second) = two_sends(proof).await;
            settle(&scratch, "b", &second, outcome).await;
            assert_eq!(scratch.text(EVENTS).await, "");
            settle(&scratch, "a", &first, Outcome::Succeeded).await;
            assert_eq!(scratch.text(EVENTS).await, format!("{} 1 {EXECUTED}", state.as_str()), "{proof:?}");
            assert_eq!(scratch.count(state).await, 1);
        }
    }
}

#[tokio::test]
async fn a_late_success_of_a_send_that_counted_as_not_executed_is_an_event_while_the_next_send_is_open() {
    for (outcome, said) in [(Outcome::Succeeded, EXECUTED), (Outcome::Accepted, TOOK)] {
        let (scratch, first, second) = two_sends(Proof::Inquiry).await;
        settle(&scratch, "a", &first, outcome).await;
        settle(&scratch, "b", &second, Outcome::Succeeded).await;
        assert_eq!(scratch.count(State::Succeeded).await, 1);
        assert_eq!(scratch.text(EVENTS).await, format!("sending 1 {said}"));
    }

    // The inquiry about the second send may find either payment.
    let (scratch, first, _) = two_sends(Proof::Inquiry).await;
    lapse(&scratch).await;
    scratch.sql("update refundd.refunds set inquire_at = now() + interval '1 minute'").await;
    settle(&scratch, "a", &first, Outcome::Succeeded).await;
    assert_eq!(scratch.text(EVENTS).await, format!("unknown 1 {EXECUTED}"));
}

/// The node that made the inquiry had no Postgres meanwhile.
#[tokio::test]
async fn a_late_success_of_an_inquiry_about_a_send_that_counted_as_not_executed_is_an_event() {
    let said = format!("{EXECUTED}, unless this answer was about the later send");
    for proof in [Proof::Inquiry, Proof::Person] {
        let (scratch, _, second) = two_sends(proof).await;
        settle(&scratch, "b", &second, Outcome::Succeeded).await;
        late_inquiry_says(&scratch, "succeeded", "test").await;
        assert_eq!(scratch.text(EVENTS).await, format!("succeeded {said}"), "{proof:?}");
        assert_eq!(scratch.count(State::Succeeded).await, 1);
    }
    let (scratch, _, second) = two_sends(Proof::Inquiry).await;
    late_inquiry_says(&scratch, "succeeded", "test").await;
    settle(&scratch, "b", &second, Outcome::Succeeded).await;
    assert_eq!(scratch.text(EVENTS).await, format!("sending {said}"));

    // Two references are two payments.
    let (scratch, _, second) = two_sends(Proof::Inquiry).await;
    scratch.store.settle("b", &answered(&second, Outcome::Succeeded, Some("B-2")), false).await.unwrap();
    late_inquiry_says(&scratch, "succeeded", "test; bank reference B-1").await;
    let said = "the bank says too late that it has this refund under another reference: it may be paid twice";
    assert_eq!(scratch.text(EVENTS).await, format!("succeeded {said}"));

    for outcome in ["rejected", "unknown"] {
        let (scratch, _, second) = two_sends(Proof::Inquiry).await;
        settle(&scratch, "b", &second, Outcome::Succeeded).await;
        late_inquiry_says(&scratch, outcome, "test").await;
        assert_eq!(scratch.text(EVENTS).await, "", "{outcome}");
    }
}

#[tokio::test]
async fn a_late_success_of_an_inquiry_without_such_a_proof_is_no_event() {
    let (scratch, _, second) = send_and_resend().await;
    late_inquiry_says(&scratch, "succeeded", "test").await;
    assert_eq!(scratch.store.settle("b", &second, false).await.unwrap().moved, [RefundId(1)]);
    late_inquiry_says(&scratch, "succeeded", "test").await;
    assert_eq!(scratch.text(EVENTS).await, "");
}

#[tokio::test]
async fn two_sends_that_can_be_one_payment_are_no_event() {
    // One reference.
    let (scratch, first, second) = two_sends(Proof::Inquiry).await;
    scratch.store.settle("b", &answered(&second, Outcome::Succeeded, Some("B-1")), false).await.unwrap();
    scratch.store.settle("a", &answered(&first, Outcome::Succeeded, Some("B-1")), false).await.unwrap();
    assert_eq!(scratch.text(EVENTS).await, "");

    // A resend under its key, in both orders.
    let (scratch, first, second) = send_and_resend().await;
    assert_eq!(scratch.store.settle("b", &second, false).await.unwrap().moved, [RefundId(1)]);
    assert!(scratch.store.settle("a", &first, false).await.unwrap().moved.is_empty());
    assert_eq!(scratch.text(EVENTS).await, "");
    let (scratch, first, second) = send_and_resend().await;
    assert!(scratch.store.settle("a", &first, false).await.unwrap().moved.is_empty());
    assert_eq!(scratch.store.settle("b", &second, false).await.unwrap().moved, [RefundId(1)]);
    assert_eq!(scratch.count(State::Succeeded).await, 1);
    assert_eq!(scratch.text(EVENTS).await, "");

    // The proof was about an earlier send than the late one.
    let (scratch, _, second) = two_sends(Proof::Inquiry).await;
    lapse(&scratch).await;
    inquiry_says(&scratch, "succeeded", "succeeded").await;
    settle(&scratch, "b", &second, Outcome::Succeeded).await;
    assert_eq!(scratch.text(EVENTS).await, "");
}

#[tokio::test]
async fn a_late_success_that_an_inquiry_or_a_person_said_before_is_no_event() {
    let scratch = limited_scratch_with(1).await;
    let first = claim(&scratch, "a", &[unlimited(1)]).await;
    lapse(&scratch).await;
    inquiry_says(&scratch, "succeeded", "succeeded").await;
    settle(&scratch, "a", &first, Outcome::Succeeded).await;
    assert_eq!(scratch.text(EVENTS).await, "");

    let scratch = limited_scratch_with(1).await;
    let first = claim(&scratch, "a", &[unlimited(1)]).await;
    lapse(&scratch).await;
    person_says(&scratch, State::Succeeded).await;
    settle(&scratch, "a", &first, Outcome::Succeeded).await;
    assert_eq!(scratch.text(EVENTS).await, "");

    // The person looked after both sends, and the bank said nothing of the second.
    let (scratch, first, _) = two_sends(Proof::Inquiry).await;
    lapse(&scratch).await;
    person_says(&scratch, State::Succeeded).await;
    settle(&scratch, "a", &first, Outcome::Succeeded).await;
    assert_eq!(scratch.text(EVENTS).await, "");

    // The bank took the second, and now says that it executed the first.
    let (scratch, first, second) = two_sends(Proof::Inquiry).await;
    settle(&scratch, "b", &second, Outcome::Accepted).await;
    person_says(&scratch, State::Succeeded).await;
    settle(&scratch, "a", &first, Outcome::Succeeded).await;
    assert_eq!(scratch.text(EVENTS).await, format!("succeeded 1 {EXECUTED}"));
}

#[tokio::test]
async fn a_late_success_before_the_next_send_goes_to_a_person_and_is_no_event() {
    let scratch = limited_scratch_with(1).await;
    let first = claim(&scratch, "a", &[unlimited(1)]).await;
    lapse(&scratch).await;
    inquiry_says(&scratch, "not_executed", "ready").await;
    settle(&scratch, "a", &first, Outcome::Succeeded).await;
    assert_eq!(scratch.count(State::Review).await, 1);
    assert_eq!(scratch.text(EVENTS).await, "");
}

/// Two claims with one epoch: a failover to a standby that lags forgot the first.
async fn lost_and_next(node: &str) -> (Scratch, Vec<Settled>, Vec<Settled>) {
    let scratch = limited_scratch_with(1).await;
    let lost = claim(&scratch, "a", &[unlimited(1)]).await;
    scratch
        .sql("update refundd.refunds set state = 'ready', attempts = 0, lease_epoch = 0, lease_node = null, lease_until = null")
        .await;
    let next = claim(&scratch, node, &[unlimited(1)]).await;
    assert_eq!(lost.leased[0].epoch, next.leased[0].epoch);
    (scratch, answered(&lost, Outcome::Succeeded, None), answered(&next, Outcome::Succeeded, None))
}

#[tokio::test]
async fn a_success_under_a_claim_that_a_failover_lost_is_written_once_and_an_event() {
    for (node, permits) in [("b", [None, None]), ("a", [Some("acme@1#1"), Some("acme@1#2")])] {
        let (scratch, mut lost, mut next) = lost_and_next(node).await;
        [lost[0].permit, next[0].permit] = permits.map(|permit| permit.map(str::to_owned));
        assert_eq!(scratch.store.settle(node, &next, false).await.unwrap().moved, [RefundId(1)]);
        for _ in 0..2 {
            assert!(scratch.store.settle("a", &lost, true).await.unwrap().moved.is_empty());
        }
        let lines = "select string_agg(concat_ws(' ', node, outcome, moved_to), ', ' order by id) from refundd.attempts";
        assert_eq!(scratch.text(lines).await, format!("{node} succeeded succeeded, a succeeded"));
        assert_eq!(scratch.text(EVENTS).await, format!("succeeded 1 {EXECUTED}"));
    }
}

#[tokio::test]
async fn a_success_under_a_claim_that_a_failover_lost_is_an_event_while_the_next_claim_is_sent() {
    let (scratch, lost, next) = lost_and_next("b").await;
    assert!(scratch.store.settle("a", &lost, true).await.unwrap().moved.is_empty());
    assert_eq!(scratch.store.settle("b", &next, false).await.unwrap().moved, [RefundId(1)]);
    assert_eq!(scratch.count(State::Succeeded).await, 1);
    assert_eq!(scratch.text(EVENTS).await, format!("sending 1 {EXECUTED}"));
}
