//! Forecasts beside what happens: on a real node, by the times of the journal.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use playground::bank::Step;
use refundd::desk::forecasts::{Measured, Prospects};
use refundd::forecast::Climb;
use refundd::limiter::{Algorithm, Rule};
use refundd::refund::{LimitName, State};
use serde_json::Value;
use sqlx::Row;

use crate::harness::{Scratch, TestNode, until, window_lasts, within};

#[tokio::test]
async fn the_forecast_climbs_as_the_database_does() {
    let scratch = Scratch::new().await;
    for (percent, ceiling) in [(10, 100), (50, 80), (60, 60), (90, 95), (15, 20)] {
        for steps in (0..1_100).step_by(7) {
            let since = f64::from(steps) * 0.1 + 0.05;
            let share = scratch
                .number(&format!(
                    "select coalesce(refundd.slow_share({percent}::smallint, {ceiling}::smallint, 100000, now() - interval '{since} seconds'), 100)::bigint"
                ))
                .await;
            let climb = Climb { percent, ceiling, step: 0.1, since };
            let forecast = climb.shares()[0].1.map_or(100, i64::from);
            assert_eq!(forecast, share, "{percent} % to {ceiling} %, after {steps} steps");
        }
    }
}

async fn story(node: &TestNode, name: &str) -> Value {
    node.get(&format!("/v1/refunds/find?q={name}")).await.json()["story"].clone()
}

#[tokio::test]
async fn a_spent_quota_makes_the_backlog_wait_for_the_next_windows() {
    let scratch = Scratch::new().await;
    let channels = "[limit.hour]\npermits = 10\nper = \"1h\"\nlateness = \"100ms\"\n[limit.pace]\nalgorithm = \"paced\"\npermits = 20\nper = \"1s\"\nlateness = \"100ms\"\n\
                    [channel.acme]\nendpoint = \"http://{bank}/acme/refunds\"\nlimits = [\"hour\", \"pace\"]\n";
    let node = TestNode::start(&scratch, "a", channels).await;
    scratch.insert("acme", "R-", 35).await;
    // A permit of the hour whose slot of the pace was missed stays spent.
    let spent = "select count(*) from refundd.permits where limit_name = 'hour'";
    until("the hour is used up", async || scratch.number(spent).await == 10).await;
    // 25 or a few more wait: ten go in the next hour, ten in the one after it, and the others in the third.
    let left = "select (3600 - extract(epoch from now())::bigint % 3600 + 7200)";
    until("the forecast counts what is spent", async || {
        let channel = node.get("/v1/channels/acme").await.json();
        let expected = scratch.number(left).await;
        let drain = channel["expected_seconds_to_drain"].as_i64().unwrap_or(0);
        (21..=30).contains(&channel["backlog"].as_i64().unwrap()) && (drain - expected).abs() <= 5
    })
    .await;
    node.stop().await;
}

#[tokio::test]
async fn a_spent_share_makes_the_backlog_wait_for_what_living_nodes_may_send() {
    let scratch = Scratch::new().await;
    // One of two nodes lives, so ten may go each day.
    let channels = "[limit.day]\npermits = 20\nper = \"1d\"\nplacement = \"local_share\"\nnodes = 2\n\
                    [channel.acme]\nendpoint = \"http://{bank}/acme/refunds\"\nlimits = [\"day\"]\n";
    window_lasts(86_400, 120).await;
    let node = TestNode::start(&scratch, "a", channels).await;
    scratch.insert("acme", "R-", 35).await;
    let spent = "select count(*) from refundd.permits where limit_name like 'day.share%'";
    until("the share is used up", async || scratch.number(spent).await == 10).await;
    // 25 wait: ten go on each of the next two days, and the others on the third.
    let left = "select (86400 - extract(epoch from now())::bigint % 86400 + 172800)";
    until("the forecast counts the share", async || {
        let channel = node.get("/v1/channels/acme").await.json();
        let expected = scratch.number(left).await;
        let drain = channel["expected_seconds_to_drain"].as_i64().unwrap_or(0);
        channel["backlog"] == 25 && (drain - expected).abs() <= 5
    })
    .await;
    node.stop().await;
}

#[tokio::test]
async fn inquiries_about_accepted_refunds_slow_down_another_channel_of_their_limit() {
    let scratch = Scratch::new().await;
    let (algorithm, per, lateness) = (Algorithm::Paced, Duration::from_secs(1), Duration::from_millis(20));
    let rule = Rule { algorithm, permits: 10, per, lateness };
    let limit = LimitName::stored("shared");
    scratch.store.publish_rules("test", [(&limit, &rule)]).await.unwrap();
    for channel in ["acme", "globex"] {
        scratch.publish(channel).await;
        scratch.insert(channel, channel, 900).await;
    }
    scratch.lease("channel = 'globex'", "attempts = 1, first_sent_at = now()").await;
    scratch.release("channel = 'globex'", "state = 'accepted'").await;
    for step in [
        "update refundd.channels set settings = '{\"limits\": [{\"name\": \"shared\"}], \"inquiry\": {}}'",
        "update refundd.refunds set inquire_at = now() where channel = 'globex'",
        "insert into refundd.nodes (node, version, channels, config_digest) values ('b#1', '0', '{acme,globex}', 'd')",
    ] {
        scratch.sql(step).await;
    }
    let census = scratch.store.census().await.unwrap();
    let prospects = Prospects::read(&scratch.store, &census, &Measured::default()).await.unwrap();
    // A slot each 102 ms, and one in ten goes to inquiries. Without them the backlog would be gone after 91.8 s.
    let drain = prospects.ends()["acme"].unwrap().as_secs_f64();
    assert!((drain - 102.0).abs() < 1.0, "{drain} s");
}

#[tokio::test]
async fn a_refund_goes_when_its_story_says_so() {
    let scratch = Scratch::new().await;
    // So slow that a busy machine seldom misses a slot.
    let channels = "[limit.acme]\nalgorithm = \"paced\"\npermits = 1\nper = \"1s\"\nlateness = \"400ms\"\n[channel.acme]\n\
                    endpoint = \"http://{bank}/acme/refunds\"\nlimits = [\"acme\"]\n";
    let node = TestNode::start(&scratch, "a", channels).await;
    scratch.insert("acme", "R-", 24).await;
    until("it sends", async || scratch.count(State::Succeeded).await >= 2).await;
    let of_last = story(&node, "R-24").await;
    let place = of_last["place"].as_i64().unwrap();
    assert!((15..=22).contains(&place), "{of_last}");
    let expected: jiff::Timestamp = of_last["expected_at"].as_str().unwrap().parse().unwrap();
    until("it is paid", async || scratch.count(State::Succeeded).await == 24).await;
    let sent = "select (extract(epoch from max(started_at)) * 1000)::bigint from refundd.attempts";
    let sent = scratch.number(sent).await;
    // A busy machine misses some slots all the same.
    let most = 2_000.0 + of_last["expected_in_seconds"].as_f64().unwrap() * 250.0;
    let error = (sent - expected.as_millisecond()) as f64;
    assert!(error.abs() < most, "sent {sent}, expected {expected}");
    node.stop().await;
}

/// A channel, its number of refunds, and more of its keys.
type Loaded = (&'static str, u32, &'static str);

/// Mixed limits, each with its channels.
const MIXED: &[(&str, &[Loaded])] = &[
    ("permits = 10\nper = \"1s\"", &[("fixed", 400, "")]),
    ("algorithm = \"paced\"\npermits = 3\nper = \"1s\"", &[("paced", 200, "")]),
    ("algorithm = \"sliding_log\"\npermits = 30\nper = \"15s\"", &[("log", 180, "")]),
    ("algorithm = \"sliding_window\"\npermits = 30\nper = \"15s\"", &[("window", 170, "")]),
    ("algorithm = \"token_bucket\"\npermits = 3\nburst = 20\nper = \"1s\"", &[("bucket", 220, "")]),
    ("permits = 40\nper = \"30s\"", &[("quota", 180, "")]),
    ("algorithm = \"paced\"\npermits = 6\nper = \"1s\"", &[("shared-a", 300, ""), ("shared-b", 150, "")]),
    ("permits = 100\nper = \"1s\"", &[("slow", 350, "max_in_flight = 4\n")]),
    ("algorithm = \"paced\"\npermits = 4\nper = \"1s\"", &[("cooling", 150, "")]),
    ("algorithm = \"paced\"\npermits = 5\nper = \"1s\"", &[("later", 200, "")]),
];

/// The forecasts of more than a thousand refunds, each asked for at a random moment, beside the time of the first byte.
/// Prints the error as a share of the wait that was left.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures for two minutes: make forecast"]
async fn expected_times_beside_what_happened() {
    let scratch = Scratch::new().await;
    let mut channels = String::new();
    for (nth, (rule, of_limit)) in MIXED.iter().enumerate() {
        let _ = write!(channels, "[limit.l{nth}]\n{rule}\nlateness = \"100ms\"\n");
        for (name, _, more) in *of_limit {
            let _ = write!(
                channels,
                "[channel.{name}]\nendpoint = \"http://{{bank}}/{name}/refunds\"\nlimits = [\"l{nth}\"]\n{more}"
            );
        }
    }
    scratch.bank.then("slow", Step::pays().after(Duration::from_millis(600)));
    let node = TestNode::start(&scratch, "a", &channels).await;
    let all: Vec<(&str, u32)> = MIXED
        .iter()
        .flat_map(|(_, of_limit)| of_limit.iter().map(|(name, count, _)| (*name, *count)))
        .collect();
    for (name, count) in &all {
        scratch.insert(name, &format!("{name}-"), *count).await;
    }
    scratch
        .sql("update refundd.channels set cool_until = now() + interval '20 seconds', cool_reason = '429' where channel = 'cooling'")
        .await;
    scratch.sql("update refundd.refunds set due_at = now() + interval '25 seconds' where channel = 'later' and id % 2 = 0").await;
    // What binds and how long a request takes are measured first.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let mut names: Vec<String> =
        all.iter().flat_map(|(name, count)| (1..=*count).map(move |n| format!("{name}-{n}"))).collect();
    fastrand::shuffle(&mut names);
    let ask = async |name: String| {
        let story = story(&node, &name).await;
        let expected: jiff::Timestamp = story["expected_at"].as_str()?.parse().ok()?;
        let left = story["expected_in_seconds"].as_f64()?;
        Some((name, expected.as_microsecond() as f64 / 1e6, left))
    };
    let forecasts: Vec<Option<(String, f64, f64)>> =
        stream::iter(names).map(ask).buffer_unordered(4).collect().await;
    let forecasts: Vec<(String, f64, f64)> = forecasts.into_iter().flatten().collect();
    let count: u32 = all.iter().map(|(_, count)| count).sum();
    within(Duration::from_mins(4), "all are paid", async || {
        tokio::time::sleep(Duration::from_secs(1)).await;
        scratch.count(State::Succeeded).await == i64::from(count)
    })
    .await;
    let mut connection = scratch.connect().await;
    let rows = sqlx::query(
        "select r.refund_ref, r.channel, extract(epoch from a.started_at)::float8 as at
           from refundd.refunds r join refundd.attempts a on a.refund_id = r.id and a.started_at is not null",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap();
    let sent: BTreeMap<String, (String, f64)> =
        rows.iter().map(|row| (row.get("refund_ref"), (row.get("channel"), row.get("at")))).collect();
    let mut shares: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (name, expected, left) in &forecasts {
        let (channel, at) = &sent[name];
        let wait = at - (expected - left);
        if wait >= 1.0 {
            let share = (at - expected).abs() / wait;
            shares.entry(channel).or_default().push(share);
            shares.entry("all").or_default().push(share);
        }
    }
    for (channel, shares) in &mut shares {
        shares.sort_by(f64::total_cmp);
        let at = |percent: usize| shares[(shares.len() - 1) * percent / 100] * 100.0;
        println!(
            "forecast: {channel:<9} {:>5} refunds, error as a share of the wait: median {:.1} %, 95th percentile {:.1} %",
            shares.len(),
            at(50),
            at(95)
        );
    }
    node.stop().await;
    let all = &shares["all"];
    assert!(all.len() >= 1_000, "only {} forecasts of at least a second", all.len());
    assert!(all[all.len() / 2] < 0.1, "the median is {:.3}", all[all.len() / 2]);
}
