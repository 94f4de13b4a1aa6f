//! Who may do what in the database: producers, and nodes that do not own the schema.

mod migrating;
mod reading;
mod scripts;

use std::time::Duration;

use refundd::daemon::Daemon;
use refundd::refund::{RefundId, State};
use refundd::store::Store;
use serde_json::json;
use sqlx::{Connection, Executor, PgConnection, SqlSafeStr, Statement};

use crate::harness::servers::SERVERS;
use crate::harness::{Scratch, TestNode, node::refund, until};

pub use scripts::make_producers;

async fn is_refused(connection: &mut PgConnection, statement: &str) {
    let error = connection.execute(sqlx::AssertSqlSafe(statement)).await.unwrap_err();
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code).map(|c| c.to_string());
    assert_eq!(code.as_deref(), Some("42501"), "{statement}: {error}");
}

#[tokio::test]
async fn the_producers_role_may_save_and_look_and_nothing_more() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    let mut connection = scratch.connect().await;
    make_producers(&mut connection).await;
    connection.execute("set role refundd_producer").await.unwrap();
    let insert = "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency)";
    for allowed in [
        format!("{insert} values ('R-1', 'acme', 'P', 1, 'EUR')"),
        "select refundd.enqueue('R-2', 'acme', 'P', 1, 'EUR')".to_owned(),
        "select id, refund_ref, channel, saved_channel, state, attempts, created_at, settled_at from refundd.refunds"
            .to_owned(),
    ] {
        connection
            .execute(sqlx::AssertSqlSafe(allowed.clone()))
            .await
            .unwrap_or_else(|error| panic!("{allowed}: {error}"));
    }
    for refused in [
        "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency, state) values ('R-3', 'acme', 'P', 1, 'EUR', 'ready')",
        "update refundd.refunds set amount_minor = 2",
        "delete from refundd.refunds",
        "select payload from refundd.refunds",
        "select * from refundd.attempts",
        "update refundd.channels set paused_at = now(), pause_reason = 'x', paused_by = 'x'",
        "insert into refundd.permits values ('acme', now(), 1, 1, 'x')",
    ] {
        is_refused(&mut connection, refused).await;
    }
}

/// Nodes of this scratch log in from now on with a role that has no rights in its database.
async fn become_a_stranger(scratch: &mut Scratch) {
    let role = format!("node_of_{}", scratch.name);
    scratch.sql(&format!("create role {role} login")).await;
    scratch.database_url = scratch.owner_url.replacen("refundd@", &format!("{role}@"), 1);
    scratch.store = Store::open(&scratch.database_url, None, 4).unwrap();
}

const CHANNEL: &str = "[limit.acme]\npermits = 20\nper = \"1s\"\n[channel.acme]\n\
    endpoint = \"http://{bank}/acme/refunds\"\nlimits = [\"acme\"]\n";

#[tokio::test]
async fn a_node_that_does_not_own_the_schema_saves_sends_settles_and_recovers() {
    let scratch = Scratch::new().await;
    // The script may be run again, also while nodes run.
    SERVERS.postgres.admit_nodes(&scratch.name).await.unwrap();
    let node = TestNode::start(&scratch, "a", CHANNEL).await;
    assert_eq!(node.post("/v1/refunds", &refund("R-1", "acme")).await.status, 201);
    scratch.insert("acme", "S-", 9).await;
    until("all are settled", async || scratch.count(State::Succeeded).await == 10).await;
    assert_eq!(node.acquire("acme", &json!({ "permits": 1 })).await.status, 200);
    // Left behind by a node that is gone.
    scratch.pause("acme", "to be left behind", "test").await;
    scratch.insert("acme", "L-", 1).await;
    let leased = "state = 'sending', attempts = 1, lease_epoch = 1, lease_node = 'gone', lease_until = now()";
    scratch.sql(&format!("update refundd.refunds set {leased} where refund_ref = 'L-1'")).await;
    until("a person is asked", async || scratch.count(State::Review).await == 1).await;
    let shown = scratch.number("select id from refundd.refunds where state = 'review'").await;
    scratch.decide(RefundId(shown), State::Failed, "the bank says so", "ann").await;
    scratch.decide(RefundId(shown), State::Ready, "it was wrong", "ann").await;
    node.stop().await;
    // What the leading node does now and then.
    let store = &scratch.store;
    store.count_ended().await.unwrap();
    store.rotate_permits(Duration::from_hours(240)).await.unwrap();
    store.delete_dead_nodes().await.unwrap();
    assert_eq!(store.census().await.unwrap()[0].counts[&State::Succeeded], 10);
}

#[tokio::test]
async fn the_nodes_role_may_say_every_statement_there_is_and_misses_each_right_that_it_lacks() {
    let scratch = Scratch::new().await;
    assert_eq!(scratch.store.lacking_rights().await.unwrap().rights, Vec::<String>::new());
    let mut connection = PgConnection::connect(&scratch.database_url).await.unwrap();
    connection.execute("set plan_cache_mode = force_generic_plan").await.unwrap();
    for (name, sql) in refundd::store::statements() {
        let prepared = connection.prepare(sql.into_sql_str()).await.unwrap();
        let count = prepared.parameters().map_or(0, |found| found.either(<[_]>::len, |count| count));
        let nulls = vec!["null"; count].join(", ");
        let nulls = if count == 0 { nulls } else { format!("({nulls})") };
        // What is explained is not carried out; whether it may be is looked at all the same.
        let explain = format!("prepare it as {sql}; explain execute it{nulls}; deallocate it");
        let explained = sqlx::raw_sql(sqlx::AssertSqlSafe(explain)).execute(&mut connection).await;
        explained.unwrap_or_else(|error| panic!("statement `{name}`: {error}"));
    }
    // And what is not granted is missed at the start.
    for (right, named) in [
        ("execute on function refundd.turn_permits", "execute on refundd.turn_permits"),
        ("execute on function refundd.decide", "execute on refundd.decide"),
        ("execute on function refundd.cancel", "execute on refundd.cancel"),
        ("execute on function refundd.move", "execute on refundd.move"),
        ("execute on function refundd.why_it_stays", "execute on refundd.why_it_stays"),
        ("execute on function refundd.backlog_room", "execute on refundd.backlog_room"),
        ("execute on function refundd.recovery_moved", "execute on refundd.recovery_moved"),
        ("execute on function refundd.feed_reach", "execute on refundd.feed_reach"),
        ("execute on function refundd.deliver", "execute on refundd.deliver"),
        ("execute on function refundd.seal_journal", "execute on refundd.seal_journal"),
        ("execute on function refundd.propose", "execute on refundd.propose"),
        ("execute on function refundd.approve", "execute on refundd.approve"),
        ("execute on function refundd.withdraw", "execute on refundd.withdraw"),
        ("execute on function refundd.note_bank_ref", "execute on refundd.note_bank_ref"),
        ("execute on function refundd.note_lost_refund", "execute on refundd.note_lost_refund"),
        ("execute on function refundd.expire_proposals", "execute on refundd.expire_proposals"),
        ("select on refundd.proposals", "select on refundd.proposals"),
        ("insert on refundd.second_person", "insert on refundd.second_person"),
        ("select on refundd.seals", "select on refundd.seals"),
        ("select on refundd.dropped_months", "select on refundd.dropped_months"),
        ("select on refundd.events", "select on refundd.events"),
        ("update on refundd.suspensions", "update on refundd.suspensions"),
        ("delete on refundd.nodes", "delete on refundd.nodes"),
        ("insert on refundd.addresses", "insert on refundd.addresses"),
        ("update (version) on refundd.refunds", "update (version) on refundd.refunds"),
        ("update (sent_to) on refundd.refunds", "update (sent_to) on refundd.refunds"),
        ("insert (traceparent) on refundd.refunds", "insert (traceparent) on refundd.refunds"),
        ("update on refundd.ended_until", "update on refundd.ended_until"),
        ("usage on schema refundd", "usage on schema refundd"),
    ] {
        scratch.sql(&format!("revoke {right} from refundd_node")).await;
        let lacking = scratch.store.lacking_rights().await.unwrap().rights;
        assert!(lacking.iter().any(|lacking| lacking == named), "{right}: {lacking:?}");
    }
}

#[tokio::test]
async fn a_node_whose_role_lacks_rights_says_which_and_the_way_out() {
    let mut scratch = Scratch::new().await;
    become_a_stranger(&mut scratch).await;
    let error = Daemon::start(scratch.config("a", CHANNEL), || {}).await.unwrap_err().to_string();
    for words in [
        "[postgres] url",
        &format!("`node_of_{}`", scratch.name),
        "usage on schema refundd",
        "config/node-role.sql",
        "as the owner of the schema `refundd`",
        "rights, such as usage on schema refundd",
    ] {
        assert!(error.contains(words), "{words}: {error}");
    }
    assert!(error.find("node-role.sql") < error.find("rights, such as"), "the way out comes first: {error}");
}

#[tokio::test]
async fn what_a_migration_makes_belongs_to_the_owner_of_what_is_there_whoever_runs_it() {
    let mut scratch = Scratch::new().await;
    let (owner, bare) = (format!("owner_of_{}", scratch.name), format!("{}_bare", scratch.name));
    SERVERS.postgres.create_database(&bare, None).await.unwrap();
    scratch.owner_url = SERVERS.postgres.url(&bare);
    scratch.sql(&format!("create role {owner} login")).await;
    scratch.sql(&format!("grant create on database {bare} to {owner}")).await;
    let url = scratch.owner_url.replacen("refundd@", &format!("{owner}@"), 1);
    assert!(Store::open(&url, None, 2).unwrap().migrate().await.unwrap().is_enough());

    // As it was before migration 17.
    for undo in [
        // 0046 with the trigger of 0037, 0045 and 0042
        "drop trigger channels_changed_are_events on refundd.channels",
        "alter table refundd.nodes drop column settings cascade",
        "alter table refundd.refunds drop column traceparent",
        // 0041, 0068 and 0078
        "drop table refundd.feed, refundd.share_rules, refundd.share_locks",
        "drop function refundd.recovery_moved, refundd.feed_reach, refundd.deliver, refundd.reserve_share, refundd.lock_shares, refundd.share_rules_take_the_lock",
        // 0040
        "drop function refundd.move, refundd.why_it_stays, refundd.journal_has_a_send, refundd.refund_holds_card_number,
            refundd.was_said_paid, refundd.inquiry_is_kept, refundd.outcome_is_kept",
        "drop function if exists refundd.backlog_room",
        "alter table refundd.refunds drop column saved_channel cascade",
        // 0051, 0047 and 0038
        "drop function refundd.moves_are_in_the_journal, refundd.lines_belong_to_refunds, refundd.cancel cascade",
        // 0036
        "drop table refundd.proposals, refundd.second_person cascade",
        "drop function if exists refundd.needs_second_person, refundd.decision_is_allowed, refundd.is_same_person, refundd.people_give_reasons,
            refundd.carry_out, refundd.propose, refundd.approve, refundd.withdraw, refundd.proposals_only_end, refundd.proposals_write_events, refundd.expire_proposals, refundd.note_bank_ref",
        // 0031 and 0061
        "drop table refundd.seals, refundd.sealing, refundd.dropped_months cascade",
        "drop function refundd.seal_journal, refundd.journal_writers, refundd.seals_are_never_changed, refundd.dropped_months_are_never_changed",
        // 0043 and 0044
        "drop function refundd.spent_permits_keep_rules, refundd.clocks_keep_rule, refundd.bounds_in_span",
        // 0030, 0050, 0077 and 0092
        "drop function refundd.permits_keep_rules, refundd.ledger_keeps_rules, refundd.spans_keep_rule, refundd.windows_keep_rule, refundd.openings_are_near, refundd.own_rule_has_room, refundd.gaps_keep_rule, refundd.rule_is_stricter, refundd.rule_most",
        "alter table refundd.ended_until drop column next_until, drop column next_after, drop column next_horizon",
        "drop function refundd.transactions_under_way",
        // 0018
        "alter table refundd.refunds drop column version cascade",
        "drop trigger attempts_that_come_late_make_a_version on refundd.attempts",
        "drop function refundd.late_evidence_makes_a_version, refundd.may_have_been_executed",
        // 0019
        "drop table refundd.addresses cascade",
        "drop function refundd.address_of, refundd.addresses_are_never_changed",
        "drop function if exists refundd.is_where_it_was_sent",
        "alter table refundd.refunds drop column sent_to",
        "alter table refundd.channels drop column address, drop column address_since, drop column slow_ceiling, drop column slow_step_us, drop column refusals",
        // 0020
        "drop table refundd.clock, refundd.clock_steps cascade",
        "drop function if exists refundd.may_be_resent(timestamptz, integer, timestamptz, interval, integer, timestamptz)",
        // 0021
        "drop table refundd.zone_days",
        "drop function refundd.permits_are_kept_for, refundd.rule_memory",
        // 0023
        "drop function refundd.slow_share, refundd.slow_steps",
        // 0024
        "alter table refundd.limits drop column server, drop column server_since",
        // 0026
        "drop function refundd.rule_shape, refundd.rule_reach",
        // A check of 0094 reads the rule as jsonb.
        "alter table refundd.limits drop constraint if exists limits_texts_are_bounded",
        "alter table refundd.limit_rules drop constraint if exists limit_rules_texts_are_bounded",
        "alter table refundd.limits alter column rule type text",
        "alter table refundd.limit_rules alter column rule type text",
        "create function refundd.rule_shape(rule text) returns text language sql return rule",
        "create function refundd.rule_reach(old text, new text) returns bigint language sql return 0",
        // 0037
        "drop view refundd.suspended",
        "drop table refundd.events, refundd.suspensions cascade",
        "drop trigger channels_pauses_have_their_own_ends on refundd.channels",
        "drop trigger channels_added_are_events on refundd.channels",
        "drop trigger refunds_decided_or_cancelled_are_events on refundd.refunds",
        "drop trigger limit_rules_are_events on refundd.limit_rules",
        "drop trigger nodes_joined_are_events on refundd.nodes",
        "drop trigger nodes_left_are_events on refundd.nodes",
        "drop function refundd.a_new_pause_has_its_own_end, refundd.differing, refundd.channels_write_events, refundd.suspensions_write_events,
            refundd.refunds_write_events, refundd.limit_rules_write_events, refundd.nodes_write_events, refundd.clock_steps_write_events,
            refundd.forget_events, refundd.events_are_only_added",
        "drop function if exists refundd.note_reach",
        "alter table refundd.channels drop column pause_until, drop column resumed_at, drop column resumed_by, drop column resume_reason",
        // 0035
        "drop function refundd.amounts_are_within_bounds",
        // 0029
        "drop table refundd.producers cascade",
        "drop function if exists refundd.channels_of_producer, refundd.bind_producer",
        // 0063 and 0028
        "drop function refundd.saves_wait_for_the_disk cascade",
        "drop trigger refunds_are_what_http_takes on refundd.refunds",
        "drop function refundd.refunds_are_what_http_takes, refundd.holds_card_number(text), refundd.holds_card_number(jsonb),
            refundd.belongs_elsewhere, refundd.is_iban, refundd.accepts_card_numbers, refundd.refused_character, refundd.is_currency",
        // 0027
        "drop table refundd.retention",
        "drop trigger refunds_are_decided_by_a_person on refundd.refunds",
        "drop trigger attempts_of_a_person_are_decisions on refundd.attempts",
        "drop function refundd.evidence_is_kept_for, refundd.decide, refundd.only_a_decision_does_this",
        "delete from refundd.migrations where version >= 17",
    ] {
        scratch.sql(undo).await;
    }
    let superuser = Store::open(&scratch.owner_url, None, 2).unwrap();
    become_a_stranger(&mut scratch).await;
    let mut other = scratch.connect().await;
    let grants = format!(
        "grant usage on schema refundd to node_of_{0}; grant select on refundd.migrations to node_of_{0}",
        scratch.name
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(grants)).execute(&mut other).await.unwrap();
    let refused = scratch.store.migrate().await.unwrap_err();
    assert!(refused.to_string().contains(&format!("run `refundd migrate` as `{owner}`")), "{refused}");

    assert!(superuser.migrate().await.unwrap().is_enough());
    let others = "select count(*) from (
        select relowner as owner from pg_class where relnamespace = 'refundd'::regnamespace
        union all select proowner from pg_proc where pronamespace = 'refundd'::regnamespace) made";
    let mut count = async |query: String| -> i64 {
        sqlx::query_scalar(sqlx::AssertSqlSafe(query)).fetch_one(&mut other).await.unwrap()
    };
    assert!(count(others.to_owned()).await > 50);
    assert_eq!(count(format!("{others} where owner <> '{owner}'::regrole")).await, 0);
}
