//! The role of those who only read: what its commands show, and what it may not do.

use refundd::refund::State;
use sqlx::{Connection, PgConnection};

use super::scripts::make_readers;
use super::{CHANNEL, is_refused};
use crate::cli::{file, refundd, text};
use crate::harness::{Scratch, TestNode, until};

/// Makes a role that logs in and only reads. Answers its address of the database.
async fn reader_of(scratch: &Scratch) -> String {
    make_readers(&mut scratch.connect().await).await;
    let role = format!("reader_of_{}", scratch.name);
    scratch.sql(&format!("create role {role} login in role refundd_reader")).await;
    scratch.owner_url.replacen("refundd@", &format!("{role}@"), 1)
}

/// Refunds 1 to 3 were sent, 4 is in review, and 5 is ready. Their channel is paused.
async fn with_a_past() -> Scratch {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", CHANNEL).await;
    scratch.insert("acme", "R-", 3).await;
    until("all are settled", async || scratch.count(State::Succeeded).await == 3).await;
    scratch.pause("acme", "the year ends", "ann").await;
    node.stop().await;
    scratch.insert("acme", "V-", 2).await;
    scratch.to_review("refund_ref = 'V-1'").await;
    // No line is older than a minute and not sealed, however slow this machine is.
    while !scratch.store.seal_journal(1_000).await.unwrap().is_done {}
    scratch
}

#[tokio::test]
async fn the_readers_role_exports_shows_and_proves_as_the_nodes_role_does() {
    let scratch = with_a_past().await;
    let reader = reader_of(&scratch).await;
    let whole = scratch.file("a", CHANNEL);
    let (of_node, of_reader) = (file(&whole), file(&whole.replace(&scratch.database_url, &reader)));
    let alone = file(&format!("[postgres]\nurl = \"{reader}\"\n"));
    // The last ones need the whole file.
    for (args, needs_all) in [
        (&["export", "--channel", "acme", "--from", "1h"][..], false),
        (&["show", "R-1"], false),
        (&["show", "V-1", "--json"], false),
        (&["show", "V-2"], false),
        (&["log"], false),
        (&["log", "acme", "--since", "2h"], false),
        (&["log", "R-1", "--json"], false),
        (&["status"], false),
        (&["status", "acme"], false),
        (&["status", "--json"], false),
        (&["review"], false),
        (&["review", "show", "V-1"], false),
        (&["review", "proposals"], false),
        (&["prove", "--journal"], false),
        (&["prove", "--journal", "acme", "--json"], false),
        (&["prove", "--channel", "acme"], true),
        (&["prove", "--all"], true),
    ] {
        let nodes = refundd(of_node.path(), args);
        for config in [Some(of_reader.path()), (!needs_all).then(|| alone.path())].into_iter().flatten() {
            let readers = refundd(config, args);
            let said = text(&readers);
            assert_eq!(readers.status.code(), nodes.status.code(), "{args:?}: {said}{}", text(&nodes));
            assert!(!said.contains("permission denied"), "{args:?}: {said}");
        }
    }
    let exported = refundd(alone.path(), &["export", "--channel", "acme", "--from", "1h"]);
    assert!(exported.status.success() && text(&exported).contains("R-3"), "{}", text(&exported));
    let shown = refundd(alone.path(), &["show", "R-1"]);
    assert!(text(&shown).starts_with("Refund 1, R-1, is succeeded"), "{}", text(&shown));
    let proven = refundd(alone.path(), &["prove", "--journal"]);
    assert!(proven.status.success(), "{}", text(&proven));
}

#[tokio::test]
async fn the_readers_role_writes_nothing_by_any_command_or_statement() {
    let scratch = with_a_past().await;
    let reader = reader_of(&scratch).await;
    let config = file(&scratch.file("a", CHANNEL).replace(&scratch.database_url, &reader));
    for args in [
        &["pause", "acme", "--reason", "x"][..],
        &["resume", "acme"],
        &["cancel", "V-2", "--reason", "x"],
        &["review", "settle", "V-1@3", "--as", "failed", "--reason", "x"],
        &["review", "settle", "R-1@3", "--as", "succeeded", "--reason", "x"],
    ] {
        let output = refundd(config.path(), args);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {}", text(&output));
        assert!(text(&output).contains("permission denied"), "{args:?}: {}", text(&output));
    }
    let mut connection = PgConnection::connect(&reader).await.unwrap();
    let tables: Vec<String> = sqlx::query_scalar(
        "select relname::text from pg_class where relnamespace = 'refundd'::regnamespace and relkind in ('r', 'p')",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap();
    assert!(tables.len() > 20, "{tables:?}");
    for table in tables {
        for statement in
            ["insert into refundd.{} default values", "delete from refundd.{}", "truncate refundd.{}"]
        {
            is_refused(&mut connection, &statement.replace("{}", &table)).await;
        }
    }
    for refused in [
        "update refundd.refunds set amount_minor = 2",
        "update refundd.refunds set state = 'ready'",
        "update refundd.channels set paused_at = null",
        "select * from refundd.refunds for update",
        "select refundd.decide(1, 'ready', 'x', 'x', 1, true)",
        "select refundd.note_bank_ref(1, 'B-1', 'x')",
        "select refundd.enqueue('R-9', 'acme', 'P', 1, 'EUR')",
        "select refundd.deliver('x', '1 minute', null)",
        "select refundd.seal_journal(1)",
        "select * from refundd.producers",
        "create table refundd.of_a_reader (id integer)",
    ] {
        is_refused(&mut connection, refused).await;
    }
    let may = "select string_agg(distinct proname::text collate \"C\", ' ' order by proname::text collate \"C\") from pg_proc
                where pronamespace = 'refundd'::regnamespace and has_function_privilege('refundd_reader', oid, 'execute')";
    assert_eq!(
        scratch.text(may).await,
        "attempts_since counts feed_reach may_be_resent may_have_been_executed slow_share slow_steps spans stepped_back"
    );
    assert_eq!(scratch.number("select count(*) from refundd.refunds").await, 5);
}
