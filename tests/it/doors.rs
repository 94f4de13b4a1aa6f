//! What a person or a program gives by mistake is refused by its name, and changes nothing.

use refundd::refund::State;
use serde_json::json;

use crate::cli::{file, refundd, text};
use crate::dispatch::UNLIMITED;
use crate::harness::{Scratch, TestNode};

#[tokio::test]
async fn a_route_that_reads_no_query_refuses_one() {
    let scratch = Scratch::with_refunds(1).await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    let order = json!({ "to": "acme", "all": true, "reason": "r", "by": "ann" });
    for (path, name) in [
        ("/v1/channels/acme/move?dry_run=true", "dry_run"),
        ("/v1/channels/acme/pause?for_seconds=600", "for_seconds"),
        ("/v1/refunds/1/cancel?version=4", "version"),
        ("/v1/refunds?x", "x"),
    ] {
        let refused = node.post(path, &order).await;
        assert_eq!(
            (refused.status.as_u16(), &refused.json()["errors"][0]["field"]),
            (422, &json!(name)),
            "{path}: {refused:?}"
        );
    }
    for path in ["/v1/channels?channel=acme", "/v1/suspensions?channel=acme", "/v1/refunds/1?a=b"] {
        assert_eq!(node.get(path).await.status, 422, "{path}");
    }
    // Probes, scrapers and browsers add what they like.
    for path in ["/health/live?x=1", "/metrics?x=1", "/?x=1", "/v1/channels?", "/v1/channels"] {
        assert_eq!(node.get(path).await.status, 200, "{path}");
    }
    assert_eq!(scratch.number("select count(*) from refundd.channels where paused_at is not null").await, 0);
    node.stop().await;
}

#[tokio::test]
async fn a_decision_with_a_field_that_stands_twice_or_an_entry_that_is_wrong_decides_nothing() {
    let scratch = Scratch::with_refunds(2).await;
    scratch.to_review("true").await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    let twice = r#"{"refunds": [{"id": 1, "version": 3}], "refunds": [{"id": 2, "version": 3}], "state": "failed", "reason": "r", "by": "ann"}"#;
    let refused = node.request(axum::http::Method::POST, "/v1/review", "application/json", twice).await;
    assert!(refused.status == 400 && refused.text.contains("field `refunds` is given twice"), "{refused:?}");
    let entries = json!([{ "id": 1, "version": 3 }, { "id": 2, "version": "3" }]);
    let body = json!({ "refunds": entries, "state": "failed", "reason": "r", "by": "ann" });
    let refused = node.post("/v1/review", &body).await;
    let named = &refused.json()["errors"][0];
    assert_eq!(
        (&named["field"], &named["value"]),
        (&json!("refunds[1]"), &json!(r#"{"id":2,"version":"3"}"#)),
        "{refused:?}"
    );
    let body = json!({ "refunds": [{ "id": 1, "version": 3 }], "state": "failed", "reason": "r", "by": "ann and bob" });
    let refused = node.post("/v1/review", &body).await;
    assert!(refused.status == 422 && refused.text.contains("ends a name in the events"), "{refused:?}");
    for name in ["a%00b", "%FF"] {
        let refused =
            node.post(&format!("/v1/channels/{name}/pause"), &json!({ "reason": "r", "by": "ann" })).await;
        assert_eq!(refused.status, 404, "{name}: {refused:?}");
        assert_eq!(refused.json()["type"], "urn:refundd:problem:no-such-channel", "{name}: {refused:?}");
    }
    assert_eq!(scratch.count(State::Review).await, 2);
    node.stop().await;
}

#[tokio::test]
async fn a_path_whose_name_is_no_text_names_nothing_and_no_answer_repeats_a_long_name() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    let description = node.get("/v1/openapi.json").await.json();
    let mut tried = 0;
    for (path, methods) in description["paths"].as_object().unwrap() {
        let Some((before, rest)) = path.split_once('{') else { continue };
        let path = format!("{before}%FF{}", rest.split_once('}').unwrap().1);
        for method in methods.as_object().unwrap().keys() {
            let answer =
                if method == "get" { node.get(&path).await } else { node.post(&path, &json!({})).await };
            let status = if path.starts_with("/v1/refunds/") { 422 } else { 404 };
            assert_eq!(answer.status, status, "{method} {path}: {answer:?}");
            let kind = answer.json()["type"].as_str().unwrap().to_owned();
            let expected = if status == 422 { "invalid" } else { "no-such-" };
            assert!(
                kind.starts_with(&format!("urn:refundd:problem:{expected}")),
                "{method} {path}: {answer:?}"
            );
            tried += 1;
        }
    }
    assert!(tried >= 8, "{description}");
    let long = "x".repeat(200);
    for answer in [
        node.get(&format!("/v1/channels/{long}")).await,
        node.post(&format!("/v1/limits/{long}/acquire"), &json!({})).await,
    ] {
        let problem = answer.json();
        assert_eq!((answer.status.as_u16(), &problem["status"]), (404, &json!(404)), "{answer:?}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(&long[..63]) && !detail.contains(&long[..64]), "{answer:?}");
    }
    node.stop().await;
}

#[tokio::test]
async fn a_command_that_lacks_its_words_changes_nothing() {
    let scratch = Scratch::with_refunds(1).await;
    scratch.to_review("true").await;
    let config = file(&scratch.file("a", UNLIMITED));
    let settle = ["review", "settle", "1@3", "--as", "failed", "--reason", "r"];
    let long = "x".repeat(401);
    for (args, words) in [
        (
            &["review", "settle", "-", "--as", "succeeded", "--reason", "r"][..],
            "standard input names nothing",
        ),
        (&["review", "approve", "-", "--reason", "r"], "standard input names nothing"),
        (&[&settle[..], &["--by", " "]].concat(), "--by is empty"),
        (&[&settle[..], &["--by", "Desk: ann"]].concat(), "--by holds `: `"),
        (&[&settle[..6], &[&long]].concat(), "--reason has 401 characters, and may have 400"),
        (
            &["review", "--channel", "acme", "settle", "1@3", "--as", "failed", "--reason", "r"],
            "write them after the subcommand",
        ),
    ] {
        let refused = refundd(config.path(), args);
        assert!(!refused.status.success() && text(&refused).contains(words), "{args:?}: {}", text(&refused));
    }
    assert_eq!(scratch.count(State::Review).await, 1);
}
