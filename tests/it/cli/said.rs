//! What commands and answers say names the field, the value and the way out.

use super::{file, refundd, text};
use crate::dispatch::UNLIMITED;
use crate::harness::{Scratch, TestNode};

#[tokio::test]
async fn the_log_quotes_reasons_and_writes_all_times_alike() {
    let scratch = Scratch::with_refunds(0).await;
    let config = file(&scratch.file("a", UNLIMITED));
    let pause = ["pause", "acme", "--for", "2h", "--reason", "the bank: books nothing"];
    assert!(refundd(config.path(), &pause).status.success());
    for args in [&["log"][..], &["log", "--json"]] {
        let said = text(&refundd(config.path(), args));
        assert!(!said.contains("+00:00") && said.contains("until"), "{said}");
        assert!(said.contains("\"the bank: books nothing\""), "{said}");
    }
}

#[tokio::test]
async fn review_show_tells_the_evidence_in_words_and_programs_ask_for_json() {
    let scratch = Scratch::with_refunds(1).await;
    scratch.to_review("true").await;
    let config = file(&scratch.file("a", UNLIMITED));
    let said = text(&refundd(config.path(), &["review", "show", "R-1"]));
    for words in
        ["Refund 1, R-1, is review", "amount ", "saved for channel `acme`", "refundd review settle 1@"]
    {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!said.contains('{') && !said.contains("null"), "{said}");
    let json = refundd(config.path(), &["review", "show", "R-1", "--json"]);
    assert!(text(&json).contains("\"refund_ref\": \"R-1\""), "{}", text(&json));
}

#[tokio::test]
async fn a_list_of_a_channel_that_was_never_run_is_not_found() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    for list in ["events", "refunds", "proposals"] {
        let answer = node.get(&format!("/v1/{list}?channel=nope")).await;
        assert_eq!(answer.status, 404, "{list}: {answer:?}");
        assert_eq!(answer.json()["type"], "urn:refundd:problem:no-such-channel", "{list}: {answer:?}");
        assert!(answer.text.contains("`nope`"), "{list}: {answer:?}");
        assert_eq!(node.get(&format!("/v1/{list}?channel=acme")).await.status, 200, "{list}");
    }
    node.stop().await;
}
