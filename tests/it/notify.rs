//! `[notify]`: a real receiver of webhooks that fails, hangs and dies gets every change, those of a refund in their order.

mod dropped;
mod out_of_reach;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use playground::Authority;
use playground::bank::Step;
use refundd::refund::{RefundId, State};
use rustix::process::Signal;
use sqlx::Executor;

use crate::dispatch::UNLIMITED;
use crate::harness::receiver::{Arrival, Reply};
use crate::harness::{NodeProcess, Receiver, Scratch, TestNode, until, within};

/// The changes that the journal has, read as the owner: line and state.
async fn changes(scratch: &Scratch) -> BTreeMap<i64, String> {
    let lines = scratch
        .text(
            "select coalesce(string_agg(id || ' ' || moved_to, ',' order by id), '') from refundd.attempts
              where moved_to is not null and not (kind = 'send' and moved_to = 'ready')",
        )
        .await;
    let change = |line: &str| {
        let (id, state) = line.split_once(' ').unwrap();
        (id.parse().unwrap(), state.to_owned())
    };
    lines.split(',').filter(|line| !line.is_empty()).map(change).collect()
}

/// Waits until a node has the lease: changes from then on are delivered.
async fn delivers(scratch: &Scratch) {
    let leased = "select count(*) from refundd.feed where leased_until > now()";
    until("a node delivers", async || scratch.number(leased).await == 1).await;
}

/// Each message keeps its id, and of each refund no message comes before an earlier one was taken.
fn are_in_order(arrivals: &[Arrival]) {
    let mut ids: BTreeMap<i64, &str> = BTreeMap::new();
    let mut taken: BTreeMap<i64, i64> = BTreeMap::new();
    let mut begun: BTreeMap<i64, i64> = BTreeMap::new();
    for arrival in arrivals {
        let Arrival { id, cursor, refund_id, .. } = arrival;
        let first = *ids.entry(*cursor).or_insert(id);
        assert_eq!(first, id, "line {cursor} has two ids");
        let newest = begun.entry(*refund_id).or_insert(*cursor);
        if cursor > newest {
            let before = taken.get(refund_id).copied();
            assert!(
                before >= Some(*newest),
                "line {cursor} of refund {refund_id} came before {newest} was taken"
            );
            *newest = *cursor;
        }
        if arrival.taken {
            let last = taken.entry(*refund_id).or_insert(*cursor);
            *last = (*last).max(*cursor);
        }
    }
    let all: BTreeSet<&str> = ids.values().copied().collect();
    assert_eq!(all.len(), ids.len(), "two lines have one id");
}

#[tokio::test]
async fn nothing_is_lost_when_the_receiver_fails_hangs_and_dies_and_the_node_that_delivers_is_killed() {
    let scratch = Scratch::new().await;
    let authority = Authority::new().unwrap();
    let receiver = Receiver::start(Some(&authority));
    let file = format!("{UNLIMITED}{}", receiver.section());
    let first = NodeProcess::start(&scratch, "a", &file);
    delivers(&scratch).await;
    let second = NodeProcess::start(&scratch, "b", &file);
    // Every third answer is a failure, and the second message gets none for 15 s.
    receiver.next([Reply::Status(200), Reply::Silence]);
    receiver.next((0..300).map(|n| Reply::Status(if n % 3 == 0 { 500 } else { 204 })));
    // Each of these has three changes: unknown, review, and a person's decision.
    scratch.bank.next("acme", vec![Step::pays_but_says_500(); 40]);
    scratch.insert("acme", "R-", 120).await;
    until("all are sent", async || {
        scratch.count(State::Succeeded).await == 80 && scratch.count(State::Review).await == 40
    })
    .await;
    until("some are delivered", async || receiver.taken().len() > 20).await;
    receiver.kill();
    let paid =
        scratch.text("select string_agg(id::text, ' ') from refundd.refunds where state = 'review'").await;
    for id in paid.split(' ') {
        scratch.decide(RefundId(id.parse().unwrap()), State::Succeeded, "on the statement", "ann").await;
    }
    first.signal(Signal::KILL);
    receiver.revive();
    let expected = changes(&scratch).await;
    assert_eq!(expected.len(), 80 + 3 * 40);
    within(Duration::from_mins(2), "all are delivered", async || receiver.taken().len() >= expected.len())
        .await;
    assert_eq!(receiver.taken(), expected);
    are_in_order(&receiver.arrivals());
    let end =
        "select count(*) from refundd.feed where delivered_until >= (select max(id) from refundd.attempts)";
    until("the lease says so", async || scratch.number(end).await == 1).await;
    assert!(scratch.text("select delivered_by from refundd.feed").await.starts_with("b#"));
    let count = receiver.arrivals().len();
    drop(second);

    // A node that starts again goes on where the others stopped, and repeats nothing.
    scratch.sql("update refundd.feed set leased_until = now()").await;
    let third = TestNode::start(&scratch, "c", &file).await;
    scratch.insert("acme", "S-", 5).await;
    until("the new ones are delivered", async || receiver.taken().len() == expected.len() + 5).await;
    assert_eq!(receiver.arrivals().len(), count + 5);
    third.stop().await;
}

#[tokio::test]
async fn a_message_that_is_refused_holds_back_its_own_refund_alone() {
    let scratch = Scratch::new().await;
    let receiver = Receiver::start(None);
    let node = TestNode::start(&scratch, "a", &format!("{UNLIMITED}{}", receiver.section())).await;
    delivers(&scratch).await;
    scratch.bank.next("acme", [Step::pays_but_says_500()]);
    receiver.refuses(&[1]);
    scratch.insert("acme", "R-", 1).await;
    until("the first waits for a person", async || scratch.count(State::Review).await == 1).await;
    scratch.insert("acme", "S-", 20).await;
    until("the others are delivered", async || receiver.taken().len() == 20).await;
    let of_first = |arrivals: Vec<Arrival>| -> Vec<String> {
        arrivals.into_iter().filter(|one| one.refund_id == 1).map(|one| one.state).collect()
    };
    let refused = of_first(receiver.arrivals());
    assert!(!refused.is_empty() && refused.iter().all(|state| state == "unknown"), "{refused:?}");
    let metrics = node.get("/metrics").await.text;
    let shown = |name: &str| {
        let line = metrics.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{metrics}"));
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    assert!(shown("refundd_notify_lag_seconds") > 0.0, "{metrics}");
    assert!(shown("refundd_notify_deliveries_total{result=\"failed\"}") >= 1.0, "{metrics}");
    assert!(shown("refundd_notify_deliveries_total{result=\"delivered\"}") >= 20.0, "{metrics}");
    receiver.refuses(&[]);
    until("all are delivered", async || receiver.taken() == changes(&scratch).await).await;
    are_in_order(&receiver.arrivals());
    node.stop().await;
}

#[tokio::test]
async fn a_status_of_success_is_enough_if_the_body_is_long_or_does_not_end() {
    let scratch = Scratch::new().await;
    let receiver = Receiver::start(None);
    let node = TestNode::start(&scratch, "a", &format!("{UNLIMITED}{}", receiver.section())).await;
    delivers(&scratch).await;
    receiver.next([Reply::LongPage, Reply::EndlessPage]);
    scratch.insert("acme", "R-", 3).await;
    let end =
        "select count(*) from refundd.feed where delivered_until >= (select max(id) from refundd.attempts)";
    within(Duration::from_mins(1), "the lease says that all are delivered", async || {
        scratch.count(State::Succeeded).await == 3 && scratch.number(end).await == 1
    })
    .await;
    assert_eq!(receiver.arrivals().len(), 3, "each once");
    assert_eq!(receiver.taken(), changes(&scratch).await);
    node.stop().await;
}

#[tokio::test]
async fn a_backlog_of_messages_is_read_in_pages_and_not_once_for_each_message() {
    let scratch = Scratch::new().await;
    let receiver = Receiver::start(None);
    let node = TestNode::start(&scratch, "a", &format!("{UNLIMITED}{}", receiver.section())).await;
    delivers(&scratch).await;
    // No node runs this channel, so the lines below are all that happens.
    scratch.publish("other").await;
    scratch.insert("other", "R-", 3_000).await;
    let commits = "select xact_commit from pg_stat_database where datname = current_database()";
    let before = scratch.number(commits).await;
    scratch
        .sql(
            "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, moved_to)
             select id, channel, 'manual', 0, 1, 'ann', 'decided', 'failed' from refundd.refunds",
        )
        .await;
    within(Duration::from_mins(1), "all are delivered", async || receiver.taken().len() == 3_000).await;
    let spent = scratch.number(commits).await - before;
    assert!(spent < 1_000, "{spent} transactions for 3,000 messages");
    node.stop().await;
}

#[tokio::test]
async fn a_database_that_came_back_older_is_delivered_from_the_line_that_it_noted() {
    let scratch = Scratch::new().await;
    let receiver = Receiver::start(None);
    let node = TestNode::start(&scratch, "a", &format!("{UNLIMITED}{}", receiver.section())).await;
    delivers(&scratch).await;
    scratch.insert("acme", "R-", 20).await;
    until("the first are delivered", async || receiver.taken().len() == 20).await;
    let noted = "select count(*) from refundd.feed where delivered_until >= 20";
    until("it is noted", async || scratch.number(noted).await == 1).await;
    // As after a failover to a server that had the journal up to line 5 only.
    let mut server = scratch.connect().await;
    for statement in [
        "begin",
        "set local session_replication_role = 'replica'",
        "delete from refundd.attempts where id > 5",
        "update refundd.feed set delivered_until = 5",
        "select setval('refundd.attempts_id_seq', 5)",
        "commit",
    ] {
        server.execute(statement).await.unwrap();
    }
    scratch.insert("acme", "S-", 3).await;
    until("the new lines are delivered", async || {
        receiver.arrivals().iter().filter(|one| one.refund_id > 20 && one.taken).count() == 3
    })
    .await;
    node.stop().await;
}

#[tokio::test]
async fn deliveries_begin_with_the_changes_of_the_first_start_and_no_redirect_is_followed() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    scratch.insert("acme", "R-", 30).await;
    until("all are sent", async || scratch.count(State::Succeeded).await == 30).await;
    let sealed = "select count(*) from refundd.sealing where until_id >= 30";
    until("the journal is sealed", async || scratch.number(sealed).await == 1).await;
    node.stop().await;
    let receiver = Receiver::start(None);
    receiver.next([Reply::Status(302), Reply::Status(200)]);
    let node = TestNode::start(&scratch, "b", &format!("{UNLIMITED}{}", receiver.section())).await;
    delivers(&scratch).await;
    scratch.insert("acme", "S-", 1).await;
    until("the new change is delivered", async || receiver.taken().len() == 1).await;
    // A redirect that was followed would be a request without a signature, which the receiver notes.
    let arrivals: Vec<(i64, bool)> =
        receiver.arrivals().iter().map(|one| (one.refund_id, one.taken)).collect();
    assert_eq!(arrivals, [(31, false), (31, true)]);
    node.stop().await;
}

#[tokio::test]
async fn a_receiver_whose_certificate_or_address_does_not_fit_gets_nothing() {
    let scratch = Scratch::new().await;
    let (authority, other) = (Authority::new().unwrap(), Authority::new().unwrap());
    let receiver = Receiver::start(Some(&authority));
    let section = receiver.section();
    let ca = format!("ca_file = \"{}\"", authority.file().display());
    let foreign = section.replace(&ca, &format!("ca_file = \"{}\"", other.file().display()));
    // This name leads to an address of this host, and the section names another range.
    let elsewhere = section.replace("127.0.0.1", "localhost") + "addresses = [\"203.0.113.0/24\"]\n";
    for (file, words) in [(foreign, "agree on TLS"), (elsewhere, "is not in `addresses`")] {
        let node = NodeProcess::start(&scratch, "a", &format!("{UNLIMITED}{file}"));
        delivers(&scratch).await;
        scratch.insert("acme", words, 1).await;
        until("the log says why", async || {
            node.log().iter().any(|line| line.contains("Failed to deliver change") && line.contains(words))
        })
        .await;
        assert!(node.log().iter().all(|line| !line.contains("canary")), "{:#?}", node.log());
        drop(node);
        scratch.sql("update refundd.feed set leased_until = now()").await;
    }
    assert_eq!(receiver.arrivals().len(), 0);
    let node = TestNode::start(&scratch, "a", &format!("{UNLIMITED}{section}")).await;
    until("both are delivered", async || receiver.taken().len() == 2).await;
    node.stop().await;
}
