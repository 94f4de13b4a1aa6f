//! Callers and strangers that try what they may not do.

use std::time::Duration;

use futures_util::future::select_all;
use hyper::Method;
use jiff::{SignedDuration, Timestamp};
use refundd::caller::token::Token;
use serde_json::{Value, json};
use sqlx::{Connection, Executor};

use super::{CallerTables, ask, get, in_an_hour, post};
use crate::harness::node::refund;
use crate::harness::{Scratch, TestNode, until};

const SHOP: &str = "may = [\"enqueue\", \"look\", \"cancel\", \"acquire\", \"review\"]\nchannels = [\"acme\"]\nlimits = [\"acme\"]";

#[tokio::test]
async fn no_wrong_and_no_expired_token_lets_anybody_in() {
    let scratch = Scratch::new().await;
    let mut callers = CallerTables::new();
    let good = callers.caller("shop", SHOP);
    let expired = Token::mint().unwrap();
    callers.tokens(
        "shop",
        &[(&good, in_an_hour()), (&expired, Timestamp::now() - SignedDuration::from_secs(1))],
    );
    let node = callers.node(&scratch).await;
    assert_eq!(get(&node, &good, "/v1/refunds").await.status, 200);
    let late = get(&node, &expired, "/v1/refunds").await;
    assert_eq!(late.status, 401);
    assert!(late.headers["www-authenticate"].to_str().unwrap().contains("expired"), "{late:?}");

    let stranger = Token::mint().unwrap();
    let (start, secret) = good.expose().rsplit_once('_').unwrap();
    let (_, other) = stranger.expose().rsplit_once('_').unwrap();
    let stored = good.stored(in_an_hour()).to_string();
    let hash = stored.split(' ').nth(1).unwrap();
    let bearer = |token: &str| vec![format!("Bearer {token}")];
    for (what, headers) in [
        ("no token", vec![]),
        ("an empty header", vec![String::new()]),
        ("the id with another secret", bearer(&format!("{start}_{other}"))),
        ("the id with the hash", bearer(&format!("{start}_{hash}"))),
        ("the hash", bearer(hash)),
        ("the token without its last digit", bearer(&good.expose()[..good.expose().len() - 1])),
        ("the token with one digit more", bearer(&format!("{}0", good.expose()))),
        ("the token in capitals", bearer(&good.expose().to_uppercase())),
        ("the secret alone", bearer(secret)),
        ("a token of nobody", bearer(stranger.expose())),
        ("another scheme", vec![format!("Basic {}", good.expose())]),
        ("no scheme", vec![good.expose().to_owned()]),
        (
            "a wrong token before the right one",
            vec![format!("Bearer {}", stranger.expose()), format!("Bearer {}", good.expose())],
        ),
        (
            "the right token before a wrong one",
            vec![format!("Bearer {}", good.expose()), format!("Bearer {}", stranger.expose())],
        ),
    ] {
        let headers: Vec<(&str, &str)> =
            headers.iter().map(|value| ("authorization", value.as_str())).collect();
        let answer = node.request_with(Method::GET, "/v1/refunds", &headers, "").await;
        assert_eq!(answer.status, 401, "{what}: {answer:?}");
        assert!(answer.headers["www-authenticate"].to_str().unwrap().starts_with("Bearer realm="), "{what}");
        assert!(!answer.text.contains(secret) && !answer.text.contains(other), "{what}: {answer:?}");
    }
    let in_query = format!("/v1/refunds?access_token={}", good.expose());
    assert_eq!(node.get(&in_query).await.status, 401);
    node.stop().await;
}

#[tokio::test]
async fn nothing_of_other_callers_exists_for_a_caller() {
    let scratch = Scratch::new().await;
    let mut callers = CallerTables::new();
    let shop = callers.caller("shop", SHOP);
    let node = callers.node(&scratch).await;
    // Ids that stand nowhere else in an answer.
    scratch.sql("alter table refundd.refunds alter column id restart with 700001").await;
    scratch.insert("other", "foreign-", 1).await;
    scratch.insert("acme", "own-", 1).await;
    let foreign = scratch.number("select id from refundd.refunds where channel = 'other'").await;
    let missing = foreign + 1000;

    // The answers about a foreign refund and about none differ in nothing but the id.
    for (method, path) in [(Method::GET, ""), (Method::GET, "/attempts"), (Method::POST, "/cancel")] {
        let about = async |id: i64| {
            let answer =
                ask(&node, Some(&shop), method.clone(), &format!("/v1/refunds/{id}{path}"), &Value::Null)
                    .await;
            (answer.status, answer.text.replace(&id.to_string(), "ID"))
        };
        assert_eq!(about(foreign).await, about(missing).await, "{path}");
        assert_eq!(about(foreign).await.0, 404, "{path}");
    }
    let decide = async |id: i64| {
        let body =
            json!({ "refunds": [{ "id": id, "version": 1 }], "state": "succeeded", "reason": "a test" });
        post(&node, &shop, "/v1/review", &body).await.text.replace(&id.to_string(), "ID")
    };
    assert_eq!(decide(foreign).await, decide(missing).await);

    let all = get(&node, &shop, "/v1/refunds").await.json();
    assert_eq!(all["refunds"].as_array().map(Vec::len), Some(1), "{all}");
    let by_ref = get(&node, &shop, "/v1/refunds?refund_ref=foreign-1").await.json();
    assert_eq!(by_ref["refunds"], json!([]), "{by_ref}");

    // A foreign channel and a channel that no node runs are answered alike, and neither is suggested.
    let order = async |channel: &str| {
        let answer = post(&node, &shop, "/v1/refunds", &refund("R-1", channel)).await;
        (answer.status.as_u16(), answer.text.replace(channel, "CHANNEL"))
    };
    assert_eq!(order("other").await, order("otter").await);
    assert_eq!(order("other").await.0, 404);

    // A ref that a foreign refund has is taken, and nothing is said about that refund.
    let taken = post(&node, &shop, "/v1/refunds", &refund("foreign-1", "acme")).await;
    assert_eq!((taken.status.as_u16(), &taken.json()["id"]), (409, &Value::Null), "{taken:?}");
    let mixed = json!([refund("foreign-1", "acme"), refund("R-2", "other"), refund("R-3", "acme")]);
    let results = post(&node, &shop, "/v1/refunds/batch", &mixed).await.json();
    let statuses: Vec<_> =
        results.as_array().unwrap().iter().map(|result| result["status"].clone()).collect();
    assert_eq!(statuses, [409, 404, 201], "{results}");
    assert_eq!(results[0]["id"], Value::Null, "{results}");

    let acquire = async |limit: &str| {
        let answer = post(&node, &shop, &format!("/v1/limits/{limit}/acquire"), &json!({})).await;
        (answer.status.as_u16(), answer.text.replace(&format!("`{limit}`"), "LIMIT"))
    };
    assert_eq!(acquire("other").await, acquire("otter").await);
    assert!(!acquire("other").await.1.contains("other"), "the answer lists a foreign limit");
    node.stop().await;
}

#[tokio::test]
async fn a_caller_cannot_act_in_another_name() {
    let scratch = Scratch::new().await;
    let mut callers = CallerTables::new();
    let shop = callers.caller("shop", SHOP);
    let node = callers.node(&scratch).await;
    scratch.insert("acme", "R-", 1).await;
    let named = json!([{ "id": 1, "version": 1 }]);
    let decision = json!({ "refunds": named, "state": "succeeded", "reason": "a test", "by": "the boss" });
    let refused = post(&node, &shop, "/v1/review", &decision).await;
    assert_eq!(
        (refused.status.as_u16(), &refused.json()["errors"][0]["field"]),
        (422, &json!("by")),
        "{refused:?}"
    );
    let refused = post(&node, &shop, "/v1/limits/acme/acquire", &json!({ "caller": "desk" })).await;
    assert_eq!((refused.status.as_u16(), &refused.json()["errors"][0]["field"]), (422, &json!("caller")));
    assert_eq!(scratch.number("select count(*) from refundd.permits").await, 0);
    node.stop().await;
}

#[tokio::test]
async fn a_stranger_learns_nothing_about_the_servers_behind_a_node() {
    let scratch = Scratch::new().await;
    let mut callers = CallerTables::new();
    let metrics = callers.caller("prometheus", "may = [\"metrics\"]");
    let dead = scratch.config_at("a", &callers.with_channels(super::TWO_CHANNELS), "redis://127.0.0.1:1");
    let node = TestNode::run(dead).await;
    until("the node notices that Redis is away", async || {
        node.get("/health/ready").await.json()["status"] == "degraded"
    })
    .await;
    assert_eq!(node.get("/health/ready").await.json(), json!({ "status": "degraded" }));
    assert_eq!(node.get("/metrics").await.status, 401);
    assert!(get(&node, &metrics, "/metrics").await.text.contains("refundd_redis_up 0"));
    node.stop().await;
}

#[tokio::test]
async fn a_caller_for_some_channels_learns_no_address_of_a_server() {
    let scratch = Scratch::new().await;
    let mut callers = CallerTables::new();
    let shop = callers.caller("shop", "may = [\"look\"]\nchannels = [\"acme\"]");
    let desk = callers.caller("desk", "may = [\"look\"]\nchannels = [\"*\"]");
    let hidden = "the reason is for callers with all channels";
    // Claims wait for this lock, and the channel says why it is blocked.
    let node = TestNode::start(&scratch, "a", &callers.with_channels(super::TWO_CHANNELS)).await;
    let mut holder = scratch.connect().await;
    let mut lock = holder.begin().await.unwrap();
    lock.execute("lock table refundd.permits in share mode").await.unwrap();
    scratch.insert("acme", "R-", 1).await;
    let blocked = async |token| {
        let status = get(&node, token, "/v1/channels/acme").await.json();
        status["bank"]["blocked"].as_str().map(str::to_owned)
    };
    until("an operator reads why", async || {
        blocked(&desk).await.is_some_and(|why| why.contains("failed to"))
    })
    .await;
    assert_eq!(blocked(&shop).await.as_deref(), Some(hidden));
    lock.rollback().await.unwrap();
    node.stop().await;
    let dead = scratch.config_at("a", &callers.with_channels(super::TWO_CHANNELS), "redis://localhost:1");
    let node = TestNode::run(dead).await;
    for path in ["/v1/channels", "/nodes", "/channels/acme"] {
        until("an operator reads why", async || get(&node, &desk, path).await.text.contains("localhost:1"))
            .await;
        let seen = get(&node, &shop, path).await.text;
        assert!(seen.contains(hidden) && !seen.contains("localhost:1"), "{path}: {seen}");
    }
    assert_eq!(get(&node, &shop, "/v1/channels").await.json()["redis"]["up"], false);
    node.stop().await;
}

#[tokio::test]
async fn a_caller_whose_lists_take_long_keeps_no_other_caller_waiting() {
    let scratch = Scratch::new().await;
    let mut callers = CallerTables::new();
    let shop = callers.caller("shop", "may = [\"look\"]\nchannels = [\"acme\"]");
    let desk = callers.caller("desk", "may = [\"look\"]\nchannels = [\"*\"]");
    let node = callers.node(&scratch).await;
    // Every list of refunds waits for this lock. No list of events does.
    let mut holder = scratch.connect().await;
    let mut lock = holder.begin().await.unwrap();
    lock.execute("lock table refundd.refunds in access exclusive mode").await.unwrap();
    let waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like 'select -- refund_columns:%'";
    let list = async |_: i32| get(&node, &shop, "/v1/refunds?channel=acme").await.status;
    let lists = select_all((0..4).map(|nth| Box::pin(list(nth))));
    let events = async {
        until("a list waits", async || scratch.number(waiting).await > 0).await;
        for _ in 0..20 {
            assert_eq!(get(&node, &desk, "/v1/events").await.status, 200);
        }
        assert_eq!(scratch.number(waiting).await, 1, "the caller reads one list at a time");
    };
    tokio::select! {
        (status, ..) = lists => panic!("a list was answered {status} before the other caller was"),
        () = events => {}
    }
    lock.rollback().await.unwrap();
    node.stop().await;
}

#[tokio::test]
async fn a_caller_that_hangs_up_keeps_its_place_until_postgres_is_done_with_the_list() {
    let scratch = Scratch::new().await;
    let mut callers = CallerTables::new();
    let shop = callers.caller("shop", "may = [\"look\"]\nchannels = [\"acme\"]");
    let node = callers.node(&scratch).await;
    let mut holder = scratch.connect().await;
    let mut lock = holder.begin().await.unwrap();
    lock.execute("lock table refundd.refunds in access exclusive mode").await.unwrap();
    let waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like 'select -- refund_columns:%'";
    for _ in 0..5 {
        // Ends the connection, as a caller does who does not wait.
        let list = get(&node, &shop, "/v1/refunds?channel=acme");
        assert!(tokio::time::timeout(Duration::from_millis(500), list).await.is_err());
        until("a list waits", async || scratch.number(waiting).await > 0).await;
        assert_eq!(scratch.number(waiting).await, 1, "one list at a time, also when nobody waits for it");
    }
    lock.rollback().await.unwrap();
    assert_eq!(get(&node, &shop, "/v1/refunds?channel=acme").await.status, 200);
    node.stop().await;
}
