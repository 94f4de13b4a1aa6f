//! Postgres's clock is set, for real, while something waits for a period, and a node's while it sends. The judge is the
//! bank's own ledger.

mod days;
mod deadlines;
mod leases;
mod nodes;
mod pauses;
mod schedule;
mod unwitnessed;

use std::time::Duration;

use jiff::SignedDuration;
use playground::bank::Step;
use playground::{PostgresOptions, PretendBank, PrivatePostgres};
use refundd::refund::State;
use refundd::store::{ClockStep, ClockWitness, RecoveryMove, Store};

use crate::harness::servers::SERVERS;
use crate::harness::{Scratch, TestNode, until, within};

const ASKS: &str = r#"
[channel.acme]
endpoint = "http://{bank}/acme/refunds"
limits = []
timeout = "8s"
connect_timeout = "1s"
retry = { base = "10ms", cap = "20ms" }
on_unknown = "inquire"
inquiry = { url = "http://{bank}/acme/refunds/{request_id}", not_found_is_final = true, grace = "30s" }
"#;

/// A Postgres whose clock can be set, and a scratch on it.
pub async fn clocked(name: &str) -> (PrivatePostgres, Scratch) {
    let options = PostgresOptions { clock: true, ..PostgresOptions::for_tests() };
    let postgres = PrivatePostgres::start_with(&options).await.unwrap();
    postgres.create_database(name, None).await.unwrap();
    Store::open(&postgres.url(name), None, 1).unwrap().migrate().await.unwrap();
    postgres.admit_nodes(name).await.unwrap();
    let scratch = scratch_on(&postgres, name);
    (postgres, scratch)
}

/// A scratch on a database of a server of the test's own.
pub fn scratch_on(postgres: &PrivatePostgres, name: &str) -> Scratch {
    let (owner_url, database_url) = (postgres.url(name), postgres.node_url(name));
    let store = Store::open(&database_url, None, 4).unwrap();
    let bank = PretendBank::start_here().unwrap();
    let redis_url = SERVERS.redis.url();
    Scratch { name: name.to_owned(), database_url, owner_url, redis_url, store, bank, authority: None }
}

fn step(postgres: &PrivatePostgres, seconds: i64) {
    postgres.step_clock(SignedDuration::from_secs(seconds)).unwrap();
}

async fn steps(scratch: &Scratch) -> i64 {
    scratch.number("select count(*) from refundd.clock_steps").await
}

async fn inquiries(scratch: &Scratch) -> i64 {
    scratch.number("select count(*) from refundd.attempts where kind = 'inquiry'").await
}

async fn ask_now(scratch: &Scratch) {
    scratch.sql("update refundd.refunds set inquire_at = now() where inquire_at is not null").await;
}

/// A refund that the bank executes 20 seconds after it answered 504; it is not found until then.
async fn executed_late(scratch: &Scratch) {
    scratch.bank.next("acme", [Step::answers(504, "{}").paying_after(Duration::from_secs(20))]);
    scratch.insert("acme", "R-", 1).await;
    until("it is unknown", async || scratch.count(State::Unknown).await == 1).await;
}

async fn is_paid_once(scratch: &Scratch) {
    assert!(scratch.bank.until(Duration::from_secs(40), |l| l.paid_by_key().len() == 1).await);
    ask_now(scratch).await;
    until("it succeeded", async || scratch.count(State::Succeeded).await == 1).await;
    let ledger = scratch.bank.ledger();
    assert!(ledger.doubled().is_empty(), "{:?}", ledger.doubled());
    assert!(ledger.repeated().is_empty(), "{:?}", ledger.repeated());
}

#[tokio::test]
async fn a_grace_is_not_over_because_postgres_was_set_forward() {
    let (postgres, scratch) = clocked("grace").await;
    let node = TestNode::start(&scratch, "a", ASKS).await;
    executed_late(&scratch).await;
    step(&postgres, 40);
    // At once, before the next heartbeat, and again when the step stands in the table.
    ask_now(&scratch).await;
    until("the bank was asked", async || inquiries(&scratch).await >= 1).await;
    until("the step is written down", async || steps(&scratch).await == 1).await;
    ask_now(&scratch).await;
    until("the bank was asked again", async || inquiries(&scratch).await >= 2).await;
    assert_eq!(scratch.count(State::Unknown).await, 1);
    is_paid_once(&scratch).await;
    assert_eq!(steps(&scratch).await, 1, "a step is written down once");
    node.stop().await;
}

#[tokio::test]
async fn a_grace_is_not_over_because_postgres_was_set_forward_while_no_node_ran() {
    let (postgres, scratch) = clocked("unseen").await;
    let node = TestNode::start(&scratch, "a", ASKS).await;
    until("Redis's clock is noted", async || scratch.number("select count(*) from refundd.clock").await == 1)
        .await;
    executed_late(&scratch).await;
    node.stop().await;
    step(&postgres, 40);
    ask_now(&scratch).await;
    let node = TestNode::start(&scratch, "b", ASKS).await;
    until("the step is written down", async || steps(&scratch).await == 1).await;
    ask_now(&scratch).await;
    until("the bank was asked", async || inquiries(&scratch).await >= 1).await;
    assert_eq!(scratch.text("select string_agg(witness, ' ') from refundd.clock_steps").await, "redis");
    is_paid_once(&scratch).await;
    node.stop().await;
}

#[tokio::test]
async fn a_lease_does_not_lapse_because_postgres_was_set_forward() {
    let (postgres, scratch) = clocked("lease").await;
    let patient = ASKS.replace("timeout = \"8s\"", "timeout = \"20s\"");
    let nodes =
        [TestNode::start(&scratch, "a", &patient).await, TestNode::start(&scratch, "b", &patient).await];
    scratch.bank.next("acme", [Step::pays().after(Duration::from_secs(7))]);
    scratch.insert("acme", "R-", 1).await;
    until("it is sent", async || scratch.bank.ledger().all().len() == 1).await;
    step(&postgres, 40);
    within(Duration::from_secs(20), "it succeeded", async || scratch.count(State::Succeeded).await == 1)
        .await;
    assert_eq!(scratch.text("select string_agg(outcome, ' ') from refundd.attempts").await, "succeeded");
    assert_eq!(steps(&scratch).await, 1, "two nodes write a step down once");
    for node in nodes {
        node.stop().await;
    }
}

#[tokio::test]
async fn a_lapsed_lease_is_found_after_a_step_too() {
    let (postgres, scratch) = clocked("lapse").await;
    let node = TestNode::start(&scratch, "a", ASKS).await;
    until("the clock is witnessed", async || scratch.number("select count(*) from refundd.clock").await == 1)
        .await;
    scratch.bank.next("acme", [Step::silence()]);
    scratch.insert("acme", "R-", 1).await;
    until("it is sent", async || scratch.bank.ledger().all().len() == 1).await;
    step(&postgres, 40);
    until("the step is written down", async || steps(&scratch).await == 1).await;
    // As if another node had leased it, and died.
    scratch
        .sql("update refundd.refunds set lease_node = 'dead#1/1', lease_epoch = lease_epoch + 1, lease_until = now() - interval '1 second'")
        .await;
    until("it lapsed", async || scratch.count(State::Unknown).await == 1).await;
    node.stop().await;
}

#[tokio::test]
async fn a_retention_does_not_last_because_postgres_was_set_back() {
    let (postgres, scratch) = clocked("retention").await;
    let resends = ASKS.replace(
        "on_unknown = \"inquire\"",
        "lease = \"20s\"\non_unknown = \"resend\"\nkey_retention = \"60s\"",
    );
    let resends = resends.lines().filter(|line| !line.starts_with("inquiry")).collect::<Vec<_>>().join("\n");
    let node = TestNode::start(&scratch, "a", &resends).await;
    until("the clock is witnessed", async || scratch.number("select count(*) from refundd.clock").await == 1)
        .await;
    scratch.bank.then("acme", Step::answers(500, "{}"));
    scratch.bank.next("acme", [Step::pays_but_says_500()]);
    scratch
        .sql("insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency, due_at) values ('R-1', 'acme', 'P', 1, 'EUR', now())")
        .await;
    until("it is sent", async || scratch.bank.ledger().all().len() == 1).await;
    until("it waits", async || scratch.count(State::Unknown).await == 1).await;
    // Of 40 s in which it may be leased again 3 are left when the clock is set back.
    scratch
        .sql("update refundd.refunds set first_sent_at = now() - interval '37 seconds', due_at = now() + interval '1 hour' where state = 'unknown'")
        .await;
    let sent = scratch.bank.ledger().all().len();
    step(&postgres, -40);
    tokio::time::sleep(Duration::from_secs(4)).await; // the retention has to pass
    scratch
        .sql("update refundd.refunds set due_at = now() - interval '1 second' where state = 'unknown'")
        .await;
    until("a person is asked", async || scratch.count(State::Review).await == 1).await;
    assert_eq!(scratch.bank.ledger().all().len(), sent, "the bank may have forgotten the key");
    node.stop().await;
}

/// Found by the simulation: the second step's time is one of the clock that the first had set back.
#[tokio::test]
async fn a_period_that_began_before_two_steps_is_measured_without_both() {
    let scratch = Scratch::new().await;
    for (step, by, before) in [
        (1, "-38 seconds", "2026-03-01 12:00:01"),
        (2, "-43 seconds", "2026-03-01 11:59:26"),
        (3, "5 seconds", "2026-03-01 11:58:50"),
    ] {
        scratch
            .sql(&format!(
                "insert into refundd.clock_steps (step, step_by, before, node, witness)
                 values ({step}, '{by}', '{before}+00', 'a#1', 'monotonic')"
            ))
            .await;
    }
    let stepped = async |way: &str, since: &str| {
        let ask =
            format!("select extract(epoch from refundd.stepped_{way}('2026-03-01 {since}+00'))::bigint");
        scratch.number(&ask).await
    };
    assert_eq!(stepped("back", "12:00:00").await, 38 + 43);
    assert_eq!(stepped("forward", "12:00:00").await, 5);
    assert_eq!(stepped("back", "12:00:02").await, 0);
    assert_eq!(stepped("forward", "12:00:02").await, 0);
}

/// Found by the simulation: a node goes by the clock after the first step, and the second is not written down yet.
#[tokio::test]
async fn a_deadline_does_not_pass_by_a_second_step() {
    let (postgres, scratch) = clocked("twice").await;
    scratch.publish("acme").await;
    scratch
        .sql("insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency, deadline_at) values ('R-1', 'acme', 'P', 1, 'EUR', now() + interval '20 seconds')")
        .await;
    let store = scratch.store.clone().witnessed_by(ClockWitness::default());
    assert_eq!(store.watch_clock("a#1", None, false).await.unwrap(), None);
    step(&postgres, 40);
    assert!(store.watch_clock("a#1", None, false).await.unwrap().is_some());
    step(&postgres, 300);
    assert_eq!(store.recover(RecoveryMove::FailLate, 10, &[]).await.unwrap(), []);
    assert_eq!(scratch.count(State::Ready).await, 1);
}

const DAY: Duration = Duration::from_hours(24);

/// Forgets what is older than the least times of `refundd.retention`, as the housekeeping does.
async fn forget(store: &Store) {
    store.rotate_permits(DAY * 7).await.unwrap();
    store.rotate_attempts(Some(DAY * 30)).await.unwrap();
    store.forget_events(DAY * 30).await.unwrap();
}

#[tokio::test]
async fn no_evidence_is_forgotten_because_postgres_was_set_forward() {
    let (postgres, scratch) = clocked("evidence").await;
    scratch.publish("acme").await; // which is an event
    scratch
        .sql(
            "with saved as (
                 insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency, state, attempts, lease_epoch, settled_at)
                 values ('R-1', 'acme', 'P', 1, 'EUR', 'succeeded', 1, 1, now()) returning id
             ), spent as (
                 insert into refundd.permits (limit_name, window_start, ordinal, refund_id, node)
                 select 'acme', now() - ago, 1, id, 'a#1' from saved, unnest(array[interval '0', interval '3 days']) ago
             )
             insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, moved_to)
             select id, 'acme', 'send', 1, 1, 'a#1', 'succeeded', 'succeeded' from saved",
        )
        .await;
    let keeps_all = async |when: &str| {
        for (evidence, least) in [("permits", 2), ("attempts", 1), ("events", 1)] {
            let kept = scratch.number(&format!("select count(*) from refundd.{evidence}")).await;
            assert!(kept >= least, "{when}: {kept} {evidence}");
        }
    };
    let node = |scratch: &Scratch| scratch.store.clone().witnessed_by(ClockWitness::default());
    let (store, starting) = (node(&scratch), node(&scratch));
    let watch = async || store.watch_clock("a#1", None, false).await.unwrap();
    assert_eq!(watch().await, None);
    forget(&store).await;
    step(&postgres, 200 * 86400);
    forget(&starting).await;
    keeps_all("a node that has compared nothing").await;
    forget(&store).await;
    keeps_all("before the step is written down").await;
    assert!(matches!(watch().await, Some(ClockStep { by_us: 1.., .. })));
    forget(&store).await;
    forget(&scratch.store).await;
    keeps_all("a step that is written down").await;

    // The clock is right again, and months go by: their tables were not among those that the wrong clock made.
    step(&postgres, -200 * 86400);
    assert!(matches!(watch().await, Some(ClockStep { by_us: ..0, .. })));
    forget(&store).await;
    keeps_all("the clock is right again").await;
    step(&postgres, 100 * 86400);
    assert!(watch().await.is_some());
    forget(&store).await;
    for (parent, span) in [("permits", "day"), ("attempts", "month")] {
        let ahead = format!(
            "select count(*) from refundd.spans('{parent}')
              where until > now() and until <= (date_trunc('{span}', now() at time zone 'UTC') + 3 * interval '1 {span}') at time zone 'UTC'"
        );
        assert_eq!(scratch.number(&ahead).await, 3, "{parent}");
    }
}
