//! Strangers who ask for a node's health.

use crate::dispatch::UNLIMITED;
use crate::harness::{Scratch, TestNode};

/// Strangers may ask for the health, so many of them must not take the connections that the node works with.
#[tokio::test]
async fn two_hundred_health_checks_at_once_share_one_ping_of_postgres() {
    let scratch = Scratch::new().await;
    for sql in [
        "create schema spy",
        "grant usage on schema spy to public",
        "create sequence spy.pings minvalue 0",
        "create function spy.pg_is_in_recovery() returns boolean language plpgsql security definer as $$ begin
             if current_query() like 'select pg_is_in_recovery()%' then perform nextval('spy.pings'); end if;
             return false;
         end $$",
        &format!("alter database {} set search_path = spy, pg_catalog", scratch.name),
    ] {
        scratch.sql(sql).await;
    }
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    let pings = async || scratch.number("select last_value from spy.pings").await;
    assert_eq!(node.get("/health/ready").await.status, 200);
    let before = pings().await;
    let began = std::time::Instant::now();
    let answers = futures_util::future::join_all((0..200).map(|_| node.get("/health/ready"))).await;
    let seconds = i64::try_from(began.elapsed().as_secs()).unwrap();
    assert!(answers.iter().all(|answer| answer.status == 200), "{answers:?}");
    let made = pings().await - before;
    assert!(made <= 2 + seconds, "{made} pings in {seconds} s");
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await; // longer than a ping is shared
    assert_eq!(node.get("/health/ready").await.status, 200);
    assert!(pings().await > before, "the pings are counted");
    node.stop().await;
}
