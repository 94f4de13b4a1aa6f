//! The turns that nodes reserve at a limit, and that outlive them in Redis.

use std::time::Duration;

use playground::Forger;

use super::channel;
use crate::harness::{Scratch, TestNode};

#[tokio::test]
async fn a_node_that_starts_after_all_others_died_waits_for_none_of_their_turns() {
    let scratch = Scratch::new().await;
    let file = channel("algorithm = \"paced\"\npermits = 10");
    let first = TestNode::start(&scratch, "a", &file).await;
    scratch.insert("acme", "R-", 3).await;
    assert!(scratch.bank.until(Duration::from_secs(30), |l| l.all().len() == 3).await);
    first.stop().await;
    // As nodes leave it that died while they waited.
    let soon = "select (extract(epoch from clock_timestamp() + interval '27 seconds') * 1000000)::bigint";
    let turn = scratch.number(soon).await.to_string();
    let limit = format!("{}:{{acme}}:limit", scratch.key_prefix());
    Forger::over(scratch.redis().await, limit).set(&[("turn", turn)]).await;
    let next = TestNode::start(&scratch, "b", &file).await;
    scratch.insert("acme", "S-", 20).await;
    let all_went = scratch.bank.until(Duration::from_secs(20), |l| l.all().len() == 23).await;
    assert!(all_went, "{} of 20 went", scratch.bank.look(|l| l.all().len()) - 3);
    next.stop().await;
}
