//! Sends under claims that a failover of Postgres lost: their refunds are not simply sent again.

use refundd::caller::Names;
use refundd::refund::{Outcome, RefundId, State};
use refundd::store::{Cancelled, Canceller, Claimed, Decided, Settled, Store};

use super::{claim, lapse, limited_scratch_with, settled, unlimited};
use crate::harness::Scratch;

const ROW: &str = "select concat_ws(' ', state, split_part(reason, ':', 1)) from refundd.refunds";

const REASON: &str = "select reason from refundd.refunds";

/// The states in which events found the refund.
const EVENTS: &str = "select coalesce(string_agg(before ->> 'state', ' ' order by event_id), '')
                        from refundd.events where kind = 'late_answer_differs'";

/// A send of which no byte left.
fn unsent(claimed: &Claimed, outcome: Outcome) -> Settled {
    Settled { started: None, ..settled(claimed, outcome) }
}

/// A claim that the standby did not have when it became the primary.
async fn lost_claim() -> (Scratch, Claimed) {
    let scratch = limited_scratch_with(1).await;
    let lost = claim(&scratch, "a", &[unlimited(1)]).await;
    scratch
        .sql("update refundd.refunds set state = 'ready', attempts = 0, lease_epoch = 0, lease_node = null, lease_until = null, first_sent_at = null")
        .await;
    (scratch, lost)
}

/// The lost claim, and the next one, with the same epoch.
async fn lost_and_next() -> (Scratch, Claimed, Claimed) {
    let (scratch, lost) = lost_claim().await;
    let next = claim(&scratch, "b", &[unlimited(1)]).await;
    assert_eq!(next.leased[0].epoch, lost.leased[0].epoch);
    (scratch, lost, next)
}

/// The node of the lost claim writes what came of its send.
async fn write_late(scratch: &Scratch, late: Settled) {
    assert!(scratch.store.settle("a", &[late], false).await.unwrap().moved.is_empty());
}

/// The node that asked the bank about the lost send, when the row was `unknown`, writes the answer.
async fn write_late_inquiry(scratch: &Scratch, node: &str, outcome: &str) {
    scratch
        .sql(&format!(
            "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, started_at, outcome, code, message)
             values (1, 'acme', 'inquiry', 1, 1, '{node}', now(), '{outcome}', 'unmapped', 'test')"
        ))
        .await;
}

async fn settle_next(scratch: &Scratch, next: &Claimed, outcome: Outcome) {
    let settled = [settled(next, outcome)];
    assert_eq!(scratch.store.settle("b", &settled, false).await.unwrap().moved, [RefundId(1)]);
}

async fn uncertain(scratch: &Scratch) -> i64 {
    scratch
        .number(
            "select count(*) from refundd.refunds where uncertain_at is not null and first_sent_at is not null",
        )
        .await
}

#[tokio::test]
async fn a_refund_that_was_sent_under_a_lost_claim_goes_to_a_person_and_is_not_sent_again() {
    for outcome in [Outcome::Unknown, Outcome::Rejected] {
        let (scratch, lost) = lost_claim().await;
        write_late(&scratch, settled(&lost, outcome.clone())).await;
        assert_eq!(scratch.text(ROW).await, "review claim_lost", "{outcome:?}");
        assert_eq!(uncertain(&scratch).await, 1, "{outcome:?}");
        assert!(claim(&scratch, "b", &[unlimited(1)]).await.leased.is_empty(), "{outcome:?}");
        let lines = "select concat_ws(' ', code, moved_to) from refundd.attempts where kind = 'recovery'";
        assert_eq!(scratch.text(lines).await, "claim_lost review", "programs that read changes see it");
    }
}

#[tokio::test]
async fn a_lost_claim_whose_send_was_not_executed_stops_no_refund() {
    let (scratch, lost) = lost_claim().await;
    write_late(&scratch, settled(&lost, Outcome::NotExecuted)).await;
    write_late(&scratch, unsent(&lost, Outcome::HandedBack)).await;
    assert_eq!(scratch.text(ROW).await, "ready");
    assert_eq!(claim(&scratch, "b", &[unlimited(1)]).await.leased.len(), 1);
}

#[tokio::test]
async fn what_comes_of_the_next_send_says_nothing_about_the_send_of_a_lost_claim() {
    for is_sent in [true, false] {
        let (scratch, lost, next) = lost_and_next().await;
        write_late(&scratch, settled(&lost, Outcome::Unknown)).await;
        assert_eq!(scratch.count(State::Sending).await, 1);
        assert_eq!(uncertain(&scratch).await, 1);
        let over =
            if is_sent { settled(&next, Outcome::Rejected) } else { unsent(&next, Outcome::HandedBack) };
        assert_eq!(scratch.store.settle("b", &[over], false).await.unwrap().moved, [RefundId(1)]);
        assert_eq!(scratch.text(ROW).await, "review claim_lost", "sent: {is_sent}");
        assert_eq!(uncertain(&scratch).await, 1, "sent: {is_sent}");
    }
}

#[tokio::test]
async fn what_comes_of_the_next_send_says_nothing_about_a_lost_send_of_which_only_the_inquiry_is_left() {
    for is_sent in [true, false] {
        let (scratch, _, next) = lost_and_next().await;
        write_late_inquiry(&scratch, "a", "unknown").await;
        assert_eq!(scratch.text(EVENTS).await, "sending");
        let reason = "select reason from refundd.events where kind = 'late_answer_differs'";
        let doubt = "unless a failover of Postgres lost only what came of this send";
        assert!(scratch.text(reason).await.ends_with(doubt));
        let over =
            if is_sent { settled(&next, Outcome::Rejected) } else { unsent(&next, Outcome::HandedBack) };
        assert_eq!(scratch.store.settle("b", &[over], false).await.unwrap().moved, [RefundId(1)]);
        assert_eq!(scratch.text(ROW).await, "review claim_lost", "sent: {is_sent}");
        assert_eq!(uncertain(&scratch).await, 1, "sent: {is_sent}");
    }
}

#[tokio::test]
async fn a_next_claim_that_is_taken_back_leaves_its_refund_uncertain() {
    let (scratch, lost, _) = lost_and_next().await;
    write_late(&scratch, settled(&lost, Outcome::Unknown)).await;
    assert_eq!(scratch.store.unclaim(&[RefundId(1)], "b").await.unwrap(), 1);
    assert_eq!(scratch.text(ROW).await, "unknown claim_lost");
    assert_eq!(uncertain(&scratch).await, 1);
}

#[tokio::test]
async fn the_reason_of_the_next_send_names_the_lost_claim_too() {
    for is_lapsed in [false, true] {
        let (scratch, lost, next) = lost_and_next().await;
        write_late(&scratch, settled(&lost, Outcome::Unknown)).await;
        if is_lapsed {
            lapse(&scratch).await;
        } else {
            settle_next(&scratch, &next, Outcome::Unknown).await;
        }
        let reason = scratch.text(REASON).await;
        let own = if is_lapsed { "lease_lapsed: b did not settle in time" } else { "unmapped: test" };
        assert!(reason.starts_with(&format!("{own}; before: claim_lost: ")), "{reason}");
    }
}

#[tokio::test]
async fn a_claim_that_is_lost_is_recognised_by_the_line_of_the_next_one_also_if_that_sent_nothing() {
    for over in ["taken back", "taken back by the owner", "lapsed"] {
        let (scratch, lost, _) = lost_and_next().await;
        if over == "lapsed" {
            lapse(&scratch).await;
            // The bank does not have it.
            scratch.sql("update refundd.refunds set state = 'ready', due_at = now()").await;
        } else {
            let is_owner = over == "taken back by the owner";
            let url = if is_owner { &scratch.owner_url } else { &scratch.database_url };
            let store = Store::open(url, None, 1).unwrap();
            assert_eq!(store.unclaim(&[RefundId(1)], "b").await.unwrap(), 1);
        }
        assert_eq!(scratch.count(State::Ready).await, 1, "{over}");
        write_late(&scratch, settled(&lost, Outcome::Unknown)).await;
        assert_eq!(scratch.text(ROW).await, "review claim_lost", "{over}");
    }
}

#[tokio::test]
async fn two_sends_of_which_one_is_unknown_are_an_event_in_either_order() {
    for (outcome, state) in [(Outcome::Succeeded, State::Succeeded), (Outcome::Accepted, State::Accepted)] {
        for found in [State::Sending, state] {
            let (scratch, lost, next) = lost_and_next().await;
            let late = settled(&lost, Outcome::Unknown);
            if found == State::Sending {
                write_late(&scratch, late).await;
                settle_next(&scratch, &next, outcome.clone()).await;
            } else {
                settle_next(&scratch, &next, outcome.clone()).await;
                write_late(&scratch, late).await;
            }
            assert_eq!(scratch.text(EVENTS).await, found.as_str());
            assert_eq!(scratch.count(state).await, 1, "it stays so");
        }
    }

    // The inquiry about the next send may find either payment.
    for outcome in [Outcome::Unknown, Outcome::Succeeded] {
        let (scratch, lost, _) = lost_and_next().await;
        lapse(&scratch).await;
        scratch.sql("update refundd.refunds set inquire_at = now() + interval '1 minute'").await;
        write_late(&scratch, settled(&lost, outcome)).await;
        assert_eq!(scratch.text(EVENTS).await, "unknown");
    }
}

#[tokio::test]
async fn a_mixed_up_answer_to_a_lost_send_is_an_event_while_the_next_send_is_open() {
    let (scratch, lost, _) = lost_and_next().await;
    write_late(&scratch, settled(&lost, Outcome::Review)).await;
    assert_eq!(scratch.text(EVENTS).await, "sending");
}

#[tokio::test]
async fn a_refund_goes_to_a_person_also_if_the_next_claim_is_over_before_the_line_of_the_lost_one() {
    for (outcome, state) in [(Outcome::NotExecuted, State::Ready), (Outcome::Rejected, State::Failed)] {
        let (scratch, lost, next) = lost_and_next().await;
        settle_next(&scratch, &next, outcome).await;
        assert_eq!(scratch.count(state).await, 1);
        write_late(&scratch, settled(&lost, Outcome::Unknown)).await;
        assert_eq!(scratch.text(ROW).await, "review claim_lost", "{state:?}");
    }

    // Also if only an inquiry about the lost send is left, of the process that made the next one.
    for (outcome, said, row) in [
        (Outcome::NotExecuted, "unknown", "review claim_lost"),
        (Outcome::Rejected, "unknown", "review claim_lost"),
        (Outcome::NotExecuted, "succeeded", "review said_paid"),
        (Outcome::Succeeded, "unknown", "succeeded"),
        (Outcome::Succeeded, "succeeded", "succeeded"),
    ] {
        let (scratch, _, next) = lost_and_next().await;
        settle_next(&scratch, &next, outcome).await;
        write_late_inquiry(&scratch, "b", said).await;
        assert_eq!(scratch.text(ROW).await, row);
        assert_eq!(scratch.text(EVENTS).await, if row == "succeeded" { row } else { "" });
    }
}

#[tokio::test]
async fn a_refund_that_was_cancelled_as_never_sent_goes_to_a_person_if_it_was_sent_under_a_lost_claim() {
    for (outcome, row) in
        [(Outcome::Unknown, "review claim_lost"), (Outcome::Rejected, "cancelled cancelled by ann")]
    {
        let (scratch, lost) = lost_claim().await;
        scratch
            .sql("update refundd.refunds set state = 'cancelled', settled_at = now(), reason = 'cancelled by ann: paid in cash'")
            .await;
        write_late(&scratch, settled(&lost, outcome)).await;
        assert_eq!(scratch.text(ROW).await, row);
    }
}

#[tokio::test]
async fn a_cancelled_refund_that_a_late_line_reopens_is_never_sent_and_shows_why_it_was_cancelled() {
    let (scratch, lost) = lost_claim().await;
    let (name, why) = (Some("ann".to_owned()), Some("paid in cash".to_owned()));
    let ann = Canceller { name, why, ..Canceller::producer(Names::All) };
    let cancelled = scratch.store.cancel(RefundId(1), None, &ann).await.unwrap();
    assert!(matches!(cancelled, Cancelled::Now(_)), "{cancelled:?}");
    write_late(&scratch, settled(&lost, Outcome::Unknown)).await;
    assert_eq!(scratch.text(ROW).await, "review claim_lost");
    let reason = scratch.text(REASON).await;
    assert!(reason.ends_with("; before: cancelled by ann: paid in cash"), "{reason}");
    let ready = async || scratch.decide(RefundId(1), State::Ready, "acme has no such refund", "bob").await;
    assert!(matches!(ready().await, Decided::WasCancelled(_)));
    // Nor by the way round, first called failed.
    let failed = scratch.decide(RefundId(1), State::Failed, "acme has no such refund", "bob").await;
    assert!(matches!(failed, Decided::Done(_)), "{failed:?}");
    assert!(matches!(ready().await, Decided::WasCancelled(_)));
}

#[tokio::test]
async fn the_grace_of_an_unknown_refund_begins_anew_with_the_line_of_a_lost_claim() {
    let (scratch, lost) = lost_claim().await;
    scratch.sql("update refundd.refunds set state = 'sending', lease_node = 'b', lease_until = now()").await;
    scratch.sql("update refundd.refunds set state = 'unknown', lease_node = null, lease_until = null").await;
    scratch.sql("update refundd.refunds set uncertain_at = now() - interval '1 hour'").await;
    write_late(&scratch, settled(&lost, Outcome::Unknown)).await;
    assert_eq!(scratch.count(State::Unknown).await, 1);
    let anew = "select count(*) from refundd.refunds where uncertain_at > now() - interval '30 minutes'";
    assert_eq!(scratch.number(anew).await, 1);
}

#[tokio::test]
async fn a_late_line_of_a_claim_that_nobody_lost_raises_the_version_alone() {
    let scratch = limited_scratch_with(1).await;
    let first = claim(&scratch, "a", &[unlimited(1)]).await;
    lapse(&scratch).await;
    // The bank does not have it.
    scratch.sql("update refundd.refunds set state = 'ready', due_at = now()").await;
    let version = "select version::bigint from refundd.refunds";
    let before = scratch.number(version).await;
    write_late(&scratch, settled(&first, Outcome::Unknown)).await;
    assert_eq!(scratch.count(State::Ready).await, 1);
    assert_eq!(scratch.number(version).await, before + 1);

    let second = claim(&scratch, "b", &[unlimited(1)]).await;
    write_late(&scratch, settled(&first, Outcome::Rejected)).await;
    write_late_inquiry(&scratch, "a", "unknown").await;
    assert_eq!(uncertain(&scratch).await, 0);
    let over = settled(&second, Outcome::HandedBack);
    assert_eq!(scratch.store.settle("b", &[over], false).await.unwrap().moved, [RefundId(1)]);
    assert_eq!(scratch.count(State::Ready).await, 1);
}
