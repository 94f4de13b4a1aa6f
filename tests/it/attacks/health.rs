//! Strangers who ask for a node's health.

use crate::dispatch::UNLIMITED;
use crate::harness::servers::SERVERS;
use crate::harness::{Scratch, TestNode};

/// Strangers may ask for the health, so many of them must not take the connections that the node works with.
#[tokio::test]
async fn two_hundred_health_checks_at_once_share_one_ping_of_postgres() {
    let scratch = Scratch::new().await;
    // Then the server's log has each statement of the node. Of other databases it has no statement that succeeded.
    scratch.sql(&format!("alter database {} set log_statement = 'all'", scratch.name)).await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    let pings = || {
        let log = std::fs::read(SERVERS.postgres.folder().join("log")).unwrap();
        let log = String::from_utf8_lossy(&log);
        let is_ping = |line: &&str| {
            line.contains("execute") && line.contains(": select pg_is_in_recovery() as is_standby")
        };
        i64::try_from(log.lines().filter(is_ping).count()).unwrap()
    };
    assert_eq!(node.get("/health/ready").await.status, 200);
    let before = pings();
    let began = std::time::Instant::now();
    let answers = futures_util::future::join_all((0..200).map(|_| node.get("/health/ready"))).await;
    let seconds = i64::try_from(began.elapsed().as_secs()).unwrap();
    assert!(answers.iter().all(|answer| answer.status == 200), "{answers:?}");
    let made = pings() - before;
    assert!(made <= 2 + seconds, "{made} pings in {seconds} s");
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await; // longer than a ping is shared
    assert_eq!(node.get("/health/ready").await.status, 200);
    assert!(pings() > before, "the pings are counted");
    node.stop().await;
}
