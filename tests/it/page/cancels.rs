//! The form that cancels a refund, and the way that the page names in its place.

use super::see;
use super::steer::leads_to;
use crate::callers::post_form;
use crate::dispatch::UNLIMITED;
use crate::harness::{Scratch, TestNode};

#[tokio::test]
async fn a_form_cancels_a_refund_that_was_never_sent_and_no_other() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    scratch.pause("acme", "so that nothing is sent", "test").await;
    scratch.insert("acme", "R-", 3).await;
    let cancel =
        async |id: i64, fields: &str| post_form(&node, None, &format!("/refunds/{id}/cancel"), fields).await;
    for (fields, named) in [
        ("version=1&by=ann", "<strong>Reason</strong>"),
        ("version=1&reason=twice", "<strong>Your name</strong>"),
        ("reason=twice&by=ann", "load it again, and repeat"),
        ("version=1&reason=4111+1111+1111+1111&by=ann", "card number"),
    ] {
        let refused = cancel(1, fields).await;
        assert!(refused.status == 422 && refused.text.contains(named), "{fields}: {refused:?}");
    }
    let changed = cancel(1, "version=7&reason=twice&by=ann").await;
    assert!(changed.status == 409 && changed.text.contains("has moved since that version"), "{changed:?}");
    assert_eq!(leads_to(&cancel(1, "version=1&reason=twice&by=ann").await), "/refunds/1?done=cancelled");
    let page = see(&node, "/refunds/1?done=cancelled").await.text;
    assert!(page.contains("it is never sent") && page.contains("twice"), "{page}");
    assert!(!page.contains("Cancel this refund"), "{page}");
    // The bank executed nothing, but a byte left.
    scratch.sql("update refundd.refunds set first_sent_at = now() where id = 2").await;
    let sent = cancel(2, "version=1&reason=twice&by=ann").await;
    assert!(sent.status == 409 && sent.text.contains("was sent before"), "{sent:?}");
    assert!(sent.text.contains("POST /v1/refunds/2/cancel withdraws it"), "{sent:?}");
    assert_eq!(cancel(9, "version=1&reason=twice&by=ann").await.status, 404);
    let states = "select string_agg(state, ', ' order by id) from refundd.refunds";
    assert_eq!(scratch.text(states).await, "cancelled, ready, ready");
    let by = "select node || ': ' || message from refundd.attempts where kind = 'manual'";
    assert_eq!(scratch.text(by).await, "ann: twice");
    node.stop().await;
}

#[tokio::test]
async fn the_page_of_a_ready_refund_that_may_have_been_sent_names_only_the_way_that_withdraws_it() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    scratch.pause("acme", "so that nothing is sent", "test").await;
    scratch.insert("acme", "R-", 3).await;
    // A node died while it sent R-1: nobody knows when a byte left. The line of R-2 was dropped with its month.
    scratch.sql("update refundd.refunds set first_sent_at = now() where id in (1, 2)").await;
    scratch
        .sql(
            "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, moved_to, code)
             values (1, 'acme', 'send', 1, 1, 'b#1', 'unknown', 'unknown', 'lease_lapsed')",
        )
        .await;
    for (id, may_have_left) in [(1, true), (2, true), (3, false)] {
        let page = see(&node, &format!("/refunds/{id}")).await.text;
        let way = format!("/v1/refunds/{id}/cancel");
        assert_eq!(page.contains(&way), may_have_left, "{page}");
        assert_eq!(page.contains(&format!("action=\"/refunds/{id}/cancel\"")), !may_have_left, "{page}");
        assert_eq!(page.contains("It is never sent then"), !may_have_left, "{page}");
    }
    node.stop().await;
}
