//! Answers to inquiries that Postgres does not take at once.

use playground::bank::Step;
use refundd::refund::State;
use rustix::process::Signal;
use sqlx::Executor;

use super::{ASKS, age, is};
use crate::harness::failing::{fail_at, fail_no_more, wait_at};
use crate::harness::{NodeProcess, Scratch, until};

/// A node that asks the bank about refund 1, which the bank has paid.
async fn asks(scratch: &Scratch, channels: &str) -> NodeProcess {
    let node = NodeProcess::start(scratch, "a", channels);
    scratch.bank.next("acme", [Step::pays_but_says_500()]);
    scratch.insert("acme", "R-", 1).await;
    is(scratch, State::Unknown, 1).await;
    age(scratch, "10 seconds").await;
    node
}

/// Waits until the journal has the answer to the first inquiry, and the refund has succeeded. If the lease of that inquiry is over, the
/// answer to another one moves the refund, before or after.
async fn first_is_kept(scratch: &Scratch) {
    let lines = "select count(*) from refundd.attempts where kind = 'inquiry' and number = 1 and outcome = 'succeeded'";
    until("the first answer is in the journal", async || scratch.number(lines).await == 1).await;
    is(scratch, State::Succeeded, 1).await;
}

#[tokio::test]
async fn an_answer_that_the_bank_has_a_refund_is_kept_while_a_rule_of_somebody_refuses_it() {
    let scratch = Scratch::new().await;
    scratch
        .sql("alter table refundd.attempts add constraint somebodys_rule check (kind <> 'inquiry' or outcome <> 'succeeded')")
        .await;
    let node = asks(&scratch, ASKS).await;
    node.wait_for_line("Failed to write that the bank has refund 1");
    scratch.sql("alter table refundd.attempts drop constraint somebodys_rule").await;
    first_is_kept(&scratch).await;
}

#[tokio::test]
async fn an_answer_that_the_bank_has_a_refund_outlives_its_lease_while_postgres_fails_at_it() {
    let scratch = Scratch::new().await;
    fail_at(&scratch, "new.state = 'succeeded'").await;
    let node = asks(&scratch, &format!("{ASKS}lease = \"7s\"\n")).await;
    node.wait_for_line("Failed to write that the bank has refund 1");
    fail_no_more(&scratch).await;
    first_is_kept(&scratch).await;
}

#[tokio::test]
async fn a_node_that_stops_still_writes_that_the_bank_has_a_refund_once_its_row_is_free() {
    let scratch = Scratch::new().await;
    wait_at(&scratch, "new.state = 'succeeded'").await;
    let mut holder = scratch.connect().await;
    holder.execute("select pg_advisory_lock(7)").await.unwrap();
    let mut node = asks(&scratch, ASKS).await;
    // When the try began that waits now, in microseconds since 1970; 0 if none waits.
    let waits_since =
        "select coalesce(max((extract(epoch from query_start) * 1000000)::bigint), 0) from pg_stat_activity a
          join pg_locks l on l.pid = a.pid and l.locktype = 'advisory' and l.objid = 7 and not l.granted
         where a.datname = current_database()";
    until("the answer waits", async || scratch.number(waits_since).await > 0).await;
    node.signal(Signal::TERM);
    node.wait_for_line("Stopping");
    let mut first = 0;
    until("it waits while the node stops", async || {
        first = scratch.number(waits_since).await;
        first > 0
    })
    .await;
    until("it is tried again", async || scratch.number(waits_since).await > first).await;
    holder.execute("select pg_advisory_unlock(7)").await.unwrap();
    assert!(node.wait().success());
    first_is_kept(&scratch).await;
}
