//! What stays cheap however many channels, nodes and rows there are, and is right all the same.

mod filling;
mod in_a_browser;

use std::time::Duration;

use refundd::bucket::{BucketKind, End};
use refundd::refund::{ChannelName, RefundId, State};
use refundd::store::Liveness;
use sqlx::Executor;

use crate::harness::anywhere::acme;
use crate::harness::{Scratch, TestNode, until};

#[tokio::test]
async fn a_node_names_its_channels_once_and_again_when_its_row_is_gone() {
    let scratch = Scratch::new().await;
    let names = [acme()];
    let heartbeat = async |channels: Option<&[ChannelName]>| {
        let liveness = Liveness {
            node: "a#1",
            channels,
            config_digest: "digest",
            redis_is_away: false,
            bucket: BucketKind::Redis,
            status_report: None,
            settings: None,
        };
        scratch.store.heartbeat(&liveness).await.unwrap().is_known
    };
    let stands =
        async || scratch.text("select config_digest || ' ' || channels::text from refundd.nodes").await;
    assert!(heartbeat(Some(&names)).await);
    assert!(heartbeat(None).await, "it stands there");
    assert_eq!(stands().await, "digest {acme}");
    scratch.sql("delete from refundd.nodes").await;
    assert!(!heartbeat(None).await, "it is to be said again");
    assert_eq!(stands().await, " {}", "nobody takes it for one that runs no channels");
    assert!(heartbeat(Some(&names)).await);
    assert_eq!(stands().await, "digest {acme}");
}

async fn counted_for_good(scratch: &Scratch) -> i64 {
    scratch.number("select coalesce(sum(n), 0)::bigint from refundd.ended").await
}

/// Ends a refund so long ago.
async fn end(scratch: &Scratch, id: i64, state: &str, ago: &str) {
    let which = format!("id = {id}");
    scratch.lease(&which, "attempts = 1").await;
    scratch.release(&which, &format!("state = '{state}', settled_at = now() - interval '{ago}'")).await;
}

#[tokio::test]
async fn what_ends_after_postgres_was_set_back_is_counted_like_all_else() {
    let scratch = Scratch::with_refunds(5).await;
    let census = async || {
        let counts = scratch.store.census().await.unwrap().remove(0).counts;
        [State::Succeeded, State::Failed].map(|state| counts.get(&state).copied().unwrap_or(0))
    };
    // While the clock was three hours ahead, two refunds ended, and all was counted up to that time.
    end(&scratch, 1, "succeeded", "1 day").await;
    end(&scratch, 2, "failed", "-2 hours").await;
    scratch
        .sql("insert into refundd.ended (channel, state, n) values ('acme', 'succeeded', 1), ('acme', 'failed', 1)
                  on conflict (channel, state) do update set n = excluded.n")
        .await;
    scratch
        .sql("update refundd.ended_until set counted_until = now() + interval '3 hours', next_until = null, next_after = null, next_horizon = null")
        .await;
    end(&scratch, 3, "succeeded", "1 minute").await;
    end(&scratch, 4, "failed", "1 minute").await;
    scratch.store.count_ended().await.unwrap();
    assert_eq!(census().await, [2, 2]);
    for _ in 0..9 {
        scratch.store.count_ended().await.unwrap();
        assert_eq!(census().await, [2, 2]);
    }
    end(&scratch, 5, "succeeded", "1 second").await;
    scratch.decide(RefundId(2), State::Ready, "the bank says so", "ann").await;
    assert_eq!(census().await, [3, 1]);
}

async fn note_step(scratch: &Scratch, step: i64, by: &str) {
    scratch
        .sql(&format!(
            "insert into refundd.clock_steps (step, step_by, before, node, witness) values ({step}, '{by}', now(), 'a', 'monotonic')"
        ))
        .await;
}

#[tokio::test]
async fn an_upgrade_counts_nothing_anew_and_steps_back_after_it_do() {
    let scratch = Scratch::with_refunds(1).await;
    // No refund ended: a count that counts anew forgets this total.
    scratch
        .sql("insert into refundd.ended (channel, state, n) values ('acme', 'failed', 7) on conflict (channel, state) do update set n = 7")
        .await;
    note_step(&scratch, 1, "-2 hours").await;
    scratch.sql("alter table refundd.ended_until drop column steps_seen").await;
    let migration = include_str!("../../migrations/0073_what_ended_is_looked_at_again.sql");
    sqlx::raw_sql(migration).execute(&mut scratch.connect().await).await.unwrap();
    for (step, total) in [(2, 7), (3, 0)] {
        note_step(&scratch, step, "-40 seconds").await;
        scratch.store.count_ended().await.unwrap();
        assert_eq!(counted_for_good(&scratch).await, total, "step {step}");
    }
}

#[tokio::test]
async fn what_ended_during_a_step_back_that_no_count_met_is_counted_like_all_else() {
    let scratch = Scratch::with_refunds(1).await;
    let failed = async || {
        let counts = scratch.store.census().await.unwrap().remove(0).counts;
        counts.get(&State::Failed).copied().unwrap_or(0)
    };
    // All was counted up to two minutes ago. Then the clock was set back by 150 s, a refund ended, and the clock was set right.
    scratch
        .sql("update refundd.ended_until set counted_until = now() - interval '2 minutes', next_until = null, next_after = null, next_horizon = null")
        .await;
    end(&scratch, 1, "failed", "150 seconds").await;
    scratch.store.count_ended().await.unwrap();
    assert_eq!(failed().await, 0, "nobody has noted the step yet");
    note_step(&scratch, 1, "-150 seconds").await;
    note_step(&scratch, 2, "150 seconds").await;
    until("it is counted for good", async || {
        scratch.store.count_ended().await.unwrap();
        assert_eq!(failed().await, 1);
        counted_for_good(&scratch).await == 1
    })
    .await;
    // A small step is no reason to read the whole table again, and no step is a reason twice.
    note_step(&scratch, 3, "-2 seconds").await;
    for _ in 0..3 {
        scratch.store.count_ended().await.unwrap();
        assert_eq!((failed().await, counted_for_good(&scratch).await), (1, 1));
    }
    // Who reopens it takes it back.
    scratch.decide(RefundId(1), State::Review, "on the statement", "ann").await;
    assert_eq!((failed().await, counted_for_good(&scratch).await), (0, 0));
}

#[tokio::test]
async fn the_census_counts_what_ended_once_and_takes_back_what_did_not() {
    let scratch = Scratch::with_refunds(6).await;
    let end = async |id: i64, state: &str, ago: &str| end(&scratch, id, state, ago).await;
    scratch.sql("update refundd.ended_until set counted_until = now() - interval '1 day'").await;
    end(1, "succeeded", "1 hour").await;
    end(2, "failed", "1 hour").await;
    end(3, "failed", "1 hour").await;
    end(4, "failed", "1 minute").await;
    let census = async || {
        let counts = scratch.store.census().await.unwrap().remove(0).counts;
        [State::Ready, State::Succeeded, State::Failed].map(|state| counts.get(&state).copied().unwrap_or(0))
    };
    assert_eq!(census().await, [2, 1, 3], "before anything was counted for good");
    until("those of an hour ago are counted for good", async || {
        scratch.store.count_ended().await.unwrap();
        assert_eq!(census().await, [2, 1, 3]);
        counted_for_good(&scratch).await == 3
    })
    .await;
    for _ in 0..3 {
        scratch.store.count_ended().await.unwrap();
    }
    assert_eq!(counted_for_good(&scratch).await, 3, "one may still be joined by others");
    for id in [3, 4] {
        scratch.decide(RefundId(id), State::Ready, "the bank says so", "ann").await;
    }
    assert_eq!(census().await, [4, 1, 1]);
    scratch.store.count_ended().await.unwrap();
    assert_eq!(census().await, [4, 1, 1]);
}

#[tokio::test]
async fn counting_goes_on_on_a_server_whose_transaction_ids_are_behind_those_of_the_dump() {
    let scratch = Scratch::with_refunds(1).await;
    end(&scratch, 1, "failed", "10 minutes").await;
    for counted_until in ["now() - interval '1 hour'", "'-infinity'"] {
        scratch.sql("update refundd.ended set n = 0").await;
        scratch.sql(&format!("update refundd.ended_until set counted_until = {counted_until}, next_until = now() - interval '2 minutes', next_after = '{{}}', next_horizon = '9000000000000'")).await;
        until("it is counted for good", async || {
            scratch.store.count_ended().await.unwrap();
            counted_for_good(&scratch).await == 1
        })
        .await;
    }
}

/// Says these steps of a transaction that began five minutes ago, and counts whatever can be counted after each.
async fn is_counted_in_the_end(steps: &[&str]) {
    let scratch = Scratch::with_refunds(2).await;
    // The next span to be counted is one in which the refunds end.
    scratch
        .sql("update refundd.ended_until set counted_until = now() - interval '10 minutes', next_until = null, next_after = null, next_horizon = null")
        .await;
    let cancel = "update refundd.refunds set state = 'cancelled', settled_at = now() - interval '5 minutes' where id = ";
    let mut connection = scratch.connect().await;
    for step in steps {
        let step = step.replace("cancel ", cancel).replace("NAME", &scratch.name);
        connection.execute(sqlx::AssertSqlSafe(step)).await.unwrap();
        for _ in 0..3 {
            scratch.store.count_ended().await.unwrap();
        }
    }
    let census =
        async || scratch.store.census().await.unwrap().remove(0).counts.get(&State::Cancelled).copied();
    assert_eq!(census().await, Some(2), "{steps:?}");
    until("they are counted for good", async || {
        scratch.store.count_ended().await.unwrap();
        counted_for_good(&scratch).await == 2
    })
    .await;
    assert_eq!(census().await, Some(2), "{steps:?}");
}

#[tokio::test]
async fn what_ends_in_a_transaction_that_lasts_longer_than_counting_waits_is_counted_all_the_same() {
    is_counted_in_the_end(&["begin; cancel 1", "cancel 2; commit"]).await;
    // Whose id nobody has seen when the others are counted.
    is_counted_in_the_end(&["begin; select 1", "cancel 1", "cancel 2; commit"]).await;
    is_counted_in_the_end(&[
        "begin; cancel 1; cancel 2",
        "prepare transaction 'NAME'",
        "commit prepared 'NAME'",
    ])
    .await;
}

#[tokio::test]
async fn what_is_left_before_many_lines_is_what_is_left_before_each() {
    let scratch = Scratch::with_refunds(5).await;
    scratch.publish("other").await;
    scratch.publish("third").await;
    scratch.insert("other", "O-", 4).await;
    scratch.insert("third", "T-", 1).await;
    let other = ChannelName::new("other").unwrap();
    let third = ChannelName::new("third").unwrap();
    scratch.sql("update refundd.refunds set due_at = now() - interval '1 hour' where id in (5, 9)").await;
    let heads = [(&acme(), RefundId(3)), (&other, RefundId(6)), (&third, RefundId(10))];
    let left = scratch.store.left_before(&heads, 100).await.unwrap();
    let ids = |ids: &[i64]| ids.iter().map(|id| RefundId(*id)).collect::<Vec<_>>();
    assert_eq!(
        left,
        [(acme(), ids(&[5, 1, 2])), (other.clone(), ids(&[9]))],
        "nothing before the third head"
    );
    for (channel, head) in heads {
        let alone = scratch.store.left_before(&[(channel, head)], 100).await.unwrap();
        assert!(alone.iter().eq(left.iter().filter(|(of, _)| of == channel)), "{channel}: {alone:?}");
    }
    assert_eq!(
        scratch.store.left_before(&heads, 1).await.unwrap()[0].1,
        [RefundId(5)],
        "the longest due first"
    );
}

#[tokio::test]
async fn a_low_bucket_with_nothing_behind_it_nudges_the_feeder_once_in_a_while() {
    let scratch = Scratch::with_refunds(8).await;
    let bucket = scratch.bucket();
    let ids: Vec<RefundId> = (1..=5).map(RefundId).collect();
    assert_eq!(bucket.fill(&acme(), &ids, End::Back, 100).await.unwrap(), 5);
    let mut redis = scratch.redis().await;
    let key = format!("{}:{{acme}}:feeding", scratch.key_prefix());
    let mut ttl = async || redis::cmd("PTTL").arg(&key).query_async::<i64>(&mut redis).await.unwrap();
    assert!(ttl().await < 0, "food came: whoever takes may ask for more");
    assert_eq!(bucket.fill(&acme(), &ids, End::Back, 100).await.unwrap(), 0);
    assert!(ttl().await > 1_000, "nothing came: nobody asks for a while");
    let more: Vec<RefundId> = (1..=8).map(RefundId).collect();
    assert_eq!(bucket.fill(&acme(), &more, End::Back, 100).await.unwrap(), 3);
    assert!(ttl().await < 0, "food came again");
}

#[tokio::test]
async fn connections_to_a_bank_that_nobody_uses_are_closed() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", crate::dispatch::UNLIMITED).await;
    scratch.insert("acme", "R-", 20).await;
    until("all are paid", async || scratch.bank.look(|l| l.all().len()) == 20).await;
    let port = format!("{:04X}", scratch.bank.address().port());
    // Established connections to the bank's port, as the kernel lists them.
    let open = || {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let to_bank = |line: &&str| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            fields.get(2).is_some_and(|to| to.ends_with(&port)) && fields.get(3) == Some(&"01")
        };
        table.lines().filter(to_bank).count()
    };
    assert!(open() > 0, "they are kept for a while");
    crate::harness::within(Duration::from_secs(15), "they are closed", async || open() == 0).await;
    node.stop().await;
}
