//! What waits for a second person is shown.

use refundd::refund::{RefundId, State};
use serde_json::{Value, json};

use super::events::age;
use super::{SEEN, approve, propose, ready, uncertain, withdraw};
use crate::cli::{file, refundd, text};
use crate::dispatch::UNLIMITED;
use crate::harness::{TestNode, until};

#[tokio::test]
async fn list_command_and_metrics_show_what_waits_for_a_second_person() {
    let scratch = uncertain(2).await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    let config = file(&scratch.file("a", UNLIMITED));
    let run = |args: &[&str]| text(&refundd(config.path(), &[&["review"][..], args].concat()));
    let first = propose(&scratch, &ready(1, "ann")).await;
    propose(&scratch, &ready(2, "eve")).await;
    let page = node.get("/v1/proposals?limit=1").await.json();
    let shown = &page["proposals"][0];
    for (field, value) in [
        ("id", json!(first.id.0)),
        ("refund_id", json!(1)),
        ("refund_ref", json!("R-1")),
        ("channel", json!("acme")),
        ("amount_minor", json!(101)),
        ("currency", json!("EUR")),
        ("version", json!(SEEN)),
        ("state_now", json!("review")),
        ("state", json!("ready")),
        ("not_executed", json!(true)),
        ("needed_for", json!("uncertain")),
        ("by", json!("ann")),
        ("reason", json!("acme has no such refund")),
    ] {
        assert_eq!(shown[field], value, "{field}: {page}");
    }
    let next = node.get(&format!("/v1/proposals?after={}", page["next"].as_str().unwrap())).await.json();
    assert_eq!(
        (next["proposals"].as_array().map(Vec::len), &next["next"]),
        (Some(1), &Value::Null),
        "{next}"
    );
    let metric = "refundd_proposals_waiting{channel=\"acme\"} 2";
    until("the metric says two", async || node.get("/metrics").await.text.contains(metric)).await;
    let list = run(&[]);
    for part in [
        &format!("{}@{SEEN}", first.id),
        "review to ready, confirmed not executed, by ann",
        "2 decisions wait for a second person",
    ] {
        assert!(list.contains(part), "{part}: {list}");
    }
    let lines = run(&["proposals", "--json"]);
    assert_eq!(lines.lines().count(), 2, "{lines}");
    assert!(!run(&["--json"]).contains("needed_for"), "programs that read refunds meet no proposal");
    assert!(
        run(&["approve", &first.id.to_string(), "--reason", "r", "--by", "bob"]).contains("name the version")
    );
    let seen = format!("{}@{SEEN}", first.id);
    assert!(
        run(&["approve", &seen, "--reason", "acme told me, too", "--by", "bob"]).contains("is ready now")
    );
    let withdrawn =
        run(&["withdraw", &(first.id.0 + 1).to_string(), "--reason", "acme found it", "--by", "ann"]);
    assert!(withdrawn.contains("about refund 2 is withdrawn"), "{withdrawn}");
    assert_eq!(run(&["proposals"]), "Nothing waits for a second person.\n");
    node.stop().await;
}

#[tokio::test]
async fn the_story_of_a_refund_says_what_became_of_each_proposal() {
    let scratch = uncertain(5).await;
    let mut made = Vec::new();
    for refund in 1..=5 {
        made.push(propose(&scratch, &ready(refund, "ann")).await.id);
    }
    withdraw(&scratch, made[1], "bob").await;
    // Somebody decides otherwise, and the proposal is void.
    scratch.decide(RefundId(3), State::Failed, "acme found it", "eve").await;
    approve(&scratch, made[3], "bob").await;
    age(&scratch, 5).await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    let config = file(&scratch.file("cli", UNLIMITED));
    for (refund, became) in [
        (1, None),
        (2, Some("withdrawn by bob")),
        (3, Some("void: the refund changed, and nobody had approved it")),
        (4, Some("approved by bob")),
        (5, Some("expired: nobody approved it in time")),
    ] {
        let found = node.get(&format!("/v1/refunds/find?q=R-{refund}")).await.json();
        let happened = found["story"]["happened"].as_array().unwrap_or_else(|| panic!("{found}"));
        let proposed = happened.iter().find(|one| one["evidence"]["outcome"] == "proposed").unwrap();
        assert_eq!(proposed["became"].as_str(), became, "{proposed}");
        let shown = text(&refundd(config.path(), &["show", &format!("R-{refund}")]));
        let page = node.get(&format!("/refunds/{refund}")).await.text;
        if let Some(words) = became {
            assert!(shown.contains(&format!("({words})")), "{words}: {shown}");
            assert!(page.contains(words), "{words}: {page}");
        }
    }
    node.stop().await;
}
