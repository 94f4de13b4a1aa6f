//! Outcomes on which Postgres works for longer than the session allows.

use std::sync::Arc;
use std::time::Duration;

use refundd::metrics::Metrics;
use refundd::node::Node;
use refundd::refund::{Outcome, State};
use refundd::settler::Settler;
use tokio::sync::mpsc;

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

#[tokio::test]
async fn an_outcome_on_which_postgres_works_too_long_alone_keeps_no_other_from_settling() {
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
    for one in later {
        outcomes.send(one).await.unwrap();
    }
    until("those after it are settled", async || scratch.count(State::Succeeded).await == 39).await;
    assert_eq!(scratch.count(State::Sending).await, 1);
    scratch
        .sql("create or replace function public.takes_long() returns trigger language plpgsql as $$ begin return null; end $$")
        .await;
    until("so is this one", async || scratch.count(State::Succeeded).await == 40).await;
    drop(outcomes);
    settler.await.unwrap();
    assert_eq!(scratch.number("select count(*) from refundd.attempts").await, 40);
}
