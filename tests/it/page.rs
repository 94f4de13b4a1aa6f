//! The page for people: what it shows, what it lets people do, and what it keeps others from doing.

mod cancels;
mod charts;
mod cost;
mod forms;
mod in_a_browser;
mod over_tls;
mod pictures;
mod quick;
mod stale;
mod steer;
mod uncounted;
mod words;

use hyper::Method;
use playground::bank::Step;
use refundd::refund::State;
use sqlx::Executor;

use crate::dispatch::UNLIMITED;
use crate::harness::node::Answer;
use crate::harness::{Scratch, TestNode, until};

/// A browser asks for a page.
pub async fn see(node: &TestNode, path: &str) -> Answer {
    node.request_with(Method::GET, path, &[("accept", "text/html,application/xhtml+xml")], "").await
}

/// Every page about this refund and its channel.
fn pages(id: i64) -> Vec<String> {
    let pages = [
        "/",
        "/?q=a&show=trouble",
        "/channels/acme",
        "/refunds",
        "/refunds?q=none",
        "/review",
        "/approvals",
        "/events",
        "/proof",
        "/nodes",
    ];
    let mut pages: Vec<String> = pages.map(str::to_owned).to_vec();
    pages.extend([
        format!("/refunds/{id}"),
        "/review?channel=acme".to_owned(),
        "/proof?channel=acme&from=1h".to_owned(),
    ]);
    pages
}

#[tokio::test]
async fn every_page_says_what_a_script_and_a_style_may_come_from_and_holds_none_itself() {
    let scratch = Scratch::new().await;
    scratch.bank.then("acme", Step::pays_but_says_500());
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    scratch.insert("acme", "R-", 1).await;
    until("it is shown to a person", async || scratch.count(State::Review).await == 1).await;
    for page in pages(1) {
        let answer = see(&node, &page).await;
        assert_eq!(answer.status, 200, "{page}: {answer:?}");
        assert_eq!(answer.headers["content-type"], "text/html; charset=utf-8", "{page}");
        let policy = answer.headers["content-security-policy"].to_str().unwrap();
        for part in ["default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'"]
        {
            assert!(policy.contains(part), "{page}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{page}: {policy}");
        for forbidden in ["<style", "style=", "onclick", "onload", "javascript:", "=\"http", "url("] {
            assert!(!answer.text.contains(forbidden), "{page} has {forbidden}");
        }
        assert_eq!(answer.text.matches("<script").count(), 1, "{page}");
        assert!(answer.text.contains(r#"<script src="/page.js" defer"#), "{page}");
    }
    for file in ["/page.css", "/page.js", "/page.svg"] {
        assert_eq!(node.get(file).await.status, 200, "{file}");
    }
    node.stop().await;
}

#[tokio::test]
async fn no_text_from_outside_becomes_markup() {
    let scratch = Scratch::new().await;
    let evil = "<img src=x onerror=alert(1)>\"'&amp;";
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    scratch.pause("acme", evil, evil).await;
    let quoted = evil.replace('\'', "''");
    scratch
        .sql(&format!(
            "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency, payload)
             values ('{quoted}', 'acme', '{quoted}', 1, 'EUR', to_jsonb('{quoted}'::text))"
        ))
        .await;
    scratch.to_review("true").await;
    scratch.sql(&format!("update refundd.refunds set reason = '{quoted}'")).await;
    let mut shown = 0;
    for page in pages(1).into_iter().chain(["/refunds?q=%3Cimg%20src=x%20onerror=alert(1)%3Ex".to_owned()]) {
        let answer = see(&node, &page).await;
        assert_eq!(answer.status, 200, "{page}: {answer:?}");
        assert!(!answer.text.contains("<img src=x"), "{page}: {}", answer.text);
        let written = "&lt;img src=x onerror=alert(1)&gt;&quot;'&amp;amp;";
        shown += usize::from(answer.text.contains(written));
    }
    assert!(shown >= 4, "the text was shown on {shown} pages only");
    node.stop().await;
}

#[tokio::test]
async fn a_problem_is_a_page_for_people_and_json_for_programs() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    for (method, path, status) in [
        (Method::GET, "/nowhere", 404),
        (Method::GET, "/refunds/999", 404),
        (Method::GET, "/refunds/x", 422),
        (Method::GET, "/channels/none", 404),
        (Method::GET, "/channels/NONE", 404),
        (Method::GET, "/?page=x", 422),
        (Method::GET, "/review?channel=A%20B", 422),
        (Method::GET, "/approvals?channel=A%20B", 422),
        (Method::GET, "/events?channel=A%20B", 422),
        (Method::GET, "/events?from=yesterday", 422),
        (Method::GET, "/events?after=x", 422),
        (Method::GET, "/proof?channel=none", 404),
        (Method::GET, "/proof?channel=acme&from=yesterday", 422),
        (Method::GET, "/proof?channel=acme&from=48h", 422),
        (Method::GET, "/proof?channel=acme&from=1h&to=2h", 422),
        (Method::GET, "/proof?channel=acme&to=2099-01-01T00:00:00Z", 422),
        (Method::DELETE, "/review", 405),
        (Method::POST, "/nodes", 405),
    ] {
        let person = node.request_with(method.clone(), path, &[("accept", "text/html")], "").await;
        assert_eq!(person.status, status, "{path}: {person:?}");
        assert_eq!(person.headers["content-type"], "text/html; charset=utf-8", "{path}");
        assert!(person.text.contains("<h1>"), "{path}: {}", person.text);
        let program = node.request_with(method, path, &[("accept", "*/*")], "").await;
        assert_eq!(
            (program.status, &program.headers["content-type"]),
            (person.status, &"application/problem+json".parse().unwrap()),
            "{path}"
        );
        assert_eq!(person.headers.get("allow"), program.headers.get("allow"), "{path}");
    }
    let of_programs = node.request_with(Method::GET, "/v1/refunds/999", &[("accept", "text/html")], "").await;
    assert_eq!(of_programs.headers["content-type"], "application/problem+json");
    let head = node.request_with(Method::HEAD, "/", &[("accept", "text/html")], "").await;
    assert_eq!((head.status.as_u16(), head.text.as_str()), (200, ""));
    node.stop().await;
}

#[tokio::test]
async fn the_page_shows_what_the_api_shows() {
    let scratch = Scratch::new().await;
    scratch.bank.then("acme", Step::pays_but_says_500());
    let channels = "[limit.acme]\npermits = 7\nper = \"1s\"\n[channel.acme]\nendpoint = \"http://{bank}/acme/refunds\"\nlimits = [\"acme\"]\n";
    let node = TestNode::start(&scratch, "a", channels).await;
    scratch.insert("acme", "R-", 2).await;
    until("both are shown to a person", async || scratch.count(State::Review).await == 2).await;
    scratch.pause("acme", "the bank's maintenance", "ann").await;
    scratch.insert("acme", "W-", 3).await;
    scratch.pause("acme", "the bank's maintenance until six", "ann").await;
    until("the counts are new", async || see(&node, "/").await.text.contains("3 refunds")).await;
    let overview = see(&node, "/").await.text;
    for words in ["paused", "of 7 a second", "2 refunds", "unknown: it is paused"] {
        assert!(overview.contains(words), "{words}: {overview}");
    }
    until("the last seconds are shown", async || {
        let channel = see(&node, "/channels/acme").await.text;
        channel.contains("2 of 7") || channel.contains("1 of 7")
    })
    .await;
    let channel = see(&node, "/channels/acme").await.text;
    for words in [
        "Suspended by a person",
        "acme is paused by",
        "ann",
        "maintenance",
        "What binds it",
        "Its last events",
        "channel added",
        "7 in each 1s",
        "<path",
        "unknown",
        "500",
    ] {
        assert!(channel.contains(words), "{words}: {channel}");
    }
    let found = see(&node, "/refunds?q=R-2").await;
    assert_eq!(found.status, 303);
    let refund = see(&node, found.headers["location"].to_str().unwrap()).await.text;
    for words in ["R-2", "1.02 EUR", "Send 1", "status 500", "May have been executed", "permit"] {
        assert!(refund.contains(words), "{words}: {refund}");
    }
    let waits = see(&node, "/refunds?q=W-3").await;
    let waits = see(&node, waits.headers["location"].to_str().unwrap()).await.text;
    for words in [
        "is paused by ann",
        "3 of 3",
        "unknown: it is paused until somebody resumes",
        "Its channel: ",
        "maintenance",
        "Cancel this refund",
    ] {
        assert!(waits.contains(words), "{words}: {waits}");
    }
    let review = see(&node, "/review").await.text;
    assert!(review.contains("R-1") && review.contains("status 500"), "{review}");
    let proof = see(&node, "/proof?channel=acme&from=10m").await.text;
    // A permit that closed before its first byte left is spent, too.
    let lapsed = scratch.number("select count(*) from refundd.attempts where code = 'permit_lapsed'").await;
    let spent = format!("{} for refunds", 2 + lapsed);
    assert!(proof.contains("held") && proof.contains(&spent), "{proof}");
    let nodes = see(&node, "/nodes").await.text;
    assert!(nodes.contains("(this node)") && nodes.contains("7 in each 1s"), "{nodes}");
    node.stop().await;
}

#[tokio::test]
async fn the_card_and_the_rows_count_the_pace_over_the_seconds_that_they_name() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    scratch.insert("acme", "R-", 1).await;
    until("it is paid", async || scratch.count(State::Succeeded).await == 1).await;
    // Ten seconds of sixty a second, which stay the last ten.
    let sent = "
        set session_replication_role = 'replica';
        insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, started_at, finished_at, outcome, moved_to)
        select 1, 'acme', 'send', 1, 1, 'a#1', now(), now() + interval '1 minute', 'succeeded', 'succeeded' from generate_series(1, 600)";
    scratch.connect().await.execute(sent).await.unwrap();
    until("the pace is counted", async || {
        see(&node, "/channels/acme").await.text.contains("Pace, last 10 s")
    })
    .await;
    let overview = see(&node, "/").await.text;
    assert!(
        overview.contains("<strong>60.1</strong>") && overview.contains("60.1 a second, unlimited"),
        "{overview}"
    );
    node.stop().await;
}

#[tokio::test]
async fn the_pages_say_what_binds_a_channel_how_long_its_bank_takes_and_when_its_backlog_is_gone() {
    let scratch = Scratch::new().await;
    let channels = "[limit.acme]\npermits = 2\nper = \"1s\"\n[channel.acme]\nendpoint = \"http://{bank}/acme/refunds\"\nlimits = [\"acme\"]\n";
    let node = TestNode::start(&scratch, "a", channels).await;
    scratch.insert("acme", "R-", 5000).await;
    let says = async |path: &str, words: &str| see(&node, path).await.text.contains(words);
    for (path, words) in [
        ("/", "<strong>limit acme</strong>"),
        ("/", "% of the last "),
        // 5,000 refunds at two a second.
        ("/", "<time class=\"clock\" datetime"),
        ("/channels/acme", "<strong>limit acme</strong>"),
        ("/channels/acme", "this limit grants no permit yet"),
        ("/channels/acme", "half of the answers within"),
        ("/channels/acme", "What binds it there"),
    ] {
        until(&format!("{path} says `{words}`"), async || says(path, words).await).await;
    }
    let (id, path) = (4000, "/refunds/4000");
    until("the story has a forecast", async || says(path, "that are ready").await).await;
    let page = see(&node, path).await.text;
    let place = page.split("<dt>Place</dt><dd>").nth(1).unwrap().split(' ').next().unwrap();
    let place: i64 = place.replace(',', "").parse().unwrap();
    assert!((id - 300..id).contains(&place), "{place}: {page}");
    assert!(page.contains("in 3") && page.contains("min"), "some 2,000 s: {page}");
    node.stop().await;
}
