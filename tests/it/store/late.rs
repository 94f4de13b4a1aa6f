//! Answers that come too late and contradict what the refund is.

use std::sync::Arc;
use std::time::Instant;

use refundd::channel::Breaker;
use refundd::metrics::Metrics;
use refundd::node::Node;
use refundd::refund::{Outcome, RefundId, State};
use refundd::settler::Settler;
use refundd::store::{Claimed, RecoveryMove};
use tokio::sync::mpsc;

use super::{acme, answered, claim, limited_scratch_with, unlimited};
use crate::harness::Scratch;

const EVENTS: &str = "select coalesce(string_agg(concat_ws(' ', before ->> 'bank_ref', after ->> 'outcome', after ->> 'bank_ref'), ', ' order by event_id), '')
                        from refundd.events where kind = 'late_answer_differs' and refund_id = 1";

/// Two sends of one refund, the first of which lost its lease.
async fn two_sends() -> (Scratch, Claimed, Claimed) {
    let scratch = limited_scratch_with(1).await;
    let first = claim(&scratch, "a", &[unlimited(1)]).await;
    scratch.release("true", "state = 'ready', due_at = now()").await;
    let second = claim(&scratch, "b", &[unlimited(1)]).await;
    assert_eq!(second.leased.len(), 1);
    (scratch, first, second)
}

#[tokio::test]
async fn a_late_success_under_another_reference_is_an_event_and_one_under_the_same_is_not() {
    let (scratch, first, second) = two_sends().await;
    let store = &scratch.store;
    assert_eq!(
        store.settle("b", &answered(&second, Outcome::Succeeded, Some("B-2")), false).await.unwrap().moved,
        [RefundId(1)]
    );
    store.settle("a", &answered(&first, Outcome::Succeeded, Some("B-2")), false).await.unwrap();
    assert_eq!(scratch.text(EVENTS).await, "");
    store.settle("a", &answered(&first, Outcome::Succeeded, Some("B-1")), false).await.unwrap();
    assert_eq!(scratch.text(EVENTS).await, "B-2 succeeded B-1");
    let lines = "select string_agg(message, ', ' order by id) from refundd.attempts";
    assert_eq!(scratch.text(lines).await, "test, test; bank reference B-2, test; bank reference B-1");
    assert_eq!(
        scratch.text("select concat_ws(' ', state, bank_ref) from refundd.refunds").await,
        "succeeded B-2"
    );
}

#[tokio::test]
async fn a_success_under_another_reference_than_a_late_one_goes_to_a_person() {
    let (scratch, first, second) = two_sends().await;
    let store = &scratch.store;
    store.settle("a", &answered(&first, Outcome::Succeeded, Some("B-1")), false).await.unwrap();
    assert_eq!(scratch.count(State::Sending).await, 1);
    store.settle("b", &answered(&second, Outcome::Succeeded, Some("B-2")), false).await.unwrap();
    assert_eq!(
        scratch.text("select concat_ws(' ', state, bank_ref, reason, settled_at) from refundd.refunds").await,
        "review B-1 bank_ref_differs: the bank said of an earlier send B-1, and of this one B-2"
    );
    let last = "select concat_ws(' ', moved_to, message) from refundd.attempts order by id desc limit 1";
    assert_eq!(scratch.text(last).await, "review test; bank reference B-2");

    let (scratch, first, second) = two_sends().await;
    let store = &scratch.store;
    store.settle("a", &answered(&first, Outcome::Succeeded, Some("B-1")), false).await.unwrap();
    store.settle("b", &answered(&second, Outcome::Succeeded, Some("B-1")), false).await.unwrap();
    assert_eq!(
        scratch.text("select concat_ws(' ', state, bank_ref) from refundd.refunds").await,
        "succeeded B-1"
    );
}

#[tokio::test]
async fn a_late_rejection_of_what_a_person_called_succeeded_is_an_event() {
    let scratch = limited_scratch_with(1).await;
    let first = claim(&scratch, "a", &[unlimited(1)]).await;
    scratch.release("true", "state = 'review'").await;
    scratch.decide(RefundId(1), State::Succeeded, "on the statement", "ann").await;
    assert_eq!(scratch.count(State::Succeeded).await, 1);
    scratch.store.settle("a", &answered(&first, Outcome::Rejected, None), false).await.unwrap();
    assert_eq!(scratch.text(EVENTS).await, "rejected");
}

const ROW: &str = "select concat_ws(' ', state, bank_ref) from refundd.refunds";

#[tokio::test]
async fn a_late_success_under_another_reference_than_an_accepted_one_goes_to_a_person() {
    for late in [Outcome::Succeeded, Outcome::Accepted] {
        let (scratch, first, second) = two_sends().await;
        let store = &scratch.store;
        store.settle("b", &answered(&second, Outcome::Accepted, Some("B-2")), false).await.unwrap();
        assert_eq!(scratch.text(ROW).await, "accepted B-2");
        store.settle("a", &answered(&first, late.clone(), Some("B-2")), false).await.unwrap();
        assert_eq!(scratch.text(ROW).await, "accepted B-2");
        store.settle("a", &answered(&first, late, Some("B-1")), false).await.unwrap();
        assert_eq!(scratch.text(ROW).await, "review B-2");
        let reason = scratch.text("select reason from refundd.refunds").await;
        assert!(reason.contains("B-1, and it said B-2 before"), "{reason}");
    }
}

#[tokio::test]
async fn a_late_answer_under_another_reference_is_an_event_also_when_it_is_no_success_yet_or_the_refund_is_sent_again()
 {
    let (scratch, first, second) = two_sends().await;
    let store = &scratch.store;
    store.settle("a", &answered(&first, Outcome::Succeeded, Some("B-0")), false).await.unwrap();
    store.settle("a", &answered(&first, Outcome::Succeeded, Some("B-1")), false).await.unwrap();
    assert_eq!(scratch.text(EVENTS).await, "B-0 succeeded B-1");
    store.settle("b", &answered(&second, Outcome::Succeeded, Some("B-0")), false).await.unwrap();
    assert_eq!(scratch.text(ROW).await, "succeeded B-0");
    let mut spoken = answered(&first, Outcome::Accepted, Some("B-3"));
    spoken[0].answer.message = "the bank repeats; bank reference B-0".to_owned();
    store.settle("a", &spoken, false).await.unwrap();
    assert_eq!(scratch.text(EVENTS).await, "B-0 succeeded B-1, B-0 accepted B-3");
}

#[tokio::test]
async fn who_says_that_nothing_was_executed_takes_the_reference_back() {
    let (scratch, first, second) = two_sends().await;
    let store = &scratch.store;
    store.settle("b", &answered(&second, Outcome::Rejected, None), false).await.unwrap();
    store.settle("a", &answered(&first, Outcome::Succeeded, Some("B-1")), false).await.unwrap();
    assert_eq!(scratch.text(ROW).await, "review B-1");
    scratch.decide(RefundId(1), State::Ready, "another customer's", "ann").await;
    assert_eq!(scratch.text(ROW).await, "ready");
    assert_eq!(
        scratch.text("select before ->> 'bank_ref' from refundd.events where kind = 'decided'").await,
        "B-1"
    );
}

#[tokio::test]
async fn an_acceptance_under_another_reference_than_a_late_answer_goes_to_a_person_and_is_not_asked_about() {
    let (scratch, first, second) = two_sends().await;
    let store = &scratch.store;
    store.settle("a", &answered(&first, Outcome::Accepted, Some("B-1")), false).await.unwrap();
    let mut accepted = answered(&second, Outcome::Accepted, Some("B-2"));
    accepted[0].settlement.inquire_in = Some(std::time::Duration::from_secs(5));
    store.settle("b", &accepted, false).await.unwrap();
    assert_eq!(
        scratch.text("select concat_ws(' ', state, bank_ref, inquire_at) from refundd.refunds").await,
        "review B-1"
    );
}

#[tokio::test]
async fn a_refund_that_the_bank_says_it_has_goes_to_a_person_when_its_channel_loses_its_inquiry() {
    let scratch = limited_scratch_with(4).await;
    let sent = claim(&scratch, "a", &[1, 2, 3, 4].map(unlimited)).await;
    scratch
        .sql("update refundd.channels set on_unknown = 'resend', resend_within = interval '1 hour', inquires = true")
        .await;
    // The leases lapsed, and the bank was to be asked.
    scratch.release("true", "state = 'unknown', inquire_at = now() + interval '1 hour'").await;
    let late = answered(&sent, Outcome::Succeeded, None);
    assert!(scratch.store.settle("a", &late, false).await.unwrap().moved.is_empty());
    assert_eq!(scratch.count(State::Unknown).await, 4, "the next inquiry settles it");
    scratch.sql("update refundd.channels set inquires = false").await;
    // Each pass drops fewer plans than there are.
    for _ in 0..4 {
        for which in [RecoveryMove::DropPlans, RecoveryMove::ShowHad, RecoveryMove::ShowUnknown] {
            scratch.store.recover(which, 1, &[]).await.unwrap();
        }
    }
    let rows = "select string_agg(concat_ws(' ', state, split_part(reason, ':', 1)), ', ' order by state) from refundd.refunds";
    assert_eq!(
        scratch.text(rows).await,
        "review said_paid, unknown, unknown, unknown",
        "the others may be sent again"
    );
    let lines =
        "select string_agg(code || ' ' || moved_to, ', ') from refundd.attempts where kind = 'recovery'";
    assert_eq!(scratch.text(lines).await, "said_paid review");
}

#[tokio::test]
async fn a_reference_that_comes_too_late_does_not_begin_the_count_of_taken_ones_anew() {
    let (scratch, first, second) = two_sends().await;
    let node = Node::new("a", scratch.store.clone(), scratch.bucket(), Arc::new(Metrics::default()));
    let breaker = Breaker { unknown: 2, ..Breaker::default() };
    let one_is_taken = || node.breakers.note_taken(&acme(), &breaker, Instant::now());
    let settle = async |claimed: &Claimed| {
        let (outcomes, inbox) = mpsc::channel(1);
        outcomes.send(answered(claimed, Outcome::Succeeded, Some("B-1")).remove(0)).await.unwrap();
        drop(outcomes);
        Settler::new(node.clone(), inbox).run().await;
    };
    assert_eq!(one_is_taken(), None);
    settle(&first).await;
    assert_eq!(scratch.count(State::Sending).await, 1, "it moved nothing");
    assert_eq!(one_is_taken(), Some(2));
    settle(&second).await;
    assert_eq!(scratch.count(State::Succeeded).await, 1);
    assert_eq!(one_is_taken(), None);
}
