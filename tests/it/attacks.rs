//! What the shipped roles try and must not get: each attack is a statement, and Postgres refuses it with an error that
//! says why.

mod health;
mod search_path;
mod stolen_password;

use refundd::refund::{RefundId, State};
use sqlx::postgres::PgDatabaseError;
use sqlx::{Connection, Executor, PgConnection};

use crate::harness::Scratch;

/// Tries each statement; it must end with this code, and with these words in the message or the hint.
pub async fn are_refused(connection: &mut PgConnection, attacks: &[(&str, &str, &str)]) {
    for (statement, code, words) in attacks {
        let tried = connection.execute(sqlx::AssertSqlSafe(*statement)).await;
        let Err(error) = tried else { panic!("not refused: {statement}") };
        let refusal: &PgDatabaseError = error.as_database_error().unwrap().downcast_ref();
        let said = format!("{}; {}", refusal.message(), refusal.hint().unwrap_or_default());
        assert!(refusal.code() == *code && said.contains(words), "{statement}: {} {said}", refusal.code());
    }
}

/// A ledger and a journal with evidence of 3 and of 10 days ago in tables that are over, and refunds 1 to 7: ready, in
/// review, failed by a person's word, succeeded, unknown, accepted, and sending.
async fn with_evidence() -> Scratch {
    let scratch = Scratch::with_refunds(7).await;
    scratch
        .sql(
            "do $$
             declare
                 over date;
                 parent text;
             begin
                 execute (select 'drop table ' || string_agg(oid::regclass::text, ', ') from pg_class where relname ~ '_until_[0-9]{8}$' and relkind = 'r');
                 foreach parent in array array['attempts', 'permits'] loop
                     over := (now() at time zone 'UTC')::date - case parent when 'attempts' then 9 else 2 end;
                     execute format('create table refundd.%1$s_until_%2$s partition of refundd.%1$s for values from (minvalue) to (%3$L)',
                                    parent, to_char(over, 'YYYYMMDD'), over::timestamp at time zone 'UTC');
                     execute format('create table refundd.%1$s_until_%2$s partition of refundd.%1$s for values from (%3$L) to (%4$L)',
                                    parent, to_char(over + 100, 'YYYYMMDD'), over::timestamp at time zone 'UTC', (over + 100)::timestamp at time zone 'UTC');
                 end loop;
                 insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, finished_at)
                 select 1 + n % 4, 'acme', 'send', 1, 1, 'a', 'unknown', now() - n * interval '10 days' from generate_series(0, 7) n;
                 insert into refundd.events (at, kind, channel, who) select now() - n * interval '20 days', 'paused', 'acme', 'ann' from generate_series(0, 1) n;
                 insert into refundd.permits (limit_name, window_start, ordinal, refund_id, node)
                 select 'acme', now() - n * interval '3 days', 1, 1, 'a' from generate_series(0, 2) n;
             end $$",
        )
        .await;
    let sent = "attempts = 1, lease_epoch = 1, lease_node = 'a', lease_until = now(), first_sent_at = now()";
    scratch.sql(&format!("update refundd.refunds set state = 'sending', {sent} where id > 1")).await;
    for (id, state) in [
        (2, "'review'"),
        (3, "'failed', settled_at = now(), reason = 'decided by ann: x'"),
        (4, "'succeeded', settled_at = now()"),
        (5, "'unknown'"),
        (6, "'accepted'"),
    ] {
        let over = "lease_node = null, lease_until = null";
        scratch.sql(&format!("update refundd.refunds set {over}, state = {state} where id = {id}")).await;
    }
    scratch
}

const EVIDENCE: &str = "select md5(concat(
    (select string_agg(r::text, ',' order by id) from refundd.refunds r),
    (select string_agg(a::text, ',' order by id) from refundd.attempts a),
    (select string_agg(p::text, ',' order by window_start) from refundd.permits p),
    (select string_agg(e::text, ',' order by event_id) from refundd.events e)))";

#[tokio::test]
async fn the_nodes_role_erases_and_forges_no_evidence() {
    let scratch = with_evidence().await;
    let before = scratch.text(EVIDENCE).await;
    let mut node = PgConnection::connect(&scratch.database_url).await.unwrap();
    are_refused(&mut node, &[
        // Retention.
        ("select refundd.turn_attempts('-100 years')", "22023", "attempts cannot be kept for -100 years"),
        ("select refundd.turn_attempts('0')", "22023", "attempts cannot be kept for 00:00:00"),
        // As intervals compare, this one is longer than a month; it reaches into the future.
        ("select refundd.turn_attempts('-1200 months 36031 days')", "22023", "attempts cannot be kept for -100 years +36031 days"),
        ("select refundd.turn_permits('-100 years')", "22023", "permits cannot be kept for -100 years"),
        ("select refundd.turn_permits(null)", "22023", "permits cannot be kept for null; Give a time above zero, as [recovery] keep_permits does."),
        ("select refundd.permits_are_kept_for('-1 second')", "22023", "permits cannot be kept for -00:00:01"),
        ("update refundd.retention set at_least = '1 hour'", "42501", "permission denied for table retention"),
        ("delete from refundd.retention", "42501", "permission denied for table retention"),
        ("insert into refundd.retention values ('permits', '1 hour')", "42501", "permission denied for table retention"),
        ("select refundd.drop_spans(array(select name from refundd.spans('attempts')))", "42501", "permission denied for function drop_spans"),
        ("select refundd.make_spans('permits', 'day', '')", "42501", "permission denied for function make_spans"),
        ("select refundd.open_refund_in('permits')", "42501", "permission denied for function open_refund_in"),
        ("select refundd.bind_producer('refundd_node', '{}')", "42501", "permission denied for function bind_producer"),
        ("delete from refundd.producers", "42501", "permission denied for table producers"),
        ("select refundd.evidence_is_kept_for('attempts', '1 day')", "42501", "permission denied for function evidence_is_kept_for"),
        // Evidence is added as it happens, and never changed.
        ("delete from refundd.attempts", "42501", "permission denied for table attempts"),
        ("update refundd.attempts set outcome = 'succeeded'", "42501", "permission denied for table attempts"),
        ("truncate refundd.attempts", "42501", "permission denied for table attempts"),
        ("delete from refundd.attempts_of_other_months", "42501", "permission denied for table attempts_of_other_months"),
        ("insert into refundd.attempts_of_other_months (id, refund_id, channel, kind, number, lease_epoch, node, outcome) values (1, 1, 'acme', 'send', 1, 1, 'a', 'unknown')", "42501", "permission denied"),
        ("delete from refundd.permits", "42501", "permission denied for table permits"),
        ("update refundd.permits set ordinal = 1", "42501", "permission denied for table permits"),
        ("truncate refundd.permits", "42501", "permission denied for table permits"),
        ("insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, finished_at) values (1, 'acme', 'send', 1, 1, 'a', 'unknown', '2020-01-01')", "42501", "permission denied for table attempts"),
        ("insert into refundd.attempts (id, refund_id, channel, kind, number, lease_epoch, node, outcome) overriding system value values (1, 1, 'acme', 'send', 1, 1, 'a', 'unknown')", "42501", "permission denied for table attempts"),
        ("insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, moved_to) values (2, 'acme', 'manual', 0, 1, 'ann', 'decided', 'succeeded')", "RD006", "refundd.decide alone; Decide with `refundd review settle`"),
        ("insert into refundd.permits (limit_name, window_start, ordinal, caller, node, spent_at) values ('acme', now(), 9, 'shop', 'a', '2020-01-01')", "42501", "permission denied for table permits"),
        (r#"insert into refundd.limit_rules (limit_name, rule, node, published_at) values ('acme', '{"algorithm":"paced","permits":9,"per_us":1,"lateness_us":1}', 'a', '2020-01-01')"#, "42501", "permission denied for table limit_rules"),
        (r#"update refundd.limit_rules set rule = '{"algorithm":"paced","permits":9,"per_us":1,"lateness_us":1}'"#, "42501", "permission denied for table limit_rules"),
        ("delete from refundd.limit_rules", "42501", "permission denied for table limit_rules"),
        ("insert into refundd.addresses (channel, endpoint, inquiry, published_by, published_at) values ('acme', 'x', '', 'a', '2020-01-01')", "42501", "permission denied for table addresses"),
        ("update refundd.addresses set endpoint = 'x'", "42501", "permission denied for table addresses"),
        ("insert into refundd.zone_days (zone, day, begins_at, node, published_at) values ('UTC', '2020-01-01', now(), 'a', '2020-01-01')", "42501", "permission denied for table zone_days"),
        ("insert into refundd.clock_steps (step, step_by, before, node, witness, seen_at) values (1, '1 s', now(), 'a', 'redis', '2020-01-01')", "42501", "permission denied for table clock_steps"),
        ("delete from refundd.clock_steps", "42501", "permission denied for table clock_steps"),
        // The chains over the journal. Only the function writes them, and only from the rows.
        ("insert into refundd.seals (channel, number, after_id, to_id, month, total, lines, hash) values ('acme', 1, 0, 9, now(), 1, '', '')", "42501", "permission denied for table seals"),
        ("update refundd.seals set hash = ''", "42501", "permission denied for table seals"),
        ("delete from refundd.seals", "42501", "permission denied for table seals"),
        ("truncate refundd.seals", "42501", "permission denied for table seals"),
        ("update refundd.sealing set until_id = 1000", "42501", "permission denied for table sealing"),
        ("delete from refundd.sealing", "42501", "permission denied for table sealing"),
        ("insert into refundd.sealing (until_id, seals) values (0, 0)", "42501", "permission denied for table sealing"),
        ("insert into refundd.dropped_months (month_ends, kept) values (now(), '30 days')", "42501", "permission denied for table dropped_months"),
        ("update refundd.dropped_months set month_begins = null", "42501", "permission denied for table dropped_months"),
        ("delete from refundd.dropped_months", "42501", "permission denied for table dropped_months"),
        ("truncate refundd.dropped_months", "42501", "permission denied for table dropped_months"),
        ("select refundd.journal_writers()", "42501", "permission denied for function journal_writers"),
        ("set client_encoding = 'LATIN1'; select refundd.seal_journal(10)", "25000", "Leave both settings"),
        ("set client_encoding = 'UTF8'; begin isolation level repeatable read; select refundd.seal_journal(10)", "25000", "read committed"),
        ("rollback; select setval('refundd.attempts_id_seq', 1000)", "42501", "permission denied for sequence attempts_id_seq"),
        // The events. Triggers alone write them.
        ("insert into refundd.events (kind, who) values ('resumed', 'ann')", "42501", "permission denied for table events"),
        ("update refundd.events set who = 'ann'", "42501", "permission denied for table events"),
        ("delete from refundd.events", "42501", "permission denied for table events"),
        ("truncate refundd.events", "42501", "permission denied for table events"),
        ("select refundd.forget_events('-100 years')", "22023", "events cannot be kept for -100 years"),
        ("select refundd.forget_events(null)", "22023", "as [recovery] keep_events does."),
        ("alter table refundd.channels disable trigger channels_changed_are_events", "42501", "must be owner of table channels"),
        ("delete from refundd.suspensions", "42501", "permission denied for table suspensions"),
        // What is owed.
        ("delete from refundd.refunds", "42501", "permission denied for table refunds"),
        ("update refundd.refunds set amount_minor = 2", "42501", "permission denied for table refunds"),
        ("update refundd.refunds set currency = 'USD'", "42501", "permission denied for table refunds"),
        ("update refundd.refunds set refund_ref = 'x'", "42501", "permission denied for table refunds"),
        ("update refundd.refunds set payment_ref = 'x'", "42501", "permission denied for table refunds"),
        ("update refundd.refunds set payload = '{}'", "42501", "permission denied for table refunds"),
        ("update refundd.refunds set channel = 'other'", "42501", "permission denied for table refunds"),
        ("update refundd.refunds set request_id = gen_random_uuid()", "42501", "permission denied for table refunds"),
        ("update refundd.refunds set created_at = now()", "42501", "permission denied for table refunds"),
        ("insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency, state, settled_at) values ('x', 'acme', 'P', 1, 'EUR', 'succeeded', now())", "42501", "permission denied for table refunds"),
        // A person's decisions.
        ("update refundd.refunds set state = 'succeeded', settled_at = now() where id = 2", "RD006", "refund 2 is review, and is changed by refundd.decide alone"),
        ("update refundd.refunds set state = 'ready', uncertain_at = null where id = 2", "RD006", "refund 2 is review"),
        ("update refundd.refunds set reason = 'it was paid' where id = 2", "RD006", "refund 2 is review"),
        ("update refundd.refunds set state = 'ready', settled_at = null, uncertain_at = null where id = 3", "RD006", "refund 3 is failed"),
        ("update refundd.refunds set settled_at = now() - interval '1 year' where id = 4", "RD006", "refund 4 is succeeded"),
        ("update refundd.refunds set bank_ref = 'x' where id = 4", "RD006", "Decide with `refundd review settle`, or POST /v1/review."),
        ("update refundd.refunds set state = 'succeeded', settled_at = now() where id = 1", "RD002", "cannot move from ready to succeeded"),
        ("update refundd.refunds set version = 0 where id = 1", "RD002", "cannot go back"),
        ("select refundd.decide(2, 'succeeded', 'paid', ' ', 2, false)", "22023", "names no person; The journal keeps who decided, and why."),
        ("select refundd.decide(2, 'succeeded', null, 'ann', 2, false)", "22023", "names no reason"),
        // A refund that may have been executed: no move without its line, no other age, and no certainty.
        ("update refundd.refunds set state = 'ready', version = version + 1 where id = 5", "RD006", "refund 5 may have been executed, and moves from unknown to ready only with a line in the journal"),
        ("with kept as (insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, moved_to) values (5, 'acme', 'send', 1, 1, 'a', 'not_executed', 'ready'))
          update refundd.refunds set state = 'ready', version = version + 1 where id = 5", "RD006", "from unknown to ready only with a line"),
        ("with kept as (insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, moved_to) values (5, 'acme', 'inquiry', 1, 0, 'a', 'not_executed', 'ready'))
          update refundd.refunds set state = 'ready', version = version + 1 where id = 5", "RD006", "from unknown to ready only with a line"),
        ("with kept as (insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, moved_to) values (5, 'acme', 'inquiry', 1, 1, 'a', 'rejected', 'failed'))
          update refundd.refunds set state = 'ready', version = version + 1 where id = 5", "RD006", "from unknown to ready only with a line"),
        ("update refundd.refunds set state = 'succeeded', settled_at = now() where id = 5", "RD006", "from unknown to succeeded only with a line"),
        ("update refundd.refunds set state = 'failed', settled_at = now(), uncertain_at = null where id = 5", "RD006", "from unknown to failed only with a line"),
        ("update refundd.refunds set state = 'review' where id = 5", "RD006", "from unknown to review only with a line"),
        ("update refundd.refunds set state = 'succeeded', settled_at = now() where id = 6", "RD006", "from accepted to succeeded only with a line"),
        // Nor does any other refund fail, or come to a person, without its line.
        ("update refundd.refunds set state = 'failed', settled_at = now(), reason = 'deadline_passed' where state = 'ready'", "RD006", "refund 1 moves from ready to failed only with a line in the journal; A person may cancel it"),
        ("update refundd.refunds set state = 'review' where id = 1", "RD006", "refund 1 moves from ready to review only with a line"),
        ("update refundd.refunds set state = 'failed', settled_at = now(), lease_node = null, lease_until = null where id = 7", "RD006", "refund 7 may have been executed, and moves from sending to failed only with a line"),
        ("update refundd.refunds set uncertain_at = null where id = 5", "RD006", "refund 5 may have been executed since"),
        ("update refundd.refunds set state = 'sending', lease_node = 'a', lease_until = now(), uncertain_at = null where id = 5", "RD006", "no update changes that"),
        ("update refundd.refunds set first_sent_at = now() where id = 5", "RD006", "no update changes that; A decision may"),
        ("update refundd.refunds set first_sent_at = null where id = 6", "RD006", "refund 6 may have been executed since"),
        ("update refundd.refunds set first_sent_at = now() where id = 7", "RD006", "no update changes that"),
        ("update refundd.refunds set state = 'unknown', lease_node = null, lease_until = null, first_sent_at = null where id = 7", "RD006", "no update changes that"),
        // Nor by way of another send, nor by an inquiry at another bank.
        ("do $$ begin update refundd.refunds set state = 'sending', lease_epoch = 2, lease_node = 'a', lease_until = now(), inquire_at = null, reason = null where id = 5;
                      update refundd.refunds set state = 'failed', settled_at = now(), lease_node = null, lease_until = null, uncertain_at = null where id = 5; end $$", "RD006", "refund 5 may have been executed since"),
        ("do $$ begin update refundd.refunds set state = 'sending', lease_epoch = 2, lease_node = 'a', lease_until = now(), inquire_at = null, reason = null where id = 5;
                      update refundd.refunds set state = 'succeeded', settled_at = now(), lease_node = null, lease_until = null where id = 5; end $$", "RD006", "from sending to succeeded only with a line"),
        ("do $$ begin update refundd.refunds set state = 'sending', lease_epoch = 2, lease_node = 'a', lease_until = now(), inquire_at = null, reason = null, sent_to = 7 where id = 5; end $$", "RD006", "no update names another"),
        ("update refundd.refunds set sent_to = 7 where id = 5", "RD006", "no update names another; A decision may"),
        ("update refundd.refunds set sent_to = 7 where id = 6", "RD006", "refund 6 may have been sent to its address"),
        ("update refundd.refunds set sent_to = 7 where id = 7", "RD006", "refund 7 may have been sent to its address"),
        // Events in a person's name.
        ("update refundd.refunds set state = 'succeeded', settled_at = now(), reason = 'decided by ann: x' where id = 5", "RD006", "refund 5"),
        ("with kept as (insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, moved_to) values (5, 'acme', 'inquiry', 1, 1, 'a', 'succeeded', 'succeeded'))
          update refundd.refunds set state = 'succeeded', settled_at = now(), reason = 'decided by ann: x' where id = 5", "RD006", "refund 5 is written by refundd.decide, refundd.cancel and refundd.move alone"),
        ("update refundd.refunds set state = 'cancelled', settled_at = now(), reason = 'cancelled by ann: x' where id = 1", "RD006", "what a person does with refund 1 is written by"),
        ("update refundd.refunds set state = 'cancelled', settled_at = now() where id = 1", "RD006", "They write the journal and the event, too."),
        ("update refundd.refunds set reason = 'moved by ann' where id = 1", "RD006", "what a person does with refund 1"),
        // The schema itself.
        ("drop table refundd.limits", "42501", "must be owner of table limits"),
        ("alter table refundd.attempts detach partition refundd.attempts_of_other_months", "42501", "must be owner"),
        ("alter table refundd.refunds disable trigger all", "42501", "must be owner of table refunds"),
        ("create trigger mine before insert on refundd.refunds for each row execute function suppress_redundant_updates_trigger()", "42501", "permission denied for table refunds"),
        ("create or replace function refundd.evidence_is_kept_for(evidence text, keep interval) returns interval language sql as 'select keep'", "42501", "permission denied for schema refundd"),
        ("drop function refundd.decide", "42501", "must be owner of function refundd.decide"),
        ("create table refundd.mine ()", "42501", "permission denied for schema refundd"),
        ("do $$ begin lock table refundd.permits in access exclusive mode; end $$", "42501", "permission denied for table permits"),
        ("delete from refundd.channels", "42501", "permission denied for table channels"),
        ("delete from refundd.limits", "42501", "permission denied for table limits"),
        ("delete from refundd.migrations", "42501", "permission denied for table migrations"),
        ("set session_replication_role = replica", "42501", "permission denied to set parameter"),
        ("set role refundd", "42501", "permission denied to set role"),
        ("copy refundd.attempts to program 'true'", "42501", "external program"),
    ]).await;
    // A call that asks to keep less than the owner keeps deletes nothing more.
    for statement in [
        "select refundd.turn_attempts('1 second')",
        "select refundd.turn_permits('1 second')",
        "select refundd.turn_attempts(null)",
        "select refundd.forget_events('1 second')",
    ] {
        node.execute(sqlx::AssertSqlSafe(statement)).await.unwrap();
    }
    assert_eq!(scratch.text(EVIDENCE).await, before);
    // A decision is possible, and leaves its line.
    scratch.decide(RefundId(2), State::Failed, "the bank says so", "ann").await;
    let kept = scratch.store.evidence(RefundId(2)).await.unwrap();
    let line = kept.last().unwrap();
    assert_eq!(
        (line.kind.as_str(), line.node.as_str(), line.moved_to.as_deref()),
        ("manual", "ann", Some("failed"))
    );
}

#[tokio::test]
async fn a_claim_that_is_taken_back_leaves_a_line_that_the_database_writes() {
    let scratch = with_evidence().await;
    let mut node = PgConnection::connect(&scratch.database_url).await.unwrap();
    node.execute("update refundd.refunds set state = 'ready', attempts = 0, lease_node = null, lease_until = null where id = 7")
        .await
        .unwrap();
    assert_eq!(scratch.text("select state from refundd.refunds where id = 7").await, "ready");
    let kept = scratch.store.evidence(RefundId(7)).await.unwrap();
    let line = kept.last().unwrap();
    assert_eq!(
        (
            line.kind.as_str(),
            line.node.as_str(),
            line.outcome.as_str(),
            line.moved_to.as_deref(),
            line.code.as_deref()
        ),
        ("send", "a", "not_executed", Some("ready"), Some("taken_back"))
    );
    assert!(line.message.as_deref().is_some_and(|said| said.contains("took the claim back")), "{line:?}");
}

#[tokio::test]
async fn only_the_owner_shortens_how_long_evidence_stays_and_not_below_the_minimum() {
    let scratch = with_evidence().await;
    let shorten = |evidence: &str, to: &str| {
        format!("update refundd.retention set at_least = '{to}' where evidence = '{evidence}'")
    };
    // A month may have 28 days, so it counts as 30 in seconds.
    for (evidence, to) in [
        ("permits", "59 minutes"),
        ("permits", "-1 hour"),
        ("attempts", "29 days"),
        ("attempts", "1 month -1 day"),
        ("events", "29 days"),
    ] {
        let error = scratch.sql_error(&shorten(evidence, to)).await;
        assert!(error.to_string().contains("retention_is_long_enough"), "{evidence} {to}: {error}");
    }
    let kept = "select count(*) from refundd.permits";
    scratch.store.rotate_permits(std::time::Duration::from_hours(1)).await.unwrap();
    assert_eq!(scratch.number(kept).await, 3, "seven days unless the owner says otherwise");
    scratch.sql(&shorten("permits", "1 hour")).await;
    scratch.store.rotate_permits(std::time::Duration::from_hours(24 * 7)).await.unwrap();
    assert_eq!(scratch.number(kept).await, 3, "a node may ask for more");
    scratch.store.rotate_permits(std::time::Duration::from_hours(1)).await.unwrap();
    assert_eq!(scratch.number(kept).await, 1);
    // Without its row, the built-in minimum holds.
    scratch.sql("delete from refundd.retention").await;
    scratch.store.rotate_attempts(Some(std::time::Duration::from_hours(1))).await.unwrap();
    assert_eq!(scratch.number("select count(*) from refundd.attempts").await, 8);
}

#[tokio::test]
async fn no_function_of_the_schema_can_be_executed_by_everybody() {
    let scratch = Scratch::new().await;
    let open = "select coalesce(string_agg(proname, ', ' order by proname), '') from pg_proc
                 where pronamespace = 'refundd'::regnamespace and has_function_privilege('public', oid, 'execute')";
    assert_eq!(scratch.text(open).await, "");
}
