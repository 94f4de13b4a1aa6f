//! When lines are sealed: after their commit, by whoever leads, and for months that are dropped.

use std::time::Duration;

use refundd::store::{Sealed, Store};
use rustix::process::Signal;
use sqlx::{Executor, PgConnection};

use super::{LINES, attack, first_fault, lines, seal, sealed_journal};
use crate::dispatch::UNLIMITED;
use crate::harness::{NodeProcess, Scratch, TestNode, until, within};
use crate::prove::{json, prove, text};

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

#[tokio::test]
async fn a_dropped_month_leaves_the_chain_whole_and_a_month_dropped_too_early_does_not() {
    let scratch = sealed_journal().await;
    // As if all of it were of the month before last.
    attack(&scratch, "update refundd.attempts set finished_at = date_trunc('month', now() - interval '70 days') + interval '3 days';
        delete from refundd.seals; update refundd.sealing set until_id = 0, seals = 0").await;
    let split = "do $$
        declare
            over date := (date_trunc('month', now() at time zone 'UTC') - interval '1 month')::date;
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
    let rotation = scratch.store.rotate_attempts(Some(Duration::from_hours(24))).await.unwrap();
    assert_eq!(rotation.dropped, 1, "{rotation:?}");
    let output = prove(&scratch, &["--journal", "--json"]);
    let page = json(&output);
    assert_eq!(output.status.code(), Some(0), "{page}");
    let chain = &page["channels"][0];
    assert_eq!(
        (&chain["forgotten_lines"], &chain["lines"], &chain["seals"]),
        (&10.into(), &3.into(), &2.into()),
        "{page}"
    );
    // The owner asks for longer, so that the month should be there.
    scratch.sql("update refundd.retention set at_least = '400 days' where evidence = 'attempts'").await;
    let (fault, line, ..) = first_fault(&scratch, &["--journal"]);
    assert_eq!((fault.as_str(), line), ("line_missing", Some(1)));
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
