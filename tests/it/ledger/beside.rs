//! Turning the ledger's days beside a session that keeps one of its tables, such as a dump.

use std::sync::Arc;
use std::time::Duration;

use refundd::metrics::Metrics;
use refundd::node::Node;
use refundd::recovery::{Keep, Recovery};
use refundd::wake_up::WakeUps;
use sqlx::{Connection, Executor};

use crate::harness::Scratch;

/// The housekeeping comes every 20 seconds, and claims queue behind each try for a tenth of a second.
#[tokio::test]
async fn after_a_try_beside_a_long_reader_the_ledger_is_left_alone_for_a_minute() {
    let scratch = Scratch::new().await;
    let node = Node::new("a", scratch.store.clone(), scratch.bucket(), Arc::new(Metrics::default()));
    node.store.watch_clock(&node.name, None, false).await.unwrap();
    let keep = Keep { permits: Duration::from_hours(168), attempts: None, events: None };
    let recovery = || Recovery::new(node.clone(), WakeUps::of_sends(100), keep);
    let led_for = Duration::from_secs(1);
    recovery().keep_house(led_for).await.unwrap();
    let days = "select count(*) from refundd.spans('permits')";
    let all = scratch.number(days).await;
    let last = "do $$ begin
                    execute (select format('drop table refundd.%I', s.name) from refundd.spans('permits') s order by s.until desc limit 1);
                end $$";
    scratch.sql(last).await;
    let mut reader = scratch.connect().await;
    let mut reading = reader.begin().await.unwrap();
    reading.execute("lock table refundd.permits_of_other_days in access share mode").await.unwrap();
    let mut refused = recovery();
    refused.keep_house(led_for).await.unwrap();
    reading.rollback().await.unwrap();
    refused.keep_house(led_for).await.unwrap();
    assert_eq!(scratch.number(days).await, all - 1, "a minute is not over");
    recovery().keep_house(led_for).await.unwrap();
    assert!(scratch.number(days).await >= all, "another try makes the day");
}
