//! A part of recovery that fails, and a row at which Postgres fails, hold up nothing else.

use refundd::bucket::BucketKind;
use refundd::heartbeat::Heartbeat;
use refundd::metrics::{PageFormat, Readings};
use refundd::refund::State;
use sqlx::Executor;

use super::{node_of, recovery_of, recovery_on};
use crate::harness::failing::{fail_at, fail_no_more, wait_at};
use crate::harness::{Scratch, until};

/// As the owner, leases all refunds to a node that died. Their leases have lapsed.
pub async fn lapse(scratch: &Scratch, which: &str) {
    scratch
        .sql(&format!(
            "update refundd.refunds set state = 'sending', attempts = 1, lease_epoch = 1, lease_node = 'dead#1', lease_until = now() - interval '1 second'
              where {which}"
        ))
        .await;
}

/// As the owner, makes all refunds `unknown` after one send. No inquiry is planned.
pub async fn make_unknown(scratch: &Scratch) {
    lapse(scratch, "true").await;
    scratch.sql("update refundd.refunds set state = 'unknown', lease_node = null, lease_until = null").await;
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
    assert_eq!(recovery.pass().await.unwrap().lapsed, 0, "they rest a minute");
    assert_eq!(recovery_of(&scratch).await.pass().await.unwrap().lapsed, 2);
}

#[tokio::test]
async fn many_refunds_that_postgres_refuses_do_not_keep_the_other_moves_waiting() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    scratch.insert("acme", "R-", 60).await;
    lapse(&scratch, "true").await;
    scratch
        .sql("update refundd.refunds set lease_until = now() - interval '1 hour' + id * interval '1 second'")
        .await;
    fail_at(&scratch, "old.id <= 25 and old.state = 'sending'").await;
    let mut recovery = recovery_of(&scratch).await;
    until("the others end", async || {
        recovery.pass().await.unwrap();
        scratch.count(State::Sending).await == 25
    })
    .await;
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
    scratch.sql("alter function refundd.stepped_forward rename to missing").await;
    let mut recovery = recovery_of(&scratch).await;
    let error = recovery.pass().await.unwrap_err();
    assert_eq!(error.to_string(), "look for passed deadlines");
    assert_eq!(scratch.count(State::Review).await, 2, "the lapsed ones are shown");
    let full = "select count(*) from refundd.channels where full_since is not null";
    assert_eq!(scratch.number(full).await, 1);
    scratch.sql("alter function refundd.missing rename to stepped_forward").await;
    assert_eq!(recovery.pass().await.unwrap().expired, 1);
}

#[tokio::test]
async fn a_node_that_stops_while_recovery_fails_does_not_show_the_failure_until_its_end() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    scratch.insert("acme", "R-", 1).await;
    lapse(&scratch, "true").await;
    fail_at(&scratch, "old.state = 'sending'").await;
    let node = node_of(&scratch);
    let shows = |is: u8| {
        let page = node.metrics.page(&Readings::default(), PageFormat::PlainText);
        page.contains(&format!("\nrefundd_recovery_failing {is}\n"))
    };
    let heartbeat = tokio::spawn(Heartbeat::new(node.clone(), BucketKind::Redis).run());
    let recovery = tokio::spawn(recovery_on(node.clone()).run());
    until("recovery fails", async || shows(1)).await;
    node.stop.cancel();
    recovery.await.unwrap();
    assert!(shows(0));
    heartbeat.await.unwrap();
}

/// A move of recovery: what makes a channel and its refunds ready for it, and what is true of a refund that moved.
type Moved = (&'static str, &'static str);

/// Whether Postgres fails at one of five refunds, and the others move.
async fn others_move(scratch: &Scratch, (setup, is_moved): Moved) {
    for statement in setup.split(';') {
        scratch.sql(statement).await;
    }
    fail_at(scratch, &format!("new.id = 2 and new.{is_moved}")).await;
    let moved = format!("select count(*) from refundd.refunds where {is_moved}");
    let mut recovery = recovery_of(scratch).await;
    recovery.pass().await.unwrap();
    assert_eq!(scratch.number(&moved).await, 4, "{is_moved} after: {setup}");
    fail_no_more(scratch).await;
    recovery.pass().await.unwrap();
    assert_eq!(scratch.number(&moved).await, 4, "a refund that Postgres refused rests a minute");
    recovery_of(scratch).await.pass().await.unwrap();
    assert_eq!(scratch.number(&moved).await, 5, "{is_moved} in the end, after: {setup}");
}

#[tokio::test]
async fn a_refund_at_which_postgres_fails_keeps_no_other_from_failing_after_its_deadline() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    scratch.insert("acme", "R-", 5).await;
    let late = "update refundd.refunds set deadline_at = now() - interval '1 second'";
    others_move(&scratch, (late, "state = 'failed'")).await;
}

#[tokio::test]
async fn a_refund_at_which_postgres_fails_keeps_no_other_from_being_shown_or_planned() {
    const MOVES: [Moved; 5] = [
        ("update refundd.channels set on_unknown = 'review'", "state = 'review'"),
        ("update refundd.refunds set state = 'accepted', due_at = now() - interval '1 second'", "state = 'review'"),
        ("update refundd.channels set inquires = true, on_unknown = 'inquire'", "inquire_at is not null"),
        (
            "update refundd.channels set on_unknown = 'resend', resend_within = interval '1 hour';
             update refundd.refunds set first_sent_at = now(), inquire_at = now() + interval '1 hour'",
            "inquire_at is null",
        ),
        (
            "update refundd.channels set on_unknown = 'resend', resend_within = interval '1 hour';
             update refundd.refunds set first_sent_at = now(), inquire_at = now() + interval '1 hour';
             insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, started_at, outcome, code)
             select id, 'acme', 'send', 1, 1, 'dead', now(), 'succeeded', 'mapped' from refundd.refunds",
            "state = 'review'",
        ),
    ];
    for moved in MOVES {
        let scratch = Scratch::new().await;
        scratch.publish("acme").await;
        scratch.insert("acme", "R-", 5).await;
        make_unknown(&scratch).await;
        others_move(&scratch, moved).await;
    }
}

#[tokio::test]
async fn a_refund_whose_deadline_passed_and_that_waits_for_a_lock_keeps_no_other_from_failing() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    scratch.insert("acme", "R-", 4).await;
    scratch.sql("update refundd.refunds set deadline_at = now() - interval '1 second'").await;
    wait_at(&scratch, "old.id = 3 and new.state = 'failed'").await;
    let mut other = scratch.connect().await;
    other.execute("select pg_advisory_lock(7)").await.unwrap();
    let mut recovery = recovery_of(&scratch).await;
    // Each statement waits three seconds for the lock, so one pass has no time to find the one refund.
    until("the others fail", async || {
        let _ = recovery.pass().await;
        scratch.count(State::Failed).await == 3
    })
    .await;
    other.execute("select pg_advisory_unlock(7)").await.unwrap();
    assert_eq!(recovery.pass().await.unwrap().expired, 1, "it does not rest a minute");
}
