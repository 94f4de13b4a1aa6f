//! A bank's refusal that Postgres cannot take yet: the node that heard it obeys it, and tells Postgres later.

use std::time::Duration;

use playground::bank::Step;
use refundd::refund::{ChannelName, State};
use refundd::store::OwnSuspension;
use sqlx::{Executor, PgConnection};

use super::{SECOND, limited};
use crate::harness::{Scratch, TestNode, until, within};

const ROW: &str = "select channel from refundd.channels where channel = 'acme' for update";
/// Nodes can read the suspensions, and write none.
const TABLE: &str = "lock table refundd.suspensions in share mode";
/// When the write of a refusal began that waits for a lock now, in microseconds since 1970; 0 if none waits.
const WRITE_WAITS_SINCE: &str = "
    select coalesce(max((extract(epoch from query_start) * 1000000)::bigint), 0) from pg_stat_activity
     where datname = current_database() and wait_event_type = 'Lock'
       and (query like '-- refused:%' or query like '%insert into refundd.suspensions as s %')";

/// The node's first request is refused like this while another session holds `lock`. Then more refunds wait until
/// the node writes the refusal for the second time. Answers the node, and the session with its open transaction.
async fn refused_under(scratch: &Scratch, lock: &'static str, refusal: Step) -> (TestNode, PgConnection) {
    let under_way = answered_under(scratch, &limited(), lock, refusal).await;
    assert_eq!(scratch.bank.look(|l| l.all().len()), 1, "only the request that was refused");
    under_way
}

/// The same with these channels. Other requests may have followed the first one.
async fn answered_under(
    scratch: &Scratch,
    channels: &str,
    lock: &'static str,
    answer: Step,
) -> (TestNode, PgConnection) {
    let node = TestNode::start(scratch, "a", channels).await;
    until("the channel is there", async || {
        scratch.number("select count(*) from refundd.channels where channel = 'acme'").await == 1
    })
    .await;
    let mut holder = scratch.connect().await;
    holder.execute("begin").await.unwrap();
    holder.execute(lock).await.unwrap();
    scratch.bank.next("acme", [answer]);
    scratch.insert("acme", "R-", 1).await;
    assert!(scratch.bank.until(Duration::from_secs(10), |l| l.all().len() == 1).await);
    // The first try to write it has failed once the second one waits.
    let mut first = 0;
    until("the node writes the refusal", async || {
        first = scratch.number(WRITE_WAITS_SINCE).await;
        first > 0
    })
    .await;
    scratch.insert("acme", "S-", 20).await;
    until("it tries again", async || scratch.number(WRITE_WAITS_SINCE).await > first).await;
    (node, holder)
}

#[tokio::test]
async fn a_channel_rests_as_its_bank_asked_although_its_row_is_locked() {
    let scratch = Scratch::new().await;
    let (node, mut holder) = refused_under(&scratch, ROW, Step::too_many(30)).await;
    holder.execute("rollback").await.unwrap();
    let cools = "select count(*) from refundd.channels where channel = 'acme' and cool_until > now()";
    within(SECOND * 10, "every node knows", async || scratch.number(cools).await == 1).await;
    assert_eq!(scratch.bank.look(|l| l.all().len()), 1);
    node.stop().await;
}

#[tokio::test]
async fn a_refusal_that_names_no_wait_is_written_when_the_row_is_free_again() {
    let scratch = Scratch::new().await;
    let names_no_wait = Step::answers(429, r#"{"error":"too many requests"}"#);
    let (node, mut holder) = refused_under(&scratch, ROW, names_no_wait).await;
    holder.execute("rollback").await.unwrap();
    let slowed = "select count(*) from refundd.channels where channel = 'acme' and slow_percent < 100";
    within(SECOND * 10, "the channel is slowed", async || scratch.number(slowed).await == 1).await;
    // The pause is now that of a first refusal, and not the longest one.
    within(SECOND * 10, "all are sent", async || scratch.count(State::Succeeded).await == 21).await;
    node.stop().await;
}

#[tokio::test]
async fn a_refusal_whose_wait_was_over_before_it_could_be_written_still_slows_the_channel() {
    let scratch = Scratch::new().await;
    let (node, mut holder) = answered_under(&scratch, &limited(), ROW, Step::too_many(1)).await;
    holder.execute("rollback").await.unwrap();
    let slowed = "select count(*) from refundd.channels where channel = 'acme' and slow_percent < 100";
    within(SECOND * 10, "the channel is slowed", async || scratch.number(slowed).await == 1).await;
    within(SECOND * 20, "all are sent", async || scratch.count(State::Succeeded).await == 21).await;
    node.stop().await;
}

#[tokio::test]
async fn a_trip_of_the_breaker_that_could_not_be_written_stops_sends_and_is_written_later() {
    let scratch = Scratch::new().await;
    let trips = format!("{}breaker = {{ rejected = 1, unknown = 1, probe = \"1h\" }}\n", limited());
    let (node, mut holder) = answered_under(&scratch, &trips, TABLE, Step::rejects()).await;
    assert_eq!(scratch.bank.look(|l| l.all().len()), 1, "only the request that tripped it");
    holder.execute("rollback").await.unwrap();
    let tripped = "select count(*) from refundd.suspended where source = 'breaker'";
    within(SECOND * 10, "every node knows", async || scratch.number(tripped).await == 1).await;
    assert_eq!(scratch.bank.look(|l| l.all().len()), 1);
    node.stop().await;
}

#[tokio::test]
async fn a_trip_from_before_the_breaker_of_another_node_was_closed_suspends_the_channel_no_more() {
    let scratch = Scratch::new().await;
    let trips = format!("{}breaker = {{ rejected = 1, unknown = 1, probe = \"1h\" }}\n", limited());
    let (node, mut holder) = answered_under(&scratch, &trips, TABLE, Step::rejects()).await;
    // Another node could write its trip, and its probe succeeded.
    for change in [
        "insert into refundd.suspensions (channel, source, reason, who, kind, probe_at) \
         values ('acme', 'breaker', '1 refusal', 'b#1', 'rejected', now())",
        "update refundd.suspensions set ended_at = clock_timestamp(), ended_by = 'b#1' where channel = 'acme'",
        "commit",
    ] {
        holder.execute(change).await.unwrap();
    }
    within(SECOND * 20, "the others are sent", async || scratch.count(State::Succeeded).await == 20).await;
    assert_eq!(scratch.suspensions().await, 0);
    node.stop().await;
}

#[tokio::test]
async fn refused_credentials_that_could_not_be_written_suspend_a_channel_until_a_person_resumes_it() {
    let scratch = Scratch::new().await;
    let (node, mut holder) = refused_under(&scratch, TABLE, Step::unauthorised()).await;
    holder.execute("rollback").await.unwrap();
    within(SECOND * 10, "every node knows", async || scratch.suspensions().await == 1).await;
    assert_eq!(scratch.bank.look(|l| l.all().len()), 1);
    scratch.resume("acme").await;
    until("all are sent", async || scratch.count(State::Succeeded).await == 21).await;
    node.stop().await;
}

#[tokio::test]
async fn refused_credentials_from_before_a_person_resumed_the_channel_suspend_it_no_more() {
    let scratch = Scratch::new().await;
    let (node, mut holder) = refused_under(&scratch, TABLE, Step::unauthorised()).await;
    // Another node could write its refusal, and a person ended that.
    for change in [
        "insert into refundd.suspensions (channel, source, reason, who) values ('acme', 'credentials', 'HTTP 401', 'b#1')",
        "update refundd.suspensions set ended_at = clock_timestamp(), ended_by = 'ann' where channel = 'acme'",
        "commit",
    ] {
        holder.execute(change).await.unwrap();
    }
    within(SECOND * 20, "all are sent", async || scratch.count(State::Succeeded).await == 21).await;
    assert_eq!(scratch.suspensions().await, 0);
    node.stop().await;
}

#[tokio::test]
async fn refused_credentials_that_could_not_be_written_are_forgotten_when_the_channel_changes() {
    let scratch = Scratch::new().await;
    let (node, mut holder) = refused_under(&scratch, TABLE, Step::unauthorised()).await;
    let changed = limited().replace("timeout = \"2s\"\nconnect", "timeout = \"3s\"\nconnect");
    node.daemon.reload(scratch.config("a", &changed)).await.unwrap();
    within(SECOND * 10, "all are sent", async || scratch.count(State::Succeeded).await == 21).await;
    holder.execute("rollback").await.unwrap();
    node.stop().await;
}

#[tokio::test]
async fn a_refusal_of_credentials_or_a_trip_counts_unless_the_last_one_ended_after_it_began() {
    let credentials = |age| OwnSuspension::Credentials { age };
    counts_unless_the_last_one_ended_later(credentials).await;
    let breaker = |age| OwnSuspension::Breaker { kind: "rejected", probe: SECOND * 60, age };
    counts_unless_the_last_one_ended_later(breaker).await;
}

async fn counts_unless_the_last_one_ended_later(own: impl Fn(Duration) -> OwnSuspension<'static>) {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    let acme = ChannelName::new("acme").unwrap();
    let suspends =
        async |age| scratch.store.suspend(&acme, own(age), "the bank refused", "a#1").await.unwrap();
    assert!(suspends(SECOND * 60).await, "nobody ended one");
    scratch.resume("acme").await;
    assert!(!suspends(SECOND * 60).await, "it is older than that end");
    assert_eq!(scratch.suspensions().await, 0);
    assert!(suspends(Duration::ZERO).await);
    scratch.resume("acme").await;
    // Since then Postgres's clock was set back.
    scratch.sql("update refundd.suspensions set ended_at = now() + interval '1 hour'").await;
    assert!(suspends(SECOND).await);
}
