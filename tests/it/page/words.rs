//! What the pages say to a person: refused forms in the words of their fields, one thing as one, and what holds beforehand.

use playground::bank::Step;
use refundd::refund::State;
use sqlx::Executor;

use super::see;
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

#[tokio::test]
async fn the_form_of_a_decision_says_beforehand_when_a_second_person_is_needed() {
    let (scratch, node) = with_reviews(2, "[review]\nsecond_person_above = { EUR = 101 }\n").await;
    let review = see(&node, "/review").await.text;
    for words in ["to send again what may have been executed", "every decision about more than 1.01 EUR"] {
        assert!(review.contains(words), "{words}: {review}");
    }
    let low = see(&node, "/refunds/1").await.text;
    assert!(low.contains("A second person must approve to send it again"), "{low}");
    let high = see(&node, "/refunds/2").await.text;
    assert!(high.contains("must approve every decision about this refund"), "{high}");
    assert_eq!(scratch.count(State::Review).await, 2);
    node.stop().await;
}

#[tokio::test]
async fn one_of_a_thing_is_said_as_one_and_the_list_says_how_long_a_refund_has_waited_for_a_person() {
    let (scratch, node) = with_reviews(1, "").await;
    let older = "set session_replication_role = 'replica'; update refundd.refunds set created_at = now() - interval '3 days'";
    scratch.connect().await.execute(older).await.unwrap();
    until("the counts are new", async || {
        see(&node, "/review").await.text.contains("1 refund</strong> in 1 channel waits")
    })
    .await;
    let review = see(&node, "/review").await.text;
    let cell =
        review.split("data-name=\"In review for\"><div>").nth(1).unwrap().split("</div>").next().unwrap();
    let (waits, saved) = cell.split_once("<span").unwrap();
    assert!(waits.ends_with("\u{a0}s") && saved.contains("saved 3\u{a0}d ago"), "{cell}");
    let overview = see(&node, "/").await.text;
    assert!(
        overview.contains("refund waits for a person") && overview.contains("channel needs a look"),
        "{overview}"
    );
    let channel = see(&node, "/channels/acme").await.text;
    assert!(channel.contains("href=\"/review?channel=acme\">1 refund waits for a person"), "{channel}");
    node.stop().await;
}

#[tokio::test]
async fn a_command_on_a_page_asks_for_what_the_page_shows() {
    let scratch = Scratch::new().await;
    let limited = "[limit.acme]\npermits = 1\nper = \"1s\"\n[channel.acme]\nendpoint = \"http://{bank}/acme/refunds\"\nlimits = [\"acme\"]\n";
    let node = TestNode::start(&scratch, "a", limited).await;
    for (path, command) in [
        ("/events", "refundd log"),
        ("/events?channel=acme", "refundd log acme"),
        ("/proof", "refundd prove --from 1h"),
        ("/proof?channel=acme&from=2h", "refundd prove --channel acme --from 2h"),
        ("/proof?channel=acme&from=14:00", "refundd prove --from 1h"),
    ] {
        let page = see(&node, path).await.text;
        assert!(page.contains(&format!("<code>{command}</code>")), "{path}: {page}");
    }
    let nodes = see(&node, "/nodes").await.text;
    assert!(nodes.contains("1 permit a second"), "{nodes}");
    let empty = see(&node, "/proof?channel=acme&from=1h&to=2h").await.text;
    assert!(
        empty.contains("<strong>From</strong>: <bdi><time") && empty.contains("is not before to, which is"),
        "{empty}"
    );
    node.stop().await;
}

#[tokio::test]
async fn a_list_says_that_it_shows_the_last_lines_of_a_refund_alone_and_that_it_waits_for_longer() {
    let (scratch, node) = with_reviews(2, "").await;
    let inquiries = "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, started_at, finished_at, outcome, code)
                     select 1, 'acme', 'inquiry', n, 1, 'a#1', now() - interval '3 hours', now() - interval '3 hours', 'unknown', 'http_status' from generate_series(1, 29) n";
    scratch.sql(inquiries).await;
    let review = see(&node, "/review").await.text;
    let row =
        |id: i64| review.split(&format!("data-row=\"{id}@")).nth(1).unwrap().split("</tr>").next().unwrap();
    let words = ["The last 10 lines of the journal; its page has all", "more than 3\u{a0}h"];
    for words in words {
        assert!(row(1).contains(words) && !row(2).contains(words), "{words}: {review}");
    }
    assert_eq!(row(1).matches("Inquiry ").count(), 10, "{review}");
    assert!(row(2).contains(" of the journal<span"), "{review}");
    node.stop().await;
}

#[tokio::test]
async fn a_report_of_another_form_hides_no_page_and_no_other_node() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    for (name, standing) in [
        ("b#1", r#"{"banks": {"acme": {"unreachable": "connect: refused", "bank_p50_ms": "12 ms"}}}"#),
        ("c#1", r#"{"banks": {"acme": {"unreachable": "no route", "binds_over_seconds": 1.5}}}"#),
        ("d#1", r#"{"banks": ["unreachable"]}"#),
        ("e#1", r#"{"banks": {"acme": {"unreachable": "connect: timed out", "bank_p50_ms": 12}}}"#),
    ] {
        let insert = "insert into refundd.nodes (node, version, channels, config_digest, standing)";
        scratch.sql(&format!("{insert} values ('{name}', '0', '{{acme}}', 'd', '{standing}')")).await;
    }
    until("the page says what the node reports whose report is well", async || {
        scratch.sql("update refundd.nodes set seen_at = now()").await;
        for path in ["/", "/nodes"] {
            assert_eq!(see(&node, path).await.status, 200, "{path}");
        }
        let page = see(&node, "/channels/acme").await;
        assert_eq!(page.status, 200, "{page:?}");
        page.text.contains("Node e cannot reach the bank: failed to <bdi>connect: timed out</bdi>")
            && page.text.contains("12 ms")
    })
    .await;
    node.stop().await;
}
