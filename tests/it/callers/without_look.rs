//! A caller that may save or cancel refunds, and not look at them, reads no refund of another caller.

use refundd::caller::token::Token;
use serde_json::{Value, json};

use super::{CallerTables, post};
use crate::harness::Scratch;
use crate::harness::node::refund;

#[tokio::test]
async fn a_caller_that_may_not_look_learns_no_content_of_the_refunds_of_others() {
    let scratch = Scratch::new().await;
    let mut callers = CallerTables::new();
    let shop = callers.caller("shop", "may = [\"enqueue\"]\nchannels = [\"acme\"]");
    let stopper = callers.caller("stopper", "may = [\"cancel\"]\nchannels = [\"acme\"]");
    let desk = callers.caller("desk", "may = [\"enqueue\", \"look\", \"cancel\"]\nchannels = [\"acme\"]");
    let node = callers.node(&scratch).await;
    let mut of_the_desk = refund("R-1", "acme");
    of_the_desk["payload"] = json!({ "note": "for the bank" });
    let saved = post(&node, &desk, "/v1/refunds", &of_the_desk).await;
    assert_eq!(saved.status, 201, "{saved:?}");
    let id = saved.json()["id"].clone();

    let guess = json!({ "refund_ref": "R-1", "channel": "acme", "payment_ref": "P-2", "amount_minor": 1, "currency": "USD" });
    let conflict = async |token: &Token| {
        let one = post(&node, token, "/v1/refunds", &guess).await;
        assert_eq!(one.status, 409, "{one:?}");
        let one = one.json();
        assert_eq!(one["differs"], json!(["payment_ref", "amount_minor", "currency", "payload"]), "{one}");
        let many = post(&node, token, "/v1/refunds/batch", &json!([guess])).await.json();
        assert_eq!((&one["id"], &many[0]["id"]), (&id, &id), "{one} {many}");
        [&one["detail"], &many[0]["errors"][0]["message"]].map(|text| text.as_str().unwrap().to_owned())
    };
    for text in conflict(&shop).await {
        let names = "with other content: payment_ref, amount_minor, currency, payload";
        assert!(text.ends_with(names), "{text}");
    }
    for text in conflict(&desk).await {
        assert!(text.contains("amount_minor (saved 1250, sent 1)"), "{text}");
    }

    // The second cancellation finds the refund cancelled, so every version is answered.
    let path = format!("/v1/refunds/{id}/cancel");
    for body in [json!({}), json!({ "version": 0 })] {
        let cancelled = post(&node, &stopper, &path, &body).await;
        assert_eq!(cancelled.status, 200, "{cancelled:?}");
        assert_eq!(cancelled.json(), json!({ "id": id, "state": "cancelled", "version": 2 }));
    }
    let cancelled = post(&node, &desk, &path, &Value::Null).await.json();
    assert_eq!((&cancelled["refund_ref"], &cancelled["version"]), (&json!("R-1"), &json!(2)), "{cancelled}");
    node.stop().await;
}

#[tokio::test]
async fn a_caller_that_may_not_look_gets_the_whole_refund_that_it_saves_or_repeats() {
    let scratch = Scratch::new().await;
    let mut callers = CallerTables::new();
    let shop = callers.caller("shop", "may = [\"enqueue\"]\nchannels = [\"acme\"]");
    let node = callers.node(&scratch).await;
    for status in [201, 200] {
        let answer = post(&node, &shop, "/v1/refunds", &refund("R-1", "acme")).await;
        assert_eq!(answer.status, status, "{answer:?}");
        let saved = answer.json();
        assert_eq!((&saved["payment_ref"], &saved["amount_minor"]), (&json!("P-1"), &json!(1250)), "{saved}");
    }
    node.stop().await;
}
