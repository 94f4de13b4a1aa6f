//! A node's password is stolen: what it ends without an event, and what it leaves behind until after it was changed.

use refundd::store::Store;
use sqlx::{Connection, Executor, PgConnection};

use super::are_refused;
use crate::harness::Scratch;

/// Channel `acme` with the pause of everything, refused credentials and a tripped breaker.
async fn suspended() -> Scratch {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    scratch
        .sql(
            "insert into refundd.suspensions (channel, source, reason, who, kind, probe_at) values
             ('*', 'all', 'it pays twice', 'ann', null, null), ('acme', 'credentials', 'HTTP 401', 'a#1', null, null),
             ('acme', 'breaker', 'HTTP 500', 'a#1', 'unknown', now())",
        )
        .await;
    scratch
}

#[tokio::test]
async fn the_nodes_role_ends_no_suspension_without_an_event_and_leaves_no_time_that_nobody_can_read() {
    let scratch = suspended().await;
    let mut node = PgConnection::connect(&scratch.database_url).await.unwrap();
    let renamed = "keeps its channel and its source";
    let (paused, cooling) = ("pause_reason = 'x', paused_by = 'x'", "cool_reason = 'x'");
    let unreadable = ["infinity", "-infinity", "20000-01-01"].map(|time| {
        [
            (format!("update refundd.suspensions set until = '{time}' where source = 'all'"), "suspensions"),
            (format!("update refundd.suspensions set since = '{time}' where source = 'all'"), "suspensions"),
            (
                format!("update refundd.suspensions set probe_at = '{time}' where source = 'breaker'"),
                "suspensions",
            ),
            (format!("update refundd.channels set paused_at = '{time}', {paused}"), "channels"),
            (
                format!("update refundd.channels set paused_at = now(), pause_until = '{time}', {paused}"),
                "channels",
            ),
            (format!("update refundd.channels set cool_until = '{time}', {cooling}"), "channels"),
        ]
    });
    let unreadable: Vec<(String, String)> = unreadable
        .into_iter()
        .flatten()
        .map(|(statement, table)| (statement, format!("{table}_times_can_be_told")))
        .collect();
    let mut attacks = vec![
        ("update refundd.suspensions set channel = 'nobody' where source = 'credentials'", "RD002", renamed),
        ("update refundd.suspensions set channel = 'nobody' where source = 'breaker'", "RD002", renamed),
        (
            "update refundd.suspensions set channel = 'nobody', source = 'credentials' where source = 'all'",
            "RD002",
            "End it with `refundd resume`",
        ),
        (
            "update refundd.suspensions set probe_by = 'b#1', probe_until = 'infinity' where source = 'breaker'",
            "23514",
            "a probe of channel \"acme\" is reserved until infinity",
        ),
        (
            "update refundd.suspensions set probe_by = 'b#1', probe_until = now() + interval '2 days' where source = 'breaker'",
            "23514",
            "at most 24 hours",
        ),
        (
            "update refundd.channels set address_since = now() + interval '1 hour'",
            "23514",
            "this time in \"address_since\"",
        ),
        ("update refundd.channels set published_at = 'infinity'", "23514", "this time in \"published_at\""),
        ("update refundd.channels set published_at = '-infinity'", "23514", "this time in \"published_at\""),
    ];
    attacks.extend(unreadable.iter().map(|(statement, law)| (statement.as_str(), "23514", law.as_str())));
    are_refused(&mut node, &attacks).await;
    assert_eq!(scratch.suspensions().await, 3);
    assert_eq!(scratch.store.suspensions().await.unwrap().suspensions.len(), 3);
    // As a node reserves the probe of a breaker with the longest `probe`.
    node.execute("update refundd.suspensions set probe_by = 'a#1', probe_until = now() + interval '24 hours' where source = 'breaker'")
        .await
        .unwrap();
}

#[tokio::test]
async fn the_nodes_role_raises_counts_of_a_refund_by_one_at_a_time_and_writes_no_endless_reason() {
    let scratch = Scratch::with_refunds(2).await;
    let mut node = PgConnection::connect(&scratch.database_url).await.unwrap();
    let claimed = "state = 'sending', lease_node = 'a', lease_until = now()";
    let forged: Vec<String> = [
        "version = 2147483647",
        "version = version + 2",
        "attempts = 2147483647",
        "lease_epoch = 9223372036854775807",
        "inquiries = 2147483647",
        // With a move that needs no function, and with a count that is as it should be.
        format!("{claimed}, version = 2147483647, attempts = 1, lease_epoch = 1").as_str(),
        format!("{claimed}, version = version + 1, attempts = 2147483647, lease_epoch = 1").as_str(),
        format!("{claimed}, version = version + 1, attempts = 1, lease_epoch = 9223372036854775807").as_str(),
    ]
    .map(|values| format!("update refundd.refunds set {values} where id = 1"))
    .into();
    let attacks: Vec<_> = forged
        .iter()
        .map(|statement| (statement.as_str(), "RD006", "of refund 1 rise by one at a time"))
        .collect();
    are_refused(&mut node, &attacks).await;
    // Long characters, and a `before:` that a lapse adds to a reason that is long already.
    node.execute("update refundd.refunds set reason = repeat('é', 1000000) where id = 1").await.unwrap();
    node.execute("update refundd.refunds set reason = repeat('x', 9999) where id = 2").await.unwrap();
    node.execute("update refundd.refunds set reason = 'lapsed; before: ' || reason where id = 2")
        .await
        .unwrap();
    assert_eq!(
        scratch.text("select string_agg(length(reason)::text, ' ') from refundd.refunds").await,
        "2000 2000"
    );
    // What nodes do goes on, and so does the owner.
    let next = "version = version + 1, attempts = attempts + 1, lease_epoch = lease_epoch + 1, inquiries = inquiries + 1, reason = null";
    let claim = format!("update refundd.refunds set {claimed}, {next}");
    assert_eq!(node.execute(sqlx::AssertSqlSafe(claim)).await.unwrap().rows_affected(), 2);
    assert_eq!(scratch.sql("update refundd.refunds set version = 7, attempts = 7, lease_epoch = 7").await, 2);
}

#[tokio::test]
async fn the_nodes_role_stores_no_text_without_a_bound() {
    let scratch = suspended().await;
    scratch.insert("acme", "R-", 1).await;
    let mut node = PgConnection::connect(&scratch.database_url).await.unwrap();
    let long = "repeat('x', 20000000)";
    let journal = "refund_id, channel, kind, number, lease_epoch, outcome";
    let send = "1, 'acme', 'send', 1, 1, 'unknown'";
    let attacks = [
        ("channels", format!("update refundd.channels set paused_at = now(), paused_by = 'x', pause_reason = {long}")),
        ("channels", format!("update refundd.channels set paused_at = now(), paused_by = {long}, pause_reason = 'x'")),
        ("channels", format!("update refundd.channels set cool_until = now(), cool_reason = {long}")),
        ("channels", format!("update refundd.channels set settings = to_jsonb({long})")),
        ("channels", format!("update refundd.channels set endpoint = {long}")),
        ("suspensions", format!("update refundd.suspensions set reason = {long} where source = 'credentials'")),
        ("suspensions", format!("update refundd.suspensions set probe_by = {long} where source = 'breaker'")),
        ("attempts", format!("insert into refundd.attempts ({journal}, node) values ({send}, {long})")),
        ("attempts", format!("insert into refundd.attempts ({journal}, node, code) values ({send}, 'a', {long})")),
        ("attempts", format!("insert into refundd.attempts ({journal}, node, permit) values ({send}, 'a', {long})")),
        (
            "permits",
            format!(
                "insert into refundd.permits (limit_name, window_start, ordinal, refund_id, node) values ('l', now(), 1, 1, {long})"
            ),
        ),
        (
            "limit_rules",
            format!("insert into refundd.limit_rules (limit_name, rule, node) values ('l', to_jsonb({long}), 'a')"),
        ),
        ("limit_rules", format!("insert into refundd.limit_rules (limit_name, rule, node) values ('l', '{{}}', {long})")),
        (
            "second_person",
            format!("insert into refundd.second_person (above, node) values ('{{\"EUR\": 1}}', {long})"),
        ),
        (
            "addresses",
            format!(
                "insert into refundd.addresses (channel, endpoint, inquiry, published_by) values ('acme', 'https://a', '', {long})"
            ),
        ),
        (
            "clock_steps",
            format!(
                "insert into refundd.clock_steps (step, step_by, before, node, witness) values (1, '1 second', now(), {long}, 'redis')"
            ),
        ),
        (
            "nodes",
            format!("insert into refundd.nodes (node, version, channels, config_digest) values ('a', '1', array[{long}], '')"),
        ),
        (
            "nodes",
            format!(
                "insert into refundd.nodes (node, version, channels, config_digest, settings) values ('a', '1', '{{}}', '', to_jsonb({long}))"
            ),
        ),
        ("feed", format!("select refundd.deliver({long}, '1 minute', null)")),
    ]
    .map(|(table, statement)| (statement, format!("{table}_texts_are_bounded")));
    let attacks: Vec<_> = attacks
        .iter()
        .map(|(statement, constraint)| (statement.as_str(), "23514", constraint.as_str()))
        .collect();
    are_refused(&mut node, &attacks).await;
    let cancel = format!("select refundd.cancel(array[1::bigint], null, 'x', {long}, null, false)");
    are_refused(&mut node, &[(cancel.as_str(), "23514", "attempts_texts_are_bounded")]).await;
    let move_it = format!("select refundd.move(array[1::bigint], 'acme', 'acme', {long}, 'ann')");
    are_refused(&mut node, &[(move_it.as_str(), "22023", "a reason that is too long")]).await;
    // What a function writes for a node is cut.
    let reached = format!("select refundd.note_reach('acme', {long}, null)");
    let elsewhere = format!("select refundd.note_reach({long}, 'a#1', {long})");
    let leased = format!(
        "update refundd.refunds set state = 'sending', attempts = 1, lease_epoch = 1, lease_until = now(), lease_node = {long}"
    );
    for statement in [reached, elsewhere, leased] {
        node.execute(sqlx::AssertSqlSafe(statement)).await.unwrap();
    }
    let longest = "select max(greatest(length(channel), length(who), length(reason))) from refundd.events";
    assert_eq!(scratch.number(&format!("select ({longest})::bigint")).await, 500);
    assert_eq!(scratch.number("select length(lease_node)::bigint from refundd.refunds").await, 500);
    // Texts from before the constraints, which a read does not bring to a node.
    scratch
        .sql(&format!(
            "do $$ begin
                 alter table refundd.suspensions drop constraint suspensions_texts_are_bounded;
                 update refundd.suspensions set reason = {long}, who = {long};
             end $$"
        ))
        .await;
    let suspensions = scratch.store.suspensions().await.unwrap().suspensions;
    assert_eq!(suspensions.len(), 3);
    assert!(suspensions.iter().all(|s| s.reason.len() == 2000 && s.who.len() == 500));
}

#[tokio::test]
async fn a_forged_step_of_the_clock_is_bounded_and_the_owner_makes_it_count_for_nothing() {
    let scratch = Scratch::new().await;
    let mut node = PgConnection::connect(&scratch.database_url).await.unwrap();
    let insert = |step: &str| {
        format!(
            "insert into refundd.clock_steps (step, step_by, before, node, witness) values ({step}, 'a#1', 'redis')"
        )
    };
    let forged = [
        ("1, '201 years', now()", "at most 200 years"),
        ("1, '-201 years', now()", "at most 200 years"),
        // As intervals compare, this one is shorter than a month.
        ("1, '71582788 months -2147483640 days', now()", "at most 200 years"),
        ("1, '1 second', 'infinity'", "not a later one"),
        ("1, '1 second', now() + interval '2 minutes'", "not a later one"),
        ("1, '-40 seconds', now() + interval '2 minutes'", "not a later one"),
        ("2, '1 second', now()", "Give the next number, 1."),
        ("9223372036854775807, '1 second', now()", "Give the next number, 1."),
    ]
    .map(|(step, words)| (insert(step), words));
    let attacks: Vec<_> =
        forged.iter().map(|(statement, words)| (statement.as_str(), "23514", *words)).collect();
    are_refused(&mut node, &attacks).await;
    assert_eq!(scratch.number("select count(*) from refundd.clock_steps").await, 0);
    // A note of Redis's clock must not make the next node that starts write a step that is refused.
    node.execute("insert into refundd.clock (redis_ahead) values ('71582788 months -2147483640 days')")
        .await
        .unwrap();
    let ahead = "select extract(epoch from redis_ahead)::bigint from refundd.clock";
    assert_eq!(scratch.number(ahead).await, 100 * 31_557_600);
    // A step that may be true is taken, with the number that is next. As its owner, the runbook makes it count for nothing.
    for step in ["1, '-56 years', now() + interval '20454 days'", "2, '56 years', now()"] {
        node.execute(sqlx::AssertSqlSafe(insert(step))).await.unwrap();
    }
    let stepped = |way: &str| format!("select extract(epoch from refundd.stepped_{way}(now()))::bigint");
    assert_eq!(scratch.number(&stepped("back")).await, 56 * 31_557_600);
    for step in [1, 2] {
        scratch
            .sql(&format!(
                "update refundd.clock_steps set step_by = interval '1 microsecond', before = timestamptz 'epoch' where step = {step}"
            ))
            .await;
    }
    assert_eq!(scratch.number(&stepped("back")).await, 0);
    assert_eq!(scratch.number(&stepped("forward")).await, 0);
}

#[tokio::test]
async fn the_migration_sets_times_of_suspensions_right_that_nobody_can_read() {
    let scratch = suspended().await;
    for statement in [
        "alter table refundd.channels drop constraint channels_times_can_be_told",
        "alter table refundd.suspensions drop constraint suspensions_times_can_be_told",
        "update refundd.channels set paused_at = '-infinity', pause_until = 'infinity', pause_reason = 'x', paused_by = 'ann',
                cool_until = 'infinity', cool_reason = 'x'",
        "update refundd.suspensions set since = 'infinity', until = 'infinity' where source = 'all'",
        "update refundd.suspensions set until = '-infinity' where source = 'credentials'",
    ] {
        scratch.sql(statement).await;
    }
    assert!(scratch.store.suspensions().await.is_err());
    scratch.sql("delete from refundd.migrations where version = 81").await;
    let owner = Store::open(&scratch.owner_url, None, 1).unwrap();
    assert!(owner.migrate().await.unwrap().is_enough());
    let mut left = scratch.store.suspensions().await.unwrap().suspensions;
    left.sort_by_key(|one| one.by);
    let left: Vec<_> = left.iter().map(|one| (one.by.as_str(), one.until.is_some())).collect();
    // An end that never comes is none, and one of long ago has come.
    assert_eq!(left, [("all", false), ("person", false), ("breaker", false), ("cooling", true)]);
}
