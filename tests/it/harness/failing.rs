//! Statements that fail or wait.

use super::Scratch;

/// From now on Postgres fails at each update of a refund of which `condition` is true, as with a trigger that somebody
/// added, or a damaged page.
pub async fn fail_at(scratch: &Scratch, condition: &str) {
    scratch
        .sql("create function public.fails() returns trigger language plpgsql as $$ begin raise exception 'somebody has a rule'; end $$")
        .await;
    scratch
        .sql(&format!("create trigger fails before update on refundd.refunds for each row when ({condition}) execute function public.fails()"))
        .await;
}

/// Ends what [`fail_at`] began.
pub async fn fail_no_more(scratch: &Scratch) {
    scratch.sql("drop trigger fails on refundd.refunds").await;
}

/// From now on each update of a refund of which `condition` is true waits for the advisory lock 7, as with a trigger that
/// writes to a table that somebody has locked.
pub async fn wait_at(scratch: &Scratch, condition: &str) {
    scratch
        .sql("create function public.waits() returns trigger language plpgsql as $$ begin perform pg_advisory_xact_lock(7); return new; end $$")
        .await;
    scratch
        .sql(&format!("create trigger waits before update on refundd.refunds for each row when ({condition}) execute function public.waits()"))
        .await;
}
