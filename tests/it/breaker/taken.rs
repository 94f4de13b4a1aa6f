//! A bank that gives one reference to several refunds, or a `bank_ref` that points at something else.

use std::time::Duration;

use playground::bank::Step;
use refundd::refund::State;

use super::{NEVER_PROBED, arrived, events, is_open, one_by_one, trips};
use crate::harness::{Scratch, TestNode, until};

fn with_reference(breaker: &str) -> String {
    one_by_one(breaker) + "bank_ref = \"/id\"\n"
}

fn same() -> Step {
    // Slow enough for the settler of a busy machine to refuse the reference before many more are sent.
    Step::answers(200, r#"{"status":"succeeded","id":"B-1"}"#).and_pays().after(Duration::from_millis(100))
}

/// Makes the breaker's probe due.
async fn probe_now(scratch: &Scratch) {
    scratch.sql("update refundd.suspensions set probe_at = now()").await;
}

/// Sends so many refunds one after the other, so that their outcomes are written in this order.
async fn send_one_by_one(scratch: &Scratch, count: i64) {
    for nth in 1..=count {
        scratch.insert("acme", &format!("R{nth}-"), 1).await;
        until("it is settled", async || {
            scratch.count(State::Succeeded).await + scratch.count(State::Review).await == nth
        })
        .await;
    }
}

#[tokio::test]
async fn a_bank_that_gives_all_refunds_one_reference_is_stopped_after_a_few_of_them() {
    let scratch = Scratch::new().await;
    scratch.bank.then("acme", same());
    let node = TestNode::start(&scratch, "a", &with_reference(NEVER_PROBED)).await;
    scratch.insert("acme", "R-", 200).await;
    trips(&scratch).await;
    until("nothing is under lease", async || scratch.count(State::Sending).await == 0).await;
    assert_eq!(scratch.count(State::Succeeded).await, 1);
    let shown = scratch.count(State::Review).await;
    // The next ones are sent while the reference of the third is refused.
    assert!((3..100).contains(&shown), "{shown} in review");
    let reason = scratch.text("select reason from refundd.suspended").await;
    let begins = "nobody can be sure what the bank did with 3 refunds one after the other, the last with: ";
    assert!(reason.starts_with(begins) && reason.contains("belongs to refund 1"), "{reason}");
    node.stop().await;
}

#[tokio::test]
async fn a_probe_that_is_answered_with_a_taken_reference_leaves_the_breaker_open() {
    let scratch = Scratch::new().await;
    scratch.bank.then("acme", same());
    let node = TestNode::start(&scratch, "a", &with_reference(NEVER_PROBED)).await;
    scratch.insert("acme", "R-", 200).await;
    trips(&scratch).await;
    until("nothing is under lease", async || scratch.count(State::Sending).await == 0).await;
    let sent = arrived(&scratch);
    for nth in 1..=2 {
        probe_now(&scratch).await;
        until("a person sees the probe", async || {
            scratch.count(State::Succeeded).await + scratch.count(State::Review).await
                == i64::try_from(sent + nth).unwrap()
        })
        .await;
        assert_eq!((arrived(&scratch), events(&scratch).await.as_str()), (sent + nth, "breaker_tripped"));
    }
    scratch.bank.then("acme", Step::pays());
    probe_now(&scratch).await;
    until("the rest is paid", async || scratch.count(State::Ready).await == 0).await;
    assert_eq!(events(&scratch).await, "breaker_tripped breaker_ended");
    node.stop().await;
}

#[tokio::test]
async fn a_probe_whose_refund_has_the_reference_already_closes_the_breaker() {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", std::iter::repeat_n(Step::rejects(), 5));
    scratch.bank.then("acme", same());
    let node = TestNode::start(&scratch, "a", &with_reference(NEVER_PROBED)).await;
    scratch.insert("acme", "R-", 6).await;
    trips(&scratch).await;
    until("nothing is under lease", async || scratch.count(State::Sending).await == 0).await;
    // As if the answer to an earlier send had named it.
    scratch.sql("update refundd.refunds set bank_ref = 'B-1' where state = 'ready'").await;
    probe_now(&scratch).await;
    until("it is paid", async || scratch.count(State::Succeeded).await == 1).await;
    assert_eq!(events(&scratch).await, "breaker_tripped breaker_ended");
    node.stop().await;
}

#[tokio::test]
async fn a_success_without_a_reference_does_not_begin_the_count_anew() {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", [same(), same(), same(), Step::pays(), same()]);
    let node = TestNode::start(&scratch, "a", &with_reference(NEVER_PROBED)).await;
    send_one_by_one(&scratch, 5).await;
    assert_eq!((scratch.count(State::Succeeded).await, scratch.count(State::Review).await), (2, 3));
    trips(&scratch).await;
    node.stop().await;
}

#[tokio::test]
async fn a_reference_of_its_own_begins_the_count_anew() {
    let scratch = Scratch::new().await;
    let own = |body| Step::answers(200, body).and_pays();
    let (second, third) =
        (own(r#"{"status":"succeeded","id":"B-2"}"#), own(r#"{"status":"succeeded","id":"B-3"}"#));
    scratch.bank.next("acme", [same(), same(), same(), second, same(), same(), third]);
    let node = TestNode::start(&scratch, "a", &with_reference(NEVER_PROBED)).await;
    send_one_by_one(&scratch, 7).await;
    assert_eq!(scratch.count(State::Review).await, 4);
    assert!(!is_open(&scratch).await);
    node.stop().await;
}
