//! Every kind of limit at the bank's door, on two nodes that share it.

mod acquired;
mod agreed;
mod beside;
mod bursts;
pub mod days;
mod ended;
mod in_memory;
mod newer;
mod outdated;
mod overruled;
mod refused;
mod share_locks;
mod shares;
mod turns;

use std::time::Duration;

use futures_util::future::join_all;
use playground::rule::TestAlgorithm;
use refundd::limiter::Algorithm;
use refundd::refund::State;
use serde_json::json;

use crate::harness::{Scratch, TestNode, until};

const SECOND: Duration = Duration::from_secs(1);

/// The lateness is that of a machine that runs eight tests at a time.
fn channel(rule: &str) -> String {
    format!(
        "[limit.acme]\n{rule}\nper = \"1s\"\nlateness = \"100ms\"\n[channel.acme]\nendpoint = \"http://{{bank}}/acme/refunds\"\n\
         limits = [\"acme\"]\nmax_in_flight = 50\n"
    )
}

/// Sends under a rule from two nodes until `count` arrived; answers the scratch with the bank's ledger.
async fn saturate(rule: &str, count: usize) -> Scratch {
    let scratch = Scratch::new().await;
    let channels = channel(rule);
    let a = TestNode::start(&scratch, "a", &channels).await;
    let b = TestNode::start(&scratch, "b", &channels).await;
    scratch.insert("acme", "R-", u32::try_from(count).unwrap() + 50).await;
    let arrived = scratch.bank.until(Duration::from_secs(30), |l| l.all().len() >= count).await;
    assert!(arrived, "{rule}: {} of {count} arrived", scratch.bank.look(|l| l.all().len()));
    a.stop().await;
    b.stop().await;
    scratch
}

fn fullest_span(scratch: &Scratch) -> usize {
    scratch.bank.look(|l| l.worst_rolling_span("acme", SECOND).map_or(0, |w| w.count))
}

fn rate(scratch: &Scratch) -> f64 {
    scratch.bank.look(|l| l.rate("acme")).unwrap_or_default()
}

#[tokio::test]
async fn paced_sends_no_more_than_its_number_in_any_second_and_evenly() {
    let scratch = saturate("algorithm = \"paced\"\npermits = 50", 200).await;
    assert!(fullest_span(&scratch) <= 50, "{}", fullest_span(&scratch));
    assert!(rate(&scratch) > 10.0, "{}", rate(&scratch));
    // Two sends are never closer than the spacing less the permit's life and what the way may vary.
    let mut times: Vec<i64> = scratch.bank.look(|l| l.all().iter().map(|a| a.at_us).collect());
    times.sort_unstable();
    let close = times.windows(2).filter(|pair| pair[1] - pair[0] < 400).count();
    assert!(close * 20 < times.len(), "{close} of {} gaps below 0.4 ms", times.len());
}

/// Sends under 50 permits a second of an algorithm. No second has more sends, and they go on.
async fn fills_no_second(algorithm: &str) {
    let scratch = saturate(&format!("algorithm = \"{algorithm}\"\npermits = 50"), 220).await;
    assert!(fullest_span(&scratch) <= 50, "{}", fullest_span(&scratch));
    assert!(rate(&scratch) > 10.0, "{}", rate(&scratch));
}

#[tokio::test]
async fn sliding_log_sends_no_more_than_its_number_in_any_second() {
    fills_no_second("sliding_log").await;
}

#[tokio::test]
async fn sliding_window_sends_no_more_than_its_number_in_any_second() {
    fills_no_second("sliding_window").await;
}

#[tokio::test]
async fn token_bucket_sends_its_burst_and_then_at_its_rate() {
    let scratch = saturate("algorithm = \"token_bucket\"\nburst = 30\npermits = 50", 220).await;
    let fullest = fullest_span(&scratch);
    assert!((51..=80).contains(&fullest), "{fullest}");
    assert!(rate(&scratch) > 10.0, "{}", rate(&scratch));
}

#[tokio::test]
async fn fixed_window_sends_no_more_than_its_number_in_each_second() {
    let scratch = saturate("permits = 50", 220).await;
    let fullest = scratch.bank.look(|l| l.worst_aligned_window("acme", SECOND).map_or(0, |w| w.count));
    assert!(fullest <= 50, "{fullest}");
}

#[tokio::test]
async fn a_channel_may_have_a_limit_for_the_second_and_one_for_the_day_and_says_which_one_it_waits_for() {
    let scratch = Scratch::new().await;
    let channels = "[limit.second]\nalgorithm = \"paced\"\npermits = 40\nper = \"1s\"\n\
                    [limit.day]\npermits = 25\nper = \"1d\"\ntime_zone = \"Asia/Tokyo\"\n\
                    [channel.acme]\nendpoint = \"http://{bank}/acme/refunds\"\nlimits = [\"second\", \"day\"]\n\
                    [channel.other]\nendpoint = \"http://{bank}/other/refunds\"\nlimits = [\"day\"]\n";
    let node = TestNode::start(&scratch, "a", channels).await;
    scratch.insert("other", "O-", 5).await;
    until("the other channel took five of the day", async || scratch.count(State::Succeeded).await == 5)
        .await;
    scratch.insert("acme", "R-", 30).await;
    // A permit of the day whose slot of the second was missed stays spent.
    let spent = "select count(*) from refundd.permits where limit_name = 'day'";
    until("the day is used up", async || scratch.number(spent).await == 25).await;
    until("it says so", async || {
        let channels = node.get("/v1/channels").await.json();
        channels["channels"][0]["waits_for"]["limit"] == "day"
    })
    .await;
    let waits_for = "select coalesce(standing #>> '{waits,acme,limit}', '') from refundd.nodes";
    until("status can tell of it, too", async || scratch.text(waits_for).await == "day").await;
    let sent = scratch.bank.look(|l| l.all().len());
    assert!(sent <= 25, "{sent}");
    node.stop().await;
}

#[tokio::test]
async fn while_files_differ_the_stricter_rule_counts_and_the_node_says_so() {
    let scratch = Scratch::new().await;
    let loose = TestNode::start(&scratch, "loose", &channel("permits = 100")).await;
    scratch.insert("acme", "R-", 400).await;
    assert!(scratch.bank.until(Duration::from_secs(10), |l| l.all().len() >= 20).await);
    let strict = TestNode::start(&scratch, "strict", &channel("permits = 10")).await;
    until("the loose node says that it is overruled", async || {
        let channels = loose.get("/v1/channels").await.json();
        channels["channels"][0]["limits"][0]["overruled_by"]
            .as_str()
            .is_some_and(|by| by.starts_with("10 in each "))
    })
    .await;
    until("its metric says so, too", async || {
        loose.get("/metrics").await.text.contains("refundd_limit_overruled{limit=\"acme\"} 1")
    })
    .await;
    let now = scratch.now_us().await;
    let before = scratch.bank.look(|l| l.all().len());
    assert!(scratch.bank.until(Duration::from_secs(20), |l| l.all().len() >= before + 45).await);
    let mut seconds = std::collections::BTreeMap::<i64, usize>::new();
    for arrival in scratch.bank.ledger().all().iter().filter(|a| a.at_us >= now - now % 1_000_000 + 1_000_000)
    {
        *seconds.entry(arrival.at_us / 1_000_000).or_default() += 1;
    }
    assert!(seconds.values().all(|n| *n <= 10), "{seconds:?}");
    strict.stop().await;
    until("the loose rule is in force again", async || {
        let channels = loose.get("/v1/channels").await.json();
        channels["channels"][0]["limits"][0]["overruled_by"].is_null()
    })
    .await;
    loose.stop().await;
}

#[tokio::test]
async fn when_nodes_go_nobody_waits_for_their_turns() {
    let scratch = Scratch::new().await;
    let mut nodes = Vec::new();
    for n in 0..8 {
        nodes.push(TestNode::start(&scratch, &format!("n{n}"), &channel("permits = 1")).await);
    }
    scratch.insert("acme", "R-", 60).await;
    assert!(scratch.bank.until(Duration::from_secs(20), |l| l.all().len() >= 6).await);
    let last = nodes.pop().unwrap();
    for node in nodes {
        node.stop().await;
    }
    let before = scratch.bank.look(|l| l.all().len());
    // At one a second; a turn that was left to a node that is gone would be due up to 28 s later.
    assert!(scratch.bank.until(Duration::from_secs(20), |l| l.all().len() >= before + 5).await);
    last.stop().await;
}

#[tokio::test]
async fn a_generation_that_the_database_raised_lowered_or_lost_stops_no_limit() {
    let rules =
        ["permits = 20", "algorithm = \"paced\"\npermits = 20", "algorithm = \"sliding_log\"\npermits = 20"];
    join_all(rules.map(async |rule| {
        let scratch = Scratch::new().await;
        let node = TestNode::start(&scratch, "a", &channel(rule)).await;
        for (round, statement) in [
            // The first finds no row yet.
            "update refundd.limits set generation = generation + 5",
            "update refundd.limits set generation = generation + 5",
            "update refundd.limits set generation = generation - 1",
            "delete from refundd.limits",
        ]
        .into_iter()
        .enumerate()
        {
            scratch.sql(statement).await;
            let before = scratch.bank.look(|l| l.all().len());
            scratch.insert("acme", &format!("R-{round}-"), 10).await;
            let arrived = scratch.bank.until(Duration::from_mins(1), |l| l.all().len() >= before + 10).await;
            assert!(arrived, "{rule}: nothing goes after `{statement}`");
        }
        node.stop().await;
    }))
    .await;
}

#[tokio::test]
async fn two_time_zone_databases_give_one_day_one_number() {
    let scratch = Scratch::new().await;
    // Another node was here first, and in its database Tokyo's days begin half an hour earlier.
    let day =
        "date_trunc('day', now() at time zone 'Asia/Tokyo') + n * interval '1 day' - interval '30 minutes'";
    scratch
        .sql(&format!(
            "insert into refundd.zone_days (zone, day, begins_at, node)
             select 'Asia/Tokyo', (now() at time zone 'Asia/Tokyo')::date + n, ({day}) at time zone 'Asia/Tokyo', 'other' from generate_series(-1, 3) n"
        ))
        .await;
    let node = TestNode::start(&scratch, "a", days::DAILY).await;
    scratch.insert("acme", "R-", 9).await;
    until("the day is used up", async || scratch.count(State::Succeeded).await == 5).await;
    let foreign = "select count(*) from refundd.permits p where not exists (select from refundd.zone_days d where d.begins_at = p.window_start)";
    assert_eq!(scratch.number(foreign).await, 0, "the windows are those of the published days");
    // A node of an older version, or a forged Redis, speaks of a window by its own midnight.
    let mut redis = scratch.redis().await;
    let own = scratch
        .number("select (extract(epoch from date_trunc('day', now() at time zone 'Asia/Tokyo') at time zone 'Asia/Tokyo') * 1000000)::bigint")
        .await;
    let key = format!("{}:{{acme}}:limit", scratch.key_prefix());
    redis::cmd("HSET")
        .arg(&key)
        .arg("window")
        .arg(own)
        .arg("used")
        .arg(0)
        .query_async::<()>(&mut redis)
        .await
        .unwrap();
    until("it is refused", async || {
        let answer = node.post("/v1/limits/acme/acquire", &json!({ "permits": 1 })).await;
        assert_ne!(answer.status, 200, "{}", answer.text);
        answer.status == 429
    })
    .await;
    assert_eq!(scratch.number("select count(*) from refundd.permits").await, 5);
    // Whatever Redis says, the ledger takes no permit of such a window.
    let name = refundd::refund::LimitName::stored("acme");
    let generation = scratch.store.generation(&name).await.unwrap();
    let number = |window_start_us| {
        refundd::limiter::PermitNumber {
        limit: name.clone(),
        window_start_us,
        ordinal: 6,
        generation,
        own_rule: r#"{"algorithm":"fixed_window","permits":9,"per_us":86400000000,"lateness_us":20000,"zone":"Asia/Tokyo"}"#.into(),
        stricter_rule: None,
        counted: refundd::limiter::Counted::default(),
    }
    };
    let permit = |window| refundd::limiter::Permit { numbers: vec![number(window)], span: None };
    let shared = own - 1_800_000_000;
    for (window, spent) in [(own, refundd::store::Spent::Refused), (shared, refundd::store::Spent::Yes)] {
        let done = scratch
            .store
            .spend(&[permit(window)], "shop", "node-b", Duration::from_secs(4_000_000_000), &[])
            .await;
        assert_eq!(done.unwrap(), spent, "{window}");
    }
    node.stop().await;
}

#[tokio::test]
async fn a_strict_gap_keeps_any_two_requests_as_far_apart_as_the_bank_wants() {
    let scratch = saturate("algorithm = \"paced\"\ngap = \"strict\"\npermits = 10", 40).await;
    let mut times: Vec<i64> = scratch.bank.look(|l| l.all().iter().map(|a| a.at_us).collect());
    times.sort_unstable();
    let closest = times.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap();
    assert!(closest >= 100_000, "{closest} us between two requests");
    assert!(rate(&scratch) > 3.0, "{}", rate(&scratch));
}

/// Other tests, benches and the simulation go through `TestAlgorithm::ALL`, which knows nothing of refundd.
#[test]
fn the_playground_has_every_algorithm() {
    let all = Algorithm::all(1, 1);
    let known = all.iter().filter(|algorithm| !algorithm.keeps_gap()).map(Algorithm::name);
    assert!(known.eq(TestAlgorithm::ALL.map(TestAlgorithm::name)), "add it to crates/playground/src/rule.rs");
}
