//! Postgres answers and takes heartbeats, and takes no refunds.

use futures_util::future::join_all;
use refundd::refund::State;
use serde_json::json;
use sqlx::{Connection, Executor};

use super::{LIMITED, health_says, healthy, status_says};
use crate::harness::node::refund;
use crate::harness::{Scratch, until};

/// `create index` without `concurrently` takes this lock.
#[tokio::test]
async fn somebody_builds_an_index_on_the_refunds() {
    let scratch = Scratch::new().await;
    let (node, mut watch) = healthy(&scratch, LIMITED).await;
    scratch.pause("acme", "so that some wait", "test").await;
    scratch.insert("acme", "W-", 5).await;
    let mut holder = scratch.connect().await;
    let mut lock = holder.begin().await.unwrap();
    lock.execute("lock table refundd.refunds in share mode").await.unwrap();
    assert_eq!(node.post("/v1/refunds", &refund("R-1", "acme")).await.status, 503);
    health_says(&node, 503, "no refund can be saved").await;
    watch.fires("RefunddSavesFail").await;
    assert!(node.get("/metrics").await.text.contains("refundd_postgres_up 1\n"));
    scratch.resume("acme").await;
    status_says(&scratch, LIMITED, &["blocked", "failed to claim"]).await;
    lock.rollback().await.unwrap();
    // No caller comes meanwhile.
    health_says(&node, 200, "\"ready\"").await;
    assert_eq!(node.post("/v1/refunds", &refund("R-1", "acme")).await.status, 201);
    until("all are sent", async || scratch.count(State::Succeeded).await == 7).await;
    watch.is_quiet().await;
    node.stop().await;
}

#[tokio::test]
async fn the_role_of_the_nodes_lost_a_right() {
    let scratch = Scratch::new().await;
    let (node, mut watch) = healthy(&scratch, LIMITED).await;
    scratch.sql("revoke insert (refund_ref) on refundd.refunds from refundd_node").await;
    assert_eq!(node.post("/v1/refunds", &refund("R-1", "acme")).await.status, 500);
    health_says(&node, 503, "permission denied").await;
    watch.fires("RefunddSavesFail").await;
    scratch.sql("grant insert (refund_ref) on refundd.refunds to refundd_node").await;
    health_says(&node, 200, "\"ready\"").await;
    assert_eq!(node.post("/v1/refunds", &refund("R-1", "acme")).await.status, 201);
    node.stop().await;
}

/// The node can do its work: other refunds are saved.
#[tokio::test]
async fn a_producer_that_holds_one_ref_makes_no_node_unready() {
    let scratch = Scratch::new().await;
    let (node, mut watch) = healthy(&scratch, LIMITED).await;
    let mut holder = scratch.connect().await;
    let mut lock = holder.begin().await.unwrap();
    lock.execute(
        "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency)
         values ('R-1', 'acme', 'P', 1, 'EUR')",
    )
    .await
    .unwrap();
    assert_eq!(node.post("/v1/refunds", &refund("R-1", "acme")).await.status, 503);
    for _ in 0..20 {
        // `degraded` would be Redis on a busy machine.
        let health = node.get("/health/ready").await;
        assert_eq!(health.status, 200, "{}", health.text);
        watch.is_quiet().await;
    }
    lock.rollback().await.unwrap();
    node.stop().await;
}

/// Makes Postgres work on a refund for a number of seconds: the number before `s-` in its ref.
async fn make_some_slow(scratch: &Scratch) {
    for statement in [
        "create function public.takes_long() returns trigger language plpgsql as $$
         begin perform pg_sleep(split_part(new.refund_ref, 's-', 1)::float8); return new; end $$",
        "create trigger takes_long before insert on refundd.refunds for each row
           when (new.refund_ref like '%s-%') execute function public.takes_long()",
    ] {
        scratch.sql(statement).await;
    }
}

/// How many statements the trigger keeps busy.
async fn busy(scratch: &Scratch) -> i64 {
    let sleepers =
        "select count(*) from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()";
    scratch.number(sleepers).await
}

#[tokio::test]
async fn a_refund_on_which_postgres_works_too_long_fails_alone_and_makes_no_node_unready() {
    let scratch = Scratch::new().await;
    let (node, mut watch) = healthy(&scratch, LIMITED).await;
    make_some_slow(&scratch).await;
    let save = async |refund_ref: String| node.post("/v1/refunds", &refund(&refund_ref, "acme")).await.status;
    // While the first one is saved, the others gather for one commit.
    let others = async {
        until("the first is being saved", async || busy(&scratch).await == 1).await;
        let refs = std::iter::once("60s-slow".to_owned()).chain((0..50).map(|n| format!("R-{n}")));
        join_all(refs.map(save)).await
    };
    let (first, statuses) = tokio::join!(save("1s-first".to_owned()), others);
    assert_eq!(first, 201);
    assert_eq!(statuses[0], 503);
    assert!(statuses[1..].iter().all(|status| *status == 201), "{statuses:?}");
    for _ in 0..20 {
        let health = node.get("/health/ready").await;
        assert_eq!(health.status, 200, "{}", health.text);
        watch.is_quiet().await;
    }
    node.stop().await;
}

#[tokio::test]
async fn while_postgres_is_slow_for_every_refund_saves_leave_connections_to_the_channel_workers() {
    let scratch = Scratch::new().await;
    let (node, _) = healthy(&scratch, LIMITED).await;
    make_some_slow(&scratch).await;
    let refs = (0..100).map(|n| format!("60s-{n}"));
    let saves = join_all(
        refs.map(async |refund_ref| node.post("/v1/refunds", &refund(&refund_ref, "acme")).await.status),
    );
    let mut is_sent = false;
    let others = async {
        until("refunds of a group are saved alone", async || busy(&scratch).await >= 2).await;
        scratch.insert("acme", "R-", 1).await;
        until("another one is sent", async || scratch.count(State::Succeeded).await == 2).await;
        is_sent = true;
        std::future::pending::<()>().await;
    };
    let statuses = tokio::select! {
        statuses = saves => statuses,
        () = others => unreachable!(),
    };
    assert!(is_sent && statuses.iter().all(|status| *status == 503), "{is_sent}: {statuses:?}");
    health_says(&node, 503, "statement timeout").await;
    health_says(&node, 200, "\"ready\"").await;
    node.stop().await;
}

/// Of the six connections of a node in these tests.
const MOST_OF_CALLERS: i64 = 4;

/// How many statements the trigger keeps busy that began before the last heartbeat.
const BUSY_BESIDE_A_HEARTBEAT: &str =
    "select count(*) from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()
        and query_start < (select max(seen_at) from refundd.nodes)";

#[tokio::test]
async fn while_postgres_is_slow_for_every_acquire_the_channel_workers_and_heartbeats_have_connections() {
    let scratch = Scratch::new().await;
    let (node, _) = healthy(&scratch, LIMITED).await;
    for statement in [
        "create function public.takes_long() returns trigger language plpgsql as $$
         begin perform pg_sleep(60); return new; end $$",
        "create trigger takes_long before insert on refundd.permits for each row
           when (new.caller = 'slow') execute function public.takes_long()",
    ] {
        scratch.sql(statement).await;
    }
    let wanted = json!({ "caller": "slow" });
    // They never end, so callers use all of their connections for as long as the test looks.
    let acquires = join_all((0..40).map(async |_| {
        loop {
            node.post("/v1/limits/acme/acquire", &wanted).await;
        }
    }));
    let others = async {
        until("callers have all of their connections", async || busy(&scratch).await == MOST_OF_CALLERS)
            .await;
        // The page's reader waits for a connection of callers. The scrape waits behind no caller, and has what it reads itself.
        let (_, scrape) = tokio::join!(node.get("/v1/channels"), node.get("/metrics"));
        for metric in ["refundd_postgres_up 1\n", "refundd_snapshot_held_seconds "] {
            assert!(scrape.text.contains(metric), "{metric}: {}", scrape.text);
        }
        scratch.insert("acme", "R-", 1).await;
        let mut most = 0;
        until("a refund is sent", async || {
            most = most.max(busy(&scratch).await);
            scratch.count(State::Succeeded).await == 2
        })
        .await;
        until("a heartbeat is written while callers have all of their connections", async || {
            most = most.max(busy(&scratch).await);
            scratch.number(BUSY_BESIDE_A_HEARTBEAT).await == MOST_OF_CALLERS
        })
        .await;
        // The health check waits behind no caller.
        assert_eq!(node.get("/health/ready").await.status, 200);
        most
    };
    let most = tokio::select! {
        _ = acquires => unreachable!(),
        most = others => most,
    };
    assert!(most <= MOST_OF_CALLERS, "{most} connections are busy with callers");
    node.stop().await;
}

/// The two writers, two refunds that are saved alone, and two that wait for a lock.
const MOST_SAVES: i64 = 6;

#[tokio::test]
async fn while_another_transaction_holds_many_refs_saves_leave_connections_to_the_channel_workers() {
    let scratch = Scratch::new().await;
    let (node, _) = healthy(&scratch, LIMITED).await;
    let mut holder = scratch.connect().await;
    let mut producer = holder.begin().await.unwrap();
    producer
        .execute(
            "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency)
             select 'H-' || n, 'acme', 'P', 1, 'EUR' from generate_series(1, 100) n",
        )
        .await
        .unwrap();
    let waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
                      and query like '%requested as (%'";
    let save = async |n: i32| node.post("/v1/refunds", &refund(&format!("H-{n}"), "acme")).await.status;
    let saves = join_all((1..=100).map(|n| Box::pin(save(n))));
    let others = async {
        until("refunds wait for the lock", async || scratch.number(waiting).await >= 2).await;
        scratch.insert("acme", "R-", 1).await;
        let mut most = 0;
        until("another one is sent", async || {
            most = most.max(scratch.number(waiting).await);
            scratch.count(State::Succeeded).await == 2
        })
        .await;
        most
    };
    let most = tokio::select! {
        statuses = saves => panic!("answered {statuses:?} before the other one was sent"),
        most = others => most,
    };
    assert!(most <= MOST_SAVES, "{most} saves wait on a connection each");
    producer.rollback().await.unwrap();
    until("one of them is saved", async || save(1).await.is_success()).await;
    node.stop().await;
}
