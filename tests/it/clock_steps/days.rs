//! The days of time zones, while Postgres's clock is days from the clocks of Redis and of the nodes.

use std::sync::Arc;

use refundd::metrics::Metrics;
use refundd::node::Node;

use super::{clocked, step};
use crate::harness::NodeProcess;
use crate::limits::days::DAILY;

#[tokio::test]
async fn days_are_published_by_postgres_clock_whatever_a_nodes_clock_shows() {
    let (postgres, scratch) = clocked("days").await;
    let config = scratch.config("a", DAILY);
    let limit = config.limits.values().next().unwrap();
    let node = Node::new("a", scratch.store.clone(), scratch.bucket(), Arc::new(Metrics::default()));
    for days in [10, -20] {
        step(&postgres, days * 86400);
        node.publish_days([limit]).await.unwrap();
        let near = "select count(*) from refundd.zone_days where begins_at between now() - interval '3 days' and now() + interval '4 days'";
        assert_eq!(scratch.number(near).await, 5, "after a step of {days} days");
        let now_us = scratch.number("select (extract(epoch from now()) * 1000000)::bigint").await;
        assert!(node.bucket.day_of(limit, now_us).is_some(), "after a step of {days} days");
    }
}

#[tokio::test]
async fn a_limit_without_a_published_day_says_which_clocks_to_correct() {
    let (postgres, scratch) = clocked("dayless").await;
    step(&postgres, 10 * 86400);
    let node = NodeProcess::start(&scratch, "a", DAILY);
    scratch.insert("acme", "R-", 1).await;
    node.wait_for_line("for that time no day of Asia/Tokyo is published");
}
