//! A cancellation that meets a refund while it moves.

use serde_json::json;

use crate::callers::post_form;
use crate::dispatch::UNLIMITED;
use crate::harness::{Scratch, TestNode};

/// The next so many tries to cancel find no refund that is ready, as if it were sending at each of them.
async fn misses(scratch: &Scratch, tries: u32) {
    scratch.sql(&format!("select setval('public.misses', {})", 1_000 - tries)).await;
}

#[tokio::test]
async fn a_cancellation_that_met_its_refund_while_it_was_sending_is_not_too_late() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    scratch.pause("acme", "so that they stay ready", "test").await;
    scratch.insert("acme", "R-", 3).await;
    for statement in [
        "create sequence public.misses",
        "alter function refundd.cancel rename to cancels",
        "create function refundd.cancel(
             refunds bigint[], seen integer, why text, who text, of_channels text[], never_sent boolean) returns setof refundd.refunds
         language plpgsql security definer as $$
         begin
             if nextval('public.misses') > 1000 then
                 return query select * from refundd.cancels(refunds, seen, why, who, of_channels, never_sent);
             end if;
         end $$",
        "grant execute on function refundd.cancel to public",
    ] {
        scratch.sql(statement).await;
    }
    for (id, body) in [(1, json!({})), (2, json!({ "version": 1 }))] {
        misses(&scratch, 3).await;
        let cancelled = node.post(&format!("/v1/refunds/{id}/cancel"), &body).await;
        let state = cancelled.json()["state"].clone();
        assert_eq!((cancelled.status.as_u16(), state), (200, json!("cancelled")), "{cancelled:?}");
    }
    // It moves on and on. The caller may repeat the request, and so may a person whose form cancels only what was never sent.
    misses(&scratch, 4).await;
    let form = post_form(&node, None, "/refunds/3/cancel", "version=1&reason=twice&by=ann").await;
    assert!(form.status == 409 && form.text.contains("repeat the request"), "{form:?}");
    misses(&scratch, 4).await;
    let moving = node.post("/v1/refunds/3/cancel", &json!({})).await;
    let problem = moving.json();
    assert_eq!((moving.status.as_u16(), &problem["state"]), (409, &json!("ready")), "{moving:?}");
    assert_eq!(problem["type"], "urn:refundd:problem:changed");
    assert!(problem["detail"].as_str().unwrap().contains("repeat the request"), "{problem}");
    assert!(moving.headers.contains_key("retry-after"), "{moving:?}");
    assert_eq!(node.post("/v1/refunds/3/cancel", &json!({})).await.status, 200);
    node.stop().await;
}
