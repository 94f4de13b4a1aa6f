//! What suspends a channel is read for each answer, however old the counts are.

use std::time::Duration;

use refundd::store::Pause;
use serde_json::{Value, json};

use crate::harness::{Scratch, TestNode, until, window_lasts};

/// A limit that keeps refunds waiting.
const HOURLY: &str = "[limit.acme]\npermits = 1\nper = \"1h\"\n[channel.acme]\nendpoint = \"http://{bank}/acme/refunds\"\n\
                      limits = [\"acme\"]\n";
/// More often than a count can become new by chance just before an answer: it is kept for a second at least.
const ROUNDS: usize = 5;

async fn see(node: &TestNode, path: &str) -> String {
    node.request_with(hyper::Method::GET, path, &[("accept", "text/html")], "").await.text
}

/// The text of the fact with this name.
fn fact<'p>(page: &'p str, name: &str) -> &'p str {
    let rest = page.split_once(&format!("<dt>{name}</dt><dd>"));
    let rest = rest.unwrap_or_else(|| panic!("no fact `{name}`: {page}")).1;
    rest.split_once("</dd>").unwrap().0
}

#[tokio::test]
async fn every_answer_right_after_a_pause_or_its_end_agrees_with_it() {
    window_lasts(3_600, 60).await;
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", HOURLY).await;
    scratch.insert("acme", "R-", 5).await;
    let channel = async || node.get("/v1/channels").await.json()["channels"][0].clone();
    until("the node waits for its limit, and all is counted", async || {
        let channel = channel().await;
        channel["backlog"] == 4 && channel["waits_for"].is_object()
    })
    .await;
    for _ in 0..ROUNDS {
        let stop = Pause { reason: "an alarm", who: "nina", lasts: None };
        scratch.pause_all(&stop).await;
        for channel in [channel().await, node.get("/v1/channels/acme").await.json()] {
            let said = (&channel["state"], &channel["binds"], &channel["paused"]["by"]);
            assert_eq!(said, (&json!("paused"), &json!("paused"), &json!("nina")), "{channel}");
            let forecast = (&channel["expected_seconds_to_drain"], &channel["waits_for"]);
            assert_eq!(forecast, (&Value::Null, &Value::Null), "{channel}");
            assert_eq!(channel["no_forecast_because"], "everything is paused until somebody resumes");
        }
        let found = node.get("/v1/refunds/find?q=R-5").await.json();
        assert_eq!(found["story"]["waits_for"]["what"], "suspension", "{found}");
        let overview = see(&node, "/").await;
        assert!(overview.contains(">paused</span>") && !overview.contains(">running</span>"), "{overview}");
        let page = see(&node, "/channels/acme").await;
        assert_eq!(fact(&page, "Waits for"), "the end of what suspends it");
        assert!(fact(&page, "Backlog empty in").contains("everything is paused"), "{page}");
        let stopped = "not forecast: everything is paused until somebody resumes";
        assert!(fact(&page, "Late").contains(stopped), "{page}");
        let page = see(&node, "/refunds/5").await;
        assert!(fact(&page, "Waits for").contains("everything is paused by nina"), "{page}");
        scratch.resume_all("nina").await;
        for channel in [channel().await, node.get("/v1/channels/acme").await.json()] {
            assert_eq!(
                (&channel["state"], &channel["paused"]),
                (&json!("running"), &Value::Null),
                "{channel}"
            );
            assert_eq!(channel["suspensions"], json!([]), "{channel}");
        }
        let found = node.get("/v1/refunds/find?q=R-5").await.json();
        assert_eq!(found["story"]["waits_for"]["what"], "place", "{found}");
        for path in ["/", "/channels/acme", "/refunds/5"] {
            let page = see(&node, path).await;
            assert!(!page.contains("everything is paused by"), "{path}: {page}");
        }
    }
    node.stop().await;
}

#[tokio::test]
async fn a_pause_with_an_end_moves_the_forecast_of_older_counts_and_its_end_moves_it_back() {
    window_lasts(3_600, 60).await;
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", HOURLY).await;
    scratch.insert("acme", "R-", 5).await;
    let drain = async || {
        node.get("/v1/channels/acme").await.json()["expected_seconds_to_drain"].as_i64().unwrap_or(-1)
    };
    until("there is a forecast", async || drain().await > 0).await;
    for _ in 0..ROUNDS {
        let free = drain().await;
        let ten_hours = Some(Duration::from_hours(10));
        let pause = Pause { reason: "an alarm", who: "nina", lasts: ten_hours };
        scratch.store.pause("acme", &pause).await.unwrap();
        let paused = drain().await;
        assert!(paused >= 36_000, "{free} before, {paused} after");
        scratch.resume("acme").await;
        let resumed = drain().await;
        assert!((0..=free + 2).contains(&resumed), "{free} before, {resumed} after");
    }
    node.stop().await;
}

#[tokio::test]
async fn a_refund_that_was_saved_after_the_count_has_a_forecast_and_no_other_reason() {
    window_lasts(3_600, 60).await;
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", HOURLY).await;
    scratch.insert("acme", "R-", 1).await;
    until("the permit is used", async || {
        node.get("/v1/channels/acme").await.json()["counts"]["succeeded"] == 1
    })
    .await;
    for nth in 2..2 + ROUNDS {
        node.get("/v1/channels").await;
        scratch.insert("acme", &format!("N{nth}-"), 1).await;
        let found = node.get(&format!("/v1/refunds/find?q=N{nth}-1")).await.json();
        let story = &found["story"];
        assert_eq!(story["no_forecast_because"], Value::Null, "{found}");
        assert!(story["expected_in_seconds"].as_f64() > Some(0.0), "{found}");
        let cancel = format!("/v1/refunds/{}/cancel", found["matches"][0]["refund"]["id"]);
        assert_eq!(node.post(&cancel, &json!({ "by": "ann" })).await.status, 200);
        let is_empty = async || node.get("/v1/channels/acme").await.json()["backlog"] == 0;
        until("nothing waits", is_empty).await;
    }
    node.stop().await;
}
