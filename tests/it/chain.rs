//! The chains of seals over the journal: a real owner of the schema changes evidence, and `refundd prove --journal`
//! finds it. Lines are sealed after their commit, whoever writes them and for however long.

mod again;
mod sealing;

use refundd::store::Store;

use crate::cli::text;
use crate::harness::Scratch;
use crate::harness::servers::SERVERS;
use crate::prove::{json, prove};

/// A database of a role that owns the schema and is no superuser. The scratch is this owner from now on.
pub async fn owned() -> Scratch {
    let mut scratch = Scratch::new().await;
    let (owner, name) = (format!("owner_of_{}", scratch.name), format!("{}_owned", scratch.name));
    SERVERS.postgres.create_database(&name, None).await.unwrap();
    scratch.sql(&format!("create role {owner} login")).await;
    scratch.sql(&format!("grant create on database {name} to {owner}")).await;
    scratch.database_url = SERVERS.postgres.url(&name).replacen("refundd@", &format!("{owner}@"), 1);
    scratch.owner_url = scratch.database_url.clone();
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
    copy.owner_url = copy.database_url.clone();
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
async fn a_head_of_another_channel_is_named_with_its_seal_and_breaks_nothing() {
    let scratch = sealed_journal().await;
    let heads = scratch.store.heads_after(-1).await.unwrap();
    let head = &heads[0].hash;
    let output = prove(&scratch, &["--journal", "globex", "--head", head]);
    let words = format!("{head} is seal 3 of channel acme, which was not walked");
    assert!(output.status.code() == Some(0) && text(&output).contains(&words), "{}", text(&output));
    let output = prove(&scratch, &["--journal", "acme", "--head", head]);
    assert!(output.status.code() == Some(0) && !text(&output).contains("not walked"), "{}", text(&output));
    let nowhere = "0".repeat(64);
    let args = ["--journal", "globex", "--head", &nowhere, "--head", head, "--json"];
    let page = json(&prove(&scratch, &args));
    let seen = |nth: usize| ["stands", "walked"].map(|key| page["heads"][nth][key] == true);
    assert_eq!(
        (&page["verdict"], seen(0), seen(1)),
        (&"broken".into(), [false, false], [true, false]),
        "{page}"
    );
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
