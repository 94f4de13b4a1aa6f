//! Everything that suspends a channel is named with the command and the request that end it.

use std::time::Duration;

use refundd::store::{OwnSuspension, SuspendedBy};
use serde_json::json;

use super::{acme, run};
use crate::dispatch::UNLIMITED;
use crate::harness::{Scratch, TestNode, until};

/// The breaker suspends the channel, and probes the bank in a minute.
async fn tripped(scratch: &Scratch) {
    let own = OwnSuspension::Breaker { kind: "rejected", probe: Duration::from_mins(1), age: Duration::ZERO };
    assert!(scratch.store.suspend(&acme(), own, "20 refusals", "node-a").await.unwrap());
}

#[tokio::test]
async fn the_answer_to_a_resume_names_what_holds_the_channel_and_what_ends_it() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    tripped(&scratch).await;
    let body = json!({ "reason": "the bank is back", "by": "ann" });
    let answer = node.post("/v1/channels/acme/resume", &body).await.json();
    assert_eq!(answer["result"], "was_not_suspended", "{answer}");
    let message = answer["message"].as_str().unwrap_or_default();
    for words in [
        "channel `acme` was not paused",
        "nothing was changed",
        "suspended by its breaker",
        r#"POST /v1/channels/acme/resume with {"lift": "breaker"}"#,
    ] {
        assert!(message.contains(words), "{words}: {answer}");
    }
    let held = &answer["suspensions"][0];
    assert_eq!((&held["suspended_by"], &held["lift"]), (&json!("breaker"), &json!("breaker")), "{answer}");
    let end = held["end_with"].as_str().unwrap_or_default();
    assert_eq!(end, "refundd resume acme --breaker", "{answer}");
    // A pause of everything is ended by another route.
    scratch.pause_all(&refundd::store::Pause { reason: "an alarm", who: "ann", lasts: None }).await;
    let answer = node.post("/v1/channels/acme/resume", &body).await.json();
    let message = answer["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("POST /v1/resume") && message.contains("everything is paused by ann"),
        "{answer}"
    );
    scratch.resume_all("ann").await;
    let lift = json!({ "lift": "breaker", "by": "ann" });
    let ended = node.post("/v1/channels/acme/resume", &lift).await.json();
    assert_eq!((&ended["result"], &ended["suspensions"]), (&json!("resumed"), &json!([])), "{ended}");
    let message = ended["message"].as_str().unwrap_or_default();
    let free = "channel `acme` is not suspended by its breaker any more; nothing suspends it";
    assert!(message.starts_with(free), "{ended}");
    node.stop().await;
}

#[tokio::test]
async fn a_pause_or_a_resume_that_is_written_and_cannot_be_read_back_says_that_it_is_written() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    let body = json!({ "reason": "an alarm", "by": "ann" });
    let paused = "select count(*) from refundd.suspended where source in ('person', 'all')";
    for (channel, is_paused) in [("/channels/acme", "channel `acme` is paused"), ("", "everything is paused")]
    {
        for (verb, result, count, said) in
            [("pause", "paused", 1, is_paused), ("resume", "resumed", 0, "is not paused any more")]
        {
            // Only the reads of suspensions use it.
            scratch.sql("alter function refundd.slow_share rename to slow_share_elsewhere").await;
            let answer = node.post(&format!("/v1{channel}/{verb}"), &body).await;
            scratch.sql("alter function refundd.slow_share_elsewhere rename to slow_share").await;
            assert_eq!(answer.status, 503, "{answer:?}");
            let problem = answer.json();
            assert_eq!(problem["type"], "urn:refundd:problem:written-unread", "{problem}");
            assert_eq!(problem["result"], result, "{problem}");
            let detail = problem["detail"].as_str().unwrap_or_default();
            assert!(detail.contains(said) && detail.contains("this is written"), "{problem}");
            assert_eq!(scratch.number(paused).await, count, "{verb}{channel}");
        }
    }
    // Nothing was there to end, so nothing was written.
    scratch.sql("alter function refundd.slow_share rename to slow_share_elsewhere").await;
    assert_eq!(node.post("/v1/resume", &body).await.status, 500);
    scratch.sql("alter function refundd.slow_share_elsewhere rename to slow_share").await;
    node.stop().await;
}

#[tokio::test]
async fn the_status_names_the_command_that_ends_a_suspension_and_the_next_probe() {
    let scratch = Scratch::with_refunds(0).await;
    tripped(&scratch).await;
    for args in [&["status"][..], &["status", "acme"]] {
        let (_, said) = run(&scratch, UNLIMITED, args);
        for words in [
            "acme is suspended by its breaker",
            "20 refusals",
            "the next probe in ",
            "End it with: refundd resume acme --breaker",
        ] {
            assert!(said.contains(words), "{args:?}: {words}: {said}");
        }
    }
    scratch.store.release("acme", SuspendedBy::Breaker, "ann", None).await.unwrap();
    scratch.pause("acme", "the bank's maintenance", "ann").await;
    until("the pause is named", async || {
        let (_, said) = run(&scratch, UNLIMITED, &["status"]);
        said.contains("End it with: refundd resume acme\n")
    })
    .await;
}
