//! Outcomes of refunds that a failover lost: another refund has their id, or none has it yet. Each becomes an event.

use std::sync::Arc;
use std::time::Duration;

use refundd::metrics::{Metrics, PageFormat, Readings};
use refundd::node::Node;
use refundd::refund::{Outcome, RefundId, State};
use refundd::settler::Settler;
use refundd::store::Settled;
use sqlx::{Connection, Executor};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::{answered, claim, limited_scratch_with, settled_all, unlimited};
use crate::harness::{Scratch, until};

const ROWS: &str = "select coalesce(string_agg(to_jsonb(r)::text, ' '), '') from refundd.refunds r";

const LINES: &str = "select coalesce(string_agg(concat_ws(' ', node, outcome, moved_to), ', ' order by id), '') from refundd.attempts";

/// What is known of each lost refund, and what came of it.
const EVENTS: &str = "select coalesce(string_agg(concat_ws(' ', channel, refund_id, split_part(who, '/', 1), before::text, (after - 'started_at')::text,
                                                       after ? 'started_at'), ', ' order by event_id), '')
                        from refundd.events where kind = 'refund_lost'";

const COUNT: &str = "select count(*) from refundd.events where kind = 'refund_lost'";

/// A refund that the bank executed under the reference `B-1`. A failover lost it before its node wrote that.
async fn lost_refund() -> (Scratch, Vec<Settled>) {
    let scratch = limited_scratch_with(1).await;
    let lost = claim(&scratch, "a", &[unlimited(1)]).await;
    scratch.forget(1).await;
    (scratch, answered(&lost, Outcome::Succeeded, Some("B-1")))
}

async fn settle_lost(scratch: &Scratch, lost: &[Settled], again: bool) {
    let settled = scratch.store.settle("a", lost, again).await.unwrap();
    assert_eq!((settled.moved, settled.lost), (vec![], vec![(RefundId(1), "R-1".to_owned())]));
}

#[tokio::test]
async fn an_outcome_of_a_refund_that_a_failover_lost_is_not_written_onto_the_next_refund_with_its_id() {
    for state in [State::Ready, State::Sending, State::Succeeded] {
        let (scratch, lost) = lost_refund().await;
        scratch.insert("acme", "next-", 1).await;
        if state != State::Ready {
            let next = claim(&scratch, "a", &[unlimited(1)]).await;
            assert_eq!((next.leased[0].id, next.leased[0].epoch), (lost[0].id, lost[0].epoch));
            if state == State::Succeeded {
                let over = answered(&next, Outcome::Succeeded, Some("B-2"));
                scratch.store.settle("a", &over, false).await.unwrap();
            }
        }
        assert_eq!(scratch.count(state).await, 1);
        let before = (scratch.text(ROWS).await, scratch.text(LINES).await);
        for again in [false, true] {
            settle_lost(&scratch, &lost, again).await;
            let after = (scratch.text(ROWS).await, scratch.text(LINES).await);
            assert_eq!(after, before, "again: {again}");
        }
    }
}

#[tokio::test]
async fn the_outcomes_of_a_lost_refund_and_of_the_next_one_with_its_id_may_come_together() {
    for again in [false, true] {
        let (scratch, lost) = lost_refund().await;
        scratch.insert("acme", "next-", 1).await;
        let next = claim(&scratch, "b", &[unlimited(1)]).await;
        let both = [answered(&next, Outcome::Succeeded, Some("B-2")), lost].concat();
        let settled = scratch.store.settle("b", &both, again).await.unwrap();
        assert_eq!((settled.moved, settled.lost.len()), (vec![RefundId(1)], 1));
        let event = scratch.text(EVENTS).await;
        let request_id = both[1].request_id.to_string();
        assert!([&request_id, "R-1", "B-1"].iter().all(|fact| event.contains(fact)), "{event}");
        assert!(!event.contains("next-1"), "{event}");
        assert_eq!(scratch.text(LINES).await, "b succeeded succeeded");
        let row = "select concat_ws(' ', refund_ref, state, bank_ref) from refundd.refunds";
        assert_eq!(scratch.text(row).await, "next-1 succeeded B-2");
    }
}

#[tokio::test]
async fn an_outcome_of_a_lost_refund_whose_id_is_free_is_no_line_of_the_journal() {
    let (scratch, lost) = lost_refund().await;
    for again in [false, true] {
        settle_lost(&scratch, &lost, again).await;
        assert_eq!(scratch.text(LINES).await, "");
    }
}

/// The store of a node logs in with the role of nodes.
#[tokio::test]
async fn an_outcome_of_a_lost_refund_is_one_event_with_all_that_finance_needs_to_ask_the_bank() {
    let scratch = limited_scratch_with(1).await;
    let row = "select jsonb_build_object('refund_id', id, 'refund_ref', refund_ref, 'request_id', request_id,
                                         'amount_minor', amount_minor, 'currency', currency)::text from refundd.refunds";
    let before = scratch.text(row).await;
    let claimed = claim(&scratch, "a", &[unlimited(1)]).await;
    scratch.forget(1).await;
    let mut lost = answered(&claimed, Outcome::Succeeded, Some("B-1"));
    let code = lost[0].answer.code.as_str();
    let after = format!(
        r#"select '{{"attempt": 1, "outcome": "succeeded", "code": "{code}", "message": "test", "bank_ref": "B-1"}}'::jsonb::text"#
    );
    let event = format!("acme a {before} {} t", scratch.text(&after).await);
    // Each try counts anew how long ago the request began.
    for again in [false, false, true] {
        settle_lost(&scratch, &lost, again).await;
        assert_eq!(scratch.text(EVENTS).await, event, "again: {again}");
    }
    // Another outcome of the same refund is another event.
    lost[0].answer.outcome = Outcome::Unknown;
    settle_lost(&scratch, &lost, false).await;
    assert_eq!(scratch.number(COUNT).await, 2);
}

/// As after a copy that left out the sequences.
#[tokio::test]
async fn settling_fails_and_drops_no_outcome_of_a_lost_refund_while_the_next_id_of_an_event_is_used() {
    let (scratch, lost) = lost_refund().await;
    scratch.sql("insert into refundd.events (kind, who) values ('resumed', 'ann')").await;
    scratch
        .sql("select setval(pg_get_serial_sequence('refundd.events', 'event_id'), max(event_id), false) from refundd.events")
        .await;
    scratch.store.settle("a", &lost, false).await.unwrap_err();
    assert_eq!(scratch.number(COUNT).await, 0);
    // The failed try used up the id.
    settle_lost(&scratch, &lost, true).await;
    assert_eq!(scratch.number(COUNT).await, 1);
}

#[tokio::test]
async fn an_outcome_whose_refund_is_there_is_no_event_of_a_lost_refund_in_time_or_late() {
    let scratch = limited_scratch_with(1).await;
    let all = settled_all(&claim(&scratch, "a", &[unlimited(1)]).await, &Outcome::Succeeded);
    for again in [false, true, false] {
        assert!(scratch.store.settle("a", &all, again).await.unwrap().lost.is_empty());
    }
    assert_eq!(scratch.number(COUNT).await, 0);
}

#[tokio::test]
async fn the_nodes_role_writes_no_event_of_a_lost_refund_for_one_that_is_there_or_for_what_no_bank_said() {
    let scratch = limited_scratch_with(1).await;
    let mut node = sqlx::PgConnection::connect(&scratch.database_url).await.unwrap();
    let call = |id: i64, outcome: &str| {
        format!(
            "select refundd.note_lost_refund({id}, 'R-1', gen_random_uuid(), 1, 'EUR', 'acme', 'a', 'send', 1, now(),
                                             '{outcome}', 200::smallint, 'unmapped', 'test', 'B-1')"
        )
    };
    for (id, outcome, code) in
        [(1, "succeeded", "RD006"), (2, "decided", "22023"), (-1, "succeeded", "22023")]
    {
        let error = node.execute(sqlx::AssertSqlSafe(call(id, outcome))).await.unwrap_err();
        let said =
            error.as_database_error().and_then(sqlx::error::DatabaseError::code).map(|code| code.to_string());
        assert_eq!(said.as_deref(), Some(code), "{id} {outcome}: {error}");
    }
    assert_eq!(scratch.number(COUNT).await, 0);
    node.execute(sqlx::AssertSqlSafe(call(2, "succeeded"))).await.unwrap();
    assert_eq!(scratch.number(COUNT).await, 1);
}

/// Whether so many answers are counted that somebody must look into.
fn are_counted(metrics: &Metrics, answers: usize) -> bool {
    let page = metrics.page(&Readings::default(), PageFormat::PlainText);
    page.contains(&format!("refundd_late_answers_differ_total{{channel=\"acme\"}} {answers}\n"))
}

/// A settler that gets these outcomes and no others, and what it counts.
async fn settler_of(scratch: &Scratch, all: Vec<Settled>) -> (JoinHandle<()>, Arc<Metrics>) {
    let metrics = Arc::new(Metrics::default());
    let node = Node::new("a", scratch.store.clone(), scratch.bucket(), Arc::clone(&metrics));
    let (outcomes, inbox) = mpsc::channel(Settler::INBOX);
    for one in all {
        outcomes.send(one).await.unwrap();
    }
    (tokio::spawn(Settler::new(node, inbox).run()), metrics)
}

async fn ends(settler: JoinHandle<()>) {
    tokio::time::timeout(Duration::from_mins(1), settler).await.expect("the settler ends").unwrap();
}

#[tokio::test]
async fn an_outcome_of_a_lost_refund_is_counted_as_one_that_somebody_must_look_into() {
    let (scratch, lost) = lost_refund().await;
    let (settler, metrics) = settler_of(&scratch, lost).await;
    ends(settler).await;
    assert!(are_counted(&metrics, 1));
}

#[tokio::test]
async fn an_outcome_of_a_lost_refund_does_not_wait_with_one_whose_row_is_locked() {
    let scratch = limited_scratch_with(2).await;
    let claimed = claim(&scratch, "a", &[unlimited(1), unlimited(2)]).await;
    scratch.forget(2).await;
    let mut other = scratch.connect().await;
    for step in ["begin", "select from refundd.refunds where id = 1 for update"] {
        other.execute(step).await.unwrap();
    }
    let (settler, metrics) = settler_of(&scratch, settled_all(&claimed, &Outcome::Succeeded)).await;
    until("the lost one is counted", async || are_counted(&metrics, 1)).await;
    assert_eq!(scratch.count(State::Sending).await, 1);
    other.execute("commit").await.unwrap();
    ends(settler).await;
    assert_eq!(scratch.count(State::Succeeded).await, 1);
}

#[tokio::test]
async fn an_outcome_whose_refund_is_lost_while_it_waits_for_the_row_is_counted_and_waits_no_more() {
    let scratch = limited_scratch_with(1).await;
    let claimed = claim(&scratch, "a", &[unlimited(1)]).await;
    let mut other = scratch.connect().await;
    for step in
        ["set session_replication_role = 'replica'", "begin", "delete from refundd.refunds where id = 1"]
    {
        other.execute(step).await.unwrap();
    }
    let (settler, metrics) = settler_of(&scratch, settled_all(&claimed, &Outcome::Succeeded)).await;
    let waits = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    until("it waits for its row", async || scratch.number(waits).await > 0).await;
    until("it is set aside", async || scratch.number(waits).await == 0).await;
    other.execute("commit").await.unwrap();
    ends(settler).await;
    assert!(are_counted(&metrics, 1));
}
