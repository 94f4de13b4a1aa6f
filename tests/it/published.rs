//! What nodes publish of their channels and rules: recovery, the feeder, the checks of producers and `prove` obey it, so it
//! must be what the living nodes run.

use crate::dispatch::UNLIMITED;
use crate::harness::{Scratch, TestNode};

const NEWEST_RULE: &str = "select (rule ->> 'permits')::bigint from refundd.limit_rules where limit_name = 'acme' order by published_at desc limit 1";

/// Channel `acme` with this limit.
fn file(permits: u32) -> String {
    let channel = UNLIMITED.replace("[]", "[\"acme\"]");
    format!("[limit.acme]\npermits = {permits}\nper = \"1s\"\n{channel}")
}

#[tokio::test]
async fn the_rule_of_a_refused_reload_is_not_the_newest() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", &file(50)).await;
    scratch
        .sql("create function refundd.full_disk() returns trigger language plpgsql as $$ begin raise disk_full; end $$")
        .await;
    scratch
        .sql("create trigger full_disk before insert on refundd.channels for each statement execute function refundd.full_disk()")
        .await;
    assert!(node.daemon.reload(scratch.config("a", &file(40))).await.is_err());
    assert_eq!(scratch.number(NEWEST_RULE).await, 50);
    scratch.sql("drop trigger full_disk on refundd.channels").await;
    node.daemon.reload(scratch.config("a", &file(40))).await.unwrap();
    assert_eq!(scratch.number(NEWEST_RULE).await, 40);
    node.stop().await;
}
