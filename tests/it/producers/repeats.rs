//! A repeat of a save is a repeat by every way of saving.

use serde_json::{Value, json};

use crate::attacks::are_refused;
use crate::dispatch::UNLIMITED;
use crate::harness::node::refund;
use crate::harness::{Scratch, TestNode};

/// Whether a call of the function saves a refund like that of [`refund`], with this payload in SQL.
async fn is_created(scratch: &Scratch, refund_ref: &str, payload: &str) -> bool {
    let call = format!(
        "select created::int::bigint from refundd.enqueue('{refund_ref}', 'acme', 'P-1', 1250, 'EUR', {payload})"
    );
    scratch.number(&call).await == 1
}

#[tokio::test]
async fn json_null_as_payload_is_the_same_as_no_payload_by_every_way() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    scratch.pause("acme", "nothing is sent", "test").await;
    let mut with_null = refund("H-1", "acme");
    with_null["payload"] = Value::Null;
    assert_eq!(node.post("/v1/refunds", &with_null).await.status, 201);
    for payload in ["'null'", "null"] {
        assert!(!is_created(&scratch, "H-1", payload).await, "{payload}");
    }
    assert!(is_created(&scratch, "S-1", "'null'").await);
    assert!(!is_created(&scratch, "S-1", "null").await);
    let mut again = refund("S-1", "acme");
    for payload in [None, Some(Value::Null)] {
        if let Some(payload) = payload {
            again["payload"] = payload;
        }
        let answer = node.post("/v1/refunds", &again).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    // Another payload is other content as ever.
    again["payload"] = json!({ "note": null });
    let conflict = node.post("/v1/refunds", &again).await;
    assert_eq!((conflict.status.as_u16(), &conflict.json()["differs"]), (409, &json!(["payload"])));
    let other = "select refundd.enqueue('S-1', 'acme', 'P-1', 1250, 'EUR', '[]')";
    assert!(scratch.sql_error(other).await.to_string().contains("with other content"));
    node.stop().await;
}

/// A retry whose payload has a new time stamp is the same refund.
#[tokio::test]
async fn a_conflict_warns_that_the_same_refund_under_another_ref_would_be_paid_twice() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    let payload = |at: u8| format!("'{{\"at\": {at}}}'");
    assert!(is_created(&scratch, "R-1", &payload(1)).await);
    let retry = format!("select refundd.enqueue('R-1', 'acme', 'P-1', 1250, 'EUR', {})", payload(2));
    let warning = "Then it is saved already, and under another ref it would be paid twice.";
    are_refused(&mut scratch.connect().await, &[(&retry, "RD001", warning)]).await;
}

#[tokio::test]
async fn a_ref_with_a_blank_that_looks_like_another_is_refused_unless_it_is_saved_already() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    scratch.pause("acme", "nothing is sent", "test").await;
    let trigger = "trigger refunds_are_what_http_takes";
    let insert = |refund_ref: &str| {
        format!(
            "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency)
             values ('{refund_ref}', 'acme', 'P-1', 1250, 'EUR') on conflict (refund_ref) do nothing"
        )
    };
    // As an earlier version took it.
    scratch.sql(&format!("alter table refundd.refunds disable {trigger}")).await;
    let old = "order\u{a0}7";
    assert_eq!(scratch.sql(&insert(old)).await, 1);
    scratch.sql(&format!("alter table refundd.refunds enable {trigger}")).await;
    assert_eq!(scratch.sql(&insert(old)).await, 0);
    assert!(!is_created(&scratch, old, "null").await);
    assert_eq!(node.post("/v1/refunds", &refund(old, "acme")).await.status, 200);
    // The plain blank is another ref, and the only one for a new refund.
    assert!(is_created(&scratch, "order 7", "null").await);
    let new = "order\u{a0}8";
    let refused = scratch.sql_error(&insert(new)).await.to_string();
    assert!(refused.contains("refund_ref holds U+00A0"), "{refused}");
    let refused = node.post("/v1/refunds", &refund(new, "acme")).await;
    let message = &refused.json()["errors"][0]["message"];
    assert!(message.as_str().is_some_and(|text| text.starts_with("holds U+00A0, a blank")), "{refused:?}");
    assert_eq!(scratch.number("select count(*) from refundd.refunds").await, 2);
    node.stop().await;
}
