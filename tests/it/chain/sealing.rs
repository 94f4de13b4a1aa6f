//! When lines are sealed: after their commit, by whoever leads, and for months that are dropped.

use std::time::Duration;

use refundd::store::{Sealed, Store};
use rustix::process::Signal;
use sqlx::{Executor, PgConnection};

use super::{LINES, attack, first_fault, lines, seal, sealed_journal};
use crate::cli::text;
use crate::dispatch::UNLIMITED;
use crate::harness::{NodeProcess, Scratch, TestNode, until, within};
use crate::prove::{json, prove};

async fn run(connection: &mut PgConnection, sql: &str) {
    connection.execute(sqlx::AssertSqlSafe(sql.to_owned())).await.unwrap();
}

const WAITS: Sealed = Sealed { lines: 0, is_done: false, waits_for: 1 };

#[tokio::test]
async fn a_line_that_commits_late_is_sealed_in_its_place() {
    let scratch = sealed_journal().await;
    let mut late = scratch.connect().await;
    let one = LINES.replace("COUNT", "1");
    // Behind a transaction that is rolled back, one that is committed, and one that is prepared first.
    for (prepares, end) in
        [("", "rollback"), ("", "commit"), ("prepare transaction 'late'", "commit prepared 'late'")]
    {
        let before = scratch.number("select count(*) from refundd.attempts").await;
        run(&mut late, "begin").await;
        run(&mut late, &one).await;
        lines(&scratch, 3).await;
        assert_eq!(scratch.store.seal_journal(1000).await.unwrap(), WAITS);
        // A later writer is not waited for.
        let mut later = scratch.connect().await;
        run(&mut later, "begin").await;
        run(&mut later, &one).await;
        run(&mut late, prepares).await;
        assert_eq!(scratch.store.seal_journal(1000).await.unwrap(), WAITS);
        run(&mut late, end).await;
        let late_lines = i32::from(end != "rollback");
        let sealed = scratch.store.seal_journal(1000).await.unwrap();
        assert_eq!(sealed, Sealed { lines: 3 + late_lines, is_done: true, waits_for: 0 });
        run(&mut later, "commit").await;
        assert_eq!(seal(&scratch).await, 1);
        assert_eq!(
            scratch.number("select count(*) from refundd.attempts").await,
            before + 4 + i64::from(late_lines)
        );
    }
    // A transaction that only reads the journal holds nothing up.
    run(&mut late, "begin").await;
    run(&mut late, "select count(*) from refundd.attempts").await;
    lines(&scratch, 2).await;
    assert_eq!(seal(&scratch).await, 2);
    run(&mut late, "commit").await;
    let output = prove(&scratch, &["--journal"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
}

#[tokio::test]
async fn many_lines_are_sealed_in_parts_and_by_whoever_comes() {
    let scratch = sealed_journal().await;
    lines(&scratch, 95).await;
    let first = scratch.store.seal_journal(10).await.unwrap();
    assert_eq!(first, Sealed { lines: 10, is_done: false, waits_for: 0 });
    let other = Store::open(&scratch.database_url, None, 2).unwrap();
    let all = async |store: &Store| {
        let mut lines = 0;
        loop {
            let sealed = store.seal_journal(10).await.unwrap();
            lines += sealed.lines;
            if sealed.is_done {
                return lines;
            }
        }
    };
    let (a, b) = tokio::join!(all(&scratch.store), all(&other));
    assert_eq!(a + b, 85);
    let page = json(&prove(&scratch, &["--journal", "--json"]));
    assert_eq!((&page["verdict"], &page["unsealed_lines"]), (&"whole".into(), &0.into()), "{page}");
}

#[tokio::test]
async fn the_journal_of_nodes_that_send_is_whole_while_it_is_sealed() {
    let scratch = Scratch::new().await;
    let a = TestNode::start(&scratch, "a", UNLIMITED).await;
    let b = TestNode::start(&scratch, "b", UNLIMITED).await;
    let mut person = scratch.connect().await;
    for round in 0..10 {
        scratch.insert("acme", &format!("R-{round}-"), 30).await;
        // A person's transaction that lasts.
        run(&mut person, "begin").await;
        run(
            &mut person,
            "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome)
                          values (1, 'acme', 'manual', 0, 1, 'ann', 'decided')",
        )
        .await;
        for _ in 0..5 {
            scratch.store.seal_journal(7).await.unwrap();
        }
        run(&mut person, if round % 2 == 0 { "commit" } else { "rollback" }).await;
    }
    let sent = "select count(*) from refundd.attempts where kind = 'send'";
    until("all are sent", async || scratch.number(sent).await == 300).await;
    a.stop().await;
    b.stop().await;
    // The first call may end a span that was chosen while the nodes sent.
    seal(&scratch).await;
    seal(&scratch).await;
    let output = prove(&scratch, &["--journal", "--json"]);
    let page = json(&output);
    assert_eq!(output.status.code(), Some(0), "{page}");
    assert_eq!((&page["channels"][0]["lines"], &page["unsealed_lines"]), (&305.into(), &0.into()), "{page}");
}

/// A sealed journal whose first 19 lines are of a month that ended two months ago, in a table that may be dropped.
pub(super) async fn with_an_old_month() -> Scratch {
    let scratch = sealed_journal().await;
    attack(&scratch, "update refundd.attempts set finished_at = date_trunc('month', now(), 'UTC') - interval '2 months 3 days';
        delete from refundd.seals; update refundd.sealing set until_id = 0, seals = 0").await;
    let split = "do $$
        declare
            over date := (date_trunc('month', now() at time zone 'UTC') - interval '2 months')::date;
            old  name := (select name from refundd.spans('attempts') order by until limit 1);
        begin
            execute format('alter table refundd.attempts detach partition refundd.%I', old);
            execute format('alter table refundd.%I rename to before', old);
            execute format('create table refundd.attempts_until_%s partition of refundd.attempts (primary key (id)) for values from (minvalue) to (%L)', to_char(over, 'YYYYMMDD'), over);
            execute format('create table refundd.%I partition of refundd.attempts (primary key (id)) for values from (%L) to (%L)', old, over,
                           to_date(right(old, 8), 'YYYYMMDD'));
            insert into refundd.attempts overriding system value select * from refundd.before;
            drop table refundd.before;
        end $$";
    attack(&scratch, split).await;
    assert_eq!(seal(&scratch).await, 19);
    lines(&scratch, 6).await;
    assert_eq!(seal(&scratch).await, 6);
    scratch.sql("update refundd.refunds set state = 'cancelled', settled_at = now()").await;
    scratch
}

/// Drops the oldest month as the owner can, without a note.
const BY_HAND: &str = "do $$ begin execute (select 'drop table refundd.' || quote_ident(name) from refundd.spans('attempts') order by until limit 1); end $$";

const KEEP_LONGER: &str = "update refundd.retention set at_least = '400 days' where evidence = 'attempts'";

fn is_whole(scratch: &Scratch) {
    let output = prove(scratch, &["--journal", "--json"]);
    let page = json(&output);
    assert_eq!(output.status.code(), Some(0), "{page}");
    let chain = &page["channels"][0];
    assert_eq!(
        (&chain["forgotten_lines"], &chain["lines"], &chain["seals"]),
        (&10.into(), &3.into(), &2.into()),
        "{page}"
    );
}

fn lacks_the_first_line(scratch: &Scratch) {
    let (fault, line, _, page) = first_fault(scratch, &["--journal"]);
    assert_eq!((fault.as_str(), line), ("line_missing", Some(1)), "{page}");
}

#[tokio::test]
async fn a_month_that_was_dropped_rightly_stays_forgotten_when_the_retention_is_raised() {
    let scratch = with_an_old_month().await;
    let rotation = scratch.store.rotate_attempts(Some(Duration::from_hours(24))).await.unwrap();
    assert_eq!(rotation.dropped, 1, "{rotation:?}");
    is_whole(&scratch);
    scratch.sql(KEEP_LONGER).await;
    is_whole(&scratch);
}

#[tokio::test]
async fn a_month_that_was_dropped_by_hand_or_is_noted_falsely_is_missed() {
    let scratch = with_an_old_month().await;
    attack(&scratch, BY_HAND).await;
    // Old enough, and yet no function of refundd dropped it.
    lacks_the_first_line(&scratch);
    let note = |begins: &str, ends: &str, at: &str, kept: &str| {
        let edge = "date_trunc('month', now(), 'UTC') - interval '2 months'";
        format!("insert into refundd.dropped_months values ({begins}, {edge} + {ends}, {at}, {kept})")
    };
    for (begins, ends, at, kept, is_believed) in [
        // It had not ended when it was dropped.
        ("null", "interval '0'", "now() - interval '100 days'", "interval '30 days'", false),
        // It ended earlier, and not by as much as the journal was kept then.
        ("null", "interval '0'", "now()", "interval '400 days'", false),
        // Another month.
        ("null", "interval '-1 month'", "now()", "interval '30 days'", false),
        ("date_trunc('month', now(), 'UTC')", "interval '1 year'", "now()", "interval '30 days'", false),
        ("null", "interval '0'", "now() - interval '1 day'", "interval '1 day'", true),
    ] {
        let copy = format!("{KEEP_LONGER}; {}", note(begins, ends, at, kept));
        attack(&scratch, &copy).await;
        if is_believed {
            is_whole(&scratch);
        } else {
            lacks_the_first_line(&scratch);
        }
        scratch.sql("alter table refundd.dropped_months disable trigger user").await;
        scratch.sql("delete from refundd.dropped_months").await;
    }
    // The same month, noted as dropped before 30 days were over, or in the future: nobody may do that.
    for (at, kept) in [
        ("date_trunc('month', now(), 'UTC') - interval '2 months' + interval '29 days'", "interval '1 hour'"),
        ("now() + interval '10 years'", "interval '3000 days'"),
    ] {
        attack(&scratch, &note("null", "interval '0'", at, kept)).await;
        lacks_the_first_line(&scratch);
        scratch.sql("delete from refundd.dropped_months").await;
    }
}

/// As before migration 61.
const UNNOTED: &str =
    "drop table refundd.dropped_months; drop function refundd.dropped_months_are_never_changed";
const MIGRATION: &str = include_str!("../../../migrations/0061_dropped_months_are_noted.sql");

#[tokio::test]
async fn what_was_dropped_before_it_was_noted_is_judged_by_the_retention_of_the_migration_or_of_today() {
    for (before, after, is_forgotten) in
        [("30 days", "400 days", true), ("400 days", "30 days", true), ("400 days", "400 days", false)]
    {
        let scratch = with_an_old_month().await;
        attack(&scratch, BY_HAND).await;
        let keep = |time: &str| KEEP_LONGER.replace("400 days", time);
        attack(&scratch, &format!("{UNNOTED}; {}; {MIGRATION}", keep(before))).await;
        scratch.sql(&keep(after)).await;
        if is_forgotten {
            is_whole(&scratch);
        } else {
            lacks_the_first_line(&scratch);
        }
    }
}

#[tokio::test]
async fn lines_of_a_node_that_was_killed_are_sealed_by_another_and_its_log_has_the_head() {
    let scratch = Scratch::new().await;
    let mut killed = NodeProcess::start(&scratch, "a", UNLIMITED);
    scratch.insert("acme", "R-", 5).await;
    until("all lines are written", async || {
        scratch.number("select count(*) from refundd.attempts").await == 5
    })
    .await;
    killed.signal(Signal::KILL);
    killed.wait();
    let node = NodeProcess::start(&scratch, "b", UNLIMITED);
    within(Duration::from_mins(2), "all is sealed and logged", async || {
        node.log().iter().any(|line| line.contains("5 lines, head "))
    })
    .await;
    let line = node.log().into_iter().find(|line| line.contains("5 lines, head ")).unwrap();
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(
        (&line["level"], &line["channel.name"], &line["seal.lines"]),
        (&"INFO".into(), &"acme".into(), &5.into()),
        "{line}"
    );
    let head = line["seal.hash"].as_str().unwrap();
    let output = prove(&scratch, &["--journal", "acme", "--head", head]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(text(&output).contains("5 lines as they were"), "{}", text(&output));
}

#[tokio::test]
async fn a_journal_whose_old_lines_are_not_sealed_is_unproven_and_not_whole() {
    let scratch = sealed_journal().await;
    lines(&scratch, 2).await;
    let output = prove(&scratch, &["--journal", "--json"]);
    let page = json(&output);
    assert_eq!(output.status.code(), Some(0), "lines of the last seconds are never sealed: {page}");
    assert_eq!((&page["verdict"], &page["unsealed_lines"]), (&"whole".into(), &2.into()), "{page}");
    let old = "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, finished_at)
               values (1, 'acme', 'manual', 0, 1, 'ann', 'decided', now() - interval '2 minutes')";
    scratch.sql(old).await;
    let output = prove(&scratch, &["--journal", "--json"]);
    let page = json(&output);
    assert_eq!(output.status.code(), Some(1), "{page}");
    assert_eq!((&page["verdict"], &page["unsealed_lines"]), (&"unproven".into(), &3.into()), "{page}");
    assert!(page["oldest_unsealed_seconds"].as_i64() >= Some(120), "{page}");
    assert!(page["unsealed_since"].is_string() && page["first_fault"].is_null(), "{page}");
    let said = text(&prove(&scratch, &["--journal"]));
    assert!(said.contains("whole as far as it is sealed; 3 lines since "), "{said}");
    // The other channel has young lines alone.
    assert_eq!(prove(&scratch, &["--journal", "globex"]).status.code(), Some(0));
    seal(&scratch).await;
    assert_eq!(prove(&scratch, &["--journal"]).status.code(), Some(0));
}
