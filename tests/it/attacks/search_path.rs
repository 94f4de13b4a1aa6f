//! A role chooses its own `search_path`, and may create objects in the schema `public` of Postgres 14. Functions of the schema
//! and statements of nodes look up no operator there.

use refundd::refund::State;
use sqlx::{Connection, Executor, PgConnection};

use super::{are_refused, with_evidence};
use crate::harness::{Scratch, TestNode, until};

/// Functions without a path of their own. Each call would cost a microsecond more, and no role may call them: functions
/// and triggers with a path of their own do.
const WITHOUT: &str = "belongs_elsewhere holds_card_number holds_card_number is_iban";

#[tokio::test]
async fn every_function_has_a_search_path_of_its_own_or_a_bound_body() {
    let scratch = Scratch::new().await;
    let of_the_schema =
        "from pg_proc p where p.pronamespace = 'refundd'::regnamespace and p.prosqlbody is null";
    let path = "array_to_string(p.proconfig, ';') ~ '(^|;)search_path=pg_catalog, pg_temp(;|$)'";
    let without = format!(
        "select coalesce(string_agg(p.proname, ' ' order by p.proname), '') {of_the_schema} and {path} is not true"
    );
    assert_eq!(scratch.text(&without).await, WITHOUT);
    let called_by_roles = format!(
        "select count(*) {of_the_schema} and {path} is not true
            and exists (select from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a where a.grantee <> p.proowner)"
    );
    assert_eq!(scratch.number(&called_by_roles).await, 0);
}

#[tokio::test]
async fn operators_of_another_schema_make_no_move_legal() {
    let scratch = with_evidence().await;
    // As a role could do in the schema `public` of Postgres 14.
    scratch
        .sql(
            "do $$ begin
                 create schema shadow;
                 grant usage on schema shadow to public;
                 create function shadow.always(text, text) returns boolean language sql immutable return true;
                 create operator shadow.= (leftarg = text, rightarg = text, function = shadow.always);
                 create function shadow.never(integer, integer) returns boolean language sql immutable return false;
                 create operator shadow.< (leftarg = integer, rightarg = integer, function = shadow.never);
             end $$",
        )
        .await;
    let mut node = PgConnection::connect(&scratch.database_url).await.unwrap();
    node.execute("set search_path = shadow, pg_catalog").await.unwrap();
    are_refused(
        &mut node,
        &[
            (
                "update refundd.refunds set state = 'succeeded', settled_at = now() where id = 1",
                "RD002",
                "cannot move from ready to succeeded",
            ),
            (
                "update refundd.refunds set state = 'failed', settled_at = now(), version = 0 where id = 7",
                "RD002",
                "cannot go back",
            ),
            (
                "update refundd.refunds set state = 'ready', version = version + 1 where id = 5",
                "RD006",
                "only with a line in the journal",
            ),
            ("update refundd.refunds set reason = 'it was paid' where id = 2", "RD006", "refund 2 is review"),
        ],
    )
    .await;
}

const LIMITED: &str = "[limit.acme]\npermits = 50\nper = \"1s\"\n[channel.acme]\n\
    endpoint = \"http://{bank}/acme/refunds\"\nlimits = [\"acme\"]\n";

#[tokio::test]
async fn operators_that_another_role_made_in_public_are_not_called_by_nodes() {
    let scratch = Scratch::new().await;
    let role = format!("mallory_of_{}", scratch.name);
    // As on Postgres 14.
    scratch.sql("grant create on schema public to public").await;
    scratch.sql(&format!("create role {role} login")).await;
    let url = scratch.owner_url.replacen("refundd@", &format!("{role}@"), 1);
    let mut mallory = PgConnection::connect(&url).await.unwrap();
    for statement in [
        "create sequence public.calls",
        // Postgres's own operator takes a double precision, so this one fits better where a statement multiplies a bigint.
        "create function public.multiplied(bigint, interval) returns interval language plpgsql security definer as $$ begin
             perform nextval('public.calls');
             return $1::double precision * $2;
         end $$",
        "create operator public.* (leftarg = bigint, rightarg = interval, function = public.multiplied)",
    ] {
        mallory.execute(statement).await.unwrap();
    }
    let calls = async || scratch.number("select last_value - (not is_called)::int from public.calls").await;
    // A session with the usual path does call it.
    let mut usual = PgConnection::connect(&scratch.database_url).await.unwrap();
    usual.execute("select 2::bigint * interval '1 second'").await.unwrap();
    assert_eq!(calls().await, 1);
    let node = TestNode::start(&scratch, "a", LIMITED).await;
    scratch.insert("acme", "R-", 3).await;
    until("all are settled", async || scratch.count(State::Succeeded).await == 3).await;
    node.stop().await;
    assert_eq!(calls().await, 1, "a node's statement called the operator");
}
