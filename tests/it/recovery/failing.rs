//! A part of recovery that fails, and a row at which Postgres fails, hold up nothing else.

use refundd::refund::{RefundId, State};
use refundd::store::OverduePlace;
use sqlx::Executor;

use super::recovery_of;
use crate::harness::failing::{fail_at, fail_no_more, wait_at};
use crate::harness::{Scratch, until};

/// As the owner, leases all refunds to a node that died. Their leases have lapsed.
async fn lapse(scratch: &Scratch, which: &str) {
    scratch
        .sql(&format!(
            "update refundd.refunds set state = 'sending', attempts = 1, lease_epoch = 1, lease_node = 'dead#1', lease_until = now() - interval '1 second'
              where {which}"
        ))
        .await;
}

/// As the owner, makes all refunds `unknown`, each with an inquiry that is due later than that of the refund before. The time
/// for inquiries is over for those of which `is_overdue` is true.
async fn ask_about(scratch: &Scratch, is_overdue: &str) {
    scratch.sql("update refundd.channels set inquires = true, on_unknown = 'inquire'").await;
    lapse(scratch, "true").await;
    scratch.sql("update refundd.refunds set state = 'unknown', lease_node = null, lease_until = null").await;
    scratch
        .sql(&format!(
            "update refundd.refunds set inquire_at = now() - interval '1 hour' + id * interval '1 second',
                    uncertain_at = now() - case when {is_overdue} then interval '8 days' else interval '1 day' end"
        ))
        .await;
}

#[tokio::test]
async fn a_lease_that_postgres_does_not_let_end_keeps_no_other_from_ending() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    scratch.insert("acme", "R-", 600).await;
    lapse(&scratch, "true").await;
    fail_at(&scratch, "old.id in (7, 300) and old.state = 'sending'").await;
    let mut recovery = recovery_of(&scratch).await;
    assert_eq!(recovery.pass().await.unwrap().lapsed, 598);
    assert_eq!(scratch.count(State::Sending).await, 2);
    fail_no_more(&scratch).await;
    assert_eq!(recovery.pass().await.unwrap().lapsed, 0, "they are tried every minute");
    assert_eq!(recovery_of(&scratch).await.pass().await.unwrap().lapsed, 2);
}

#[tokio::test]
async fn a_lease_whose_end_waits_for_a_lock_keeps_no_other_from_ending_and_ends_after_the_lock() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    scratch.insert("acme", "R-", 4).await;
    lapse(&scratch, "true").await;
    wait_at(&scratch, "old.id = 3 and old.state = 'sending'").await;
    let mut other = scratch.connect().await;
    other.execute("select pg_advisory_lock(7)").await.unwrap();
    let mut recovery = recovery_of(&scratch).await;
    // Each statement waits three seconds for the lock, so one pass has no time to find the one refund.
    until("the others end", async || {
        let _ = recovery.pass().await;
        scratch.count(State::Sending).await == 1
    })
    .await;
    // The log named it when it was found. So it hides no failure of another part.
    assert_eq!(recovery.pass().await.unwrap().lapsed, 0);
    other.execute("select pg_advisory_unlock(7)").await.unwrap();
    assert_eq!(recovery.pass().await.unwrap().lapsed, 1, "it does not rest a minute");
}

#[tokio::test]
async fn a_part_that_fails_keeps_no_other_part_from_its_work() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    scratch.sql("update refundd.channels set max_backlog = 1").await;
    scratch.insert("acme", "R-", 5).await;
    lapse(&scratch, "id >= 4").await;
    scratch.sql("update refundd.refunds set deadline_at = now() - interval '1 second' where id = 1").await;
    fail_at(&scratch, "new.state = 'failed'").await;
    let mut recovery = recovery_of(&scratch).await;
    let error = recovery.pass().await.unwrap_err();
    assert_eq!(error.to_string(), "look for passed deadlines");
    assert_eq!(scratch.count(State::Review).await, 2, "the lapsed ones are shown");
    let full = "select count(*) from refundd.channels where full_since is not null";
    assert_eq!(scratch.number(full).await, 1);
    fail_no_more(&scratch).await;
    assert_eq!(recovery.pass().await.unwrap().expired, 1);
}

#[tokio::test]
async fn refunds_whose_time_for_inquiries_is_over_are_found_a_few_rows_at_a_time() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    scratch.insert("acme", "R-", 6).await;
    ask_about(&scratch, "id in (2, 5, 6)").await;
    let (mut place, mut found) = (OverduePlace::default(), Vec::new());
    for _ in 0..4 {
        let (shown, next) = scratch.store.show_overdue(10, 2, &place).await.unwrap();
        found.push(shown.into_iter().map(|(id, _)| id.0).collect::<Vec<_>>());
        place = next;
    }
    for ids in &mut found {
        ids.sort_unstable();
    }
    assert_eq!(found, [vec![2_i64], vec![], vec![5, 6], vec![]]);
    assert_eq!(place, OverduePlace::default(), "the next round begins");
    assert_eq!(scratch.count(State::Review).await, 3);
}

#[tokio::test]
async fn a_refund_that_postgres_does_not_let_be_shown_keeps_no_other_from_being_shown() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    scratch.insert("acme", "R-", 4).await;
    ask_about(&scratch, "id <> 3").await;
    fail_at(&scratch, "new.id = 2 and new.state = 'review'").await;
    let mut recovery = recovery_of(&scratch).await;
    // Each pass looks at half as many rows as the last one, until it looks at the one alone.
    until("the others are shown", async || {
        let _ = recovery.pass().await;
        scratch.count(State::Review).await == 2
    })
    .await;
    fail_no_more(&scratch).await;
    until("so is this one", async || {
        recovery.pass().await.unwrap();
        scratch.count(State::Review).await == 3
    })
    .await;
    assert_eq!(scratch.store.refund(RefundId(3)).await.unwrap().unwrap().state, State::Unknown);
}
