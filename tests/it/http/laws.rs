//! Laws that changed after a refund was saved, and laws that nodes do not have in common.

use serde_json::{Value, json};
use sqlx::Executor;

use crate::dispatch::UNLIMITED;
use crate::harness::node::{Answer, refund};
use crate::harness::{Scratch, TestNode};

fn with(refund_ref: &str, field: &str, value: Value) -> Value {
    let mut refund = refund(refund_ref, "acme");
    refund[field] = value;
    refund
}

fn statuses(batch: &Answer) -> Vec<Value> {
    batch.json().as_array().unwrap().iter().map(|item| item["status"].clone()).collect()
}

/// A caller that is told "not saved" would refund in another way.
#[tokio::test]
async fn a_repeat_of_a_saved_refund_is_recognised_after_the_laws_became_stricter() {
    let scratch = Scratch::new().await;
    let lax = format!("{UNLIMITED}max_amount_minor = {{ EUR = 5000 }}\ncard_numbers = \"accepted\"\n");
    let strict = format!("{UNLIMITED}max_amount_minor = {{ EUR = 1000 }}\n");
    let node = TestNode::start(&scratch, "a", &lax).await;
    let high = refund("R-1", "acme");
    let mut card = with("R-2", "payment_ref", json!("4111 1111 1111 1111"));
    card["amount_minor"] = json!(5);
    let mut ids = Vec::new();
    for refund in [&high, &card] {
        let saved = node.post("/v1/refunds", refund).await;
        assert_eq!(saved.status, 201, "{saved:?}");
        ids.push(saved.json()["id"].clone());
    }
    ids.push(json!(77));
    // As an earlier version took it.
    let mut blank = refund("R-3 ", "acme");
    blank["amount_minor"] = json!(7);
    let mut owner = scratch.connect().await;
    for statement in [
        "set session_replication_role = 'replica'",
        "insert into refundd.refunds (id, refund_ref, channel, payment_ref, amount_minor, currency)
         overriding system value values (77, 'R-3 ', 'acme', 'P-1', 7, 'EUR')",
    ] {
        owner.execute(statement).await.unwrap();
    }
    node.daemon.reload(scratch.config("a", &strict)).await.unwrap();
    for (refund, id) in [&high, &card, &blank].into_iter().zip(&ids) {
        let again = node.post("/v1/refunds", refund).await;
        assert_eq!((again.status.as_u16(), &again.json()["id"]), (200, id), "{again:?}");
    }
    // Other content, a ref that nobody has, and fields that nobody can read are refused as ever.
    let other = with("R-1", "amount_minor", json!(1251));
    let new = refund("R-4", "acme");
    let mut unreadable = high.clone();
    unreadable["amount"] = json!(1250);
    for (refund, field) in [(&other, "amount_minor"), (&new, "amount_minor"), (&unreadable, "amount")] {
        let refused = node.post("/v1/refunds", refund).await;
        let fields: Vec<Value> =
            refused.json()["errors"].as_array().unwrap().iter().map(|error| error["field"].clone()).collect();
        assert_eq!((refused.status.as_u16(), fields.last()), (422, Some(&json!(field))), "{refused:?}");
        assert_eq!(refused.json()["id"], Value::Null, "{refused:?}");
    }
    let good = with("R-5", "amount_minor", json!(1));
    let all = json!([other, high, new, card, good, blank, unreadable]);
    let batch = node.post("/v1/refunds/batch", &all).await;
    assert_eq!(statuses(&batch), [422, 200, 422, 200, 201, 200, 422], "{batch:?}");
    for (nth, id) in [1, 3, 5].into_iter().zip(&ids) {
        let item = &batch.json()[nth];
        assert_eq!((&item["id"], &item["errors"]), (id, &Value::Null), "{batch:?}");
    }
    assert_eq!(scratch.number("select count(*) from refundd.refunds").await, 4);
    node.stop().await;
}
