//! Permits for other services, from the same limit and ledger as the permits for refunds.

use refundd::refund::State;
use serde_json::json;

use super::channel;
use crate::harness::{Scratch, TestNode, until};

#[tokio::test]
async fn other_services_and_refunds_share_one_limit_and_one_ledger() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", &channel("permits = 5").replace("\"1s\"", "\"1h\"")).await;
    let answer = node.post("/v1/limits/acme/acquire", &json!({ "permits": 2, "caller": "checkout" })).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.json()["granted"], 2);
    let left = answer.headers["ratelimit"].to_str().unwrap().strip_prefix("\"acme\";r=3;t=").unwrap();
    assert!((1..=3600).contains(&left.parse::<u32>().unwrap()), "{left}");
    assert_eq!(answer.headers["ratelimit-policy"], "\"acme\";q=5;w=3600");
    scratch.insert("acme", "R-", 10).await;
    until("the hour's other three went to refunds", async || scratch.count(State::Succeeded).await == 3)
        .await;
    let answer = node.post("/v1/limits/acme/acquire", &json!({})).await;
    assert_eq!(answer.status, 429, "{}", answer.text);
    assert!(answer.json()["retry_after_ms"].as_u64().unwrap() > 1000);
    assert!(answer.headers["retry-after"].to_str().unwrap().parse::<u32>().unwrap() >= 1);
    let spent =
        "select count(*) filter (where caller = 'checkout') * 100 + count(refund_id) from refundd.permits";
    assert_eq!(scratch.number(spent).await, 203);
    let channels = node.get("/v1/channels").await.json();
    assert_eq!(channels["channels"][0]["waits_for"]["limit"], "acme", "{channels}");
    node.stop().await;
}

#[tokio::test]
async fn a_wish_for_permits_is_all_or_nothing_and_refused_in_words() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", &channel("permits = 5").replace("\"1s\"", "\"1h\"")).await;
    assert_eq!(node.post("/v1/limits/acme/acquire", &json!({ "permits": 4 })).await.status, 200);
    assert_eq!(node.post("/v1/limits/acme/acquire", &json!({ "permits": 2 })).await.status, 429);
    assert_eq!(node.post("/v1/limits/acme/acquire", &json!({ "permits": 1 })).await.status, 200);
    let never = node.post("/v1/limits/acme/acquire", &json!({ "permits": 6 })).await;
    assert_eq!(never.status, 422, "{}", never.text);
    let unknown = node.post("/v1/limits/acne/acquire", &json!({})).await;
    assert_eq!(unknown.status, 404);
    assert!(unknown.json()["detail"].as_str().unwrap().contains("there are: acme"), "{}", unknown.text);
    node.stop().await;
    let unlimited = "[limit.acme]\npermits = -1\n[channel.acme]\nendpoint = \"http://{bank}/acme/refunds\"\nlimits = [\"acme\"]\n";
    let node = TestNode::start(&scratch, "b", unlimited).await;
    let needless = node.post("/v1/limits/acme/acquire", &json!({})).await;
    assert_eq!(needless.status, 404);
    assert!(needless.text.contains("unlimited (`permits = -1`) and needs no permits"), "{}", needless.text);
    node.stop().await;
}
