//! Places for requests that keep Postgres busy: each caller has one of a kind, also one that hangs up and repeats.

use std::time::Duration;

use serde_json::{Value, json};
use sqlx::{Connection, Executor};
use tokio::time::timeout;

use super::{CallerTables, get, post};
use crate::harness::node::{Answer, refund};
use crate::harness::{Scratch, until};

const BOTH: &str = "may = [\"enqueue\", \"look\", \"review\", \"operate\"]\nchannels = [\"acme\", \"other\"]\nmax_amount_minor = { EUR = 2000 }";

/// Counts the statements that wait for a lock and look like this.
fn waiting(like: &str) -> String {
    format!(
        "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and ({like})"
    )
}

/// Sends a request, and hangs up a moment after such a statement waits.
async fn hang_up(scratch: &Scratch, statements: &str, request: impl Future<Output = Answer>) {
    let waits = async {
        until("a statement waits", async || scratch.number(statements).await > 0).await;
        // It may be that of an earlier request. Then this one waits where nobody sees it.
        tokio::time::sleep(Duration::from_millis(300)).await;
    };
    tokio::select! {
        // A statement waits for a lock for three seconds, and a slow machine may take longer.
        answer = request => assert_ne!(answer.status, 200, "the table is locked: {answer:?}"),
        () = waits => {}
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_and_repeats_its_batch_starts_no_second_save() {
    let scratch = Scratch::new().await;
    let mut callers = CallerTables::new();
    let shop = callers.caller("shop", BOTH);
    let node = callers.node(&scratch).await;
    let mut holder = scratch.connect().await;
    let mut lock = holder.begin().await.unwrap();
    lock.execute("lock table refundd.refunds in access exclusive mode").await.unwrap();
    let saves = waiting("query like '%requested as (%'");
    let batch = json!([refund("R-1", "acme")]);
    for _ in 0..4 {
        hang_up(&scratch, &saves, post(&node, &shop, "/v1/refunds/batch", &batch)).await;
        assert!(scratch.number(&saves).await <= 1, "one batch at a time, also when nobody waits for it");
    }
    lock.rollback().await.unwrap();
    assert_eq!(post(&node, &shop, "/v1/refunds/batch", &batch).await.status, 200);
    node.stop().await;
}

#[tokio::test]
async fn a_batch_that_still_waits_for_its_place_is_dropped_when_its_client_hangs_up() {
    let scratch = Scratch::new().await;
    let mut callers = CallerTables::new();
    let shop = callers.caller("shop", BOTH);
    let node = callers.node(&scratch).await;
    let mut holder = scratch.connect().await;
    let mut lock = holder.begin().await.unwrap();
    lock.execute("lock table refundd.refunds in access exclusive mode").await.unwrap();
    let batch = async |name: &str| {
        let body = json!([refund(name, "acme")]);
        post(&node, &shop, "/v1/refunds/batch", &body).await
    };
    hang_up(&scratch, &waiting("query like '%requested as (%'"), batch("R-1")).await;
    let answer = timeout(Duration::from_millis(500), batch("R-2")).await;
    assert!(answer.is_err(), "{answer:?}");
    lock.rollback().await.unwrap();
    assert_eq!(batch("R-3").await.status, 200);
    // The first one had begun, and may have waited too long for the lock.
    let refs = "select string_agg(refund_ref, ' ') from refundd.refunds where refund_ref <> 'R-1'";
    assert_eq!(scratch.text(refs).await, "R-3");
    node.stop().await;
}

#[tokio::test]
async fn a_caller_whose_batches_take_long_keeps_no_other_caller_waiting() {
    let scratch = Scratch::new().await;
    let mut callers = CallerTables::new();
    let (shop, desk) = (callers.caller("shop", BOTH), callers.caller("desk", BOTH));
    let node = callers.node(&scratch).await;
    // Every batch with this ref waits for its producer.
    let mut holder = scratch.connect().await;
    let mut producer = holder.begin().await.unwrap();
    producer
        .execute(
            "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency)
             values ('R-1', 'acme', 'P', 1, 'EUR')",
        )
        .await
        .unwrap();
    let saves = waiting("query like '%requested as (%'");
    let (held, free) = (json!([refund("R-1", "acme")]), json!([refund("R-2", "acme")]));
    let held = async || post(&node, &shop, "/v1/refunds/batch", &held).await.status;
    let batches = async { tokio::join!(held(), held(), held()) };
    let other = async {
        until("a batch waits", async || scratch.number(&saves).await > 0).await;
        assert_eq!(post(&node, &desk, "/v1/refunds/batch", &free).await.status, 200);
        assert!(scratch.number(&saves).await <= 1, "the caller has one batch at a time");
    };
    tokio::select! {
        statuses = batches => panic!("answered {statuses:?} before the other caller was"),
        () = other => {}
    }
    producer.rollback().await.unwrap();
    node.stop().await;
}

/// Two callers have no place for the look whether their refused refunds are saved. Their batches take no place meanwhile.
#[tokio::test]
async fn a_batch_that_waits_for_its_callers_list_keeps_no_other_batch_waiting() {
    let scratch = Scratch::new().await;
    let mut callers = CallerTables::new();
    let (one, two, third) =
        (callers.caller("one", BOTH), callers.caller("two", BOTH), callers.caller("third", BOTH));
    let node = callers.node(&scratch).await;
    let mut holder = scratch.connect().await;
    let mut lock = holder.begin().await.unwrap();
    lock.execute("lock table refundd.events in access exclusive mode").await.unwrap();
    let lists = waiting("query like '%select e.event_id,%'");
    // The first item is saved. The second is above the caller's bound, and might be saved already.
    let batch = |name: &str| {
        let mut high = refund(&format!("{name}-high"), "acme");
        high["amount_minor"] = json!(5000);
        json!([refund(name, "acme"), high])
    };
    // A list waits for the lock for three seconds, and those of one caller wait one after the other.
    let list = async |token| get(&node, token, "/v1/events").await.status;
    let listed = async |token| tokio::join!(list(token), list(token), list(token), list(token));
    let slow = async |token, name: &str| {
        until("both lists wait", async || scratch.number(&lists).await >= 2).await;
        post(&node, token, "/v1/refunds/batch", &batch(name)).await.status
    };
    let first = async {
        tokio::select! {
            status = slow(&one, "R-1") => status,
            status = slow(&two, "R-2") => status,
        }
    };
    let other = async {
        let saved = "select count(*) from refundd.refunds where refund_ref in ('R-1', 'R-2')";
        until("both batches are saved", async || scratch.number(saved).await == 2).await;
        assert_eq!(
            post(&node, &third, "/v1/refunds/batch", &json!([refund("R-3", "acme")])).await.status,
            200
        );
    };
    tokio::select! {
        status = first => panic!("a batch was answered {status} before that of the other caller"),
        statuses = async { tokio::join!(listed(&one), listed(&two)) } => panic!("the lists ended: {statuses:?}"),
        () = other => {}
    }
    lock.rollback().await.unwrap();
    node.stop().await;
}

/// The caller would learn nothing of refunds that are saved, only because its list waits.
#[tokio::test]
async fn a_batch_whose_look_finds_no_place_answers_what_it_saved() {
    let scratch = Scratch::new().await;
    let mut callers = CallerTables::new();
    let shop = callers.caller("shop", BOTH);
    let node = callers.node(&scratch).await;
    let mut holder = scratch.connect().await;
    let mut lock = holder.begin().await.unwrap();
    lock.execute("lock table refundd.events in access exclusive mode").await.unwrap();
    let mut high = refund("R-high", "acme");
    high["amount_minor"] = json!(5000);
    let batch = json!([refund("R-1", "acme"), high, refund("R-2", "acme")]);
    // A list waits for the lock for three seconds. The look has its place behind all of them.
    let list = async || get(&node, &shop, "/v1/events").await.status;
    let lists = async { tokio::join!(list(), list(), list(), list()) };
    let waits = waiting("query like '%select e.event_id,%'");
    let answer = async {
        until("a list waits", async || scratch.number(&waits).await > 0).await;
        let answer = post(&node, &shop, "/v1/refunds/batch", &batch).await;
        lock.rollback().await.unwrap();
        answer
    };
    let (_, answer) = tokio::join!(lists, answer);
    let status = |nth: usize| answer.json()[nth]["status"].clone();
    assert_eq!([status(0), status(1), status(2)], [201, 503, 201], "{answer:?}");
    assert!(answer.text.contains("could not be looked up yet"), "{answer:?}");
    let again = post(&node, &shop, "/v1/refunds/batch", &batch).await.json();
    assert_eq!(again[1]["status"], 422, "it is not saved: {again}");
    node.stop().await;
}

/// Sends a request again and again, and hangs up each time. One of them is under way, and a request of another caller beside it.
async fn one_is_under_way(path: &str, body: &Value, like: &str) {
    let scratch = Scratch::new().await;
    let mut callers = CallerTables::new();
    let (shop, desk) = (callers.caller("shop", BOTH), callers.caller("desk", BOTH));
    let node = callers.node(&scratch).await;
    scratch.insert("acme", "R-", 5).await;
    let mut holder = scratch.connect().await;
    let mut lock = holder.begin().await.unwrap();
    lock.execute("lock table refundd.refunds in access exclusive mode").await.unwrap();
    let statements = waiting(like);
    let sent = async |token| hang_up(&scratch, &statements, post(&node, token, path, body)).await;
    for _ in 0..4 {
        sent(&shop).await;
        assert!(scratch.number(&statements).await <= 1, "one at a time, also when nobody waits for it");
    }
    until("another caller's request waits beside it", async || {
        tokio::join!(sent(&shop), sent(&desk));
        scratch.number(&statements).await == 2
    })
    .await;
    lock.rollback().await.unwrap();
    until("the places are free", async || post(&node, &shop, path, body).await.status == 200).await;
    node.stop().await;
}

#[tokio::test]
async fn a_caller_that_hangs_up_and_repeats_its_decisions_has_one_request_under_way() {
    let refunds: Vec<Value> = (1..=5).map(|id| json!({ "id": id, "version": 1 })).collect();
    let body = json!({ "refunds": refunds, "state": "failed", "reason": "a test" });
    one_is_under_way("/v1/review", &body, "query like 'select -- refund_columns:%'").await;
}

#[tokio::test]
async fn a_caller_that_hangs_up_and_repeats_its_move_has_one_look_under_way() {
    let body = json!({ "to": "other", "all": true, "dry_run": true });
    let like =
        "query like '%is_retired, refundd.backlog_room%' or query like '%max(id), 0) from refundd.refunds%'";
    one_is_under_way("/v1/channels/acme/move", &body, like).await;
}

#[tokio::test]
async fn a_caller_that_hangs_up_and_repeats_its_read_of_a_journal_has_one_under_way() {
    let scratch = Scratch::new().await;
    let mut callers = CallerTables::new();
    let shop = callers.caller("shop", BOTH);
    let node = callers.node(&scratch).await;
    scratch.insert("acme", "R-", 1).await;
    let mut holder = scratch.connect().await;
    let mut lock = holder.begin().await.unwrap();
    lock.execute("lock table refundd.attempts in access exclusive mode").await.unwrap();
    let reads = waiting("query like '%from refundd.attempts where refund_id = $1 order by id%'");
    for _ in 0..4 {
        hang_up(&scratch, &reads, get(&node, &shop, "/v1/refunds/1/attempts")).await;
        assert!(scratch.number(&reads).await <= 1, "one at a time, also when nobody waits for it");
    }
    lock.rollback().await.unwrap();
    assert_eq!(get(&node, &shop, "/v1/refunds/1/attempts").await.status, 200);
    node.stop().await;
}

#[tokio::test]
async fn a_viewer_who_wants_many_proofs_keeps_no_other_viewer_from_one() {
    let scratch = Scratch::new().await;
    let mut callers = CallerTables::new();
    let (ann, bob) = (callers.caller("ann", BOTH), callers.caller("bob", BOTH));
    let node = callers.node(&scratch).await;
    let mut holder = scratch.connect().await;
    let mut lock = holder.begin().await.unwrap();
    lock.execute("lock table refundd.permits in access exclusive mode").await.unwrap();
    let proofs = waiting("query like '%select min(limit_name) as name from refundd.permits%'");
    let proof = async |token| get(&node, token, "/proof?channel=acme&from=1h").await.status;
    let many = async { tokio::join!(proof(&ann), proof(&ann), proof(&ann)) };
    let other = async {
        until("a proof waits", async || scratch.number(&proofs).await > 0).await;
        let mut one = Box::pin(proof(&bob));
        let early = timeout(Duration::from_millis(300), &mut one).await;
        assert!(early.is_err(), "answered {early:?} and not put into the queue");
        assert!(scratch.number(&proofs).await <= 1, "a node makes one proof at a time");
        lock.rollback().await.unwrap();
        assert_eq!(one.await, 200);
    };
    tokio::join!(many, other);
    node.stop().await;
}
