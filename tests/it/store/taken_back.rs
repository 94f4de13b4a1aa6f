//! Claims that are taken back: the bank can know nothing of them, and what it knew before stays known.

use refundd::refund::{Outcome, RefundId, State};
use refundd::store::{RecoveryMove, Store};

use super::{claim, limited_scratch_with, settled, unlimited};
use crate::harness::Scratch;
use crate::harness::anywhere::claim_of;
use crate::harness::failing::{a_commit_dawdles, dawdle_at_commits, fail_at, fail_no_more};

const SENT: &str = "select count(first_sent_at) from refundd.refunds";

/// Claims the refund, and takes the claim back.
async fn take_back(scratch: &Scratch) {
    scratch.sql("update refundd.refunds set due_at = now()").await;
    assert_eq!(claim(scratch, "b", &[unlimited(1)]).await.leased.len(), 1);
    assert_eq!(scratch.store.unclaim(&[RefundId(1)], "b").await.unwrap(), 1);
}

#[tokio::test]
async fn a_refund_whose_claims_were_all_taken_back_was_never_sent() {
    for is_owner in [false, true] {
        let scratch = limited_scratch_with(1).await;
        let url = if is_owner { &scratch.owner_url } else { &scratch.database_url };
        let store = Store::open(url, None, 1).unwrap();
        for _ in 0..2 {
            let claimed = claim(&scratch, "a", &[unlimited(1)]).await;
            assert!(claimed.leased[0].is_first, "owner: {is_owner}");
            assert_eq!(store.unclaim(&[RefundId(1)], "a").await.unwrap(), 1);
            assert_eq!(scratch.number(SENT).await, 0, "owner: {is_owner}");
        }
        assert_eq!(scratch.count(State::Ready).await, 1);
        let lines = "select string_agg(concat_ws(' ', number, node, code, moved_to, message), ', ' order by id) from refundd.attempts";
        let line = "1 a taken_back ready the claim was taken back, and no request was made";
        assert_eq!(scratch.text(lines).await, format!("{line}, {line}"), "owner: {is_owner}");
    }
}

#[tokio::test]
async fn a_refund_that_may_have_been_sent_before_a_claim_that_is_taken_back_keeps_that() {
    // A byte of it left, and the bank did not execute it.
    let scratch = limited_scratch_with(1).await;
    let first = claim(&scratch, "a", &[unlimited(1)]).await;
    scratch.store.settle("a", &[settled(&first, Outcome::NotExecuted)], false).await.unwrap();
    take_back(&scratch).await;
    assert_eq!(scratch.number(SENT).await, 1);

    // It ended, the month with its lines was dropped, and a person has it sent again.
    let scratch = limited_scratch_with(1).await;
    scratch
        .sql("update refundd.refunds set state = 'failed', first_sent_at = now(), settled_at = now()")
        .await;
    scratch.decide(RefundId(1), State::Ready, "the account is open again", "ann").await;
    take_back(&scratch).await;
    assert_eq!(scratch.number(SENT).await, 1);

    // It is sent again under its key.
    let scratch = limited_scratch_with(1).await;
    claim(&scratch, "a", &[unlimited(1)]).await;
    scratch.sql("update refundd.refunds set lease_until = now() - interval '1 second'").await;
    assert_eq!(scratch.store.recover(RecoveryMove::Lapse, 1, &[]).await.unwrap().len(), 1);
    scratch
        .sql("update refundd.refunds set state = 'sending', attempts = 2, lease_epoch = 2, lease_node = 'b', lease_until = now() + interval '1 minute'")
        .await;
    assert_eq!(scratch.store.unclaim(&[RefundId(1)], "b").await.unwrap(), 1);
    assert_eq!(scratch.count(State::Unknown).await, 1);
    assert_eq!(scratch.number(SENT).await, 1);
}

#[tokio::test]
async fn a_claim_that_postgres_refuses_was_rolled_back_and_one_whose_session_ends_may_be_committed() {
    let scratch = limited_scratch_with(1).await;
    let failing = async || {
        let taken = [unlimited(1)];
        scratch.store.claim_among(&claim_of("a", &taken), &[]).await.unwrap_err()
    };
    fail_at(&scratch, "new.state = 'sending'").await;
    let refused = failing().await;
    assert!(refused.is_refused_claim(), "{refused:?}");
    fail_no_more(&scratch).await;
    dawdle_at_commits(&scratch, State::Sending).await;
    let end = async {
        a_commit_dawdles(&scratch).await;
        let end = "select count(pg_terminate_backend(pid)) from pg_stat_activity
                    where datname = current_database() and wait_event = 'PgSleep'";
        scratch.number(end).await
    };
    let (unseen, ended) = tokio::join!(failing(), end);
    assert_eq!(ended, 1);
    assert!(!unseen.is_refused_claim(), "{unseen:?}");
}
