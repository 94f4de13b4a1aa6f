//! The chains of seals over the journal: a real owner of the schema changes evidence, and `refundd prove --journal`
//! finds it. Lines are sealed after their commit, whoever writes them and for however long.

use std::time::Duration;

use refundd::store::{Sealed, Store};
use rustix::process::Signal;
use sqlx::{Executor, PgConnection};

use crate::dispatch::UNLIMITED;
use crate::harness::servers::SERVERS;
use crate::harness::{NodeProcess, Scratch, TestNode, until, within};
use crate::prove::{json, prove, text};

/// A database of a role that owns the schema and is no superuser. The scratch is this owner from now on.
async fn owned() -> Scratch {
    let mut scratch = Scratch::new().await;
    let (owner, name) = (format!("owner_of_{}", scratch.name), format!("{}_owned", scratch.name));
    SERVERS.postgres.create_database(&name, None).await.unwrap();
    scratch.sql(&format!("create role {owner} login")).await;
    scratch.sql(&format!("grant create on database {name} to {owner}")).await;
    scratch.database_url = SERVERS.postgres.url(&name).replacen("refundd@", &format!("{owner}@"), 1);
    scratch.name = name;
    scratch.store = Store::open(&scratch.database_url, None, 2).unwrap();
    scratch.store.migrate().await.unwrap();
    scratch
}

/// A database like this one, for the same owner. Nobody may be connected to this one.
async fn copy_of(scratch: &Scratch) -> Scratch {
    let mut copy = Scratch::new().await;
    let name = format!("{}_copy", copy.name);
    SERVERS.postgres.create_database(&name, Some(&scratch.name)).await.unwrap();
    copy.database_url = scratch.database_url.replacen(&scratch.name, &name, 1);
    copy.store = Store::open(&copy.database_url, None, 2).unwrap();
    copy.name = name;
    copy
}

/// Writes so many lines, by turns of channel `acme` (refunds 1 to 10) and of `globex` (refunds 11 to 20).
const LINES: &str = "insert into refundd.attempts
    (refund_id, channel, kind, number, lease_epoch, node, permit, started_at, outcome, moved_to, status, code, message)
    select 1 + n % 10 + 10 * ((n + 1) % 2), case n % 2 when 1 then 'acme' else 'globex' end, 'send', 1, n, 'node-a#1', 'acme@2026-11-21 08:20:06+00#' || n,
           now(), 'succeeded', 'succeeded', 200, 'paid', 'HTTP 200, äöü' from generate_series(1, COUNT) n";

async fn lines(scratch: &Scratch, count: u32) {
    scratch.sql(&LINES.replace("COUNT", &count.to_string())).await;
}

async fn seal(scratch: &Scratch) -> i32 {
    let sealed = scratch.store.seal_journal(1000).await.unwrap();
    assert!(sealed.is_done && sealed.waits_for == 0, "{sealed:?}");
    sealed.lines
}

/// Lines 1 to 8, 10 to 16 and 17 to 20, and three seals of each channel. No line has the id 9.
async fn sealed_journal() -> Scratch {
    let scratch = owned().await;
    for channel in ["acme", "globex"] {
        scratch.publish(channel).await;
        scratch.insert(channel, &format!("{channel}-"), 10).await;
    }
    for (count, gap) in [(8, true), (7, false), (4, false)] {
        lines(&scratch, count).await;
        assert_eq!(seal(&scratch).await, i32::try_from(count).unwrap());
        if gap {
            scratch.sql("select nextval('refundd.attempts_id_seq')").await;
        }
    }
    scratch
}

/// What an owner can do, and no other role: switch the triggers off that keep evidence from being changed.
const UNLOCK: &str =
    "alter table refundd.attempts disable trigger user; alter table refundd.seals disable trigger user;";

async fn attack(scratch: &Scratch, sql: &str) {
    let mut owner = scratch.connect().await;
    sqlx::raw_sql(sqlx::AssertSqlSafe(format!("{UNLOCK} {sql}"))).execute(&mut owner).await.unwrap();
}

/// The first fault: its kind, and the line or the seal.
fn first_fault(scratch: &Scratch, args: &[&str]) -> (String, Option<i64>, Option<i64>, String) {
    let output = prove(scratch, &[args, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let page = json(&output);
    assert_eq!(page["verdict"], "broken", "{page}");
    let first = &page["first_fault"];
    let number = |key: &str| first[key].as_i64();
    (first["fault"].as_str().unwrap_or_default().to_owned(), number("line"), number("seal"), page.to_string())
}

/// The owner's own computation of a seal's hash, as it stands in the function.
const HASH: &str = "sha256(record_send(row(format, channel, number, after_id, to_id, month, sealed_at, total, previous, lines)))";

#[tokio::test]
async fn each_attack_of_the_owner_on_lines_and_seals_is_found_and_named() {
    let whole = sealed_journal().await;
    whole.store.close().await;
    let output = prove(&whole, &["--journal"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let swap = "create temp table t as select * from refundd.attempts where id in (5, 7);
                delete from refundd.attempts where id in (5, 7);
                update t set id = 12 - id;
                insert into refundd.attempts overriding system value select * from t";
    let digest_of_7 = "(select sha256(record_send(row(id, refund_id, channel, kind, number, lease_epoch, node, permit, started_at,
        finished_at, outcome, moved_to, status, code, message))) from refundd.attempts where id = 7)";
    let forge = format!(
        "update refundd.attempts set outcome = 'unknown' where id = 7;
         update refundd.seals set lines = overlay(lines placing {digest_of_7} from 48 * 3 + 17 for 32) where channel = 'acme' and number = 1;"
    );
    for (sql, fault, line, seal) in [
        ("update refundd.attempts set channel = 'globex' where id = 5", "line_changed", Some(5), Some(1)),
        ("delete from refundd.attempts where id = 8", "line_missing", Some(8), Some(1)),
        ("delete from refundd.attempts where id >= 17", "line_missing", Some(17), Some(3)),
        (
            "insert into refundd.attempts overriding system value select 9, refund_id, channel, kind, number, lease_epoch, node, permit, started_at,
             finished_at, outcome, moved_to, status, code, message from refundd.attempts where id = 7",
            "line_inserted", Some(9), None,
        ),
        (
            "insert into refundd.attempts (id, refund_id, channel, kind, number, lease_epoch, node, outcome) overriding system value
             values (-1, 1, 'acme', 'send', 1, 1, 'a', 'unknown')",
            "line_inserted", Some(-1), None,
        ),
        // Also of a channel that has no chain.
        (
            "insert into refundd.attempts (id, refund_id, channel, kind, number, lease_epoch, node, outcome) overriding system value
             values (9, 1, 'new', 'send', 1, 1, 'a', 'unknown')",
            "line_inserted", Some(9), None,
        ),
        (swap, "line_changed", Some(5), Some(1)),
        // A line that is put behind the last seal is new there, and missing where it was.
        (
            "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome)
             select refund_id, channel, kind, number, lease_epoch, node, outcome from refundd.attempts where id = 3; delete from refundd.attempts where id = 3",
            "line_missing", Some(3), Some(1),
        ),
        ("delete from refundd.seals where channel = 'acme' and number = 3", "seal_missing", None, Some(3)),
        ("delete from refundd.seals where channel = 'acme' and number = 1", "seal_missing", None, Some(1)),
        ("delete from refundd.seals where channel = 'acme' and number = 2", "seal_missing", None, Some(2)),
        ("delete from refundd.seals where channel = 'globex'", "seal_missing", None, Some(1)),
        // Two seals change places.
        ("update refundd.seals set number = 9 where channel = 'acme' and number = 2; update refundd.seals set number = 2 where channel = 'acme' and number = 3;
          update refundd.seals set number = 3 where channel = 'acme' and number = 9", "seal_missing", None, Some(2)),
        ("update refundd.seals set sealed_at = sealed_at - interval '1 day' where channel = 'globex' and number = 2", "seal_changed", None, Some(2)),
        ("update refundd.seals set hash = sha256('x') where channel = 'acme' and number = 2", "seal_changed", None, Some(2)),
        // The line and its digest in the seal; then the seal's hash, too.
        (forge.as_str(), "seal_changed", None, Some(1)),
        (&format!("{forge} update refundd.seals set hash = {HASH} where channel = 'acme' and number = 1"), "seal_unlinked", None, Some(2)),
        // A month of the journal that no retention allows to drop.
        (
            "do $$ begin execute (select 'drop table refundd.' || quote_ident(name) from refundd.spans('attempts') order by until limit 1); end $$",
            "line_missing", Some(1), Some(1),
        ),
    ] {
        let copy = copy_of(&whole).await;
        attack(&copy, sql).await;
        let (found, at_line, at_seal, page) = first_fault(&copy, &["--journal"]);
        assert_eq!((found.as_str(), at_line, at_seal), (fault, line, seal), "{sql}: {page}");
    }
}

#[tokio::test]
async fn each_column_of_a_line_is_sealed() {
    let scratch = sealed_journal().await;
    let columns =
        "select string_agg(column_name, ' ' order by ordinal_position) from information_schema.columns
                    where table_schema = 'refundd' and table_name = 'attempts'";
    let columns = scratch.text(columns).await;
    let sealed: Vec<&str> = refundd::prove::chain::LINE.iter().map(|(name, _)| *name).collect();
    assert_eq!(sealed, columns.split(' ').collect::<Vec<_>>(), "a new column needs a new format of seals");
    for column in &sealed[1..] {
        let change = match *column {
            "started_at" | "finished_at" => format!("{column} = {column} + interval '1 us'"),
            "refund_id" | "number" | "lease_epoch" | "status" => format!("{column} = {column} + 1"),
            "kind" => "kind = 'inquiry'".to_owned(),
            "outcome" => "outcome = 'rejected'".to_owned(),
            _ => format!("{column} = {column} || ' '"),
        };
        let change = format!("update refundd.attempts set {change} where id = 13");
        attack(&scratch, &format!("create table if not exists refundd.kept as select * from refundd.attempts where id = 13; {change}")).await;
        let (fault, line, _, page) = first_fault(&scratch, &["--journal"]);
        assert_eq!((fault.as_str(), line), ("line_changed", Some(13)), "{column}: {page}");
        attack(&scratch, "delete from refundd.attempts where id = 13; insert into refundd.attempts overriding system value select * from refundd.kept").await;
    }
    for column in ["permit", "started_at", "moved_to", "status", "code", "message"] {
        let to_null = format!("update refundd.attempts set {column} = null where id = 13");
        attack(&scratch, &to_null).await;
        assert_eq!(first_fault(&scratch, &["--journal"]).1, Some(13), "{column}");
        attack(&scratch, "delete from refundd.attempts where id = 13; insert into refundd.attempts overriding system value select * from refundd.kept").await;
    }
    assert_eq!(prove(&scratch, &["--journal"]).status.code(), Some(0));
}

#[tokio::test]
async fn a_finding_names_the_line_the_refund_and_the_time_for_people_too() {
    let scratch = sealed_journal().await;
    let at = scratch.text("select to_char(finished_at at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS') from refundd.attempts where id = 5").await;
    attack(&scratch, "update refundd.attempts set message = 'it was paid' where id = 5; delete from refundd.attempts where id = 8").await;
    let output = prove(&scratch, &["--journal"]);
    let said = text(&output);
    for words in [
        "first      channel acme, line 5 of refund 6 (acme-6) of ",
        &at,
        "is not as seal 1 says",
        "missing    line 8 of refund 19 (globex-9) is gone; seal 1 of ",
        "broken",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    // One channel alone.
    assert_eq!(first_fault(&scratch, &["--journal", "globex"]).1, Some(8));
    assert_eq!(first_fault(&scratch, &["--journal", "acme"]).1, Some(5));
    let strange = prove(&scratch, &["--journal", "acne"]);
    assert!(text(&strange).contains("there are: acme, globex"), "{}", text(&strange));
    for wrong in [
        &["--journal", "--head", "12"][..],
        &["--limit", "acme", "--head", &"0".repeat(64)],
        &["--journal", "--from", "1h"],
    ] {
        assert_eq!(prove(&scratch, wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[tokio::test]
async fn a_chain_that_the_owner_made_anew_no_longer_has_the_logged_heads() {
    let scratch = sealed_journal().await;
    let heads = scratch.store.heads_after(-1).await.unwrap();
    assert_eq!(
        heads.iter().map(|head| (head.channel.as_str(), head.number, head.lines)).collect::<Vec<_>>(),
        [("acme", 3, 10), ("globex", 3, 9)]
    );
    let old = scratch
        .text("select encode(hash, 'hex') from refundd.seals where channel = 'acme' and number = 1")
        .await;
    let args =
        ["--journal", "--head", &heads[0].hash, "--head", &heads[1].hash.to_uppercase(), "--head", &old];
    let output = prove(&scratch, &args);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(text(&output).contains(&format!("{old} is seal 1 of channel acme")), "{}", text(&output));
    assert!(scratch.store.heads_after(20).await.unwrap().is_empty(), "no line came after");

    attack(
        &scratch,
        "update refundd.attempts set outcome = 'unknown' where id = 7; delete from refundd.seals;
                      update refundd.sealing set until_id = 0, seals = 0",
    )
    .await;
    assert_eq!(seal(&scratch).await, 19);
    assert_eq!(prove(&scratch, &["--journal"]).status.code(), Some(0), "by itself the new chain is sound");
    let page = json(&prove(&scratch, &[&args[..], &["--json"]].concat()));
    assert_eq!(page["verdict"], "broken", "{page}");
    for nth in 0..3 {
        assert_eq!(page["heads"][nth]["stands"], false, "{page}");
    }
}

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
