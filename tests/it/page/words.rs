//! What the pages say to a person: refused forms in the words of their fields.

use playground::bank::Step;
use refundd::refund::State;

use crate::callers::post_form;
use crate::dispatch::UNLIMITED;
use crate::harness::{Scratch, TestNode, until};

/// A node with refunds in review that may have been executed.
async fn with_reviews(count: u32, more: &str) -> (Scratch, TestNode) {
    let scratch = Scratch::new().await;
    scratch.bank.then("acme", Step::pays_but_says_500());
    let node = TestNode::start(&scratch, "a", &format!("{UNLIMITED}{more}")).await;
    scratch.insert("acme", "R-", count).await;
    until("all wait for a person", async || scratch.count(State::Review).await == i64::from(count)).await;
    (scratch, node)
}

async fn version(scratch: &Scratch) -> i64 {
    scratch.number("select version::bigint from refundd.refunds where id = 1").await
}

#[tokio::test]
async fn a_refused_form_names_its_fields_as_the_page_shows_them_and_leads_back() {
    let (scratch, node) = with_reviews(1, "").await;
    let refund = format!("refund=1%40{}", version(&scratch).await);
    for (fields, words) in [
        (
            format!("{refund}&state=failed&confirm=not_executed&reason=r&by=ann"),
            "tick it only to send the refund again",
        ),
        (format!("{refund}&state=failed&by=ann"), "<strong>Reason</strong>: <bdi>must be a text"),
        (
            format!("{refund}&reason=r&by=ann"),
            "<strong>What became of it</strong>: <bdi>choose one of the results",
        ),
        (format!("{refund}&state=failed&reason=r"), "<strong>Your name</strong>"),
        ("state=failed&reason=r&by=ann".to_owned(), "<strong>Choose</strong>: <bdi>none is chosen"),
        (
            "refund=1&state=failed&reason=r&by=ann".to_owned(),
            "<strong>Choose</strong>: <bdi>choose at least one",
        ),
    ] {
        let refused = post_form(&node, None, "/review", &fields).await;
        assert_eq!(refused.status, 422, "{fields}: {refused:?}");
        for words in [words, "Nothing was changed", "Back button"] {
            assert!(refused.text.contains(words), "{fields}, {words}: {refused:?}");
        }
        assert!(!refused.text.contains("cannot be accepted because of"), "{refused:?}");
    }
    let unconfirmed = format!("{refund}&state=ready&reason=r&by=ann");
    let unconfirmed = post_form(&node, None, "/review", &unconfirmed).await.text;
    assert!(
        unconfirmed.contains("box about earlier sends") && !unconfirmed.contains("&quot;confirm"),
        "{unconfirmed}"
    );
    let from = format!("http://{}/review?channel=acme", node.daemon.address());
    let headers = [("accept", "text/html"), ("referer", from.as_str())];
    let lost = node.request_with(hyper::Method::GET, "/refunds/999", &headers, "").await.text;
    assert!(lost.contains("href=\"/review?channel=acme\""), "{lost}");
    node.stop().await;
}
