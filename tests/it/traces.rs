//! The trace of a refund, from its caller to the bank.

use hyper::Method;
use playground::bank::Step;
use refundd::refund::State;
use serde_json::json;

use crate::harness::node::refund;
use crate::harness::{Scratch, TestNode, until};

const GIVEN: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const CHANNEL: &str = r#"
[limit.tight]
permits = 1
per = "1h"
[channel.acme]
endpoint = "http://{bank}/acme/refunds"
limits = []
timeout = "2s"
retry = { base = "20ms", cap = "100ms", sends = 5 }
"#;

async fn save(node: &TestNode, refund_ref: &str, headers: &[(&str, &str)]) {
    let headers = [&[("content-type", "application/json")][..], headers].concat();
    let body = refund(refund_ref, "acme").to_string();
    let answer = node.request_with(Method::POST, "/v1/refunds", &headers, &body).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
}

/// What the bank got as `traceparent`, by ref and attempt.
fn at_the_bank(scratch: &Scratch) -> Vec<(String, u32, String)> {
    let text = |text: &str| text.to_owned();
    let ledger = scratch.bank.ledger();
    let mut seen: Vec<_> =
        ledger.all().iter().map(|a| (text(&a.refund_ref), a.attempt, text(&a.traceparent))).collect();
    seen.sort();
    seen
}

#[tokio::test]
async fn a_traceparent_is_kept_with_its_refund_and_every_send_carries_it() {
    let scratch = Scratch::new().await;
    scratch.bank.next_for("acme", "R-1", [Step::answers(503, "{}"), Step::answers(503, "{}")]);
    let node = TestNode::start(&scratch, "a", &format!("{CHANNEL}{NOT_EXECUTED}")).await;
    save(&node, "R-1", &[("traceparent", GIVEN)]).await;
    // Another caller's repeat changes nothing.
    let again = refund("R-1", "acme").to_string();
    let other = GIVEN.replace("0af7", "1111");
    let headers = [("content-type", "application/json"), ("traceparent", other.as_str())];
    assert_eq!(node.request_with(Method::POST, "/v1/refunds", &headers, &again).await.status, 200);
    let batch = json!([refund("R-2", "acme"), refund("R-3", "acme")]).to_string();
    let headers = [("content-type", "application/json"), ("traceparent", GIVEN)];
    let answer = node.request_with(Method::POST, "/v1/refunds/batch", &headers, &batch).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    until("all are sent", async || scratch.count(State::Succeeded).await == 3).await;
    let sent = |refund_ref: &str, attempt| (refund_ref.to_owned(), attempt, GIVEN.to_owned());
    let expected = [sent("R-1", 1), sent("R-1", 2), sent("R-1", 3), sent("R-2", 1), sent("R-3", 1)];
    assert_eq!(at_the_bank(&scratch), expected);
    assert!(scratch.bank.ledger().altered().is_empty());
    let kept =
        "select string_agg(distinct traceparent, ' ') from refundd.refunds where traceparent is not null";
    assert_eq!(scratch.text(kept).await, GIVEN);
    node.stop().await;
}

const NOT_EXECUTED: &str = "[[channel.acme.verdict]]\nstatus = 503\noutcome = \"not_executed\"\n";

#[tokio::test]
async fn a_bad_traceparent_is_ignored_and_its_refund_is_sent() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", CHANNEL).await;
    save(&node, "R-1", &[]).await;
    save(&node, "R-2", &[("traceparent", &GIVEN.to_uppercase())]).await;
    save(&node, "R-3", &[("traceparent", "00-00000000000000000000000000000000-b7ad6b7169203331-01")]).await;
    save(&node, "R-4", &[("traceparent", GIVEN), ("traceparent", GIVEN)]).await;
    save(&node, "R-5", &[("traceparent", &"x".repeat(2000))]).await;
    until("all are sent", async || scratch.count(State::Succeeded).await == 5).await;
    assert!(at_the_bank(&scratch).iter().all(|(_, _, parent)| parent.is_empty()));
    node.stop().await;
}
