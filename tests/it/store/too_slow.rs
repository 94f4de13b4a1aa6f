//! Outcomes on which Postgres works for longer than the session allows.

use std::sync::Arc;
use std::time::Duration;

use refundd::metrics::Metrics;
use refundd::node::Node;
use refundd::refund::{Outcome, State};
use refundd::settler::Settler;
use refundd::store::Settled;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::{claim, limited_scratch_with, settled_all, unlimited};
use crate::harness::{Scratch, until};

/// From now on, Postgres sleeps for so many seconds at each new line of the journal, which is `new`.
async fn sleep_at_each_line(scratch: &Scratch, seconds: &str) {
    let function = format!(
        "create function public.takes_long() returns trigger language plpgsql as $$ begin perform pg_sleep({seconds}); return null; end $$"
    );
    scratch.sql(&function).await;
    scratch
        .sql("create trigger takes_long after insert on refundd.attempts for each row execute function public.takes_long()")
        .await;
}

#[tokio::test]
async fn outcomes_on_which_postgres_works_too_long_together_are_written_in_halves() {
    let scratch = limited_scratch_with(40).await;
    let taken: Vec<_> = (1..=40).map(unlimited).collect();
    let claimed = claim(&scratch, "a", &taken).await;
    // 40 lines take 4 s, and a statement may take 3.5 s.
    sleep_at_each_line(&scratch, "0.1").await;
    let node = Node::new("a", scratch.store.clone(), scratch.bucket(), Arc::new(Metrics::default()));
    let (outcomes, inbox) = mpsc::channel(Settler::INBOX);
    for one in settled_all(&claimed, &Outcome::Succeeded) {
        outcomes.send(one).await.unwrap();
    }
    drop(outcomes);
    let writes = tokio::time::timeout(Duration::from_mins(1), Settler::new(node, inbox).run());
    writes.await.expect("the outcomes are written");
    assert_eq!(scratch.count(State::Succeeded).await, 40);
    assert_eq!(scratch.number("select count(*) from refundd.attempts").await, 40);
}

/// 40 outcomes, of which the third takes longer than a statement may, and a settler that has written those before it and the one after
/// it. The others are left to send.
async fn slow_third() -> (Scratch, mpsc::Sender<Settled>, JoinHandle<()>, Vec<Settled>) {
    let scratch = limited_scratch_with(40).await;
    let taken: Vec<_> = (1..=40).map(unlimited).collect();
    let claimed = claim(&scratch, "a", &taken).await;
    sleep_at_each_line(&scratch, "case when new.refund_id = 3 then 60 else 0 end").await;
    let node = Node::new("a", scratch.store.clone(), scratch.bucket(), Arc::new(Metrics::default()));
    let (outcomes, inbox) = mpsc::channel(Settler::INBOX);
    let settler = tokio::spawn(Settler::new(node, inbox).run());
    let mut all = settled_all(&claimed, &Outcome::Succeeded);
    let later = all.split_off(4);
    for one in all {
        outcomes.send(one).await.unwrap();
    }
    until("those beside it are settled", async || scratch.count(State::Succeeded).await == 3).await;
    (scratch, outcomes, settler, later)
}

/// The backend that sleeps now, and when its statement began; empty if none sleeps.
const SLEEPS: &str = "select coalesce(min(pid || ' ' || query_start), '') from pg_stat_activity
                       where datname = current_database() and wait_event = 'PgSleep'";

/// Waits until Postgres sleeps in another statement than `seen`, and answers in which.
async fn next_sleep(scratch: &Scratch, seen: &str) -> String {
    let mut sleeps = String::new();
    until("Postgres works on the slow outcome again", async || {
        sleeps = scratch.text(SLEEPS).await;
        !sleeps.is_empty() && sleeps != seen
    })
    .await;
    sleeps
}

/// Lets the slow outcome be written, and waits until all are.
async fn ends_quickly(scratch: &Scratch, outcomes: mpsc::Sender<Settled>, settler: JoinHandle<()>, all: i64) {
    scratch
        .sql("create or replace function public.takes_long() returns trigger language plpgsql as $$ begin return null; end $$")
        .await;
    until("the slow one is settled, too", async || scratch.count(State::Succeeded).await == all).await;
    drop(outcomes);
    settler.await.unwrap();
    assert_eq!(scratch.number("select count(*) from refundd.attempts").await, all);
}

#[tokio::test]
async fn an_outcome_on_which_postgres_works_too_long_alone_keeps_no_other_from_settling() {
    let (scratch, outcomes, settler, later) = slow_third().await;
    let (mut sleeps, mut is_beside, mut settled) = (String::new(), false, 3);
    // A try lasts 3.5 s. Where the machine is too slow for the first part, the next part has another try.
    for part in later.chunks(12) {
        if !is_beside {
            sleeps = next_sleep(&scratch, &sleeps).await;
        }
        for one in part {
            outcomes.send(one.clone()).await.unwrap();
        }
        settled += i64::try_from(part.len()).unwrap();
        until("those after it are settled", async || scratch.count(State::Succeeded).await == settled).await;
        is_beside |= scratch.text(SLEEPS).await == sleeps;
    }
    assert!(is_beside, "they waited until a try of the slow one was over");
    assert_eq!(scratch.count(State::Sending).await, 1);
    ends_quickly(&scratch, outcomes, settler, 40).await;
}

#[tokio::test]
async fn an_outcome_whose_row_is_free_again_is_settled_before_the_slow_one_that_was_set_aside_with_it() {
    let (scratch, outcomes, settler, mut later) = slow_third().await;
    let mut other = scratch.connect().await;
    sqlx::raw_sql("begin; select from refundd.refunds where id = 5 for update")
        .execute(&mut other)
        .await
        .unwrap();
    outcomes.send(later.remove(0)).await.unwrap();
    let waits = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    until("it waits for its row", async || scratch.number(waits).await > 0).await;
    until("it is set aside", async || scratch.number(waits).await == 0).await;
    let tried = next_sleep(&scratch, &scratch.text(SLEEPS).await).await;
    sqlx::raw_sql("commit").execute(&mut other).await.unwrap();
    next_sleep(&scratch, &tried).await;
    assert_eq!(scratch.count(State::Succeeded).await, 4, "it is settled before the slow one is tried again");
    assert_eq!(scratch.count(State::Sending).await, 36);
    ends_quickly(&scratch, outcomes, settler, 4 + 1).await;
}
