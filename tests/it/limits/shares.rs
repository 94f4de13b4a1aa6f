//! Limits that nodes count by shares, while the nodes' files differ.

use std::fmt::Write;
use std::time::Duration;

use refundd::store::{Locked, ReservedShare};
use sqlx::Executor;

use super::{channel, fullest_span};
use crate::harness::{Scratch, TestNode, until};

fn shared_out(permits: u32, nodes: u32) -> String {
    channel(&format!(
        "algorithm = \"sliding_log\"\npermits = {permits}\nplacement = \"local_share\"\nnodes = {nodes}"
    ))
}

/// This many limits that are shared out among two nodes.
pub(super) fn many(limits: usize) -> String {
    let channel = "[channel.acme]\nendpoint = \"http://{bank}/acme/refunds\"\nlimits = [\"l0\"]\n";
    (0..limits).fold(channel.to_owned(), |mut text, nth| {
        let rule = "permits = 20\nper = \"1s\"\nplacement = \"local_share\"\nnodes = 2";
        writeln!(text, "[limit.l{nth}]\n{rule}").unwrap();
        text
    })
}

/// How other nodes count the limit, as the API of this node says; empty if this node counts a share.
async fn overruled(node: &TestNode) -> String {
    let channels = node.get("/v1/channels").await.json();
    channels["channels"][0]["limits"][0]["overruled_by"].as_str().unwrap_or_default().to_owned()
}

/// How many nodes have spent permits since this time.
async fn senders_since(scratch: &Scratch, since_us: i64) -> i64 {
    let since = format!("timestamptz 'epoch' + {since_us} * interval '1 microsecond'");
    let spent = format!("select count(distinct node) from refundd.permits where spent_at > {since}");
    scratch.number(&spent).await
}

/// The arrivals at the bank between two times.
fn between(scratch: &Scratch, from_us: i64, to_us: i64) -> Vec<i64> {
    let is_meant = |at: &i64| (from_us..to_us).contains(at);
    let mut times: Vec<i64> =
        scratch.bank.look(|l| l.arrivals("acme").map(|arrival| arrival.at_us).filter(is_meant).collect());
    times.sort_unstable();
    times
}

/// The most arrivals in any second.
fn fullest(times: &[i64]) -> usize {
    let in_a_second =
        |(nth, at): (usize, &i64)| times[nth..].iter().take_while(|other| **other < at + 1_000_000).count();
    times.iter().enumerate().map(in_a_second).max().unwrap_or(0)
}

/// Reserves one of `nodes` shares of the limit for a node, as the node's heartbeat does.
async fn reserved(scratch: &Scratch, nodes: u32, node: &str) -> ReservedShare {
    let config = scratch.config("a", &shared_out(20, nodes));
    let limit = config.limits.values().next().unwrap();
    let mut reserved =
        scratch.store.reserve_shares(std::slice::from_ref(limit), node, Locked::Wait).await.unwrap();
    reserved.remove(0).expect("nobody has locked it")
}

#[tokio::test]
async fn a_limit_is_never_exceeded_while_it_is_shared_out_among_more_nodes() {
    let scratch = Scratch::new().await;
    let a = TestNode::start(&scratch, "a", &shared_out(20, 2)).await;
    let b = TestNode::start(&scratch, "b", &shared_out(20, 2)).await;
    scratch.insert("acme", "R-", 600).await;
    assert!(scratch.bank.until(Duration::from_secs(20), |l| l.all().len() >= 20).await);
    let c = TestNode::start(&scratch, "c", &shared_out(20, 4)).await;
    let d = TestNode::start(&scratch, "d", &shared_out(20, 4)).await;
    until("the new nodes say why they wait", async || {
        overruled(&c).await.starts_with("2 shares of 20 permits") && !overruled(&d).await.is_empty()
    })
    .await;
    let before = scratch.bank.look(|l| l.all().len());
    assert!(scratch.bank.until(Duration::from_secs(20), |l| l.all().len() >= before + 40).await);
    let early = "select count(*) from refundd.permits where node like 'c#%' or node like 'd#%'";
    assert_eq!(scratch.number(early).await, 0, "the old nodes have the limit until they are reloaded");

    a.daemon.reload(scratch.config("a", &shared_out(20, 4))).await.unwrap();
    until("a reloaded node waits for the last one", async || !overruled(&a).await.is_empty()).await;
    b.daemon.reload(scratch.config("b", &shared_out(20, 4))).await.unwrap();
    let reloaded = scratch.now_us().await + 3_000_000;
    until("all four send", async || senders_since(&scratch, reloaded).await == 4).await;
    let shares = "select count(distinct share) from refundd.limit_shares where limit_name = 'acme'";
    assert_eq!(scratch.number(shares).await, 4);
    assert_eq!(overruled(&c).await, "");
    assert!(fullest_span(&scratch) <= 20, "{}", fullest_span(&scratch));
    for node in [a, b, c, d] {
        node.stop().await;
    }
}

#[tokio::test]
async fn a_lower_number_of_shares_counts_from_the_first_reload_and_a_higher_one_from_the_last() {
    let scratch = Scratch::new().await;
    let a = TestNode::start(&scratch, "a", &shared_out(60, 3)).await;
    let b = TestNode::start(&scratch, "b", &shared_out(60, 3)).await;
    let c = TestNode::start(&scratch, "c", &shared_out(60, 3)).await;
    scratch.insert("acme", "R-", 700).await;
    assert!(scratch.bank.until(Duration::from_secs(20), |l| l.all().len() >= 40).await);
    a.daemon.reload(scratch.config("a", &shared_out(12, 3))).await.unwrap();
    until("the others have given their shares back", async || {
        let lower = "3 shares of 12 permits";
        overruled(&b).await.starts_with(lower) && overruled(&c).await.starts_with(lower)
    })
    .await;
    // The last permits of the higher number are older than a second by then.
    let from = scratch.now_us().await + 2_000_000;
    until("the reloaded node sends", async || between(&scratch, from, i64::MAX).len() >= 8).await;
    for (node, name) in [(&b, "b"), (&c, "c")] {
        node.daemon.reload(scratch.config(name, &shared_out(12, 3))).await.unwrap();
    }
    let all = scratch.now_us().await;
    until("all send", async || senders_since(&scratch, all).await == 3).await;
    for (node, name) in [(&a, "a"), (&b, "b")] {
        node.daemon.reload(scratch.config(name, &shared_out(60, 3))).await.unwrap();
        until("it waits", async || overruled(node).await.starts_with("3 shares of 12 permits")).await;
    }
    let to = scratch.now_us().await;
    c.daemon.reload(scratch.config("c", &shared_out(60, 3))).await.unwrap();
    let last = scratch.now_us().await + 2_000_000;
    until("all send again", async || senders_since(&scratch, last).await == 3).await;
    let lower = fullest(&between(&scratch, from, to));
    assert!(lower <= 12, "{lower}");
    assert!(fullest_span(&scratch) <= 60, "{}", fullest_span(&scratch));
    for node in [a, b, c] {
        node.stop().await;
    }
}

#[tokio::test]
async fn a_share_of_another_number_waits_until_the_permits_of_dead_and_older_nodes_no_longer_count() {
    let scratch = Scratch::new().await;
    let store = &scratch.store;
    let reserve = async |nodes: u32, node: &str| reserved(&scratch, nodes, node).await;
    let waits = async |nodes: u32, node: &str| match reserve(nodes, node).await {
        ReservedShare::CountedOtherwise(other) => other.to_string(),
        other => panic!("{node}: {other:?}"),
    };
    assert_eq!(reserve(2, "old#1").await, ReservedShare::Own(1));
    assert_eq!(waits(4, "new#1").await, "2 shares of 20 permits, on node old");
    // After ten seconds without a sign of life another node may have the share. Its permits may count for longer.
    let time_passes = async || {
        scratch.sql("update refundd.limit_shares set seen_at = seen_at - interval '11 seconds'").await;
        let both =
            "seen_at = seen_at - interval '11 seconds', held_until = held_until - interval '11 seconds'";
        scratch.sql(&format!("update refundd.share_rules set {both} where node = 'old#1'")).await;
    };
    time_passes().await;
    assert_eq!(waits(4, "new#1").await, "2 shares of 20 permits, on node old");
    time_passes().await;
    assert_eq!(reserve(4, "new#1").await, ReservedShare::Own(1));
    // A node that was taken for dead comes back.
    assert_eq!(waits(2, "old#1").await, "4 shares of 20 permits, on node new");
    store.leave_shares("new#1").await.unwrap();
    assert_eq!(waits(2, "old#1").await, "4 shares of 20 permits, on node new");

    scratch.sql("delete from refundd.share_rules").await;
    scratch
        .sql("insert into refundd.limit_shares (limit_name, share, node) values ('acme', 2, 'older#1')")
        .await;
    assert_eq!(waits(4, "new#1").await, "an unknown number of shares, on node older of an older version");
    scratch.sql("delete from refundd.limit_shares").await;
    assert_eq!(reserve(4, "new#1").await, ReservedShare::Own(1));
}

#[tokio::test]
async fn a_share_is_given_to_another_node_only_when_its_owner_surely_uses_it_no_more() {
    let scratch = Scratch::new().await;
    assert_eq!(reserved(&scratch, 2, "a#1").await, ReservedShare::Own(1));
    // A node uses its share for 5 s after it reserved the share. A busy machine makes each age longer.
    for seconds in [4, 6, 8, 11] {
        assert_eq!(reserved(&scratch, 2, "b#1").await, ReservedShare::Own(2));
        for table in ["limit_shares", "share_rules"] {
            let age = format!("seen_at = clock_timestamp() - interval '{seconds} seconds'");
            scratch.sql(&format!("update refundd.{table} set {age} where node = 'a#1'")).await;
        }
        let expected = if seconds == 11 { ReservedShare::Own(1) } else { ReservedShare::AllTaken };
        assert_eq!(reserved(&scratch, 2, "c#1").await, expected, "{seconds} s");
    }
    assert_eq!(reserved(&scratch, 2, "a#1").await, ReservedShare::AllTaken);
}

#[tokio::test]
async fn a_node_that_waited_for_a_share_while_the_clock_was_ahead_has_none_once_the_clock_is_right() {
    let scratch = Scratch::new().await;
    assert_eq!(reserved(&scratch, 2, "old#1").await, ReservedShare::Own(1));
    let waits = reserved(&scratch, 4, "new#1").await;
    assert!(matches!(waits, ReservedShare::CountedOtherwise(_)), "{waits:?}");
    // As if it had asked while Postgres's clock was a day ahead.
    scratch
        .sql("update refundd.share_rules set seen_at = seen_at + interval '1 day' where node = 'new#1'")
        .await;
    assert_eq!(reserved(&scratch, 2, "old#1").await, ReservedShare::Own(1));
    let holders = "select string_agg(node, ' ') from refundd.share_rules where held_until is not null";
    assert_eq!(scratch.text(holders).await, "old#1");
    let clamped = "select count(*) from refundd.share_rules where node = 'new#1' and seen_at <= now()";
    assert_eq!(scratch.number(clamped).await, 1, "its row is the one that was mended");
}

/// How many shares were reserved since this time.
async fn reserved_since(scratch: &Scratch, since_us: i64) -> i64 {
    let since = format!("timestamptz 'epoch' + {since_us} * interval '1 microsecond'");
    scratch.number(&format!("select count(*) from refundd.limit_shares where seen_at > {since}")).await
}

#[tokio::test]
async fn a_node_does_not_ask_for_each_share_with_a_statement_of_its_own() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", &many(500)).await;
    until("it has its shares", async || reserved_since(&scratch, 0).await == 500).await;
    let commits = "select xact_commit from pg_stat_database where datname = current_database()";
    let (before, began) = (scratch.number(commits).await, scratch.now_us().await);
    // The span that is measured. Looking at the clock in between would be transactions as well.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let spent = scratch.number(commits).await - before;
    assert!(spent < 1_500, "{spent} transactions in six seconds for 500 limits");
    until("all are reserved again", async || reserved_since(&scratch, began).await == 500).await;
    node.stop().await;
}

#[tokio::test]
async fn two_nodes_that_ask_for_many_shares_in_any_order_never_wait_for_each_other() {
    let scratch = Scratch::new().await;
    let config = scratch.config("a", &many(30));
    let limits: Vec<_> = config.limits.values().cloned().collect();
    let turned: Vec<_> = limits.iter().rev().cloned().collect();
    for _ in 0..20 {
        let (one, other) = tokio::join!(
            scratch.store.reserve_shares(&limits, "a#1", Locked::Wait),
            scratch.store.reserve_shares(&turned, "b#1", Locked::Wait),
        );
        for reserved in [one.unwrap(), other.unwrap()] {
            assert_eq!(reserved.len(), 30);
            assert!(
                reserved.iter().all(|share| matches!(share, Some(ReservedShare::Own(_)))),
                "{reserved:?}"
            );
        }
    }
    // A node of an older version counts one of them. The answer stands at the place of that limit.
    let older = "update refundd.limit_shares set node = 'c#1' where limit_name = 'l7' and node = 'b#1'";
    scratch.sql(older).await;
    let reserved = scratch.store.reserve_shares(&turned, "b#1", Locked::Wait).await.unwrap();
    let is_without = |reserved: &Option<ReservedShare>| !matches!(reserved, Some(ReservedShare::Own(_)));
    let without: Vec<&str> = turned
        .iter()
        .zip(&reserved)
        .filter(|(_, reserved)| is_without(reserved))
        .map(|(limit, _)| limit.name.as_str())
        .collect();
    assert_eq!(without, ["l7"]);
}

#[tokio::test]
async fn a_limit_whose_shares_are_locked_costs_no_other_limit_its_share() {
    let scratch = Scratch::new().await;
    let a = TestNode::start(&scratch, "a", &many(20)).await;
    let b = TestNode::start(&scratch, "b", &many(20)).await;
    until("both have their shares", async || reserved_since(&scratch, 0).await == 40).await;
    for lock in [
        "select from refundd.share_locks where limit_name = 'l7' for no key update",
        "select from refundd.limit_shares where limit_name = 'l7' for update",
    ] {
        let mut other = scratch.connect().await;
        other.execute("begin").await.unwrap();
        other.execute(lock).await.unwrap();
        let later = scratch.now_us().await + 6_000_000;
        until("the other shares are reserved again", async || reserved_since(&scratch, later).await >= 38)
            .await;
        assert_eq!(reserved_since(&scratch, later).await, 38, "nobody reserves the locked one: {lock}");
        other.execute("rollback").await.unwrap();
        until("both have all shares again", async || reserved_since(&scratch, later).await == 40).await;
    }
    a.stop().await;
    b.stop().await;
}
