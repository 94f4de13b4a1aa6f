//! Outcomes at which Postgres fails, though it takes others.

use std::sync::Arc;

use refundd::metrics::Metrics;
use refundd::node::Node;
use refundd::refund::{Outcome, State};
use refundd::settler::Settler;
use tokio::sync::mpsc;

use super::{claim, limited_scratch_with, settled_all, unlimited};
use crate::harness::failing::{fail_at, fail_no_more};
use crate::harness::until;

#[tokio::test]
async fn an_outcome_at_which_postgres_fails_keeps_no_other_from_settling_and_settles_when_that_is_mended() {
    let scratch = limited_scratch_with(40).await;
    let taken: Vec<_> = (1..=40).map(unlimited).collect();
    let claimed = claim(&scratch, "a", &taken).await;
    fail_at(&scratch, "new.id in (3, 7) and new.state = 'succeeded'").await;
    let node = Node::new("a", scratch.store.clone(), scratch.bucket(), Arc::new(Metrics::default()));
    let (outcomes, inbox) = mpsc::channel(Settler::INBOX);
    let settler = tokio::spawn(Settler::new(node, inbox).run());
    let mut all = settled_all(&claimed, &Outcome::Succeeded);
    let later = all.split_off(20);
    for one in all {
        outcomes.send(one).await.unwrap();
    }
    until("those beside them are settled", async || scratch.count(State::Succeeded).await == 18).await;
    for one in later {
        outcomes.send(one).await.unwrap();
    }
    until("those after them are settled", async || scratch.count(State::Succeeded).await == 38).await;
    assert_eq!(scratch.count(State::Sending).await, 2);
    fail_no_more(&scratch).await;
    until("so are these", async || scratch.count(State::Succeeded).await == 40).await;
    drop(outcomes);
    settler.await.unwrap();
    assert_eq!(scratch.number("select count(*) from refundd.attempts").await, 40);
}
