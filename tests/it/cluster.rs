//! Several nodes, one limit: by the bank's ledger, whatever happens to Redis and to the nodes.

use std::time::Duration;

use playground::PrivateRedis;
use playground::bank::Step;
use refundd::refund::State;
use rustix::process::Signal;

use crate::harness::{NodeProcess, Scratch, TestNode, within};

const SECOND: Duration = Duration::from_secs(1);

/// As many refunds of the channel below may be with the bank at once from one node.
const IN_FLIGHT: i64 = 100;

/// A channel whose one limit is so many permits a second.
pub fn limited(permits: u32) -> String {
    format!(
        r#"
[limit.acme]
permits = {permits}
per = "1s"
lateness = "100ms"
[channel.acme]
endpoint = "http://{{bank}}/acme/refunds"
limits = ["acme"]
max_in_flight = {IN_FLIGHT}
timeout = "2s"
connect_timeout = "1s"
"#
    )
}

fn worst(scratch: &Scratch) -> usize {
    scratch.bank.look(|l| l.worst_aligned_window("acme", SECOND).map_or(0, |w| w.count))
}

#[tokio::test]
async fn two_nodes_together_stay_within_the_window() {
    let scratch = Scratch::new().await;
    let a = TestNode::start(&scratch, "a", &limited(50)).await;
    let b = TestNode::start(&scratch, "b", &limited(50)).await;
    scratch.insert("acme", "R-", 250).await;
    assert!(scratch.bank.until(Duration::from_secs(30), |l| l.all().len() == 250).await);
    // A busy machine may use no window in full.
    assert!((25..=50).contains(&worst(&scratch)), "{} in a window", worst(&scratch));
    assert!(scratch.bank.ledger().repeated().is_empty());
    let spent = scratch
        .number("select max(n) from (select count(*) as n from refundd.permits group by window_start) w")
        .await;
    assert!((25..=50).contains(&spent), "{spent} permits of a window");
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn twenty_nodes_on_one_channel_of_one_a_second_send_one_a_second() {
    let scratch = Scratch::new().await;
    let mut nodes = Vec::new();
    for n in 0..20 {
        nodes.push(TestNode::start(&scratch, &format!("n{n}"), &limited(1)).await);
    }
    scratch.insert("acme", "R-", 8).await;
    assert!(scratch.bank.until(Duration::from_secs(30), |l| l.all().len() == 8).await);
    assert_eq!(worst(&scratch), 1);
    let usage = scratch.bank.look(|l| l.usage("acme", SECOND, 1)).unwrap();
    assert!(usage.share > 0.5, "{usage:?}");
    for node in nodes {
        node.stop().await;
    }
}

#[tokio::test]
async fn all_limits_of_a_channel_must_grant() {
    let scratch = Scratch::new().await;
    let two = limited(20).replace("[\"acme\"]", "[\"acme\", \"long\"]")
        + "[limit.long]\npermits = 30\nper = \"1h\"\n";
    let node = TestNode::start(&scratch, "a", &two).await;
    scratch.insert("acme", "R-", 100).await;
    let spent = "select count(*) from refundd.permits where limit_name = 'long'";
    within(Duration::from_mins(1), "the hour is used up", async || scratch.number(spent).await >= 30).await;
    tokio::time::sleep(Duration::from_millis(2500)).await; // long enough for two more windows of the short limit
    let sent = scratch.bank.look(|l| l.all().len());
    // A permit may close before its first byte leaves. An hour's edge may have passed meanwhile, at most once.
    let spent = scratch.number(spent).await;
    assert!((spent == 30 || spent == 60) && (21..=60).contains(&sent), "{sent} sent, {spent} permits");
    assert!(worst(&scratch) <= 20);
    node.stop().await;
}

#[tokio::test]
async fn flushing_redis_under_load_neither_breaks_the_limit_nor_loses_anything() {
    let redis = PrivateRedis::start().await.unwrap();
    let scratch = Scratch::with_redis(redis.url()).await;
    let a = TestNode::start(&scratch, "a", &limited(60)).await;
    let b = TestNode::start(&scratch, "b", &limited(60)).await;
    scratch.insert("acme", "R-", 400).await;
    let client = redis::Client::open(redis.admin_url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    for _ in 0..60 {
        redis::cmd("FLUSHALL").query_async::<()>(&mut connection).await.unwrap();
        tokio::time::sleep(Duration::from_millis(93)).await; // drifts through the window
    }
    assert!(
        scratch.bank.until(Duration::from_secs(40), |l| l.all().len() == 400).await,
        "{:?}",
        scratch.counts().await
    );
    assert!(worst(&scratch) <= 60, "{}", worst(&scratch));
    assert!(scratch.bank.ledger().repeated().is_empty());
    a.stop().await;
    b.stop().await;
    assert_eq!(scratch.count(State::Succeeded).await, 400);
}

#[tokio::test]
async fn a_token_bucket_that_redis_forgot_is_not_full_again() {
    let redis = PrivateRedis::start().await.unwrap();
    let scratch = Scratch::with_redis(redis.url()).await;
    let channels = "[limit.acme]\nalgorithm = \"token_bucket\"\nburst = 30\npermits = 4\nper = \"1s\"\nlateness = \"100ms\"\n\
                    [channel.acme]\nendpoint = \"http://{bank}/acme/refunds\"\nlimits = [\"acme\"]\n";
    let node = TestNode::start(&scratch, "a", channels).await;
    scratch.insert("acme", "R-", 100).await;
    // The burst, and two seconds at its rate: the ledger of one second shows nothing of the burst.
    let arrived = async |count| scratch.bank.until(Duration::from_secs(30), |l| l.all().len() >= count).await;
    assert!(arrived(38).await);
    redis.flush().await.unwrap();
    assert!(arrived(50).await);
    node.stop().await;
    let mut times: Vec<i64> = scratch.bank.look(|l| l.all().iter().map(|a| a.at_us).collect());
    times.sort_unstable();
    let after_the_burst = &times[30..];
    let fullest = after_the_burst
        .iter()
        .map(|from| after_the_burst.iter().filter(|at| (*from..from + 1_000_000).contains(*at)).count());
    assert!(fullest.max() <= Some(8), "{after_the_burst:?}");
}

#[tokio::test]
async fn redis_killed_and_restarted_empty_costs_seconds_and_nothing_else() {
    let redis = PrivateRedis::start().await.unwrap();
    let scratch = Scratch::with_redis(redis.url()).await;
    let node = TestNode::start(&scratch, "a", &limited(60)).await;
    scratch.insert("acme", "R-", 300).await;
    assert!(scratch.bank.until(Duration::from_secs(10), |l| l.all().len() >= 60).await);
    redis.kill_hard().await.unwrap();
    let saved = node.post("/v1/refunds", &crate::harness::node::refund("while-away", "acme")).await;
    assert_eq!(saved.status, 201, "enqueueing works while Redis is away");
    within(Duration::from_secs(10), "health tells that it is degraded", async || {
        let health = node.get("/health/ready").await;
        health.status == 200 && health.text.contains("degraded")
    })
    .await;
    redis.restart(None).await.unwrap();
    let before = scratch.bank.look(|l| l.all().len());
    let back = within(Duration::from_secs(20), "it sends again", async || {
        scratch.bank.look(|l| l.all().len()) > before
    })
    .await;
    println!("sending again {back:?} after Redis came back");
    assert!(back < Duration::from_secs(5), "{back:?}");
    assert!(scratch.bank.until(Duration::from_secs(30), |l| l.all().len() == 301).await);
    assert!(worst(&scratch) <= 60);
    assert!(scratch.bank.ledger().repeated().is_empty());
    node.stop().await;
}

#[tokio::test]
async fn an_old_snapshot_of_redis_cannot_spend_a_permit_twice() {
    let redis = PrivateRedis::start().await.unwrap();
    let scratch = Scratch::with_redis(redis.url()).await;
    let node = TestNode::start(&scratch, "a", &limited(40)).await;
    scratch.insert("acme", "R-", 300).await;
    assert!(scratch.bank.until(Duration::from_secs(10), |l| l.all().len() >= 40).await);
    for _ in 0..3 {
        let old = redis.snapshot().await.unwrap();
        let seen = scratch.bank.look(|l| l.all().len());
        scratch.bank.until(Duration::from_secs(5), |l| l.all().len() > seen).await;
        redis.kill_hard().await.unwrap();
        redis.restart(Some(&old)).await.unwrap();
    }
    assert!(scratch.bank.until(Duration::from_secs(40), |l| l.all().len() == 300).await);
    assert!(worst(&scratch) <= 40, "{}", worst(&scratch));
    assert!(scratch.bank.ledger().repeated().is_empty());
    node.stop().await;
}

#[tokio::test]
async fn a_node_killed_under_load_loses_nothing_and_repeats_nothing() {
    const COUNT: u32 = 2_000;
    let scratch = Scratch::new().await;
    scratch.bank.then("acme", Step::pays().after(Duration::from_millis(400)));
    let channels = limited(10_000).replace("timeout = \"2s\"", "timeout = \"5s\"\nlease = \"11s\"");
    let doomed = NodeProcess::start(&scratch, "doomed", &channels);
    scratch.insert("acme", "R-", COUNT).await;
    assert!(scratch.bank.until(Duration::from_secs(20), |l| l.all().len() >= 60).await);
    let survivor = TestNode::start(&scratch, "survivor", &channels).await;
    assert!(scratch.bank.until(Duration::from_secs(20), |l| l.all().len() >= 150).await);
    doomed.signal(Signal::KILL);
    let leased = scratch.number("select count(*) from refundd.refunds where lease_node like 'doomed%'").await;
    assert!(leased > 0, "it held leases when it died");
    let shown = "select count(*) from refundd.attempts where code = 'lease_lapsed'";
    within(Duration::from_mins(2), "every refund is settled or shown", async || {
        let counts = scratch.counts().await;
        counts.keys().all(|s| matches!(s, State::Succeeded | State::Review | State::Unknown))
            && scratch.number(shown).await > 0
    })
    .await;
    // What it wrote last may have been committed after the look above, and a claim among it.
    let shown = scratch.number(shown).await;
    assert!(shown <= IN_FLIGHT, "{shown} unknown of {leased} seen under a lease");
    let others =
        "select count(*) from refundd.attempts where code = 'lease_lapsed' and node not like 'doomed%'";
    assert_eq!(scratch.number(others).await, 0, "the node that lives lost no lease");
    let ledger = scratch.bank.ledger();
    assert!(ledger.repeated().is_empty(), "{:?}", ledger.repeated());
    let counts = scratch.counts().await;
    assert_eq!(counts.values().sum::<i64>(), i64::from(COUNT));
    assert_eq!(counts.get(&State::Succeeded).copied().unwrap_or(0), i64::from(COUNT) - shown);
    survivor.stop().await;
}
