//! The pages while counting or the read of the nodes fails: what a person does at such a time needs neither.

use refundd::refund::State;
use serde_json::json;

use super::see;
use crate::dispatch::UNLIMITED;
use crate::harness::{NodeProcess, Scratch, TestNode, http, until};

#[tokio::test]
async fn while_counting_fails_everything_can_be_stopped_and_every_refund_is_shown_with_its_forms() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    scratch.pause("acme", "bank closes", "ann").await;
    scratch.insert("acme", "R-", 2).await;
    scratch.to_review("refund_ref = 'R-2'").await;
    until("one waits for a person", async || scratch.count(State::Review).await == 1).await;
    scratch.sql("alter function refundd.counts() rename to counts_elsewhere").await;
    for (path, shown) in [
        ("/", vec!["action=\"/pause\"", "href=\"/channels/acme\"", "is suspended"]),
        (
            "/channels/acme",
            vec!["action=\"/channels/acme/pause\"", "action=\"/channels/acme/resume\"", "bank closes"],
        ),
        ("/review", vec!["action=\"/review\"", "R-2"]),
        ("/refunds/1", vec!["action=\"/refunds/1/cancel\"", "acme is paused by ann", "bank closes"]),
        ("/refunds/2", vec!["a person, who decides"]),
    ] {
        let page = see_with(&node, path, 200, &shown).await;
        let is_said = page.contains("the counts are not known: Postgres did not count them");
        assert_eq!(is_said, path != "/refunds/2", "{path}: {page}");
    }
    let found = node.get("/v1/refunds/find?q=R-1").await.json();
    assert_eq!(found["story"]["expected_at"], json!(null), "{found}");
    let awaited = &found["story"]["waits_for"];
    assert_eq!(awaited["what"], "suspension", "{found}");
    assert!(awaited["text"].as_str().is_some_and(|text| text.ends_with("bank closes")), "{found}");
    let why = &found["story"]["no_forecast_because"];
    assert_eq!(why, "the counts are not known: Postgres did not count them", "{found}");
    scratch.sql("alter function refundd.counts_elsewhere() rename to counts").await;
    node.stop().await;
}

#[tokio::test]
async fn while_the_nodes_cannot_be_read_everything_can_be_stopped_and_a_channel_resumed() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    scratch.pause("acme", "bank closes", "ann").await;
    // No number of microseconds says when this node started, so the read of the nodes fails.
    scratch
        .sql(
            "insert into refundd.nodes (node, version, channels, config_digest, started_at)
             values ('b#1', '0', '{acme}', 'd', 'infinity')",
        )
        .await;
    assert_ne!(see(&node, "/nodes").await.status, 200, "the nodes cannot be read");
    let unknown = "what happened lately is not known: Postgres did not read it";
    see_with(&node, "/", 503, &[unknown, "action=\"/pause\"", "href=\"/channels/acme\"", "is suspended"])
        .await;
    see_with(&node, "/channels/acme", 503, &[unknown, "action=\"/channels/acme/resume\"", "bank closes"])
        .await;
    node.stop().await;
}

/// The text of a page, which has all these words.
async fn see_with(node: &TestNode, path: &str, status: u16, words: &[&str]) -> String {
    let page = see(node, path).await;
    assert_eq!(page.status, status, "{path}: {page:?}");
    for part in words {
        assert!(page.text.contains(part), "{path} lacks {part}: {}", page.text);
    }
    page.text
}

#[tokio::test]
async fn while_counting_fails_the_overview_has_a_hundred_channels_and_leads_to_the_others() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    scratch
        .sql(
            "insert into refundd.channels (channel, endpoint, settings, published_by)
             select 'bank-' || n, 'http://127.0.0.1:9/', '{}', 'test' from generate_series(1, 150) n",
        )
        .await;
    scratch.sql("alter function refundd.counts() rename to counts_elsewhere").await;
    for (path, place, listed) in
        [("/", "Page 1 of 2, 151 channels", 100), ("/?q=bank-&page=2", "Page 2 of 2, 150 channels", 50)]
    {
        let page = see(&node, path).await.text;
        assert!(page.contains(place), "{path}: {page}");
        assert_eq!(page.matches("<li><a href=\"/channels/").count(), listed, "{path}: {page}");
    }
    scratch.sql("alter function refundd.counts_elsewhere() rename to counts").await;
    node.stop().await;
}

#[tokio::test]
async fn counts_that_fail_are_logged_once_a_minute() {
    let scratch = Scratch::new().await;
    let node = NodeProcess::start(&scratch, "a", UNLIMITED);
    let address = node.address().unwrap().parse().unwrap();
    scratch.sql("alter function refundd.counts() rename to counts_elsewhere").await;
    let lines = |words: &str| node.log().iter().filter(|line| line.contains(words)).count();
    until("two counts have failed", async || {
        http::get(address, "/metrics").await.unwrap();
        lines("A request failed in the store") >= 2
    })
    .await;
    let told = "Failed to count refunds: 1 failure since the last such line";
    assert_eq!((lines("Failed to count refunds"), lines(told)), (1, 1), "{:#?}", node.log());
}
