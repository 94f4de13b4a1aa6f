//! Outages that nobody mends by hand: every connection is given up and made again by the node itself. All
//! cells of the matrix are measured by `make outages`.

mod logins;
mod many_channels;
mod refusals;
mod rows;
mod unheard;

use std::time::Duration;

use playground::forward::Forward;
use playground::{PrivateRedis, RedisOptions, RedisPair, Sentinels, Weather};
use refundd::config::Config;
use refundd::daemon::Daemon;
use refundd::refund::State;
use sqlx::Executor;

use crate::cluster;
use crate::harness::http::get;
use crate::harness::servers::SERVERS;
use crate::harness::{Scratch, TestNode, until, within};

const SECOND: Duration = Duration::from_secs(1);
const PERMITS: u32 = 50;

fn limited() -> String {
    cluster::limited(PERMITS)
}

/// Waits until more has arrived at the bank than by now, for at most the promised time.
async fn sends_again(scratch: &Scratch) {
    let before = scratch.bank.look(|l| l.all().len());
    within(Duration::from_secs(5), "it sends again", async || {
        scratch.bank.look(|l| l.all().len()) > before + 5
    })
    .await;
}

fn is_kept(scratch: &Scratch) {
    let worst = scratch.bank.look(|l| l.worst_aligned_window("acme", SECOND).map_or(0, |w| w.count));
    assert!(worst <= PERMITS as usize, "{worst}");
    assert!(scratch.bank.ledger().repeated().is_empty());
}

#[tokio::test]
async fn a_redis_that_was_demoted_is_left_for_the_one_in_its_place() {
    let redis = RedisPair::start(&RedisOptions::default(), 1).await.unwrap();
    let scratch = Scratch::with_redis(redis.url(0)).await;
    let node = TestNode::start(&scratch, "a", &limited()).await;
    scratch.insert("acme", "R-", 2000).await;
    sends_again(&scratch).await;
    for _ in 0..2 {
        redis.depose().await.unwrap();
        sends_again(&scratch).await;
    }
    is_kept(&scratch);
    node.stop().await;
    redis.stop().await.unwrap();
}

#[tokio::test]
async fn a_node_connects_anew_to_a_redis_that_stopped_answering() {
    let redis = RedisPair::start(&RedisOptions::default(), 1).await.unwrap();
    let scratch = Scratch::with_redis(redis.url(0)).await;
    let node = TestNode::start(&scratch, "a", &limited()).await;
    scratch.insert("acme", "R-", 2000).await;
    sends_again(&scratch).await;
    redis.door(0).set(Weather::Deaf);
    until("the node sends nothing", async || {
        let before = scratch.bank.look(|l| l.all().len());
        tokio::time::sleep(Duration::from_millis(1500)).await;
        scratch.bank.look(|l| l.all().len()) == before
    })
    .await;
    redis.door(0).set(Weather::Fair);
    sends_again(&scratch).await;
    is_kept(&scratch);
    node.stop().await;
    redis.stop().await.unwrap();
}

/// The network forgets every connection for a moment, as when a firewall restarts. Each statement under way waits for
/// an answer that never comes, and each idle connection is lost as well.
#[tokio::test]
async fn a_moment_in_which_every_connection_to_postgres_is_lost_costs_less_than_the_promised_time() {
    let scratch = Scratch::new().await;
    let way = Forward::start(&SERVERS.postgres.socket()).unwrap();
    let around = SERVERS.postgres.url_through(way.address(), &scratch.name);
    let text = scratch.file("a", &limited()).replace(&scratch.database_url, &around);
    let config = Config::parse(&text, "test.toml", &|_| None).unwrap_or_else(|error| panic!("{error}"));
    let node = Daemon::start(config, || {}).await.unwrap();
    scratch.insert("acme", "R-", 3000).await;
    sends_again(&scratch).await;
    way.set(Weather::Deaf);
    tokio::time::sleep(Duration::from_millis(100)).await;
    way.set(Weather::Fair);
    // Requests whose claims were committed before may still arrive.
    tokio::time::sleep(Duration::from_millis(200)).await;
    sends_again(&scratch).await;
    is_kept(&scratch);
    node.stop(tokio_util::sync::CancellationToken::new()).await;
}

#[tokio::test]
async fn a_fail_over_by_sentinel_is_followed_and_keeps_the_limit() {
    let redis = RedisPair::start(&RedisOptions::default(), 1).await.unwrap();
    redis.attach().await.unwrap();
    let sentinels = Sentinels::watch(redis.primary()).await.unwrap();
    let scratch = Scratch::with_redis(sentinels.url()).await;
    let a = TestNode::start(&scratch, "a", &limited()).await;
    let b = TestNode::start(&scratch, "b", &limited()).await;
    scratch.insert("acme", "R-", 3000).await;
    sends_again(&scratch).await;
    redis.primary().kill_hard().await.unwrap();
    until("the sentinels agree on the replica", async || sentinels.name(redis.second()).await).await;
    sends_again(&scratch).await;
    // The old one comes back and takes itself for a primary until the sentinels tell it otherwise.
    redis.primary().restart(None).await.unwrap();
    sends_again(&scratch).await;
    is_kept(&scratch);
    a.stop().await;
    b.stop().await;
    sentinels.stop().await.unwrap();
    redis.stop().await.unwrap();
}

#[tokio::test]
async fn conversations_with_postgres_that_are_ended_under_load_lose_and_repeat_nothing() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", &limited().replace("50", "400")).await;
    scratch.insert("acme", "R-", 1500).await;
    for _ in 0..5 {
        sends_again(&scratch).await;
        SERVERS.postgres.terminate_backends(&scratch.name).await.unwrap();
    }
    assert!(scratch.bank.until(Duration::from_secs(40), |l| l.all().len() == 1500).await);
    within(Duration::from_secs(20), "all are settled", async || {
        scratch.count(State::Succeeded).await == 1500
    })
    .await;
    assert!(scratch.bank.ledger().repeated().is_empty());
    node.stop().await;
}

#[tokio::test]
async fn a_node_that_starts_while_postgres_takes_no_writes_waits_for_it() {
    let scratch = Scratch::new().await;
    let name = &scratch.name;
    scratch.sql(&format!("alter database {name} set default_transaction_read_only = on")).await;
    let listen = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let text = scratch.file("a", &limited()).replace("127.0.0.1:0", &listen.to_string());
    let config = Config::parse(&text, "test.toml", &|_| None).unwrap_or_else(|error| panic!("{error}"));
    let (waits, mut waiting) = tokio::sync::mpsc::unbounded_channel();
    let starting = Daemon::start(config, || {
        waits.send(()).ok();
    });
    let mending = async {
        waiting.recv().await.unwrap();
        assert_eq!(get(listen, "/health/live").await.unwrap().0, 200);
        for path in ["/health/ready", "/v1/channels"] {
            let (status, refused) = get(listen, path).await.unwrap();
            assert!(status == 503 && refused.contains("starting"), "{refused}");
        }
        // Only conversations that begin from now on may write.
        let mut mender = scratch.connect().await;
        mender.execute("set default_transaction_read_only = off").await.unwrap();
        let mend = sqlx::AssertSqlSafe(format!("alter database {name} reset default_transaction_read_only"));
        mender.execute(mend).await.unwrap();
    };
    let (daemon, ()) = tokio::join!(starting, mending);
    let daemon = daemon.unwrap();
    scratch.insert("acme", "R-", 20).await;
    sends_again(&scratch).await;
    daemon.stop(tokio_util::sync::CancellationToken::new()).await;
}

/// A full disk or a lost right: Postgres answers, and this node can write nothing.
#[tokio::test]
async fn a_node_from_which_postgres_takes_no_writes_is_not_ready_and_says_so() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", &limited()).await;
    assert_eq!(node.get("/health/ready").await.json()["status"], "ready");
    scratch
        .sql("create function refundd.full_disk() returns trigger language plpgsql as $$ begin raise disk_full; end $$")
        .await;
    scratch
        .sql("create trigger full_disk before insert or update on refundd.nodes for each row execute function refundd.full_disk()")
        .await;
    until("it is not ready", async || node.get("/health/ready").await.status == 503).await;
    let answer = node.get("/health/ready").await;
    assert!(answer.text.contains("took no heartbeat"), "{}", answer.text);
    assert!(node.get("/metrics").await.text.contains("refundd_postgres_up 0\n"));
    scratch.sql("drop trigger full_disk on refundd.nodes").await;
    until("it is ready", async || node.get("/health/ready").await.status == 200).await;
    assert!(node.get("/metrics").await.text.contains("refundd_postgres_up 1\n"));
    node.stop().await;
}

/// A Redis without free memory still answers what only reads. So every second call of a node works.
#[tokio::test]
async fn a_redis_that_refuses_scripts_is_reported_all_the_time_and_not_by_turns() {
    let redis = PrivateRedis::start().await.unwrap();
    let scratch = Scratch::with_redis(redis.url()).await;
    let node = TestNode::start(&scratch, "a", &limited()).await;
    scratch.insert("acme", "R-", 1).await;
    until("the first is sent", async || scratch.count(State::Succeeded).await == 1).await;
    let mut client =
        redis::Client::open(redis.admin_url()).unwrap().get_multiplexed_async_connection().await.unwrap();
    let mut set_memory = async |bytes: u32| {
        let mut set = redis::cmd("CONFIG");
        set.arg("SET").arg("maxmemory").arg(bytes).query_async::<()>(&mut client).await.unwrap();
    };
    set_memory(1).await;
    scratch.insert("acme", "S-", 5).await;
    let is_degraded = async || node.get("/health/ready").await.json()["status"] == "degraded";
    until("it is degraded", is_degraded).await;
    for _ in 0..30 {
        assert!(is_degraded().await);
        assert!(node.get("/metrics").await.text.contains("refundd_redis_up 0\n"));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    set_memory(0).await;
    until("all are sent", async || scratch.count(State::Succeeded).await == 6).await;
    until("it is ready", async || !is_degraded().await).await;
    node.stop().await;
}

#[tokio::test]
async fn a_node_that_loses_postgres_alone_leaves_its_permits_to_the_others() {
    leaves_its_permits_while(Weather::Closed, 4).await;
}

#[tokio::test]
async fn a_node_whose_way_to_postgres_alone_is_silent_leaves_its_permits_to_the_others() {
    leaves_its_permits_while(Weather::Dark, 10).await;
}

/// Both nodes still reach Redis. A permit that the cut-off node takes is lost for the other one.
async fn leaves_its_permits_while(weather: Weather, long: u32) {
    let scratch = Scratch::new().await;
    let way = Forward::start(&SERVERS.postgres.socket()).unwrap();
    let around = SERVERS.postgres.url_through(way.address(), &scratch.name);
    let text = scratch.file("a", &limited()).replace(&scratch.database_url, &around);
    let config = Config::parse(&text, "test.toml", &|_| None).unwrap_or_else(|error| panic!("{error}"));
    let cut_off = Daemon::start(config, || {}).await.unwrap();
    let node = TestNode::start(&scratch, "b", &limited()).await;
    scratch.insert("acme", "R-", 3000).await;
    sends_again(&scratch).await;
    way.set(weather);
    // A span in which the other node gets nearly all permits: a node that goes on taking would leave it half. A silent
    // claim fails only after some seconds.
    within(Duration::from_mins(1), "the other node has the whole rate", async || {
        let before = scratch.bank.look(|l| l.all().len());
        tokio::time::sleep(SECOND * long).await;
        let sent = scratch.bank.look(|l| l.all().len()) - before;
        sent >= (PERMITS * long) as usize * 3 / 4
    })
    .await;
    way.set(Weather::Fair);
    is_kept(&scratch);
    cut_off.stop(tokio_util::sync::CancellationToken::new()).await;
    node.stop().await;
}
