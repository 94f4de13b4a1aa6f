//! The page stays quick with many channels and a long review list, and many viewers cost no more than one.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use refundd::refund::State;
use sqlx::Executor;

use super::see;
use crate::dispatch::UNLIMITED;
use crate::harness::{Scratch, TestNode, until};

/// The promise, for the program as it is measured; far more for a build without optimisation.
const MOST: Duration =
    if cfg!(debug_assertions) { Duration::from_secs(2) } else { Duration::from_millis(200) };

#[tokio::test]
#[ignore = "fills the servers of all tests with 100,000 rows; `make page-cost` runs it"]
async fn ten_thousand_channels_and_a_hundred_thousand_in_review_stay_quick() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    let mut owner = scratch.connect().await;
    let rows = "
        set session_replication_role = 'replica';
        insert into refundd.channels (channel, endpoint, settings, published_by)
        select 'bank-' || n, 'http://127.0.0.1:9/', '{}', 'test' from generate_series(1, 10000) n;
        insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency, state, attempts, reason)
        select 'R-' || n, 'bank-' || 1 + n % 500, 'P', n, 'EUR', 'review', 1, 'the bank answered 500' from generate_series(1, 100000) n;
        insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, started_at, outcome, moved_to, status)
        select id, channel, 'send', 1, 1, 'a#1', now(), 'review', 'review', 500 from refundd.refunds;
        analyze refundd.refunds; analyze refundd.attempts";
    owner.execute(rows).await.unwrap();
    until("all is counted", async || see(&node, "/review").await.text.contains("100,000 refunds")).await;
    let mut lines = Vec::new();
    for page in [
        "/",
        "/?page=50",
        "/?q=bank-77&show=trouble",
        "/channels/bank-77",
        "/refunds?q=R-77777",
        "/refunds/77777",
        "/refunds?q=P",
        "/approvals",
        "/events",
        "/events?channel=bank-77&from=1h",
        "/review",
        "/review?after=99000",
        "/review?channel=bank-77",
        "/nodes",
        "/proof",
        "/proof?channel=acme&from=1h",
    ] {
        let began = Instant::now();
        let answer = see(&node, page).await;
        let took = began.elapsed();
        assert!(answer.status == 200 || answer.status == 303, "{page}: {answer:?}");
        lines.push(format!("{page}: {} ms, {} KiB", took.as_millis(), answer.text.len() / 1024));
        assert!(took < MOST, "{page} took {took:?}");
    }
    println!("{}", lines.join("\n"));
    node.stop().await;
}

#[tokio::test]
async fn ten_viewers_of_a_channel_wait_for_one_read_on_one_connection() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    assert_eq!(see(&node, "/channels/acme").await.status, 200);
    let mut owner = scratch.connect().await;
    owner.execute("begin; lock table refundd.attempts in access exclusive mode").await.unwrap();
    let mut most = 0;
    let looking = async {
        until("a read of the page waits for the lock", async || {
            let waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
                              and query like '%, kind, outcome, status, code, count(*) as n%'";
            most = most.max(scratch.number(waiting).await);
            most > 0 && scratch.number(waiting).await == 0
        })
        .await;
    };
    let viewers = join_all((0..10).map(async |_| {
        loop {
            let status = see(&node, "/channels/acme").await.status;
            assert!(status == 200 || status == 503, "{status}");
        }
    }));
    tokio::select! {
        () = looking => {}
        _ = viewers => {}
    }
    assert_eq!(most, 1);
    owner.execute("rollback").await.unwrap();
    until("the page is back", async || see(&node, "/channels/acme").await.text.contains("What binds it"))
        .await;
    node.stop().await;
}

#[tokio::test]
async fn a_viewer_that_hangs_up_starts_no_second_proof_beside_the_first() {
    let scratch = Scratch::new().await;
    let limited = "[limit.acme]\npermits = 9\nper = \"1s\"\n[channel.acme]\nendpoint = \"http://{bank}/acme/refunds\"\nlimits = [\"acme\"]\n";
    let node = TestNode::start(&scratch, "a", limited).await;
    scratch.insert("acme", "R-", 1).await;
    until("it is sent", async || scratch.bank.look(|ledger| ledger.all().len()) == 1).await;
    let mut owner = scratch.connect().await;
    owner.execute("begin; lock table refundd.permits in access exclusive mode").await.unwrap();
    let proofs = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
                     and query like '%select min(limit_name) as name from refundd.permits%'";
    // Each of these viewers hangs up. The first proof waits in Postgres all the same.
    for _ in 0..4 {
        let proof = see(&node, "/proof?channel=acme&from=1h");
        assert!(tokio::time::timeout(Duration::from_millis(500), proof).await.is_err());
        let mut waiting = 0;
        until("a proof waits", async || {
            waiting = scratch.number(proofs).await;
            waiting > 0
        })
        .await;
        assert_eq!(waiting, 1, "one proof at a time, also when nobody waits for it");
    }
    owner.execute("rollback").await.unwrap();
    until("the place is free", async || see(&node, "/proof?channel=acme&from=1h").await.status == 200).await;
    node.stop().await;
}

#[tokio::test]
async fn a_viewer_that_asks_for_many_stories_and_hangs_up_leaves_one_read_behind() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    scratch.insert("acme", "R-", 12).await;
    until("all are sent", async || scratch.count(State::Succeeded).await == 12).await;
    let mut owner = scratch.connect().await;
    owner.execute("begin; lock table refundd.events in access exclusive mode").await.unwrap();
    let hang_up = join_all((1..=12).map(async |id| {
        let path = format!("/refunds/{id}");
        let story = tokio::time::timeout(Duration::from_secs(1), see(&node, &path)).await;
        assert!(story.is_err(), "{story:?}");
    }));
    hang_up.await;
    // Each read waits three seconds for the lock. Behind twelve of them this page would give up.
    let nodes = see(&node, "/nodes").await;
    assert_eq!(nodes.status, 200, "the page waits for stories that nobody wants: {nodes:?}");
    owner.execute("rollback").await.unwrap();
    until("the channel is shown", async || see(&node, "/channels/acme").await.text.contains("What binds it"))
        .await;
    node.stop().await;
}
