//! Nodes start after days or months without one: no table of today is there.

use std::time::Duration;

use futures_util::future::join_all;
use refundd::recovery::Recovery;
use refundd::refund::State;
use refundd::store::{OtherSpans, Store};
use sqlx::{Connection, Executor};
use tokio::time::timeout;

use crate::alarms::LIMITED;
use crate::harness::{Scratch, TestNode, one_try_succeeds, until};

/// As after a gap that is longer than tables are made ahead.
const GAP: &str = "
    do $$ begin
        execute (select 'drop table ' || string_agg(format('refundd.%I', s.name), ', ')
                   from (select name from refundd.spans('permits') union all select name from refundd.spans('attempts')) s);
    end $$";

const TABLES: &str = "
    select count(*) from (select name from refundd.spans('permits') union all select name from refundd.spans('attempts')) s";

#[tokio::test]
async fn a_node_that_starts_after_a_gap_makes_the_tables_of_today_before_it_claims() {
    let scratch = Scratch::new().await;
    // It publishes the channel, so that refunds can be saved.
    TestNode::start(&scratch, "a", LIMITED).await.stop().await;
    scratch.sql(GAP).await;
    scratch.insert("acme", "R-", 30).await;
    let node = TestNode::start(&scratch, "b", LIMITED).await;
    until("the backlog is sent", async || scratch.count(State::Succeeded).await == 30).await;
    for evidence in ["permits", "attempts"] {
        assert!(
            scratch.number(&format!("select count(*) from refundd.{evidence}")).await >= 30,
            "{evidence}"
        );
    }
    let others = scratch.store.other_spans().await.unwrap();
    assert_eq!(others, OtherSpans { permits: 0, attempts: 0 });
    node.stop().await;
}

#[tokio::test]
async fn a_dump_that_reads_the_tables_of_other_days_and_months_keeps_no_node_from_its_start() {
    let scratch = Scratch::new().await;
    scratch.sql(GAP).await;
    let mut reader = scratch.connect().await;
    let mut reading = reader.begin().await.unwrap();
    let dump =
        "lock table refundd.permits_of_other_days, refundd.attempts_of_other_months in access share mode";
    reading.execute(dump).await.unwrap();
    let node = timeout(Duration::from_mins(1), TestNode::start(&scratch, "a", LIMITED)).await.unwrap();
    scratch.insert("acme", "R-", 3).await;
    until("they are sent", async || scratch.count(State::Succeeded).await == 3).await;
    reading.rollback().await.unwrap();
    node.stop().await;
}

#[tokio::test]
async fn twenty_nodes_that_start_at_once_make_all_tables_of_today() {
    one_try_succeeds(3, twenty_make_all_tables).await;
}

async fn twenty_make_all_tables() -> Result<(), String> {
    let scratch = Scratch::new().await;
    scratch.sql(GAP).await;
    let stores: Vec<Store> = (0..20).map(|_| Store::open(&scratch.database_url, None, 1).unwrap()).collect();
    let made = timeout(Duration::from_mins(1), join_all(stores.iter().map(Recovery::make_tables))).await;
    let tables = scratch.number(TABLES).await;
    if made.is_ok() && tables == 6 { Ok(()) } else { Err(format!("{tables} tables: {made:?}")) }
}
