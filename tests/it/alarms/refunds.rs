//! Refunds wait too long, or for a person.

use std::time::Duration;

use playground::bank::Step;
use refundd::refund::{RefundId, State};
use refundd::store::Decision;
use rustix::process::Signal;
use sqlx::{Connection, Executor};

use super::watch::Watch;
use super::{LIMITED, health_says, healthy, status_says};
use crate::harness::failing::fail_at;
use crate::harness::{NodeProcess, Receiver, Scratch, TestNode, until, within};

/// As if the refunds had been saved two hours ago. The owner writes this, because no test waits for so long.
pub const AGE: &str = "do $$ begin
    perform set_config('session_replication_role', 'replica', true);
    update refundd.refunds set created_at = now() - interval '2 hours', due_at = now() - interval '2 hours' where state = 'ready';
end $$";

/// Each send ends at its time-out, so it counts as an attempt.
#[tokio::test]
async fn a_bank_that_never_answers_and_no_breaker() {
    let scratch = Scratch::new().await;
    let (node, mut watch) = healthy(&scratch, LIMITED).await;
    scratch.bank.then("acme", Step::silence());
    // The counter began at 0, so the first such outcome is an increase.
    scratch.insert("acme", "R-", 3).await;
    watch.fires("RefunddNothingConfirmed").await;
    health_says(&node, 200, "\"ready\"").await;
    scratch.bank.then("acme", Step::pays());
    scratch.insert("acme", "T-", 1).await;
    watch.ends("RefunddNothingConfirmed").await;
    node.stop().await;
}

#[tokio::test]
async fn a_bank_that_rejects_every_refund_and_no_breaker() {
    let scratch = Scratch::new().await;
    let (node, mut watch) = healthy(&scratch, LIMITED).await;
    scratch.bank.then("acme", Step::rejects());
    scratch.insert("acme", "R-", 25).await;
    watch.fires("RefunddBankRejectsAll").await;
    health_says(&node, 200, "\"ready\"").await;
    scratch.bank.then("acme", Step::pays());
    scratch.insert("acme", "T-", 1).await;
    watch.ends("RefunddBankRejectsAll").await;
    node.stop().await;
}

/// The bank accepts connections and requests, and answers none of them. While no send has ended yet, no other alarm knows this.
#[tokio::test]
async fn a_bank_that_hangs_keeps_all_slots() {
    let scratch = Scratch::new().await;
    scratch.bank.then("acme", Step::silence());
    let hangs =
        LIMITED.replace("timeout = \"2s\"\nconnect", "timeout = \"300s\"\nmax_in_flight = 1\nconnect");
    let node = TestNode::start(&scratch, "a", &hangs).await;
    let mut watch = Watch::on([&node]);
    watch.is_quiet().await;
    scratch.insert("acme", "R-", 5).await;
    until("one hangs", async || scratch.count(State::Sending).await == 1).await;
    scratch.sql(AGE).await;
    watch.fires("RefunddNothingMoves").await;
    watch.fires("RefunddBacklogOld").await;
    health_says(&node, 200, "\"ready\"").await;
    status_says(&scratch, &hangs, &["2h 0m"]).await;
}

/// A producer may give each refund the date of its order.
#[tokio::test]
async fn a_due_time_before_the_save_makes_no_refund_older_than_its_save() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    scratch.insert("acme", "R-", 3).await;
    let age = async || scratch.store.census().await.unwrap().remove(0).oldest_ready_age.unwrap();
    let becomes = async |refund_ref: &str, created: &str, due: &str| {
        scratch
            .sql(&format!(
                "do $$ begin
                     perform set_config('session_replication_role', 'replica', true);
                     update refundd.refunds set created_at = now() - interval '{created}', due_at = now() - interval '{due}'
                      where refund_ref = '{refund_ref}';
                 end $$"
            ))
            .await;
    };
    let hours = |n| Duration::from_hours(n)..Duration::from_hours(n) + Duration::from_mins(5);
    becomes("R-1", "0", "2 years").await;
    becomes("R-2", "0", "1 year").await;
    assert!(hours(0).contains(&age().await), "saved a moment ago");
    becomes("R-2", "3 hours", "1 year").await;
    assert!(hours(3).contains(&age().await), "the one that waits longest, not the one that goes first");
    becomes("R-3", "9 hours", "4 hours").await;
    assert!(hours(4).contains(&age().await), "behind those that pass it");
    for refund_ref in ["R-1", "R-2"] {
        becomes(refund_ref, "9 hours", "1 minute").await;
    }
    assert!(hours(4).contains(&age().await), "a retry is due later than its refund was saved");
}

#[tokio::test]
async fn a_channel_that_waits_for_its_limit_is_no_alarm_of_nothing_moves() {
    let scratch = Scratch::new().await;
    let daily = LIMITED
        .replace("permits = 50\nper = \"1s\"", "permits = 1\nper = \"1d\"\nalgorithm = \"sliding_log\"");
    let (node, mut watch) = healthy(&scratch, &daily).await;
    scratch.insert("acme", "R-", 5).await;
    status_says(&scratch, &daily, &["acme waits for limit `acme`"]).await;
    scratch.sql(AGE).await;
    watch.fires("RefunddBacklogOld").await;
    watch.ends("RefunddNothingMoves").await;
    node.stop().await;
}

#[tokio::test]
async fn a_backlog_that_is_full() {
    let scratch = Scratch::new().await;
    let channels = format!("{LIMITED}max_backlog = 5\n");
    let (node, mut watch) = healthy(&scratch, &channels).await;
    scratch.pause("acme", "to let the backlog grow", "test").await;
    scratch.insert("acme", "R-", 6).await;
    watch.fires("RefunddBacklogFull").await;
    scratch.resume("acme").await;
    watch.is_quiet().await;
    node.stop().await;
}

#[tokio::test]
async fn refunds_that_will_miss_their_deadlines() {
    let scratch = Scratch::new().await;
    let slow = LIMITED.replace("permits = 50\nper = \"1s\"", "permits = 1\nper = \"1h\"");
    let (node, mut watch) = healthy(&scratch, &slow).await;
    scratch
        .sql("insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency, deadline_at)
              select 'R-' || n, 'acme', 'P', 1, 'EUR', now() + interval '10 minutes' from generate_series(1, 5) n")
        .await;
    // The leading node looks ahead every 20 s.
    within(Duration::from_mins(1), "the leading node has looked ahead", async || {
        scratch.number("select coalesce(max(late), 0)::bigint from refundd.channels").await > 0
    })
    .await;
    watch.fires("RefunddRefundsLate").await;
    status_says(&scratch, &slow, &["will pass their deadlines at this rate"]).await;
    node.stop().await;
}

#[tokio::test]
async fn leases_of_a_node_that_was_killed() {
    let scratch = Scratch::new().await;
    scratch.bank.then("acme", Step::silence());
    let mut killed = NodeProcess::start(&scratch, "a", LIMITED);
    scratch.insert("acme", "R-", 3).await;
    until("they are leased", async || scratch.count(State::Sending).await == 3).await;
    killed.signal(Signal::KILL);
    killed.wait();
    let node = TestNode::start(&scratch, "b", LIMITED).await;
    let mut watch = Watch::on([&node]);
    watch.fires("RefunddSendingStays").await;
    node.stop().await;
}

#[tokio::test]
async fn refunds_that_are_unknown_and_refunds_that_wait_for_a_person() {
    let scratch = Scratch::new().await;
    let asks = "on_unknown = \"inquire\"\ninquiry = { url = \"http://{bank}/acme/refunds/{request_id}\" }\n";
    let channels = format!(
        "{LIMITED}{asks}[channel.globex]\nendpoint = \"http://{{bank}}/globex/refunds\"\nlimits = []\n"
    );
    let (node, mut watch) = healthy(&scratch, &channels).await;
    scratch.bank.then("acme", Step::pays_but_says_500());
    scratch.bank.then("globex", Step::pays_but_says_500());
    scratch.bank.then_inquiries("acme", Some(Step::answers(500, "{}")));
    scratch.insert("acme", "R-", 1).await;
    watch.fires("RefunddUnknownStays").await;
    scratch.insert("globex", "S-", 1).await;
    watch.fires("RefunddReview").await;
    let id = RefundId(scratch.number("select id from refundd.refunds where channel = 'globex'").await);
    let seen = scratch.store.refund(id).await.unwrap().unwrap().version;
    let (next, why, who) = (State::Ready, "globex has no such refund", "ann");
    scratch.store.decide(&Decision { id, seen, next, not_executed: true, why, who }).await.unwrap();
    watch.fires("RefunddProposalWaits").await;
    node.stop().await;
}

#[tokio::test]
async fn a_transaction_that_keeps_the_journal_from_being_sealed() {
    let scratch = Scratch::new().await;
    let (node, mut watch) = healthy(&scratch, LIMITED).await;
    // Else the line of the first refund would wait before those of the person, and it is young.
    let sealed = async || scratch.number("select until_id from refundd.sealing").await >= 1;
    until("the first line is sealed", sealed).await;
    let mut person = scratch.connect().await;
    let line = "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, finished_at)
                values (1, 'acme', 'manual', 0, 1, 'ann', 'decided', now() - interval '10 minutes')";
    sqlx::raw_sql("begin").execute(&mut person).await.unwrap();
    sqlx::raw_sql(line).execute(&mut person).await.unwrap();
    scratch.sql(line).await;
    watch.fires("RefunddJournalUnsealed").await;
    sqlx::raw_sql("commit").execute(&mut person).await.unwrap();
    watch.is_quiet().await;
    node.stop().await;
}

/// The leading node says so; the others have nothing to recover.
#[tokio::test]
async fn a_part_of_recovery_that_postgres_refuses() {
    let scratch = Scratch::new().await;
    let (node, mut watch) = healthy(&scratch, LIMITED).await;
    let other = TestNode::start(&scratch, "b", LIMITED).await;
    fail_at(&scratch, "new.state = 'failed'").await;
    scratch.pause("acme", "to let a deadline pass", "test").await;
    scratch.insert("acme", "R-", 1).await;
    scratch
        .sql("update refundd.refunds set deadline_at = now() - interval '1 second' where state = 'ready'")
        .await;
    watch.fires("RefunddRecoveryFails").await;
    let says = async |node: &TestNode, is: u8| {
        node.get("/metrics").await.text.contains(&format!("\nrefundd_recovery_failing {is}\n"))
    };
    assert!(says(&node, 1).await && says(&other, 0).await);
    for node in [node, other] {
        node.stop().await;
    }
}

#[tokio::test]
async fn a_receiver_of_webhooks_that_takes_nothing() {
    let scratch = Scratch::new().await;
    let receiver = Receiver::start(None);
    let (node, mut watch) = healthy(&scratch, &format!("{LIMITED}{}", receiver.section())).await;
    // Else the line of the first refund would be the oldest, and it is young.
    let delivered =
        async || scratch.number("select coalesce(delivered_until, 0) from refundd.feed").await >= 1;
    until("the first change is delivered", delivered).await;
    receiver.answers(500);
    scratch
        .sql(
            "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, moved_to, finished_at)
             values (1, 'acme', 'manual', 0, 1, 'ann', 'decided', 'failed', now() - interval '10 minutes')",
        )
        .await;
    watch.fires("RefunddNotifyLate").await;
    receiver.answers(200);
    watch.is_quiet().await;
    node.stop().await;
}

/// Such a channel waits for an answer that comes after the test has changed the refund, also where the machine is slow.
fn patient() -> String {
    LIMITED.replace("timeout = \"2s\"\nconnect", "timeout = \"20s\"\nconnect")
}

#[tokio::test]
async fn a_late_answer_that_contradicts_a_refund_that_has_succeeded() {
    let scratch = Scratch::new().await;
    let (node, mut watch) = healthy(&scratch, &format!("{}bank_ref = \"/id\"\n", patient())).await;
    let pays = Step::answers(200, r#"{"status":"succeeded","id":"B-late"}"#).and_pays();
    scratch.bank.next("acme", [pays.after(Duration::from_secs(5))]);
    scratch.insert("acme", "R-", 1).await;
    until("it is sent", async || scratch.count(State::Sending).await == 1).await;
    // As if a second send had succeeded meanwhile, under a reference of its own. The node must wait for that, and tries again.
    let mut other = scratch.connect().await;
    let mut settles = other.begin().await.unwrap();
    settles.execute("update refundd.refunds set state = 'succeeded', lease_node = null, lease_until = null, settled_at = now(), bank_ref = 'another' where state = 'sending'").await.unwrap();
    let waits = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    until("the outcome waits", async || scratch.number(waits).await > 0).await;
    until("the outcome is set aside", async || scratch.number(waits).await == 0).await;
    settles.commit().await.unwrap();
    let event = "select count(*) from refundd.events where kind = 'late_answer_differs' and before ->> 'bank_ref' = 'another'";
    until("the event is written", async || scratch.number(event).await == 1).await;
    watch.fires("RefunddLateAnswerDiffers").await;
    node.stop().await;
}

#[tokio::test]
async fn a_late_answer_to_an_inquiry_that_contradicts_a_refund_that_has_succeeded() {
    let scratch = Scratch::new().await;
    let asks = "on_unknown = \"inquire\"\nbank_ref = \"/id\"\ninquiry = { url = \"http://{bank}/acme/refunds/{request_id}\" }\n";
    let (node, mut watch) = healthy(&scratch, &format!("{}{asks}", patient())).await;
    scratch.bank.next("acme", [Step::pays_but_says_500()]);
    scratch.insert("acme", "R-", 1).await;
    until("it is uncertain", async || scratch.count(State::Unknown).await == 1).await;
    let answer = Step::answers(200, r#"{"status":"succeeded","id":"B-late"}"#);
    scratch.bank.next_inquiries("acme", [answer.after(Duration::from_secs(5))]);
    scratch.sql("update refundd.refunds set inquire_at = now() where state = 'unknown'").await;
    until("the bank is asked", async || scratch.bank.ledger().inquiries("acme").count() == 1).await;
    scratch.sql("update refundd.refunds set state = 'succeeded', inquire_at = null, settled_at = now(), bank_ref = 'another' where state = 'unknown'").await;
    let event = "select count(*) from refundd.events where kind = 'late_answer_differs' and before ->> 'bank_ref' = 'another'";
    until("the event is written", async || scratch.number(event).await == 1).await;
    watch.fires("RefunddLateAnswerDiffers").await;
    node.stop().await;
}
