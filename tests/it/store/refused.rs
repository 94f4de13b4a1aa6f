//! Outcomes that Postgres refuses, or at which it fails, though it takes others.

use std::sync::Arc;

use refundd::bucket::Purpose;
use refundd::metrics::Metrics;
use refundd::node::Node;
use refundd::refund::{ChannelName, Outcome, State};
use refundd::settler::Settler;
use refundd::store::{ClaimRequest, Settled};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::{acme, answered, claim, limited_scratch_with, settled_all, unlimited};
use crate::harness::anywhere::{add_address, claim_of};
use crate::harness::failing::{fail_at, fail_no_more};
use crate::harness::{Scratch, until};

fn node(scratch: &Scratch) -> Node {
    Node::new("a", scratch.store.clone(), scratch.bucket(), Arc::new(Metrics::default()))
}

/// A settler, and the way to its inbox.
fn settler(scratch: &Scratch) -> (mpsc::Sender<Settled>, JoinHandle<()>) {
    let node = node(scratch);
    let (outcomes, inbox) = mpsc::channel(Settler::INBOX);
    (outcomes, tokio::spawn(Settler::new(node, inbox).run()))
}

#[tokio::test]
async fn an_outcome_at_which_postgres_fails_keeps_no_other_from_settling_and_settles_when_that_is_mended() {
    let scratch = limited_scratch_with(40).await;
    let taken: Vec<_> = (1..=40).map(unlimited).collect();
    let claimed = claim(&scratch, "a", &taken).await;
    fail_at(&scratch, "new.id in (3, 7) and new.state = 'succeeded'").await;
    let (outcomes, settler) = settler(&scratch);
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

#[tokio::test]
async fn an_outcome_that_a_rule_of_somebody_refuses_is_kept_and_settles_with_its_reference_when_the_rule_is_gone()
 {
    let scratch = limited_scratch_with(1).await;
    let claimed = claim(&scratch, "a", &[unlimited(1)]).await;
    scratch
        .sql("alter table refundd.attempts add constraint somebodys_rule check (outcome <> 'succeeded')")
        .await;
    let (outcomes, settler) = settler(&scratch);
    outcomes.send(answered(&claimed, Outcome::Succeeded, Some("B-1")).remove(0)).await.unwrap();
    // Each try takes a number for its line.
    let tries = "select coalesce(pg_sequence_last_value(pg_get_serial_sequence('refundd.attempts', 'id')::regclass), 0)";
    until("it is refused, and tried again", async || scratch.number(tries).await >= 2).await;
    assert_eq!(scratch.count(State::Sending).await, 1);
    scratch.sql("alter table refundd.attempts drop constraint somebodys_rule").await;
    until("it is settled", async || scratch.count(State::Succeeded).await == 1).await;
    assert_eq!(scratch.text("select bank_ref from refundd.refunds").await, "B-1");
    drop(outcomes);
    settler.await.unwrap();
}

#[tokio::test]
async fn an_outcome_whose_line_gets_a_number_that_the_journal_has_settles_under_a_later_one() {
    let scratch = limited_scratch_with(2).await;
    let first = claim(&scratch, "a", &[unlimited(1)]).await;
    scratch.store.settle("a", &answered(&first, Outcome::Succeeded, None), false).await.unwrap();
    // As in a logical copy.
    scratch
        .sql("select setval(pg_get_serial_sequence('refundd.attempts', 'id'), max(id), false) from refundd.attempts")
        .await;
    let second = claim(&scratch, "a", &[unlimited(2)]).await;
    let (outcomes, settler) = settler(&scratch);
    outcomes.send(answered(&second, Outcome::Succeeded, Some("B-2")).remove(0)).await.unwrap();
    drop(outcomes);
    settler.await.unwrap();
    assert_eq!(scratch.count(State::Succeeded).await, 2);
    assert_eq!(scratch.text("select bank_ref from refundd.refunds where id = 2").await, "B-2");
}

#[tokio::test]
async fn a_channel_whose_outcomes_postgres_refuses_uses_up_its_own_slots_and_its_neighbour_goes_on() {
    let scratch = limited_scratch_with(600).await;
    let globex = ChannelName::new("globex").unwrap();
    scratch.publish("globex").await;
    add_address(&scratch, "globex").await;
    scratch.insert("globex", "G-", 20).await;
    let refused = claim(&scratch, "a", &(1..=600).map(unlimited).collect::<Vec<_>>()).await;
    let first = scratch.number("select min(id) from refundd.refunds where channel = 'globex'").await;
    let taken: Vec<_> = (first..first + 20).map(unlimited).collect();
    let request = ClaimRequest { channel: &globex, ..claim_of("a", &taken) };
    let claimed = scratch.store.claim_among(&request, &[]).await.unwrap();
    let mut neighbours = settled_all(&claimed, &Outcome::Succeeded);
    for one in &mut neighbours {
        one.channel = globex.clone();
    }
    assert_eq!((refused.leased.len(), neighbours.len()), (600, 20));
    fail_at(&scratch, "new.channel = 'acme' and new.state = 'succeeded'").await;
    let node = node(&scratch);
    let own = node.slots.of(&acme(), Purpose::Send, 400);
    let of_the_neighbour = node.slots.of(&globex, Purpose::Send, 400);
    let (outcomes, inbox) = mpsc::channel(Settler::INBOX);
    let later = neighbours.split_off(10);
    // All wait before the settler begins. One by one, at eight failures a second, it would come to the neighbour's after a minute.
    for one in settled_all(&refused, &Outcome::Succeeded).into_iter().chain(neighbours) {
        outcomes.send(one).await.unwrap();
    }
    let settler = tokio::spawn(Settler::new(node, inbox).run());
    until("the neighbour's are settled", async || scratch.count(State::Succeeded).await == 10).await;
    until("each refused one beyond 256 uses a slot", async || own.free() == 400 - (600 - 256)).await;
    for one in later {
        outcomes.send(one).await.unwrap();
    }
    until("the neighbour goes on", async || scratch.count(State::Succeeded).await == 20).await;
    assert_eq!((scratch.count(State::Sending).await, of_the_neighbour.free()), (600, 400));
    fail_no_more(&scratch).await;
    until("the refused ones are settled", async || scratch.count(State::Succeeded).await == 620).await;
    drop(outcomes);
    settler.await.unwrap();
    assert_eq!(own.free(), 400);
    assert_eq!(scratch.number("select count(*) from refundd.attempts").await, 620);
}
