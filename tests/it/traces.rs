//! The trace of a refund: from its caller to the bank, and to a collector of OpenTelemetry.

mod collector;
mod lost;

use std::time::{Duration, Instant};

use hyper::Method;
use playground::bank::Step;
use refundd::refund::State;
use serde_json::json;
use sqlx::{Connection, Executor};

use crate::harness::node::refund;
use crate::harness::{Scratch, TestNode, until, window_lasts, within};
use collector::{Collector, Seen};

const GIVEN: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
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

fn traced(collector: &str) -> String {
    format!("[telemetry]\notlp = \"http://{collector}\"\n{CHANNEL}")
}

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

#[tokio::test]
async fn spans_reach_the_collector_under_the_trace_that_the_bank_sees() {
    window_lasts(3_600, 60).await;
    let scratch = Scratch::new().await;
    scratch.bank.next_for("acme", "R-1", [Step::rejects()]);
    scratch.bank.next_for("acme", "R-2", [Step::answers(503, "{}")]);
    let collector = Collector::start().await;
    let channel = format!("{}{NOT_EXECUTED}", traced(&collector.address));
    let node = TestNode::start(&scratch, "a", &channel).await;
    save(&node, "R-1", &[("traceparent", GIVEN)]).await;
    save(&node, "R-2", &[]).await;
    // Its caller records nothing.
    save(&node, "R-3", &[("traceparent", &GIVEN.replace("-01", "-00"))]).await;
    until("all are sent", async || {
        scratch.count(State::Succeeded).await == 2 && scratch.count(State::Failed).await == 1
    })
    .await;
    for granted in [200, 429] {
        let headers = [("content-type", "application/json"), ("traceparent", GIVEN)];
        let answer = node.request_with(Method::POST, "/v1/limits/tight/acquire", &headers, "{}").await;
        assert_eq!(answer.status, granted, "{}", answer.text);
    }
    until("the spans arrive", async || collector.spans().len() == 5).await;
    let spans = collector.spans();
    let sends: Vec<&Seen> = spans.iter().filter(|span| span.name == "refundd.send").collect();
    let [with, first, without] = ["rejected", "not_executed", "succeeded"]
        .map(|outcome| *sends.iter().find(|span| span.values["refundd.outcome"] == outcome).unwrap());

    assert_eq!((with.trace_id.as_str(), with.parent_id.as_str()), (TRACE, "b7ad6b7169203331"));
    assert_eq!((with.kind, with.error.as_str()), (3, "rejected"));
    let got = at_the_bank(&scratch);
    assert_eq!(
        got[0].2,
        format!("00-{TRACE}-{}-01", with.span_id),
        "the bank's parent is the span of its send"
    );
    assert!(got[1].2.is_empty() && got[2].2.is_empty(), "a refund without a trace shows none to the bank");
    assert_eq!(
        got[3].2,
        GIVEN.replace("-01", "-00"),
        "nothing was recorded, so the caller's span stays the parent"
    );

    assert_eq!(first.trace_id, without.trace_id, "the sends of one refund have one trace");
    let request_id =
        scratch.text("select request_id::text from refundd.refunds where refund_ref = 'R-2'").await;
    assert_ne!(without.trace_id, request_id.replace('-', ""), "the bank alone gets the key");
    assert_eq!((without.parent_id.as_str(), without.error.as_str()), ("", ""));
    let id = scratch.text("select id::text from refundd.refunds where refund_ref = 'R-2'").await;
    for (name, value) in [
        ("refundd.channel", "acme"),
        ("refundd.refund_id", id.as_str()),
        ("refundd.attempt", "2"),
        ("refundd.code", "succeeded"),
        ("http.response.status_code", "200"),
        ("service.name", "refundd"),
    ] {
        assert_eq!(without.values[name], value, "{name}: {:?}", without.values);
    }
    assert!(without.values["refundd.wait"].parse::<f64>().unwrap() >= 0.0);
    assert!(without.nanoseconds < 60_000_000_000, "{}", without.nanoseconds);

    let acquired: Vec<_> = spans.iter().filter(|span| span.name == "refundd.acquire").collect();
    let outcomes: Vec<&str> = acquired.iter().map(|span| span.values["refundd.outcome"].as_str()).collect();
    assert_eq!(outcomes, ["granted", "refused"]);
    assert!(acquired.iter().all(|span| span.trace_id == TRACE && span.kind == 2));
    assert_eq!(acquired[0].values["refundd.limit"], "tight");
    node.stop().await;
}

#[tokio::test]
async fn a_span_ends_with_the_banks_answer_while_postgres_is_slow_to_note_that_the_channel_cools() {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", [Step::too_many(1).after(Duration::from_secs(1))]);
    let collector = Collector::start().await;
    let node = TestNode::start(&scratch, "a", &traced(&collector.address)).await;
    scratch.insert("acme", "R-", 1).await;
    until("the bank has it", async || scratch.bank.look(|l| l.all().len()) == 1).await;
    let mut held = scratch.connect().await;
    let mut holds = held.begin().await.unwrap();
    holds.execute("select from refundd.channels where channel = 'acme' for update").await.unwrap();
    until("the span arrives", async || !collector.spans().is_empty()).await;
    holds.rollback().await.unwrap();
    let span = collector.spans().remove(0);
    assert_eq!(span.values["http.response.status_code"], "429");
    // The node waits 3.5 s for Postgres; the bank has answered after 1 s.
    assert!(span.nanoseconds < 3_000_000_000, "{}", span.nanoseconds);
    node.stop().await;
}

#[tokio::test]
async fn spans_that_wait_when_the_node_stops_are_sent() {
    let scratch = Scratch::new().await;
    let collector = Collector::start().await;
    let node = TestNode::start(&scratch, "a", &traced(&collector.address)).await;
    scratch.insert("acme", "R-", 300).await;
    until("all are sent", async || scratch.count(State::Succeeded).await == 300).await;
    node.stop().await;
    // An export that the stop cut off is sent again.
    let ids: std::collections::BTreeSet<_> =
        collector.spans().into_iter().map(|span| (span.trace_id, span.span_id)).collect();
    assert_eq!(ids.len(), 300);
}

#[tokio::test]
async fn a_collector_that_hangs_delays_no_refund_and_no_stop() {
    let scratch = Scratch::new().await;
    let collector = Collector::that_hangs().await;
    let node = TestNode::start(&scratch, "a", &traced(&collector.address)).await;
    scratch.insert("acme", "R-", 1).await;
    until("the collector has a request", async || collector.requests() > 0).await;
    // More than the queue of spans has room for.
    scratch.insert("acme", "S-", 4_000).await;
    within(Duration::from_mins(3), "all are sent", async || scratch.count(State::Succeeded).await == 4_001)
        .await;
    let began = Instant::now();
    assert!(node.stop().await.still_leased.is_empty());
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_collector_that_is_away_gets_the_spans_that_come_after_it_is_back() {
    let scratch = Scratch::new().await;
    let place = Collector::start().await.leave().await;
    let node = TestNode::start(&scratch, "a", &traced(&place)).await;
    scratch.insert("acme", "R-", 3).await;
    until("all are sent", async || scratch.count(State::Succeeded).await == 3).await;
    let collector = Collector::start_at(&place).await;
    let mut saved = 0;
    until("a span arrives", async || {
        saved += 1;
        scratch.insert("acme", &format!("S{saved}-"), 1).await;
        !collector.spans().is_empty()
    })
    .await;
    node.stop().await;
}
