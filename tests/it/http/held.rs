//! Refunds that another transaction holds or is about to save, and refunds that wait for a slow commit or are too slow themselves.

use std::cell::Cell;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use refundd::refund::State;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, Executor};
use tokio::time::timeout;

use crate::dispatch::UNLIMITED;
use crate::harness::node::{Answer, refund};
use crate::harness::{Scratch, TestNode, until};

/// Two of all callers together.
const MOST_CANCELS: i64 = 2;

#[tokio::test]
async fn cancellations_of_refunds_that_somebody_holds_leave_connections_to_the_channel_workers() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    scratch
        .sql(
            "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency, due_at)
             select 'H-' || n, 'acme', 'P', 1, 'EUR', now() + interval '1 day' from generate_series(1, 50) n",
        )
        .await;
    let mut holder = scratch.connect().await;
    let mut lock = holder.begin().await.unwrap();
    lock.execute("select 1 from refundd.refunds for update").await.unwrap();
    let waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
                      and query like '%refundd.cancel(%'";
    let cancel = async |id: i32| node.post(&format!("/v1/refunds/{id}/cancel"), &json!({})).await.status;
    // They never end: a call that found no place in time is answered 503, and its caller asks again.
    let cancels = join_all((1..=50).map(async |id| {
        loop {
            let status = Box::pin(cancel(id)).await;
            assert_ne!(status, 200, "somebody holds the refund");
        }
    }));
    let others = async {
        until("cancellations wait for the lock", async || scratch.number(waiting).await >= MOST_CANCELS)
            .await;
        scratch.insert("acme", "R-", 1).await;
        let mut most = 0;
        until("another refund is sent and settled", async || {
            most = most.max(scratch.number(waiting).await);
            scratch.count(State::Succeeded).await == 1
        })
        .await;
        most
    };
    let most = tokio::select! {
        _ = cancels => unreachable!(),
        most = others => most,
    };
    assert!(most <= MOST_CANCELS, "{most} cancellations wait on a connection each");
    lock.rollback().await.unwrap();
    until("one of them is cancelled", async || cancel(1).await == 200).await;
    node.stop().await;
}

/// A batch of `R-0` to `R-999`.
fn batch() -> Value {
    (0..1000).map(|n| refund(&format!("R-{n}"), "acme")).collect()
}

/// The status of each of its refunds.
fn statuses(answer: &Answer) -> Vec<u64> {
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json().as_array().unwrap().iter().map(|item| item["status"].as_u64().unwrap()).collect()
}

/// Begins to save these refunds of it by SQL.
fn held(numbers: &str) -> String {
    format!(
        "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency)
         select 'R-' || n, 'acme', 'P', 1, 'EUR' from generate_series({numbers}) n"
    )
}

#[tokio::test]
async fn a_ref_that_somebody_is_about_to_save_keeps_no_other_refund_of_its_batch_from_being_saved() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    let mut holder = scratch.connect().await;
    let mut producer = holder.begin().await.unwrap();
    producer.execute(AssertSqlSafe(held("7, 7"))).await.unwrap();
    let answer = node.post("/v1/refunds/batch", &batch()).await;
    let first = statuses(&answer);
    let others: Vec<usize> = (0..1000).filter(|n| first[*n] != 201).collect();
    assert_eq!(others, [7]);
    let locked = answer.json()[7].clone();
    assert_eq!((&locked["status"], &locked["refund_ref"]), (&json!(503), &json!("R-7")));
    assert!(locked["errors"].to_string().contains("another transaction held it"), "{locked}");
    producer.rollback().await.unwrap();
    let again = statuses(&node.post("/v1/refunds/batch", &batch()).await);
    assert!((0..1000).all(|n| again[n] == if n == 7 { 201 } else { 200 }), "{again:?}");
    node.stop().await;
}

#[tokio::test]
async fn a_batch_with_many_refs_that_somebody_holds_is_answered_soon() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    let mut holder = scratch.connect().await;
    let mut producer = holder.begin().await.unwrap();
    producer.execute(AssertSqlSafe(held("0, 999, 5"))).await.unwrap();
    let began = Instant::now();
    let statuses = statuses(&node.post("/v1/refunds/batch", &batch()).await);
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    for (n, status) in statuses.iter().enumerate() {
        assert!(*status == 503 || (*status == 201 && n % 5 != 0), "R-{n}: {status}");
    }
    assert!(statuses.contains(&201), "those beside the first ones are saved");
    producer.rollback().await.unwrap();
    node.stop().await;
}

/// A second is long for a node to see that a caller has left.
const SEES_A_HANG_UP: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_refund_whose_caller_hangs_up_before_its_commit_begins_is_not_saved() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    for statement in [
        "create function public.takes_long() returns trigger language plpgsql as $$ begin perform pg_sleep(2.5); return new; end $$",
        "create trigger takes_long before insert on refundd.refunds for each row
           when (new.refund_ref like 'R-first-%') execute function public.takes_long()",
    ] {
        scratch.sql(statement).await;
    }
    let save = async |refund_ref: &str| node.post("/v1/refunds", &refund(refund_ref, "acme")).await.status;
    // On a busy machine the first one may be saved before the node sees that the caller has left. Then other refunds try it again.
    let mut saw_it = false;
    for scene in 1..=3 {
        let [first, hung_up, last] = ["first", "hung-up", "last"].map(|name| format!("R-{name}-{scene}"));
        let first_ended = Cell::new(None);
        let first_one = async {
            let status = save(&first).await;
            first_ended.set(Some(Instant::now()));
            status
        };
        // While the first one is saved, the others gather for the next commit.
        let others = async {
            let sleeps = "select count(*) from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()";
            until("the first is being saved", async || {
                scratch.number(sleeps).await == 1 || first_ended.get().is_some()
            })
            .await;
            let answer = timeout(Duration::from_millis(300), save(&hung_up)).await;
            let left = answer.is_err().then(Instant::now);
            (left, save(&last).await)
        };
        let (status, (left, last_status)) = tokio::join!(first_one, others);
        let times = left.zip(first_ended.get());
        saw_it = status == 201 && times.is_some_and(|(left, ended)| left + SEES_A_HANG_UP < ended);
        if saw_it {
            assert_eq!(last_status, 201);
            let refs = "select string_agg(refund_ref, ' ' order by refund_ref) from refundd.refunds";
            let of_scene = format!("{refs} where refund_ref like 'R-%-{scene}'");
            assert_eq!(scratch.text(&of_scene).await, format!("{first} {last}"));
            break;
        }
    }
    assert!(saw_it, "this machine is too slow: three times the first one was saved too early or not at all");
    node.stop().await;
}

/// Postgres gives up the statement after 3.5 s.
#[tokio::test]
async fn a_refund_on_which_postgres_works_too_long_is_answered_503_and_spoils_no_other() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    for statement in [
        "create function public.takes_long() returns trigger language plpgsql as $$ begin perform pg_sleep(30); return new; end $$",
        "create trigger takes_long before insert on refundd.refunds for each row
           when (new.refund_ref like 'R-slow-%') execute function public.takes_long()",
    ] {
        scratch.sql(statement).await;
    }
    let save = async |refund_ref: &str| node.post("/v1/refunds", &refund(refund_ref, "acme")).await;
    // While the first one is tried, the others gather for one commit.
    let others = async {
        let sleeps = "select count(*) from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()";
        until("the first is being saved", async || scratch.number(sleeps).await == 1).await;
        tokio::join!(save("R-slow-2"), save("R-other-1"), save("R-other-2"))
    };
    let (first, (second, one, two)) = tokio::join!(save("R-slow-1"), others);
    let problem = json!({
        "type": "urn:refundd:problem:too-slow",
        "title": "Too slow",
        "status": 503,
        "detail": "Postgres worked on it for too long and gave it up; nothing was written by this statement",
    });
    for slow in [&first, &second] {
        assert_eq!((slow.status.as_u16(), slow.json()), (503, problem.clone()));
        assert_eq!(slow.headers["content-type"], "application/problem+json");
        assert_eq!(slow.headers["retry-after"], "5");
    }
    assert_eq!((one.status.as_u16(), two.status.as_u16()), (201, 201), "{one:?}, {two:?}");
    let refs = "select string_agg(refund_ref, ' ' order by refund_ref) from refundd.refunds";
    assert_eq!(scratch.text(refs).await, "R-other-1 R-other-2");
    // Who repeats it later loses nothing.
    scratch.sql("drop trigger takes_long on refundd.refunds").await;
    for refund_ref in ["R-slow-1", "R-slow-2"] {
        assert_eq!(save(refund_ref).await.status, 201, "{refund_ref}");
    }
    until("all are paid", async || scratch.count(State::Succeeded).await == 4).await;
    node.stop().await;
}
