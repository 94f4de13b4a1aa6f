//! The journal of attempts: one table for each month, forgotten a month at a time if that is asked for.

use std::process::Command;
use std::time::Duration;

use refundd::refund::RefundId;
use refundd::store::{Rotation, Store};
use sqlx::Connection;

use crate::dispatch::UNLIMITED;
use crate::harness::servers::SERVERS;
use crate::harness::{Scratch, TestNode, within};

const HOUR: Duration = Duration::from_hours(1);

/// A journal whose first month is `before` months ago, with one refund in each and its one send. Refund 1 is of the
/// oldest; they are in these states, and `succeeded` after the last of them.
pub async fn months(before: usize, states: &[&str]) -> Scratch {
    let scratch = Scratch::new().await;
    scratch.keep_evidence_for_a_moment().await;
    scratch.publish("acme").await;
    for n in (0..=before).rev() {
        let state = states.get(before - n).copied().unwrap_or("succeeded");
        let (lease, settled) = match state {
            "sending" => ("'node-a', now() + interval '1 hour'", "null"),
            "succeeded" => ("null, null", "now()"),
            _ => ("null, null", "null"),
        };
        scratch
            .sql(&format!(
                "do $$
                 declare
                     month timestamptz := date_trunc('month', now()) - interval '{n} months';
                     next  timestamptz := month + interval '1 month';
                     saved bigint;
                 begin
                     if {n} = {before} then
                         execute (select 'drop table ' || string_agg(format('refundd.%I', name), ', ') from refundd.spans('attempts'));
                     end if;
                     execute format('create table refundd.attempts_until_%s partition of refundd.attempts (primary key (id)) for values from (%s) to (%L)',
                                    to_char(next, 'YYYYMMDD'), case when {n} = {before} then 'minvalue' else quote_literal(month) end, next);
                     insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency, state, attempts, created_at, lease_epoch, lease_node, lease_until, settled_at)
                     values ('R-{n}', 'acme', 'P', 1, 'EUR', '{state}', 1, month + interval '1 hour', 1, {lease}, {settled}) returning id into saved;
                     insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, finished_at, outcome, code)
                     values (saved, 'acme', 'send', 1, 1, 'node-a', month + interval '2 hours', 'unknown', 'timed_out');
                 end $$"
            ))
            .await;
    }
    scratch
}

/// How long ago the month began that was `n` months ago.
async fn since(scratch: &Scratch, n: u32) -> Duration {
    let ago = format!(
        "select extract(epoch from now() - (date_trunc('month', now()) - interval '{n} months'))::bigint"
    );
    Duration::from_secs(u64::try_from(scratch.number(&ago).await).unwrap())
}

async fn rotate(scratch: &Scratch, keep: Duration) -> (i32, Option<i64>) {
    let Rotation { dropped, kept_month, .. } = scratch.store.rotate_attempts(Some(keep)).await.unwrap();
    (dropped, kept_month.map(|(_, refund)| refund.0))
}

const KEPT: &str = "select count(*) from refundd.attempts";
const AHEAD: &str = "select count(*) from refundd.spans('attempts') where until > now() + interval '32 days'";

#[tokio::test]
async fn a_month_of_the_journal_is_forgotten_when_all_of_it_is_older_than_it_is_kept() {
    let scratch = months(6, &[]).await;
    let third = since(&scratch, 3).await;
    // The month before that one ended when it began.
    assert_eq!(rotate(&scratch, third + HOUR).await, (2, None));
    assert_eq!(scratch.number(KEPT).await, 5);
    assert_eq!(rotate(&scratch, third.saturating_sub(HOUR)).await, (1, None));
    assert_eq!(rotate(&scratch, third.saturating_sub(HOUR)).await, (0, None), "once");
    assert_eq!(scratch.number("select min(refund_id) from refundd.attempts").await, 4);
    assert_eq!(scratch.number("select count(*) from refundd.refunds").await, 7, "refunds are kept for ever");
}

#[tokio::test]
async fn nothing_of_the_journal_is_forgotten_unless_that_is_asked_for() {
    let scratch = months(6, &[]).await;
    assert_eq!(
        scratch.store.rotate_attempts(None).await.unwrap(),
        Rotation { done: true, dropped: 0, kept_month: None }
    );
    assert_eq!(scratch.number(KEPT).await, 7);
    assert_eq!(scratch.store.journal_since().await.unwrap(), None);
}

#[tokio::test]
async fn evidence_of_a_refund_that_did_not_end_is_never_forgotten_nor_what_came_after_it() {
    let open = ["ready", "sending", "accepted", "unknown", "review"];
    let scratch = months(7, &open).await;
    for (state, refund) in open.iter().zip(1i64..) {
        let behind = i32::from(refund > 1);
        assert_eq!(rotate(&scratch, HOUR).await, (behind, Some(refund)), "{state}");
        assert_eq!(scratch.number(KEPT).await, 9 - refund, "{state}");
        let end = if *state == "ready" { "cancelled" } else { "succeeded" };
        let columns = format!("state = '{end}', settled_at = now()");
        scratch.release(&format!("id = {refund}"), &columns).await;
    }
    assert_eq!(rotate(&scratch, HOUR).await, (3, None));
    assert_eq!(scratch.number(KEPT).await, 1, "of this month");
}

#[tokio::test]
async fn the_tables_of_the_next_months_are_made_ahead_or_by_a_later_call_and_nobody_waits_for_long() {
    let scratch = months(0, &[]).await;
    let (mut producer, mut reader) = (scratch.connect().await, scratch.connect().await);
    let insert = "begin; insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency) values ('R', 'acme', 'P', 1, 'EUR')";
    sqlx::raw_sql(insert).execute(&mut producer).await.unwrap();
    sqlx::raw_sql("begin; select count(*) from refundd.attempts").execute(&mut reader).await.unwrap();
    assert!(!scratch.store.rotate_attempts(None).await.unwrap().done, "somebody reads the journal");
    assert_eq!(scratch.number(AHEAD).await, 0);
    sqlx::raw_sql("commit").execute(&mut reader).await.unwrap();
    assert!(
        scratch.store.rotate_attempts(None).await.unwrap().done,
        "a refund that is being saved holds nothing back"
    );
    assert_eq!(scratch.number(AHEAD).await, 2);
    let month =
        scratch.text("select name::text from refundd.spans('attempts') order by until desc limit 1").await;
    let error = scratch.sql_error(&format!("truncate refundd.{month}")).await;
    assert!(error.to_string().contains("append-only"), "{error}");
}

#[tokio::test]
async fn a_month_that_somebody_reads_is_dropped_by_a_later_call() {
    let scratch = months(3, &[]).await;
    scratch.store.rotate_attempts(None).await.unwrap();
    let mut reader = scratch.connect().await;
    sqlx::raw_sql("begin; select count(*) from refundd.attempts").execute(&mut reader).await.unwrap();
    let left = Rotation { done: false, dropped: 0, kept_month: None };
    assert_eq!(scratch.store.rotate_attempts(Some(HOUR)).await.unwrap(), left);
    sqlx::raw_sql("commit").execute(&mut reader).await.unwrap();
    let done = Rotation { done: true, dropped: 3, kept_month: None };
    assert_eq!(scratch.store.rotate_attempts(Some(HOUR)).await.unwrap(), done);
}

#[tokio::test]
async fn an_attempt_of_a_month_without_a_table_is_kept_and_stays() {
    let scratch = months(1, &[]).await;
    scratch
        .sql("insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, finished_at, outcome)
              values (1, 'acme', 'manual', 0, 1, 'ann', date_trunc('month', now()) + interval '70 days', 'decided')")
        .await;
    assert_eq!(rotate(&scratch, HOUR).await, (1, None));
    assert_eq!(scratch.number(KEPT).await, 2);
}

#[tokio::test]
async fn whoever_reads_what_was_forgotten_is_told_so() {
    let scratch = months(3, &[]).await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    let whole = node.get("/v1/refunds/1/attempts").await.json();
    assert_eq!((whole["attempts"].as_array().map(Vec::len), whole.get("forgotten_before")), (Some(1), None));
    let kept = since(&scratch, 1).await + HOUR;
    assert_eq!(rotate(&scratch, kept).await, (1, None));
    let edge = scratch.text("select to_char(date_trunc('month', now()) - interval '2 months', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')").await;
    let old = node.get("/v1/refunds/1/attempts").await.json();
    assert_eq!(
        (old["attempts"].as_array().map(Vec::len), old["forgotten_before"].as_str()),
        (Some(0), Some(edge.as_str())),
        "{old}"
    );
    let young = node.get("/v1/refunds/3/attempts").await.json();
    assert_eq!(
        (young["attempts"].as_array().map(Vec::len), young.get("forgotten_before")),
        (Some(1), None),
        "{young}"
    );
    node.stop().await;
    for (refund, is_shown) in [("1", true), ("3", false)] {
        let shown = said(&scratch, &["review", "show", refund, "--json"]);
        assert_eq!(shown.contains(&format!(r#""forgotten_before":"{edge}""#)), is_shown, "{shown}");
    }
}

/// What the program says on standard output.
fn said(scratch: &Scratch, words: &[&str]) -> String {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file, scratch.file("a", UNLIMITED).as_bytes()).unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_refundd"));
    let output = program.arg("--config").arg(file.path()).args(words).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test]
async fn a_proof_says_from_when_on_the_journal_is_whole() {
    let scratch = months(2, &[]).await;
    scratch.sql(r#"insert into refundd.limit_rules values ('acme', now() - interval '40 days', '{"algorithm":"sliding_log","permits":5,"per_us":1000000,"lateness_us":20000}', 'node-a')"#).await;
    scratch.sql("insert into refundd.permits (limit_name, window_start, ordinal, refund_id, node) values ('acme', now() - interval '39 days', 1, 2, 'node-a')").await;
    let since = async || {
        let proof = said(&scratch, &["prove", "--limit", "acme", "--from", "38d", "--json"]);
        let proof: serde_json::Value = serde_json::from_str(&proof).unwrap();
        proof["limits"][0]["journal"]["whole_since"].as_str().map(str::to_owned)
    };
    assert_eq!(since().await, None);
    assert_eq!(rotate(&scratch, HOUR).await, (2, None));
    let edge =
        scratch.text("select to_char(date_trunc('month', now()), 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')").await;
    assert_eq!(since().await, Some(edge));
    let text = said(&scratch, &["prove", "--limit", "acme", "--from", "38d"]);
    assert!(text.contains("was not compared: whole since"), "{text}");
}

#[tokio::test]
async fn the_leading_node_forgets_what_its_file_says() {
    let scratch = months(6, &[]).await;
    let node =
        TestNode::start(&scratch, "a", &format!("{UNLIMITED}\n[recovery]\nkeep_attempts = \"70d\"\n")).await;
    // Counting what is kept would stand in the node's way.
    let old = "select count(*) from refundd.spans('attempts') where until < now() - interval '70 days'";
    within(Duration::from_mins(3), "the oldest months are gone", async || scratch.number(old).await == 0)
        .await;
    assert!(scratch.number(KEPT).await < 5);
    assert!(scratch.number(KEPT).await >= 3);
    node.stop().await;
}

/// A database as it was left by the migrations up to this one.
async fn migrated_to(last: u32) -> (String, sqlx::PgConnection) {
    let name = format!("before_{last}");
    SERVERS.postgres.create_database(&name, None).await.unwrap();
    let url = SERVERS.postgres.url(&name);
    let mut connection = sqlx::PgConnection::connect(&url).await.unwrap();
    migrations(&mut connection, 1..=last).await;
    (url, connection)
}

async fn migrations(connection: &mut sqlx::PgConnection, which: std::ops::RangeInclusive<u32>) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/migrations");
    for number in which {
        let file = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
        let path = file
            .into_iter()
            .find(|path| path.file_name().unwrap().to_string_lossy().starts_with(&format!("{number:04}_")));
        let text = std::fs::read_to_string(path.unwrap()).unwrap();
        let whole = format!("begin; {text}\n; commit");
        sqlx::raw_sql(sqlx::AssertSqlSafe(whole)).execute(&mut *connection).await.unwrap();
    }
}

#[tokio::test]
async fn what_the_journal_held_before_it_had_months_is_all_kept() {
    let (url, mut connection) = migrated_to(14).await;
    sqlx::raw_sql(
        "insert into refundd.channels (channel, endpoint, settings, published_by) values ('acme', 'http://b/', '{}', 'a');
         insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency) select 'R-' || n, 'acme', 'P', 1, 'EUR' from generate_series(1, 50) n;
         insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, finished_at, message)
         select n, 'acme', 'send', 1, 1, 'node-a', 'unknown', now() - n * interval '20 days', 'no ' || n from generate_series(1, 50) n;
         create role auditor_of_the_journal; grant select on refundd.attempts to auditor_of_the_journal",
    )
    .execute(&mut connection)
    .await
    .unwrap();
    let all = "select md5(string_agg(t::text, ',' order by id)) from refundd.attempts t";
    let before: String = sqlx::query_scalar(all).fetch_one(&mut connection).await.unwrap();
    let described = "select string_agg(a.attname || ' ' || col_description(a.attrelid, a.attnum), ', ' order by a.attnum) from pg_attribute a
                      where a.attrelid = 'refundd.attempts'::regclass and a.attnum > 0";
    let said: String = sqlx::query_scalar(described).fetch_one(&mut connection).await.unwrap();
    migrations(&mut connection, 15..=15).await;
    assert_eq!(sqlx::query_scalar::<_, String>(all).fetch_one(&mut connection).await.unwrap(), before);
    assert_eq!(sqlx::query_scalar::<_, String>(described).fetch_one(&mut connection).await.unwrap(), said);
    let mut yes = async |question: &'static str| {
        sqlx::query_scalar::<_, bool>(question).fetch_one(&mut connection).await.unwrap()
    };
    assert!(yes("select has_table_privilege('auditor_of_the_journal', 'refundd.attempts', 'select')").await);
    assert!(yes("select count(*) = 3 and bool_and(until > now()) from refundd.spans('attempts')").await);
    assert!(
        yes("with kept as (insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome)
                           values (1, 'acme', 'send', 2, 2, 'node-a', 'unknown') returning id) select id > 50 from kept").await,
        "ids go on"
    );
    let stranger = "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome) values (99, 'acme', 'send', 1, 1, 'a', 'unknown')";
    let refused = sqlx::query(stranger).execute(&mut connection).await.unwrap_err();
    assert!(refused.to_string().contains("attempts_belong_to_a_refund"), "{refused}");
    let store = Store::open(&url, None, 1).unwrap();
    assert_eq!(store.evidence(RefundId(50)).await.unwrap().len(), 1);
    assert_eq!(store.journal_since().await.unwrap(), None);
}
