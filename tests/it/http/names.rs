//! The names of people, in the bodies of requests.

use serde_json::json;

use crate::dispatch::UNLIMITED;
use crate::harness::{Scratch, TestNode};

#[tokio::test]
async fn a_name_that_would_not_end_where_its_reason_begins_is_refused_by_every_route_that_takes_one() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    let seen = json!([{ "id": 1, "version": 1 }]);
    for (path, body) in [
        ("/v1/refunds/1/cancel", json!({})),
        ("/v1/review", json!({ "refunds": seen, "state": "failed" })),
        ("/v1/proposals/approve", json!({ "proposals": seen })),
        ("/v1/proposals/withdraw", json!({ "proposals": [1] })),
        ("/v1/channels/acme/move", json!({ "to": "other", "refund_refs": ["R-1"] })),
        ("/v1/channels/acme/pause", json!({})),
        ("/v1/channels/acme/resume", json!({})),
        ("/v1/pause", json!({})),
        ("/v1/resume", json!({})),
    ] {
        for by in ["ann and bob", "ann: because"] {
            let mut body = body.clone();
            (body["reason"], body["by"]) = (json!("a test"), json!(by));
            let answer = node.post(path, &body).await;
            assert_eq!(
                (answer.status.as_u16(), &answer.json()["errors"][0]["field"]),
                (422, &json!("by")),
                "{path}"
            );
            assert_eq!(answer.json()["errors"].as_array().map(Vec::len), Some(1), "{path}: {answer:?}");
        }
    }
    node.stop().await;
}
