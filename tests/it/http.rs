//! The HTTP way in, against a running node.

mod held;
mod names;
mod rules;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use hyper::Method;
use playground::Weather;
use playground::forward::Forward;
use refundd::config::Config;
use refundd::refund::State;
use serde_json::json;
use sqlx::Connection;

use crate::dispatch::UNLIMITED;
use crate::harness::http::get;
use crate::harness::node::refund;
use crate::harness::servers::SERVERS;
use crate::harness::{NodeProcess, Scratch, TestNode, until};

const ONE_A_DAY: &str = r#"
    [limit.acme]
    permits = 1
    per = "24h"
    [channel.acme]
    endpoint = "http://{bank}/acme/refunds"
    limits = ["acme"]
"#;

#[tokio::test]
async fn saving_answers_once_it_is_committed_and_is_safe_to_repeat() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    let first = node.post("/v1/refunds", &refund("R-1", "acme")).await;
    assert_eq!(first.status, 201, "{first:?}");
    let id = first.json()["id"].as_i64().unwrap();
    assert_eq!(first.headers["location"], format!("/v1/refunds/{id}"));
    until("it is paid", async || scratch.count(State::Succeeded).await == 1).await;
    let again = node.post("/v1/refunds", &refund("R-1", "acme")).await;
    assert_eq!((again.status.as_u16(), again.json()["state"].as_str()), (200, Some("succeeded")));
    let mut other = refund("R-1", "acme");
    other["amount_minor"] = json!(9999);
    let conflict = node.post("/v1/refunds", &other).await;
    assert_eq!(conflict.status, 409);
    assert_eq!(conflict.headers["content-type"], "application/problem+json");
    assert_eq!(scratch.bank.look(|l| l.all().len()), 1);
    node.stop().await;
}

#[tokio::test]
async fn nonsense_is_refused_with_every_field_named() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    let bad = json!({ "refund_ref": "", "channel": "acme", "payment_ref": "P", "amount_minor": -1, "currency": "EURO", "amout": 1 });
    let answer = node.post("/v1/refunds", &bad).await;
    assert_eq!(answer.status, 422, "{answer:?}");
    for field in ["refund_ref", "amount_minor", "currency", "amout"] {
        assert!(answer.text.contains(&format!("\"{field}\"")), "{field}: {}", answer.text);
    }
    let unknown = node.post("/v1/refunds", &refund("R-1", "nobody")).await;
    assert!(unknown.status == 422 && unknown.text.contains("GET /v1/channels"), "{unknown:?}");
    assert_eq!(node.request(Method::POST, "/v1/refunds", "application/json", "{not json").await.status, 400);
    let large = json!({ "refund_ref": "R", "channel": "acme", "payment_ref": "P", "amount_minor": 1, "currency": "EUR", "payload": "x".repeat(2_000_000) });
    assert_eq!(node.post("/v1/refunds", &large).await.status, 413);
    assert_eq!(node.get("/v1/refunds/999").await.status, 404);
    assert_eq!(node.get("/v1/nothing").await.status, 404);
    assert!(scratch.counts().await.is_empty());
    node.stop().await;
}

#[tokio::test]
async fn a_batch_has_one_verdict_for_each_item_and_is_safe_to_repeat_whole() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    let mut bad = refund("R-3", "acme");
    bad["currency"] = json!("XXXX");
    let items = json!([
        refund("R-1", "acme"),
        refund("R-2", "acme"),
        bad,
        refund("R-1", "acme"),
        refund("R-4", "nobody")
    ]);
    for round in [[201, 201, 422, 200, 422], [200, 200, 422, 200, 422]] {
        let answer = node.post("/v1/refunds/batch", &items).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let body = answer.json();
        let verdicts = body
            .as_array()
            .or_else(|| body["verdicts"].as_array())
            .or_else(|| body["results"].as_array())
            .or_else(|| body["items"].as_array())
            .unwrap_or_else(|| panic!("{body}"));
        let codes: Vec<i64> = verdicts.iter().map(|v| v["status"].as_i64().unwrap()).collect();
        assert_eq!(codes, round);
    }
    let lines = format!("{}\nnot json\n{}\n", refund("N-1", "acme"), refund("N-2", "acme"));
    let answer = node.request(Method::POST, "/v1/refunds/batch", "application/x-ndjson", &lines).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let codes: Vec<i64> = answer
        .text
        .lines()
        .map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap()["status"].as_i64().unwrap())
        .collect();
    assert_eq!(codes, [201, 422, 201]);
    until("all four are paid", async || scratch.count(State::Succeeded).await == 4).await;
    node.stop().await;
}

#[tokio::test]
async fn a_refund_that_is_ready_can_be_cancelled_and_a_sent_one_cannot() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    scratch.pause("acme", "so that it stays ready", "test").await;
    let saved = node.post("/v1/refunds", &refund("R-1", "acme")).await.json();
    let path = format!("/v1/refunds/{}/cancel", saved["id"]);
    for _ in 0..2 {
        let answer = node.post(&path, &json!({})).await;
        assert_eq!(
            (answer.status.as_u16(), answer.json()["state"].as_str()),
            (200, Some("cancelled")),
            "{answer:?}"
        );
    }
    scratch.resume("acme").await;
    let sent = node.post("/v1/refunds", &refund("R-2", "acme")).await.json();
    until("it is paid", async || scratch.count(State::Succeeded).await == 1).await;
    assert_eq!(node.post(&format!("/v1/refunds/{}/cancel", sent["id"]), &json!({})).await.status, 409);
    assert_eq!(scratch.bank.look(|l| l.all().len()), 1);
    node.stop().await;
}

#[tokio::test]
async fn lists_go_page_by_page() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    scratch.pause("acme", "so that they stay ready", "test").await;
    scratch.insert("acme", "R-", 25).await;
    let mut seen = Vec::new();
    let mut path = "/v1/refunds?channel=acme&state=ready&limit=10".to_owned();
    loop {
        let page = node.get(&path).await.json();
        seen.extend(page["refunds"].as_array().unwrap().iter().map(|r| r["id"].as_i64().unwrap()));
        match &page["next"] {
            serde_json::Value::Null => break,
            next => {
                path = format!(
                    "/v1/refunds?channel=acme&state=ready&limit=10&after={}",
                    next.as_str().map_or_else(|| next.to_string(), str::to_owned)
                );
            }
        }
    }
    assert_eq!(seen, (1..=25).rev().collect::<Vec<i64>>());
    let one = node.get("/v1/refunds?refund_ref=R-7").await.json();
    assert_eq!(one["refunds"][0]["refund_ref"], "R-7");
    assert_eq!(node.get("/v1/refunds?state=lost").await.status, 422);
    node.stop().await;
}

#[tokio::test]
async fn channels_metrics_and_health_tell_how_things_stand() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    scratch.insert("acme", "R-", 3).await;
    until("they are paid", async || scratch.count(State::Succeeded).await == 3).await;
    assert_eq!(node.get("/health/live").await.status, 200);
    assert_eq!(node.get("/health/ready").await.status, 200);
    until("the channel page shows them", async || {
        let channels = node.get("/v1/channels").await.json();
        channels.to_string().contains("\"succeeded\":3")
    })
    .await;
    // The settler counts an outcome after its commit.
    until("the metrics count them", async || {
        let page = node.get("/metrics").await.text;
        page.contains(r#"refundd_attempts_total{channel="acme",outcome="succeeded"} 3"#)
    })
    .await;
    node.stop().await;
}

#[tokio::test]
async fn refunds_that_come_together_share_commits() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", ONE_A_DAY).await;
    let answers = join_all((0..400).map(|n| {
        let node = &node;
        async move { node.post("/v1/refunds", &refund(&format!("R-{n}"), "acme")).await }
    }))
    .await;
    assert!(answers.iter().all(|answer| answer.status == 201), "{answers:?}");
    let ids: BTreeSet<_> = answers.iter().map(|answer| answer.json()["id"].as_i64().unwrap()).collect();
    let refs: BTreeSet<_> = answers.iter().map(|answer| answer.json()["refund_ref"].to_string()).collect();
    assert_eq!((ids.len(), refs.len()), (400, 400), "each is answered with its own row");
    let commits = scratch.number("select count(distinct xmin::text) from refundd.refunds").await;
    assert!(commits <= 200, "{commits} commits for 400 refunds");
    node.stop().await;
}

#[tokio::test]
async fn refs_that_somebody_is_about_to_save_hold_up_no_others() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", ONE_A_DAY).await;
    let mut producer = scratch.connect().await;
    let mut open = producer.begin().await.unwrap();
    let insert = "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency)
                  select 'R-' || n, 'acme', 'P-1', 1250, 'EUR' from generate_series(1, 4) n";
    sqlx::query(insert).execute(&mut *open).await.unwrap();
    let post = async |n: u32| node.post("/v1/refunds", &refund(&format!("R-{n}"), "acme")).await;
    // While nobody commits, the held ones are answered 503 after 3 s, and their caller asks again.
    let held = async |n: u32| {
        loop {
            let answer = post(n).await;
            if answer.status != 503 {
                return answer;
            }
        }
    };
    let answers = join_all((1..=4).map(held));
    let others = async {
        let waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
        until("they wait", async || scratch.number(waiting).await >= 2).await;
        let answers = join_all((5..100).map(post)).await;
        assert!(answers.iter().all(|answer| answer.status == 201), "{answers:?}");
        open.commit().await.unwrap();
    };
    let (answers, ()) = tokio::join!(answers, others);
    assert!(answers.iter().all(|answer| answer.status == 200), "{answers:?}");
    node.stop().await;
}

#[tokio::test]
async fn a_refund_that_the_database_refuses_spoils_no_other() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", ONE_A_DAY).await;
    scratch
        .sql("alter table refundd.refunds add constraint houses_rule check (payment_ref <> 'P-refused')")
        .await;
    let answers = join_all((0..100).map(|n| {
        let mut body = refund(&format!("R-{n}"), "acme");
        if n == 50 {
            body["payment_ref"] = json!("P-refused");
        }
        let node = &node;
        async move { node.post("/v1/refunds", &body).await }
    }))
    .await;
    let refused: Vec<_> = (0..100).filter(|n| answers[*n].status != 201).collect();
    assert_eq!(refused, [50], "{:?}", answers[50]);
    node.stop().await;
}

/// A list may take long. Without a bound, lists would wait for all connections before anything else gets one.
#[tokio::test]
async fn lists_leave_connections_to_those_who_save_and_send() {
    const LISTS: usize = 80;
    let scratch = Scratch::new().await;
    let way = Forward::start(&SERVERS.postgres.socket()).unwrap();
    let around = SERVERS.postgres.url_through(way.address(), &scratch.name);
    let text = scratch.file("a", UNLIMITED).replace(&scratch.database_url, &around);
    let config = Config::parse(&text, "t.toml", &|_| None).unwrap_or_else(|error| panic!("{error}"));
    let node = TestNode::run(config).await;
    // Connections that are open when the lists come.
    scratch.insert("acme", "R-", 50).await;
    until("all connections are open", async || scratch.count(State::Succeeded).await == 50).await;
    way.set(Weather::Slow(Duration::from_millis(150)));
    let answered = AtomicUsize::new(0);
    let lists = join_all((0..LISTS).map(async |_| {
        assert_eq!(node.get("/v1/refunds?channel=acme").await.status, 200);
        answered.fetch_add(1, Ordering::Relaxed);
    }));
    let saving = async {
        until("the first list is answered", async || answered.load(Ordering::Relaxed) > 0).await;
        assert_eq!(node.post("/v1/refunds", &refund("S-1", "acme")).await.status, 201);
        assert!(scratch.bank.until(Duration::from_secs(20), |l| l.all().len() == 51).await);
        answered.load(Ordering::Relaxed)
    };
    let ((), before) = tokio::join!(async { drop(lists.await) }, saving);
    assert!(before < LISTS / 2, "{before} of {LISTS} lists were answered before a refund was saved and sent");
    node.stop().await;
}

#[tokio::test]
async fn a_failed_store_is_logged_with_its_cause() {
    let scratch = Scratch::new().await;
    let node = NodeProcess::start(&scratch, "a", UNLIMITED);
    scratch.sql("alter table refundd.refunds rename to lost").await;
    let (status, _) = get(node.address().unwrap().parse().unwrap(), "/v1/refunds").await.unwrap();
    assert_eq!(status, 500);
    node.wait_for_line("A request failed in the store");
    let log = node.log();
    let line = log.iter().find(|line| line.contains("A request failed in the store")).unwrap();
    assert!(line.contains("refundd.refunds") && line.contains("does not exist"), "{line}");
}
