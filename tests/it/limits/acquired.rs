//! Permits for other services, from the same limit and ledger as the permits for refunds.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use playground::forward::Forward;
use playground::{RedisOptions, RedisPair, Weather};
use refundd::bucket::Acquired;
use refundd::config::Config;
use refundd::metrics::Metrics;
use refundd::node::Node;
use refundd::refund::State;
use refundd::store::{Pause, Store};
use serde_json::json;
use sqlx::{Connection, Executor};

use super::{SECOND, channel};
use crate::harness::servers::SERVERS;
use crate::harness::{Scratch, TestNode, until, window_lasts};

#[tokio::test]
async fn other_services_and_refunds_share_one_limit_and_one_ledger() {
    window_lasts(3_600, 60).await;
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", &channel("permits = 5").replace("\"1s\"", "\"1h\"")).await;
    let answer = node.post("/v1/limits/acme/acquire", &json!({ "permits": 2, "caller": "checkout" })).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.json()["granted"], 2);
    let left = answer.headers["ratelimit"].to_str().unwrap().strip_prefix("\"acme\";r=3;t=").unwrap();
    assert!((1..=3600).contains(&left.parse::<u32>().unwrap()), "{left}");
    assert_eq!(answer.headers["ratelimit-policy"], "\"acme\";q=5;w=3600");
    scratch.insert("acme", "R-", 10).await;
    until("the hour's other three went to refunds", async || scratch.count(State::Succeeded).await == 3)
        .await;
    let answer = node.post("/v1/limits/acme/acquire", &json!({})).await;
    assert_eq!(answer.status, 429, "{}", answer.text);
    assert!(answer.json()["retry_after_ms"].as_u64().unwrap() > 1000);
    assert!(answer.headers["retry-after"].to_str().unwrap().parse::<u32>().unwrap() >= 1);
    let spent =
        "select count(*) filter (where caller = 'checkout') * 100 + count(refund_id) from refundd.permits";
    assert_eq!(scratch.number(spent).await, 203);
    let channels = node.get("/v1/channels").await.json();
    assert_eq!(channels["channels"][0]["waits_for"]["limit"], "acme", "{channels}");
    node.stop().await;
}

#[tokio::test]
async fn a_request_for_permits_is_granted_whole_or_refused_with_the_reason() {
    window_lasts(3_600, 60).await;
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", &channel("permits = 5").replace("\"1s\"", "\"1h\"")).await;
    assert_eq!(node.post("/v1/limits/acme/acquire", &json!({ "permits": 4 })).await.status, 200);
    assert_eq!(node.post("/v1/limits/acme/acquire", &json!({ "permits": 2 })).await.status, 429);
    assert_eq!(node.post("/v1/limits/acme/acquire", &json!({ "permits": 1 })).await.status, 200);
    let never = node.post("/v1/limits/acme/acquire", &json!({ "permits": 6 })).await;
    assert_eq!(never.status, 422, "{}", never.text);
    let unknown = node.post("/v1/limits/acne/acquire", &json!({})).await;
    assert_eq!(unknown.status, 404);
    assert!(unknown.json()["detail"].as_str().unwrap().contains("there are: acme"), "{}", unknown.text);
    node.stop().await;
    let unlimited = "[limit.acme]\npermits = -1\n[channel.acme]\nendpoint = \"http://{bank}/acme/refunds\"\nlimits = [\"acme\"]\n";
    let node = TestNode::start(&scratch, "b", unlimited).await;
    let needless = node.post("/v1/limits/acme/acquire", &json!({})).await;
    assert_eq!(needless.status, 404);
    assert!(needless.text.contains("unlimited (`permits = -1`) and needs no permits"), "{}", needless.text);
    node.stop().await;
}

/// The ledger takes no permit while this transaction is open.
const LOCK: &str = "begin; lock table refundd.permits in share mode";
/// How many calls of other services wait for it.
const WAITING: &str =
    "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
                          and query like '-- spend:%'";

/// Redis counts each permit before the ledger does.
#[tokio::test]
async fn calls_that_fail_while_postgres_is_away_cost_the_window_no_permit() {
    window_lasts(3_600, 60).await;
    let scratch = Scratch::new().await;
    let way = Forward::start(&SERVERS.postgres.socket()).unwrap();
    let around = SERVERS.postgres.url_through(way.address(), &scratch.name);
    let hourly = channel("permits = 6").replace("\"1s\"", "\"1h\"");
    let text = scratch.file("a", &hourly).replace(&scratch.database_url, &around);
    let config = Config::parse(&text, "test.toml", &|_| None).unwrap_or_else(|error| panic!("{error}"));
    let node = TestNode::run(config).await;
    let one = json!({});
    assert_eq!(node.acquire("acme", &one).await.status, 200);
    way.set(Weather::Closed);
    until("Postgres is away", async || node.get("/health/ready").await.status == 503).await;
    for _ in 0..2 {
        for answer in join_all((0..12).map(|_| node.post("/v1/limits/acme/acquire", &one))).await {
            assert!(matches!(answer.status.as_u16(), 429 | 503), "{}", answer.text);
        }
    }
    way.set(Weather::Fair);
    scratch.insert("acme", "R-", 4).await;
    until("refunds get their permits", async || scratch.count(State::Succeeded).await == 4).await;
    let answer = node.acquire("acme", &one).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    node.stop().await;
}

#[tokio::test]
async fn a_call_that_fails_costs_no_permit_either_if_redis_is_away_as_well() {
    window_lasts(3_600, 60).await;
    let redis = RedisPair::start(&RedisOptions::default(), 1).await.unwrap();
    let scratch = Scratch::with_redis(redis.url(0)).await;
    let node = TestNode::start(&scratch, "a", &channel("permits = 2").replace("\"1s\"", "\"1h\"")).await;
    let one = json!({});
    assert_eq!(node.acquire("acme", &one).await.status, 200);
    let mut lock = scratch.connect().await;
    lock.execute(LOCK).await.unwrap();
    let outage = async {
        until("the ledger keeps the call waiting", async || scratch.number(WAITING).await > 0).await;
        redis.door(0).set(Weather::Closed);
    };
    let (failed, ()) = tokio::join!(node.post("/v1/limits/acme/acquire", &one), outage);
    assert_eq!(failed.status, 503, "{}", failed.text);
    redis.door(0).set(Weather::Fair);
    lock.execute("rollback").await.unwrap();
    let answer = node.acquire("acme", &one).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    node.stop().await;
    redis.stop().await.unwrap();
}

/// The ledger has the permit in the end. A service that got it now would use it in a later window.
#[tokio::test]
async fn a_permit_whose_span_ended_while_the_ledger_was_busy_is_given_to_nobody() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", &channel("permits = 5")).await;
    let one = json!({});
    assert_eq!(node.acquire("acme", &one).await.status, 200);
    let spent = "select count(*) from refundd.permits";
    let before = scratch.number(spent).await;
    let mut lock = scratch.connect().await;
    lock.execute(LOCK).await.unwrap();
    let free = async {
        until("the ledger keeps the call waiting", async || scratch.number(WAITING).await > 0).await;
        // A span is shorter than the second of its window, and this is shorter than a statement waits for a lock.
        tokio::time::sleep(SECOND * 11 / 10).await;
        lock.execute("rollback").await.unwrap();
    };
    // At the end of a window there is no permit.
    let late = async {
        loop {
            let answer = node.post("/v1/limits/acme/acquire", &one).await;
            if answer.status != 429 {
                break answer;
            }
            tokio::time::sleep(SECOND / 100).await;
        }
    };
    let (late, ()) = tokio::join!(late, free);
    assert_eq!(late.status, 503, "{}", late.text);
    assert_eq!(scratch.number(spent).await, before + 1, "the ledger has it");
    node.stop().await;
}

/// How many statements wait for a lock.
const BEHIND_A_LOCK: &str =
    "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";

#[tokio::test]
async fn a_request_restores_a_limit_while_callers_have_all_of_their_connections() {
    // The second one has days, which nodes publish in the ledger.
    let daily = channel("permits = 5\ntime_zone = \"Asia/Tokyo\"").replace("\"1s\"", "\"1d\"");
    for channels in [channel("permits = 5"), daily] {
        let scratch = Scratch::new().await;
        scratch.publish("acme").await;
        let config = scratch.config("a", &channels);
        let limit = config.limits.values().next().unwrap();
        let metrics = Arc::new(Metrics::default());
        let node = Node::new("a", scratch.store.clone(), scratch.bucket(), metrics).for_callers();
        let mut holder = scratch.connect().await;
        let mut lock = holder.begin().await.unwrap();
        lock.execute("select from refundd.channels for update").await.unwrap();
        // They never end, so callers use all of their connections for as long as the test looks. So many wait that one more gets no
        // connection in time.
        let pause = Pause { reason: "a look", who: "ann", lasts: None };
        let pauses = join_all((0..40).map(async |_| {
            loop {
                assert!(node.store.pause("acme", &pause).await.is_err(), "the channel is locked");
            }
        }));
        let restores = async {
            // Callers have three of the four connections of a scratch.
            until("callers have all of their connections", async || scratch.number(BEHIND_A_LOCK).await == 3)
                .await;
            // Of a limit with days, Redis forgets the days first.
            until("the limit is restored", async || {
                match node.bucket.acquire(limit, 1, None).await.unwrap() {
                    Acquired::Forgot(forgotten) => node.restore(&forgotten, true).await.unwrap(),
                    Acquired::Granted { .. } | Acquired::Denied { .. } => return true,
                    Acquired::Restoring | Acquired::ClockStepped { .. } => {}
                }
                false
            })
            .await;
        };
        tokio::select! {
            _ = pauses => unreachable!(),
            () = restores => {}
        }
        lock.rollback().await.unwrap();
    }
}

/// Of the six connections of the node in the next test, callers have four. One restore may use another one.
const MOST_RESTORES: i64 = 5;

#[tokio::test]
async fn restores_of_requests_leave_a_connection_to_the_work_of_the_node() {
    let scratch = Scratch::new().await;
    let config = scratch.config("a", &channel("permits = 5"));
    let limit = config.limits.values().next().unwrap();
    let store = Store::open(&scratch.database_url, None, 6).unwrap();
    let node = Node::new("a", store, scratch.bucket(), Arc::new(Metrics::default())).for_callers();
    let acquired = node.bucket.acquire(limit, 1, None).await.unwrap();
    let Acquired::Forgot(forgotten) = acquired else { panic!("{acquired:?}") };
    let mut holder = scratch.connect().await;
    let mut lock = holder.begin().await.unwrap();
    lock.execute("lock table refundd.limits").await.unwrap();
    let failed = AtomicUsize::new(0);
    let restores = join_all((0..12).map(async |_| {
        loop {
            assert!(node.restore(&forgotten, true).await.is_err(), "the ledger's limits are locked");
            failed.fetch_add(1, Ordering::Relaxed);
        }
    }));
    let others = async {
        let mut most = 0;
        // A try waits for the lock for three seconds. So all that can wait at the same time are seen before so many have failed.
        until("restores wait at the same time, and fail", async || {
            most = most.max(scratch.number(BEHIND_A_LOCK).await);
            most >= MOST_RESTORES && failed.load(Ordering::Relaxed) >= 12
        })
        .await;
        most
    };
    let most = tokio::select! {
        _ = restores => unreachable!(),
        most = others => most,
    };
    assert!(most <= MOST_RESTORES, "{most} restores wait on a connection each");
    lock.rollback().await.unwrap();
}
