//! A late answer of the bank of another channel: a failover lost the claim of its send, and then the refund moved.

use refundd::refund::{Outcome, RefundId, State};

use super::{answered, claim, limited_scratch_with, unlimited};
use crate::harness::Scratch;

const ROW: &str = "select concat_ws(' ', state, channel, bank_ref) from refundd.refunds";
const EVENTS: &str = "select coalesce(string_agg(concat_ws(' ', channel, after ->> 'channel', after ->> 'bank_ref', reason), ', ' order by event_id), '')
                        from refundd.events where kind = 'late_answer_differs'";
const ELSEWHERE: &str =
    " (the send went to the bank of channel acme, under the request id that the refund had there)";

/// A refund of `globex` that was sent on `acme`, under a claim that the new primary does not have. The function writes what the
/// bank of `acme` said of it: "succeeded", and the reference `A-1`.
async fn moved() -> (Scratch, impl AsyncFn()) {
    let scratch = limited_scratch_with(1).await;
    scratch.publish("globex").await;
    let lost = claim(&scratch, "a", &[unlimited(1)]).await;
    scratch
        .sql("update refundd.refunds set state = 'ready', attempts = 0, lease_epoch = 0, lease_node = null, lease_until = null, first_sent_at = null")
        .await;
    scratch.sql("select from refundd.move(array[1], 'acme', 'globex', 'acme is closed', 'ann')").await;
    assert_eq!(scratch.text(ROW).await, "ready globex");
    let store = scratch.store.clone();
    let write = async move || {
        let late = answered(&lost, Outcome::Succeeded, Some("A-1"));
        assert_eq!(store.settle("a", &late, false).await.unwrap().moved, [] as [RefundId; 0]);
    };
    (scratch, write)
}

#[tokio::test]
async fn a_person_learns_which_bank_said_it_and_its_reference_is_no_reference_of_the_other_bank() {
    let (scratch, write_late) = moved().await;
    write_late().await;
    assert_eq!(scratch.text(ROW).await, "review globex");
    let reason = scratch.text("select reason from refundd.refunds").await;
    assert!(reason.starts_with("said_paid: ") && reason.ends_with(ELSEWHERE), "{reason}");
}

#[tokio::test]
async fn equal_references_of_two_banks_are_two_payments() {
    for state in [State::Sending, State::Succeeded] {
        let (scratch, write_late) = moved().await;
        scratch
            .sql("update refundd.refunds set state = 'sending', attempts = 1, lease_epoch = 1, lease_node = 'b', lease_until = now() + interval '1 minute'")
            .await;
        if state == State::Succeeded {
            scratch
                .sql("insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, moved_to)
                      values (1, 'globex', 'send', 1, 1, 'b', 'succeeded', 'succeeded')")
                .await;
            scratch
                .sql("update refundd.refunds set state = 'succeeded', bank_ref = 'A-1', settled_at = now(), lease_node = null, lease_until = null")
                .await;
        }
        let before = scratch.text(ROW).await;
        write_late().await;
        let said = "the bank says too late that it executed an earlier send, too: it may be paid twice";
        assert_eq!(scratch.text(EVENTS).await, format!("globex acme A-1 {said}{ELSEWHERE}"), "{state:?}");
        assert_eq!(scratch.text(ROW).await, before, "{state:?}");
    }
}
