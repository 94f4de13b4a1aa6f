//! `GET /v1/changes`: a program that follows it with a cursor misses no change, also of transactions that commit late.

mod dropped;

use std::collections::BTreeSet;
use std::time::Duration;

use playground::bank::Step;
use refundd::caller::Names;
use refundd::refund::{RefundId, State};
use refundd::store::ChangeFilter;
use serde_json::{Value, json};

use crate::dispatch::UNLIMITED;
use crate::harness::{Scratch, TestNode, until};
use crate::journal::months;

/// A change as the tests compare it.
type Seen = (i64, i64, String);

/// The changes of one page, and its cursor.
async fn page(node: &TestNode, query: &str) -> (Vec<Seen>, String, bool) {
    let answer = node.get(&format!("/v1/changes?{query}")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let page = answer.json();
    let seen = |change: &Value| {
        let cursor = change["cursor"].as_str().unwrap().parse().unwrap();
        (cursor, change["refund_id"].as_i64().unwrap(), change["state"].as_str().unwrap().to_owned())
    };
    let changes = page["changes"].as_array().unwrap().iter().map(seen).collect();
    (changes, page["next"].as_str().unwrap().to_owned(), page["more"].as_bool().unwrap())
}

/// Follows the feed from the cursor to its present end.
async fn follow(node: &TestNode, cursor: &mut String, limit: u32) -> Vec<Seen> {
    let mut all = Vec::new();
    loop {
        let (changes, next, more) = page(node, &format!("after={cursor}&limit={limit}")).await;
        assert!(next.parse::<i64>().unwrap() >= cursor.parse().unwrap(), "{next} after {cursor}");
        all.extend(changes);
        *cursor = next;
        if !more {
            return all;
        }
    }
}

fn states(seen: &[Seen], refund: i64) -> Vec<&str> {
    seen.iter().filter(|(_, of, _)| *of == refund).map(|(_, _, state)| state.as_str()).collect()
}

/// Writes a line of the journal as the owner, within the transaction of a connection.
async fn write(connection: &mut sqlx::PgConnection, refund: i64) {
    let line = format!(
        "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, moved_to)
         values ({refund}, 'acme', 'manual', 0, 1, 'ann', 'decided', 'failed')"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(line)).execute(connection).await.unwrap();
}

#[tokio::test]
async fn a_change_that_commits_late_is_not_missed() {
    let scratch = Scratch::with_refunds(3).await;
    let node = TestNode::start(&scratch, "a", "").await;
    let (mut late, mut early) = (scratch.connect().await, scratch.connect().await);
    sqlx::raw_sql("begin").execute(&mut late).await.unwrap();
    write(&mut late, 1).await;
    write(&mut early, 2).await;
    // The second line is committed, and the first one, with the lower id, is not.
    assert_eq!(scratch.number("select count(*) from refundd.attempts").await, 1);
    let mut cursor = "0".to_owned();
    assert_eq!(follow(&node, &mut cursor, 100).await, vec![], "the reader may not go past the open line");
    assert_eq!(page(&node, "after=end").await.0, vec![]);
    let (_, end, _) = page(&node, "after=end").await;
    assert_eq!(end, "0");
    sqlx::raw_sql("commit").execute(&mut late).await.unwrap();
    let seen = follow(&node, &mut cursor, 100).await;
    assert_eq!(seen, [(1, 1, "failed".to_owned()), (2, 2, "failed".to_owned())]);
    // A transaction that only reads keeps nobody back, nor does one that is rolled back.
    sqlx::raw_sql("begin; select * from refundd.attempts").execute(&mut late).await.unwrap();
    sqlx::raw_sql("begin").execute(&mut early).await.unwrap();
    write(&mut early, 3).await;
    sqlx::raw_sql("rollback").execute(&mut early).await.unwrap();
    write(&mut early, 3).await;
    assert_eq!(follow(&node, &mut cursor, 100).await, [(4, 3, "failed".to_owned())]);
    node.stop().await;
}

#[tokio::test]
async fn a_transaction_that_stays_open_keeps_back_nothing_that_was_sealed_before_it() {
    let scratch = Scratch::with_refunds(3).await;
    let (mut late, mut early) = (scratch.connect().await, scratch.connect().await);
    write(&mut early, 1).await;
    assert_eq!(scratch.store.seal_journal(100).await.unwrap().lines, 1);
    sqlx::raw_sql("begin").execute(&mut late).await.unwrap();
    write(&mut late, 2).await;
    write(&mut early, 3).await;
    let reach = scratch.store.journal_is_whole_until().await.unwrap();
    assert_eq!((reach.last_id, reach.whole_until), (3, 1));
    sqlx::raw_sql("commit").execute(&mut late).await.unwrap();
    assert_eq!(scratch.store.journal_is_whole_until().await.unwrap().whole_until, 3);
}

#[tokio::test]
async fn a_reader_that_polls_while_two_nodes_send_sees_each_change_once_and_in_order() {
    let scratch = Scratch::new().await;
    let nodes =
        [TestNode::start(&scratch, "a", UNLIMITED).await, TestNode::start(&scratch, "b", UNLIMITED).await];
    let mut cursor = page(&nodes[0], "after=end").await.1;
    scratch.insert("acme", "R-", 600).await;
    let mut seen = Vec::new();
    until("all are read", async || {
        let (limit, node) = (1 + u32::try_from(seen.len() % 7).unwrap(), &nodes[seen.len() % 2]);
        let more = follow(node, &mut cursor, limit).await;
        seen.extend(more);
        seen.len() >= 600 && scratch.count(State::Succeeded).await == 600
    })
    .await;
    assert!(seen.is_sorted_by(|one, next| one.0 < next.0), "{seen:?}");
    assert!(seen.iter().all(|(_, _, state)| state == "succeeded"));
    let refunds: BTreeSet<i64> = seen.iter().map(|(_, refund, _)| *refund).collect();
    assert_eq!((refunds.len(), seen.len()), (600, 600));
    for node in nodes {
        node.stop().await;
    }
}

const FEED: &str = r#"
[channel.acme]
endpoint = "http://{bank}/acme/refunds"
limits = []
timeout = "1s"
connect_timeout = "1s"
bank_ref = "/id"
retry = { base = "100ms", cap = "1s" }
on_unknown = "inquire"
inquiry = { url = "http://{bank}/acme/refunds/{request_id}", not_found_is_final = true, grace = "30s" }
[channel.globex]
endpoint = "http://{bank}/globex/refunds"
limits = []
timeout = "1s"
connect_timeout = "1s"
"#;

#[tokio::test]
async fn the_feed_has_each_change_of_state_once_and_nothing_else() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", FEED).await;
    let bank = &scratch.bank;
    let ready = async |refund_ref: &str, channel: &str| {
        scratch.insert(channel, refund_ref, 1).await;
        scratch.number(&format!("select id from refundd.refunds where refund_ref = '{refund_ref}1'")).await
    };
    let is = async |id: i64, state: State| {
        let query = format!("select count(*) from refundd.refunds where id = {id} and state = '{state}'");
        until(&format!("{id} is {state}"), async || scratch.number(&query).await == 1).await;
    };
    // The bank asks to wait twice: the refund is ready again each time, and that is no change.
    let paid = Step::answers(200, r#"{"status":"succeeded","id":"B-77"}"#).and_pays();
    bank.next("acme", [Step::too_many(0), Step::too_many(0), paid]);
    let waited = ready("waited-", "acme").await;
    is(waited, State::Succeeded).await;
    // An inquiry that proves nothing leaves the refund unknown, and that is no change. The next one settles it.
    bank.next("acme", [Step::pays_but_says_500()]);
    bank.next_inquiries("acme", [Step::answers(500, "{}")]);
    let asked = ready("asked-", "acme").await;
    is(asked, State::Unknown).await;
    for inquiries in 1..=2 {
        let due =
            format!("update refundd.refunds set inquire_at = now() where id = {asked} and state = 'unknown'");
        scratch.sql(&due).await;
        let query =
            format!("select count(*) from refundd.attempts where refund_id = {asked} and kind = 'inquiry'");
        until("the bank is asked", async || scratch.number(&query).await >= inquiries).await;
    }
    is(asked, State::Succeeded).await;
    // Recovery brings it to a person, who decides.
    bank.next("globex", [Step::pays_but_says_500()]);
    let decided = ready("decided-", "globex").await;
    is(decided, State::Review).await;
    scratch.decide(RefundId(decided), State::Succeeded, "on the statement", "ann").await;
    // The bank rejects it, a person lets it go again, and the bank pays.
    bank.next("acme", [Step::rejects(), Step::pays()]);
    let again = ready("again-", "acme").await;
    is(again, State::Failed).await;
    scratch.decide(RefundId(again), State::Ready, "the account is open again", "ann").await;
    is(again, State::Succeeded).await;
    // One is cancelled, and one misses its deadline.
    scratch.pause("globex", "to keep them", "ann").await;
    let cancelled = ready("cancelled-", "globex").await;
    let body = json!({});
    assert_eq!(node.post(&format!("/v1/refunds/{cancelled}/cancel"), &body).await.status, 200);
    scratch
        .sql(
            "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency, deadline_at)
             values ('late-1', 'globex', 'P', 1, 'EUR', now() + interval '300 ms')",
        )
        .await;
    let late = scratch.number("select id from refundd.refunds where refund_ref = 'late-1'").await;
    is(late, State::Failed).await;

    let mut cursor = "0".to_owned();
    let seen = follow(&node, &mut cursor, 3).await;
    assert!(seen.is_sorted_by(|one, next| one.0 < next.0), "{seen:?}");
    let expected = [
        (waited, vec!["succeeded"]),
        (asked, vec!["unknown", "succeeded"]),
        (decided, vec!["unknown", "review", "succeeded"]),
        (again, vec!["failed", "ready", "succeeded"]),
        (cancelled, vec!["cancelled"]),
        (late, vec!["failed"]),
    ];
    for (refund, states_of_it) in &expected {
        assert_eq!(states(&seen, *refund), *states_of_it, "refund {refund}: {seen:?}");
    }
    assert_eq!(seen.len(), expected.iter().map(|(_, states)| states.len()).sum::<usize>());
    assert_eq!(follow(&node, &mut cursor, 3).await, vec![]);

    // Every part of a change, and the filter by channel.
    let whole = node.get("/v1/changes?channel=globex").await.json();
    let changes = whole["changes"].as_array().unwrap();
    assert_eq!(changes.len(), 5, "{whole}");
    assert!(changes.iter().all(|change| change["channel"] == "globex"), "{whole}");
    let code = |refund: i64, state: &str| {
        let of = changes.iter().find(|one| one["refund_id"] == refund && one["state"] == state).unwrap();
        of["code"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(code(late, "failed"), "deadline_passed");
    assert_eq!(code(decided, "review"), "nothing_left_to_try");
    assert_eq!(
        (code(decided, "succeeded"), code(cancelled, "cancelled")),
        ("decided".to_owned(), "cancelled".to_owned())
    );
    let first = &node.get("/v1/changes?limit=1").await.json()["changes"][0];
    assert_eq!(first["refund_ref"], "waited-1", "{first}");
    assert_eq!(first["bank_ref"], "B-77", "{first}");
    assert!(first["reason"].is_string() && first["at"].is_string(), "{first}");
    node.stop().await;
}

#[tokio::test]
async fn a_cursor_whose_changes_were_dropped_is_gone_and_names_the_oldest_one() {
    let scratch = months(4, &[]).await;
    let node = TestNode::start(&scratch, "a", "").await;
    assert_eq!(page(&node, "after=0").await.1, "5", "nothing is dropped yet");
    let rotated = scratch.store.rotate_attempts(Some(Duration::from_secs(1))).await.unwrap();
    assert_eq!(rotated.dropped, 4);
    for cursor in ["0", "3"] {
        let gone = node.get(&format!("/v1/changes?after={cursor}")).await;
        let problem = gone.json();
        assert_eq!(
            (gone.status.as_u16(), &problem["type"]),
            (410, &json!("urn:refundd:problem:cursor-gone"))
        );
        assert_eq!(problem["oldest"], "4", "{problem}");
    }
    assert_eq!(page(&node, "after=4").await.1, "5");
    assert_eq!(page(&node, "").await.1, "5", "without a cursor, from the oldest line");
    let ahead = node.get("/v1/changes?after=6").await;
    assert_eq!((ahead.status.as_u16(), ahead.json()["oldest"].as_str()), (410, Some("4")), "{ahead:?}");
    node.stop().await;
}

#[tokio::test]
async fn reading_the_feed_writes_nothing() {
    let scratch = Scratch::with_refunds(1).await;
    let mut owner = scratch.connect().await;
    write(&mut owner, 1).await;
    sqlx::Connection::close(owner).await.unwrap();
    let written = async || {
        let query =
            "select coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::bigint from pg_stat_user_tables
                      where schemaname = 'refundd'";
        scratch.number(query).await
    };
    // The channel with its event, the refund, and the line. Counters reach the view when a connection ends.
    until("the statistics have what the test wrote", async || written().await == 4).await;
    for n in 0..20 {
        let reach = scratch.store.journal_is_whole_until().await.unwrap();
        let filter = ChangeFilter { after: n % 2, limit: 100, ..ChangeFilter::of(Names::All) };
        let page = scratch.store.changes(&filter, reach.whole_until).await.unwrap().unwrap();
        assert_eq!(page.changes.len(), usize::from(n % 2 == 0));
    }
    // The row of the lease is written by the same connections, so its count comes with what they wrote before.
    scratch.store.deliver("a#1", Duration::from_secs(1), None).await.unwrap();
    scratch.store.close().await;
    until("the statistics have the lease", async || written().await >= 5).await;
    assert_eq!(written().await, 5, "the lease alone");
}
