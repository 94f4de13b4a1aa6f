//! A bank that knows the key of a resend refuses it, and is sound all the same.

use playground::bank::Step;
use refundd::refund::State;

use super::{NEVER_PROBED, PROBED, arrived, events, one_by_one, trips};
use crate::harness::{Scratch, TestNode, until};

/// How many refunds wait to be sent again.
const RESENDS: u16 = 8;

fn resending(breaker: &str) -> String {
    let retry = "retry = { base = \"1h\", cap = \"1h\", sends = 5 }\n";
    format!("{}{retry}on_unknown = \"resend\"\nkey_retention = \"1h\"\n", one_by_one(breaker))
}

fn duplicates() -> impl Iterator<Item = Step> {
    std::iter::repeat_n(Step::answers(409, r#"{"error":"duplicate"}"#), RESENDS.into())
}

/// A node whose channel has executed [`RESENDS`] refunds without knowing it, and its breaker is off.
async fn uncertain(scratch: &Scratch) -> TestNode {
    scratch.bank.next("acme", std::iter::repeat_n(Step::pays_but_says_500(), RESENDS.into()));
    let node = TestNode::start(scratch, "a", &resending("\"off\"")).await;
    scratch.insert("acme", "R-", RESENDS.into()).await;
    until("all are unknown", async || scratch.count(State::Unknown).await == i64::from(RESENDS)).await;
    node
}

async fn are_due(scratch: &Scratch) {
    scratch.sql("update refundd.refunds set due_at = now() where state = 'unknown'").await;
}

#[tokio::test]
async fn resends_that_a_sound_bank_refuses_trip_no_breaker() {
    let scratch = Scratch::new().await;
    let node = uncertain(&scratch).await;
    node.daemon.reload(scratch.config("a", &resending(NEVER_PROBED))).await.unwrap();
    scratch.bank.next("acme", duplicates());
    are_due(&scratch).await;
    until("a person sees all", async || scratch.count(State::Review).await == i64::from(RESENDS)).await;
    scratch.insert("acme", "S-", 3).await;
    until("the others are paid", async || scratch.count(State::Succeeded).await == 3).await;
    assert_eq!(events(&scratch).await, "");
    node.stop().await;
}

#[tokio::test]
async fn a_probe_that_is_a_refused_resend_is_followed_by_the_next_at_once() {
    let scratch = Scratch::new().await;
    let node = uncertain(&scratch).await;
    let patient = PROBED.replace("1s", "4s");
    node.daemon.reload(scratch.config("a", &resending(&patient))).await.unwrap();
    scratch.bank.next("acme", std::iter::repeat_n(Step::rejects(), 5).chain(duplicates()));
    scratch.insert("acme", "S-", 5).await;
    trips(&scratch).await;
    until("nothing is under lease", async || scratch.count(State::Sending).await == 0).await;
    let before = arrived(&scratch);
    are_due(&scratch).await;
    until("a person sees all", async || scratch.count(State::Review).await == i64::from(RESENDS)).await;
    scratch.insert("acme", "T-", 3).await;
    until("the others are paid", async || scratch.count(State::Succeeded).await == 3).await;
    let times: Vec<i64> = scratch.bank.look(|l| l.all().iter().map(|a| a.at_us).collect());
    // One probe every four seconds would take half a minute for the resends.
    let took = times[before + usize::from(RESENDS) - 1] - times[before];
    assert!(took < 12_000_000, "the resends went on for {took} us");
    assert!(times[before] - times[before - 1] > 3_900_000, "the first probe is not early");
    assert_eq!(events(&scratch).await, "breaker_tripped breaker_ended");
    node.stop().await;
}
