//! What nodes publish of their channels and rules: recovery, the feeder, the checks of producers and `prove` obey it, so it
//! must be what the living nodes run.

mod addresses;

use refundd::refund::State;

use crate::dispatch::UNLIMITED;
use crate::harness::{Scratch, TestNode, until};

const POLICY: &str = "select on_unknown from refundd.channels where channel = 'acme'";
const NEWEST_RULE: &str = "select (rule ->> 'permits')::bigint from refundd.limit_rules where limit_name = 'acme' order by published_at desc limit 1";

/// Channel `acme` with this limit, whose unknown refunds go to review unless `rest` says otherwise.
fn file(permits: u32, rest: &str) -> String {
    let channel = UNLIMITED.replace("[]", "[\"acme\"]");
    format!("[limit.acme]\npermits = {permits}\nper = \"1s\"\n{channel}{rest}")
}

#[tokio::test]
async fn what_a_node_with_another_file_published_ends_with_it() {
    let scratch = Scratch::new().await;
    let a = TestNode::start(&scratch, "a", &file(50, "")).await;
    let resends = file(40, "on_unknown = \"resend\"\nkey_retention = \"1h\"\n");
    let c = TestNode::start(&scratch, "c", &resends).await;
    assert_eq!((scratch.text(POLICY).await, scratch.number(NEWEST_RULE).await), ("resend".to_owned(), 40));
    c.stop().await;
    // While the channel is paused, no node takes the refund before the test has leased it.
    scratch.pause("acme", "the test leases it", "test").await;
    scratch.insert("acme", "R-", 1).await;
    scratch
        .sql("update refundd.refunds set state = 'sending', attempts = 1, lease_epoch = 1, lease_node = 'dead#1', first_sent_at = now(), lease_until = now() - interval '1 second'")
        .await;
    until("a person sees it", async || scratch.count(State::Review).await == 1).await;
    assert_eq!((scratch.text(POLICY).await, scratch.number(NEWEST_RULE).await), ("review".to_owned(), 50));
    let by_a = "select count(*) from refundd.channels where published_by like 'a#%'";
    assert_eq!(scratch.number(by_a).await, 1);
    a.stop().await;
}

/// It published and died before its first heartbeat, or while no other node could reach Postgres.
#[tokio::test]
async fn what_a_node_published_that_nobody_saw_alive_ends_too() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", &file(50, "")).await;
    // A node that begins to lead publishes once in any case. The second round shows that it also notices a change.
    for seconds in [10, 20] {
        scratch
            .sql(&format!(
                "update refundd.channels set on_unknown = 'resend', resend_within = interval '1 hour', published_by = 'gone#1',
                        published_at = now() - interval '{seconds} seconds'"
            ))
            .await;
        until("the node's own settings are in force", async || scratch.text(POLICY).await == "review").await;
    }
    node.stop().await;
}

#[tokio::test]
async fn the_rule_of_a_refused_reload_is_not_the_newest() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", &file(50, "")).await;
    scratch
        .sql("create function refundd.full_disk() returns trigger language plpgsql as $$ begin raise disk_full; end $$")
        .await;
    scratch
        .sql("create trigger full_disk before insert on refundd.channels for each statement execute function refundd.full_disk()")
        .await;
    assert!(node.daemon.reload(scratch.config("a", &file(40, ""))).await.is_err());
    assert_eq!(scratch.number(NEWEST_RULE).await, 50);
    scratch.sql("drop trigger full_disk on refundd.channels").await;
    node.daemon.reload(scratch.config("a", &file(40, ""))).await.unwrap();
    assert_eq!(scratch.number(NEWEST_RULE).await, 40);
    node.stop().await;
}

/// A node cannot take back a bound that it wrote.
#[tokio::test]
async fn a_refused_reload_leaves_no_bound_for_a_second_person_and_what_was_published_before() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", &file(50, "")).await;
    let new =
        "on_unknown = \"resend\"\nkey_retention = \"1h\"\n[review]\nsecond_person_above = { EUR = 1000 }\n";
    let bounds = "select count(*) from refundd.second_person";
    scratch
        .sql("create function refundd.full_disk() returns trigger language plpgsql as $$ begin raise disk_full; end $$")
        .await;
    for table in ["channels", "second_person"] {
        let trigger = format!(
            "create trigger full_disk before insert on refundd.{table} for each statement execute function refundd.full_disk()"
        );
        scratch.sql(&trigger).await;
        assert!(node.daemon.reload(scratch.config("a", &file(40, new))).await.is_err(), "{table}");
        assert_eq!(scratch.number(bounds).await, 0, "{table}");
        assert_eq!(
            (scratch.text(POLICY).await, scratch.number(NEWEST_RULE).await),
            ("review".to_owned(), 50),
            "{table}"
        );
        scratch.sql(&format!("drop trigger full_disk on refundd.{table}")).await;
    }
    node.daemon.reload(scratch.config("a", &file(40, new))).await.unwrap();
    assert_eq!(scratch.number(bounds).await, 1);
    assert_eq!((scratch.text(POLICY).await, scratch.number(NEWEST_RULE).await), ("resend".to_owned(), 40));
    node.stop().await;
}

/// As a failover to a standby does that had received nothing since the reload.
#[tokio::test]
async fn what_a_failover_lost_of_a_reload_is_published_again() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", &file(50, "")).await;
    scratch
        .sql(
            "update refundd.channels set on_unknown = 'resend', resend_within = interval '1 hour', published_by = 'gone#1',
                    published_at = now() - interval '30 seconds'",
        )
        .await;
    let before = scratch.text("select published_at::text from refundd.channels").await;
    until("the node has published again", async || scratch.text(POLICY).await == "review").await;
    let other = UNLIMITED.replace("acme", "other");
    node.daemon.reload(scratch.config("a", &file(50, &other))).await.unwrap();
    let others = "select count(*) from refundd.channels where channel = 'other'";
    assert_eq!(scratch.number(others).await, 1);
    scratch
        .sql(&format!(
            "do $$ begin
                 alter table refundd.channels disable trigger channels_are_never_deleted;
                 delete from refundd.channels where channel = 'other';
                 alter table refundd.channels enable trigger channels_are_never_deleted;
                 update refundd.channels set published_at = '{before}';
             end $$"
        ))
        .await;
    until("the new channel is known again", async || scratch.number(others).await == 1).await;
    node.stop().await;
}
