//! Limits whose windows are the days of a time zone.

use std::sync::Arc;

use jiff::tz::TimeZone;
use refundd::limiter::{Algorithm, Limit};
use refundd::metrics::Metrics;
use refundd::node::Node;
use refundd::refund::State;

use crate::harness::{NodeProcess, Scratch, until};

/// Five permits for each day of Tokyo.
pub const DAILY: &str = r#"
[limit.acme]
permits = 5
per = "1d"
time_zone = "Asia/Tokyo"
[channel.acme]
endpoint = "http://{bank}/acme/refunds"
limits = ["acme"]
"#;

#[tokio::test]
async fn a_running_node_publishes_days_by_the_newest_time_zone_database() {
    let scratch = Scratch::new().await;
    let config = scratch.config("a", DAILY);
    let node = Node::new("a", scratch.store.clone(), scratch.bucket(), Arc::new(Metrics::default()));
    // As if these zones had been those of Berlin when the node read its file.
    let berlin = std::fs::read("/usr/share/zoneinfo/Europe/Berlin").unwrap();
    let limits = ["Asia/Tokyo", "Mars/Olympus"].map(|zone| {
        let mut limit = Limit::clone(config.limits.values().next().unwrap());
        let zone = TimeZone::tzif(zone, &berlin).unwrap();
        limit.rule.algorithm = Algorithm::FixedWindow { zone: Some(zone) };
        Arc::new(limit)
    });
    node.publish_days(&limits).await.unwrap();
    let published = async |zone: &str, midnights: &str| {
        let days = format!(
            "select count(*) from refundd.zone_days where zone = '{zone}' and begins_at = day::timestamp at time zone '{midnights}'"
        );
        scratch.number(&days).await
    };
    assert_eq!(published("Asia/Tokyo", "Asia/Tokyo").await, 5, "the zone is read again");
    assert_eq!(
        published("Mars/Olympus", "Europe/Berlin").await,
        5,
        "a zone that is gone stays as it was read"
    );
}

#[tokio::test]
async fn a_permit_of_a_day_of_26_hours_is_good_until_the_next_day_begins() {
    let scratch = Scratch::new().await;
    // Both days began 25 hours and a half ago. The one lasts for half an hour more, and the other ended at 25 hours.
    for (zone, next) in
        [("Antarctica/Troll", "+ interval '30 minutes'"), ("Europe/Berlin", "- interval '30 minutes'")]
    {
        scratch
            .sql(&format!(
                "insert into refundd.zone_days (zone, day, begins_at, node)
                 values ('{zone}', '2026-10-25', now() - interval '25 hours 30 minutes', 'a'), ('{zone}', '2026-10-26', now() {next}, 'a')"
            ))
            .await;
    }
    let keeps = async |zone: &str, ordinal: i32| {
        let rule = format!(
            r#"{{"algorithm":"fixed_window","permits":5,"per_us":86400000000,"lateness_us":20000,"zone":"{zone}"}}"#
        );
        let of_the_day = format!(
            "select count(*) from refundd.zone_days d where d.zone = '{zone}' and d.day = '2026-10-25'
                and refundd.windows_keep_rule('{rule}', array[(extract(epoch from d.begins_at) * 1000000)::bigint], array[{ordinal}], 5000000)"
        );
        scratch.number(&of_the_day).await == 1
    };
    assert!(keeps("Antarctica/Troll", 5).await);
    assert!(!keeps("Antarctica/Troll", 6).await, "the day has no more permits than its number");
    assert!(!keeps("Europe/Berlin", 5).await, "the next day has begun");
}

/// A node publishes its days again by itself after half an hour.
#[tokio::test]
async fn days_that_postgres_lost_are_published_again_by_the_first_claim_that_is_refused() {
    let scratch = Scratch::new().await;
    let node = NodeProcess::start(&scratch, "a", &DAILY.replace("permits = 5", "permits = 5000"));
    scratch.insert("acme", "R-", 2).await;
    until("two are paid", async || scratch.count(State::Succeeded).await == 2).await;
    // As a failover does that loses the node's first commits.
    assert_eq!(scratch.sql("delete from refundd.zone_days").await, 5);
    scratch.insert("acme", "S-", 2).await;
    until("the other two are paid", async || scratch.count(State::Succeeded).await == 4).await;
    node.wait_for_line("Postgres had lost 5 days of the time zone of limit `acme`");
}
