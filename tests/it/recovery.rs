//! What was left behind comes back: rows in no line, lapsed leases, passed deadlines, full backlogs.

mod failing;
mod looks;

use std::sync::Arc;
use std::time::Duration;

use playground::PrivateRedis;
use playground::bank::Step;
use refundd::bucket::{BucketKind, Purpose};
use refundd::heartbeat::Heartbeat;
use refundd::metrics::Metrics;
use refundd::node::Node;
use refundd::recovery::{Keep, Recovery};
use refundd::refund::{ChannelName, RefundId, State, inquiry};
use refundd::store::{RecoveryMove, RedisTime};
use refundd::wake_up::WakeUps;

use crate::dispatch::UNLIMITED;
use crate::harness::{Scratch, TestNode, depth, until, within};

#[tokio::test]
async fn a_lapsed_lease_becomes_unknown_and_never_ready() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    scratch.insert("acme", "R-", 3).await;
    scratch
        .sql("update refundd.refunds set state = 'sending', attempts = 1, lease_epoch = 1, lease_node = 'dead#1', lease_until = now() - interval '1 second'")
        .await;
    let lapsed = scratch.store.recover(RecoveryMove::Lapse, 100, &[]).await.unwrap();
    assert_eq!(lapsed.len(), 3);
    assert_eq!(scratch.count(State::Unknown).await, 3);
    let evidence = scratch.store.evidence(RefundId(1)).await.unwrap();
    assert_eq!((evidence[0].outcome.as_str(), evidence[0].node.as_str()), ("unknown", "dead#1"));
}

#[tokio::test]
async fn a_lease_that_still_runs_is_left_alone() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    scratch.insert("acme", "R-", 1).await;
    scratch.sql("update refundd.refunds set state = 'sending', lease_node = 'a', lease_until = now() + interval '1 minute'").await;
    assert!(scratch.store.recover(RecoveryMove::Lapse, 100, &[]).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_lease_that_lapsed_is_asked_about_only_where_the_channel_asks() {
    let scratch = Scratch::new().await;
    for on_unknown in ["review", "inquire", "resend"] {
        scratch.publish(on_unknown).await;
        scratch.insert(on_unknown, on_unknown, 1).await;
    }
    let policy = "inquires = true, on_unknown = channel, resend_within = case channel when 'resend' then interval '1 hour' end";
    scratch.sql(&format!("update refundd.channels set {policy}")).await;
    scratch.lease("true", "attempts = 1, first_sent_at = now()").await;
    scratch.sql("update refundd.refunds set lease_until = now() - interval '1 second'").await;
    assert_eq!(scratch.store.recover(RecoveryMove::Lapse, 100, &[]).await.unwrap().len(), 3);
    let asks = "select string_agg(concat_ws(' ', channel, state, inquire_at is not null), ', ' order by id) from refundd.refunds";
    assert_eq!(scratch.text(asks).await, "review unknown f, inquire unknown t, resend unknown f");
    let first = "select (extract(epoch from inquire_at - due_at) * 1000)::bigint from refundd.refunds where inquire_at is not null";
    assert_eq!(u128::try_from(scratch.number(first).await), Ok(inquiry::FIRST.as_millis()));
    let shown = scratch.store.recover(RecoveryMove::ShowUnknown, 100, &[]).await.unwrap();
    assert_eq!(shown.iter().map(|moved| moved.channel.as_str()).collect::<Vec<_>>(), ["review"]);
    assert_eq!(scratch.text(asks).await, "review review f, inquire unknown t, resend unknown f");
}

#[tokio::test]
async fn what_is_unknown_is_shown_to_a_person_and_settled_by_one() {
    let scratch = Scratch::new().await;
    scratch.bank.then("acme", Step::pays_but_says_500());
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    scratch.insert("acme", "R-", 2).await;
    until("both are shown", async || scratch.count(State::Review).await == 2).await;
    scratch.decide(RefundId(1), State::Succeeded, "seen on the statement", "ann").await;
    assert_eq!(scratch.count(State::Succeeded).await, 1);
    assert_eq!(scratch.bank.look(|l| l.all().len()), 2, "nothing was sent again");
    node.stop().await;
}

#[tokio::test]
async fn stranded_refunds_are_sent_before_a_long_backlog_within_fifteen_seconds() {
    let scratch = Scratch::new().await;
    // Slow enough that the line stays long; the stranded ones are the oldest and go first.
    let slow = r#"
[limit.acme]
permits = 5
per = "1s"
[channel.acme]
endpoint = "http://{bank}/acme/refunds"
limits = ["acme"]
"#;
    let node = TestNode::start(&scratch, "a", slow).await;
    scratch.insert("acme", "R-", 600).await;
    let bucket = scratch.bucket();
    let acme = ChannelName::new("acme").unwrap();
    until("the line is long", async || depth(&bucket, Purpose::Send, &acme).await > 500).await;
    // They become due earlier than everything in line, and stand in no line.
    scratch.sql("insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency, due_at)
                 select 'stranded-' || n, 'acme', 'P', 1, 'EUR', now() - interval '1 hour' from generate_series(1, 10) n").await;
    let took = within(Duration::from_secs(15), "the stranded are sent", async || {
        scratch.bank.look(|l| l.all().iter().filter(|a| a.refund_ref.starts_with("stranded")).count()) == 10
    })
    .await;
    println!("stranded rows were back after {took:?}");
    node.stop().await;
}

#[tokio::test]
async fn a_deadline_that_passes_unsent_fails_the_refund() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    scratch.pause("acme", "so that it cannot be sent", "test").await;
    scratch
        .sql("insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency, deadline_at)
              values ('R-1', 'acme', 'P', 1, 'EUR', now() + interval '300 ms')")
        .await;
    until("it fails", async || scratch.count(State::Failed).await == 1).await;
    assert_eq!(scratch.text("select reason from refundd.refunds").await, "deadline_passed");
    let lines = "select string_agg(concat_ws(' ', kind, code, moved_to), ', ') from refundd.attempts";
    assert_eq!(scratch.text(lines).await, "recovery deadline_passed failed");
    assert!(scratch.bank.ledger().all().is_empty());
    node.stop().await;
}

#[tokio::test]
async fn a_full_backlog_refuses_more_and_has_room_again() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", &format!("{UNLIMITED}max_backlog = 5\n")).await;
    scratch.pause("acme", "to let the backlog grow", "test").await;
    scratch.insert("acme", "R-", 5).await;
    let post = async |name: &str| node.post("/v1/refunds", &crate::harness::node::refund(name, "acme")).await;
    until("it is full", async || {
        scratch.number("select count(*) from refundd.channels where full_since is not null").await == 1
    })
    .await;
    let refused = post("X-1").await;
    assert_eq!(refused.status, 429, "{refused:?}");
    assert!(refused.headers.contains_key("retry-after"));
    scratch.resume("acme").await;
    until("there is room", async || post("X-2").await.status == 201).await;
    node.stop().await;
}

#[tokio::test]
async fn ids_that_somebody_else_wrote_into_a_bucket_stop_no_refund() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    scratch.insert("acme", "R-", 5).await;
    until("they are paid", async || scratch.bank.look(|l| l.all().len()) == 5).await;
    let mut redis = scratch.redis().await;
    let key = format!("{}:{{acme}}:bucket", scratch.key_prefix());
    // Ids that are settled, that never were, and that are no ids at all.
    for value in ["1", "999999", "rubbish"] {
        redis::cmd("LPUSH").arg(&key).arg(value).query_async::<()>(&mut redis).await.unwrap();
    }
    scratch.insert("acme", "S-", 5).await;
    until("the others are paid", async || scratch.bank.look(|l| l.all().len()) == 10).await;
    assert!(scratch.bank.ledger().repeated().is_empty());
    node.stop().await;
}

/// From now on each statement that updates refunds takes this long.
async fn slow_down(scratch: &Scratch, seconds: u32) {
    scratch
        .sql(&format!("create function refundd.slow() returns trigger language plpgsql as $$ begin perform pg_sleep({seconds}); return null; end $$"))
        .await;
    scratch
        .sql("create trigger slow before update on refundd.refunds for each statement execute function refundd.slow()")
        .await;
}

fn node_of(scratch: &Scratch) -> Node {
    Node::new("a", scratch.store.clone(), scratch.bucket(), Arc::new(Metrics::default()))
}

fn recovery_on(node: Node) -> Recovery {
    let keep = Keep { permits: Duration::from_hours(168), attempts: None, events: None };
    Recovery::new(node, WakeUps::of_sends(100), keep)
}

/// A recovery whose passes the test makes.
async fn recovery_of(scratch: &Scratch) -> Recovery {
    let node = node_of(scratch);
    // Nothing is over for a node that has not compared the clocks yet.
    let (us, at) = node.bucket.time().await.unwrap();
    node.store.watch_clock(&node.name, Some(RedisTime { us, at }), true).await.unwrap();
    recovery_on(node)
}

/// No bank of these channels can be asked, so nobody else would ever look at these refunds again.
#[tokio::test]
async fn an_accepted_refund_is_shown_when_its_time_for_a_report_has_passed_also_under_a_pause() {
    let scratch = Scratch::with_refunds(1).await;
    scratch.publish("globex").await;
    scratch.insert("globex", "G-", 1).await;
    scratch.pause("globex", "maintenance", "ops").await;
    scratch.lease("true", "attempts = 1, first_sent_at = now()").await;
    scratch.release("true", "state = 'accepted', due_at = now() + interval '1 hour'").await;
    let mut recovery = recovery_of(&scratch).await;
    assert_eq!(recovery.pass().await.unwrap().shown, 0);
    assert_eq!(scratch.count(State::Accepted).await, 2, "the bank may still report");
    scratch.sql("update refundd.refunds set due_at = now() - interval '1 second'").await;
    assert_eq!(recovery.pass().await.unwrap().shown, 2);
    assert_eq!(scratch.count(State::Review).await, 2);
    let lines = "select string_agg(concat_ws(' ', channel, kind, code, moved_to), ', ' order by channel) from refundd.attempts";
    assert_eq!(scratch.text(lines).await, "acme recovery no_report review, globex recovery no_report review");
}

/// Millions of deadlines may be over at the same moment, and as many leases. The watchdog waits a minute for a pass.
#[tokio::test]
async fn a_pass_ends_in_seconds_however_many_leases_and_deadlines_are_over() {
    const EACH: u32 = 5_000;
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    scratch.insert("acme", "deadline-", EACH).await;
    scratch.insert("acme", "lease-", EACH).await;
    scratch
        .sql("update refundd.refunds set deadline_at = now() - interval '1 second' where refund_ref like 'deadline-%'")
        .await;
    scratch
        .sql("update refundd.refunds set state = 'sending', attempts = 1, lease_epoch = 1, lease_node = 'dead#1', lease_until = now() - interval '1 second' where refund_ref like 'lease-%'")
        .await;
    // Ten statements of each kind would take 10 s.
    slow_down(&scratch, 1).await;
    let mut recovery = recovery_of(&scratch).await;
    let first = recovery.pass().await.unwrap();
    // The sixth statement of each kind ends after six seconds; a busy machine gets less far.
    assert!((500..=3_000).contains(&first.lapsed) && (500..=3_000).contains(&first.expired), "{first:?}");
    scratch.sql("drop trigger slow on refundd.refunds").await;
    let (mut lapsed, mut expired) = (first.lapsed, first.expired);
    loop {
        let more = recovery.pass().await.unwrap();
        if (more.lapsed, more.expired) == (0, 0) {
            break;
        }
        (lapsed, expired) = (lapsed + more.lapsed, expired + more.expired);
    }
    assert_eq!((lapsed, expired), (EACH as usize, EACH as usize));
}

/// The watchdog waits a minute for one pass. A round has some twenty statements, and each may take half a minute.
#[tokio::test]
async fn a_round_of_slow_statements_is_no_loop_that_is_stuck() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    scratch.sql("update refundd.channels set max_backlog = 1").await;
    scratch.insert("acme", "R-", 1).await;
    slow_down(&scratch, 2).await;
    let node = node_of(&scratch);
    let heartbeat = tokio::spawn(Heartbeat::new(node.clone(), BucketKind::Redis).run());
    let recovery = tokio::spawn(recovery_on(node.clone()).run());
    // Before that, eight statements of the round take two seconds each. No part has more than two of them.
    until("the round comes to the backlogs", async || {
        let stuck = node.progress.stuck(Duration::from_secs(10));
        assert!(!stuck.iter().any(|name| name == "recovery"), "{stuck:?}");
        scratch.number("select count(*) from refundd.channels where full_since is not null").await == 1
    })
    .await;
    node.stop.cancel();
    heartbeat.await.unwrap();
    recovery.await.unwrap();
}

/// Backlogs, the journal and old evidence are in Postgres alone. The same holds for a cluster that lost one master.
#[tokio::test]
async fn while_redis_is_away_backlogs_are_bounded_the_journal_is_sealed_and_dead_nodes_are_deleted() {
    let redis = PrivateRedis::start().await.unwrap();
    let scratch = Scratch::with_redis(redis.url()).await;
    let node = TestNode::start(&scratch, "a", &format!("{UNLIMITED}max_backlog = 5\n")).await;
    redis.kill_hard().await.unwrap();
    scratch.insert("acme", "R-", 5).await;
    scratch
        .sql("insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, started_at, outcome, moved_to, status, code, message)
              select id, channel, 'send', 1, 1, 'dead#1', now(), 'review', 'review', 500, 'server_error', 'the bank answered 500'
                from refundd.refunds where refund_ref = 'R-1'")
        .await;
    scratch
        .sql("insert into refundd.nodes (node, version, channels, config_digest, seen_at) values ('dead#1', '0', '{}', 'd', now() - interval '2 minutes')")
        .await;
    for (what, count, wanted) in [
        ("the backlog is full", "refundd.channels where full_since is not null", 1),
        ("the journal is sealed", "refundd.seals", 1),
        ("the dead node is forgotten", "refundd.nodes where node = 'dead#1'", 0),
    ] {
        let query = format!("select count(*) from {count}");
        until(what, async || scratch.number(&query).await == wanted).await;
    }
    node.stop().await;
}
