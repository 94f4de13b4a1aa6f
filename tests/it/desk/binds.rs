//! What binds a channel is measured: a limit, a quota, the slots, or the way to the bank.

use std::time::Duration;

use playground::bank::Step;
use playground::forward::{Distance, Forward, Target};
use refundd::config::Config;
use serde_json::Value;

use crate::harness::{Scratch, TestNode, until};

fn channel(rule: &str, more: &str) -> String {
    format!(
        "[limit.acme]\n{rule}\n[channel.acme]\nendpoint = \"http://{{bank}}/acme/refunds\"\nlimits = [\"acme\"]\n{more}\n"
    )
}

async fn acme(node: &TestNode) -> Value {
    let answer = node.get("/v1/channels/acme").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

/// Waits until this binds the channel, and answers its status.
async fn bound_by(node: &TestNode, what: &str) -> Value {
    let mut seen = Value::Null;
    until(&format!("{what} binds the channel"), async || {
        seen = acme(node).await;
        if seen["binds"] != what {
            println!("{} {}", seen["binds"], seen["binds_share"]);
        }
        seen["binds"] == what
    })
    .await;
    seen
}

#[tokio::test]
async fn a_pace_binds_as_a_limit_and_an_idle_channel_is_bound_by_nothing() {
    let scratch = Scratch::new().await;
    let channels = channel("algorithm = \"paced\"\npermits = 5\nper = \"1s\"", "");
    let node = TestNode::start(&scratch, "a", &channels).await;
    assert_eq!(acme(&node).await["binds"], "nothing");
    scratch.insert("acme", "R-", 600).await;
    let status = bound_by(&node, "limit").await;
    assert_eq!(status["binds_limit"], "acme", "{status}");
    until("the share is large", async || acme(&node).await["binds_share"].as_f64().unwrap_or(0.0) > 0.8)
        .await;
    // The story of a refund says over which time: what bound the channel may have ended just now.
    let words = "; the channel is bound by limit `acme`, ";
    until("the story says so", async || {
        let found = node.get("/v1/refunds/find?q=R-600").await.json();
        let text = found["story"]["waits_for"]["text"].as_str().unwrap_or_default();
        text.contains(words) && text.contains(" % of the last ")
    })
    .await;
    let metrics = node.get("/metrics").await.text;
    assert!(metrics.contains("refundd_channel_bound{channel=\"acme\",by=\"limit\"} 1"), "{metrics}");
    scratch.pause("acme", "maintenance", "ann").await;
    bound_by(&node, "paused").await;
    node.stop().await;
}

#[tokio::test]
async fn a_used_up_day_binds_as_a_quota() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", &channel("permits = 5\nper = \"1d\"", "")).await;
    scratch.insert("acme", "R-", 20).await;
    let status = bound_by(&node, "quota").await;
    assert_eq!(status["binds_limit"], "acme");
    until("it is running", async || acme(&node).await["state"] == "running").await;
    node.stop().await;
}

#[tokio::test]
async fn a_bank_of_a_second_and_a_half_with_sixteen_slots_binds_as_in_flight() {
    let scratch = Scratch::new().await;
    scratch.bank.then("acme", Step::pays().after(Duration::from_millis(1500)));
    let more = "max_in_flight = 16\ntimeout = \"10s\"";
    let node = TestNode::start(&scratch, "a", &channel("permits = 50\nper = \"1s\"", more)).await;
    scratch.insert("acme", "R-", 2_000).await;
    bound_by(&node, "in_flight").await;
    until("the bank's time is known", async || acme(&node).await["bank"]["bank_p50_ms"].is_number()).await;
    let status = acme(&node).await;
    let p50 = status["bank"]["bank_p50_ms"].as_f64().unwrap();
    assert!((1_300.0..2_200.0).contains(&p50), "{status}");
    until("the forecast counts 16 requests in a second and a half, not 50 a second", async || {
        let status = acme(&node).await;
        let drain = status["expected_seconds_to_drain"].as_f64().unwrap();
        let left = status["backlog"].as_f64().unwrap();
        (left / 12.0..left / 6.0).contains(&drain)
    })
    .await;
    node.stop().await;
}

#[tokio::test]
async fn a_far_bank_binds_as_bank() {
    // Only with TLS does this machine notice how long a connection takes to set up.
    let scratch = Scratch::over(true).await;
    let way = Forward::to(Target::Tcp(scratch.bank.address())).unwrap();
    let there = Duration::from_millis(150);
    way.set_distance(Distance { set_up: 2 * there, there, back: there, jitter: Duration::ZERO });
    // The bank closes each connection, so every request sets up another one.
    scratch.bank.then("acme", Step::pays().and_hangs_up());
    let more = "max_in_flight = 4\ntimeout = \"10s\"";
    let text = scratch.file("a", &channel("permits = 200\nper = \"1s\"", more));
    let text = text.replace(&scratch.bank.address().to_string(), &way.address().to_string());
    let config = Config::parse(&text, "test.toml", &|_| None).unwrap_or_else(|error| panic!("{error}"));
    let node = TestNode::run(config).await;
    scratch.insert("acme", "R-", 2_000).await;
    bound_by(&node, "bank").await;
    node.stop().await;
}
