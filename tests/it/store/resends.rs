//! Resends: the reason of a refund says why an earlier send may have been executed, whatever came of the later ones.

use std::time::Duration;

use refundd::refund::{Code, Outcome, RefundId, State};
use refundd::store::{ClaimRequest, Claimed, LookPlace, RecoveryLook};

use super::{claim, claim_of, lapse, limited_scratch_with, settled, unlimited};
use crate::harness::Scratch;

const ROW: &str = "select concat_ws(' ', state, reason) from refundd.refunds";

/// Claims the refund, which may have been executed, for a resend.
async fn claim_again(scratch: &Scratch) -> Claimed {
    scratch.sql("update refundd.refunds set due_at = now()").await;
    let taken = [unlimited(1)];
    let request = ClaimRequest { resend_within: Some(Duration::from_hours(1)), ..claim_of("a", &taken) };
    let claimed = scratch.store.claim_among(&request, &[]).await.unwrap();
    assert!(claimed.leased[0].is_resend);
    claimed
}

/// Writes what came of a send, and returns the row.
async fn settle(scratch: &Scratch, claimed: &Claimed, outcome: Outcome, code: Code) -> String {
    let mut over = settled(claimed, outcome);
    over.answer.code = code;
    assert_eq!(scratch.store.settle("a", &[over], false).await.unwrap().moved, [RefundId(1)]);
    scratch.text(ROW).await
}

/// A refund whose first send timed out.
async fn timed_out() -> Scratch {
    let scratch = limited_scratch_with(1).await;
    let first = claim(&scratch, "a", &[unlimited(1)]).await;
    assert_eq!(settle(&scratch, &first, Outcome::Unknown, Code::Timeout).await, "unknown timeout: test");
    scratch
}

#[tokio::test]
async fn a_resend_that_executed_nothing_keeps_the_reason_of_the_send_that_may_have_been_executed() {
    let scratch = timed_out().await;
    for (outcome, code) in [
        (Outcome::SlowDown { retry_after: None }, Code::SlowDown),
        (Outcome::Unauthorised, Code::Unauthorised),
        (Outcome::HandedBack, Code::ConnectFailed),
        (Outcome::NotExecuted, Code::ChannelRule),
    ] {
        let again = claim_again(&scratch).await;
        assert_eq!(scratch.text(ROW).await, "sending timeout: test");
        assert_eq!(settle(&scratch, &again, outcome, code).await, "unknown timeout: test", "{code}");
    }
    claim_again(&scratch).await;
    assert_eq!(scratch.store.unclaim(&[RefundId(1)], "a").await.unwrap(), 1);
    assert_eq!(scratch.text(ROW).await, "unknown timeout: test", "taken back");

    // The bank does not know the key any more. People decide by the reason.
    scratch.sql("update refundd.channels set on_unknown = 'resend', resend_within = interval '1 hour'").await;
    scratch.sql("update refundd.refunds set first_sent_at = now() - interval '2 hours'").await;
    let looked = scratch.store.look_for(RecoveryLook::UsedUp, 10, 10, &LookPlace::default(), &[]).await;
    assert_eq!(looked.unwrap().shown.len(), 1);
    assert_eq!(scratch.text(ROW).await, "review timeout: test");
}

#[tokio::test]
async fn the_reason_names_the_last_send_that_may_have_been_executed_and_does_not_grow() {
    let scratch = timed_out().await;
    for code in [Code::AnswerLost, Code::BankTrouble] {
        let again = claim_again(&scratch).await;
        let row = settle(&scratch, &again, Outcome::Unknown, code).await;
        assert_eq!(row, format!("unknown {code}: test"));
    }
    for _ in 0..2 {
        claim_again(&scratch).await;
        lapse(&scratch).await;
        assert_eq!(scratch.text(ROW).await, "unknown lease_lapsed: a did not settle in time");
    }
    let again = claim_again(&scratch).await;
    assert_eq!(settle(&scratch, &again, Outcome::Succeeded, Code::Succeeded).await, "succeeded");
}

#[tokio::test]
async fn a_lost_claim_that_is_found_during_a_resend_stands_before_the_reason_of_the_earlier_send() {
    for executed_nothing in [false, true] {
        let scratch = timed_out().await;
        let again = claim_again(&scratch).await;
        scratch
            .sql(
                "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, started_at, outcome, code)
                 select id, channel, 'send', 1, lease_epoch + 1, 'b', now(), 'unknown', 'timeout' from refundd.refunds",
            )
            .await;
        let (outcome, own) = if executed_nothing {
            (Outcome::HandedBack, "unknown claim_lost: ")
        } else {
            (Outcome::Unknown, "unknown answer_lost: test; before: claim_lost: ")
        };
        let row = settle(&scratch, &again, outcome, Code::AnswerLost).await;
        assert!(row.starts_with(own) && row.ends_with("; before: timeout: test"), "{row}");
    }
}

#[tokio::test]
async fn a_refund_is_uncertain_since_its_first_send_and_not_since_a_resend() {
    let scratch = timed_out().await;
    scratch.sql("update refundd.refunds set first_sent_at = now() - interval '10 minutes'").await;
    let first = "select (extract(epoch from first_sent_at) * 1000000)::bigint from refundd.refunds";
    let first = scratch.number(first).await;
    let again = claim_again(&scratch).await;
    settle(&scratch, &again, Outcome::Unknown, Code::Timeout).await;
    let refund = scratch.store.refund(RefundId(1)).await.unwrap().unwrap();
    assert_eq!(refund.uncertain_since.unwrap().as_microsecond(), first);
    let last = "select count(*) from refundd.refunds where uncertain_at > now() - interval '5 minutes'";
    assert_eq!(scratch.number(last).await, 1, "inquiries count from the last send");
}

#[tokio::test]
async fn the_claim_sends_nothing_again_that_the_bank_said_it_has() {
    let scratch = limited_scratch_with(2).await;
    let taken = [unlimited(1), unlimited(2)];
    let first = claim(&scratch, "a", &taken).await;
    // The leases lapsed. The bank's answer to one of them comes late, while another inquiry is planned.
    scratch.release("true", "state = 'unknown', inquire_at = now() + interval '1 hour'").await;
    let late = settled(&first, Outcome::Succeeded);
    assert!(scratch.store.settle("a", &[late], false).await.unwrap().moved.is_empty());
    scratch.sql("update refundd.refunds set inquire_at = null").await;
    assert_eq!(scratch.count(State::Unknown).await, 2);
    let request = ClaimRequest { resend_within: Some(Duration::from_hours(1)), ..claim_of("a", &taken) };
    let leased = scratch.store.claim_among(&request, &[]).await.unwrap().leased;
    assert_eq!(leased.iter().map(|lease| lease.id).collect::<Vec<_>>(), [first.leased[1].id]);
}
