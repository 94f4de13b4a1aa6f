//! Statements that fail or wait.

use refundd::refund::State;

use super::{Scratch, until};

/// From now on a trigger of this name does `what` before each update of a refund of which `condition` is true.
async fn at_updates(scratch: &Scratch, name: &str, what: &str, condition: &str) {
    scratch
        .sql(&format!("create function public.{name}() returns trigger language plpgsql as $$ begin {what}; return new; end $$"))
        .await;
    scratch
        .sql(&format!("create trigger {name} before update on refundd.refunds for each row when ({condition}) execute function public.{name}()"))
        .await;
}

/// From now on Postgres fails at each update of a refund of which `condition` is true, as with a trigger that somebody
/// added, or a damaged page.
pub async fn fail_at(scratch: &Scratch, condition: &str) {
    at_updates(scratch, "fails", "raise exception 'somebody has a rule'", condition).await;
}

/// Ends what [`fail_at`] began.
pub async fn fail_no_more(scratch: &Scratch) {
    scratch.sql("drop trigger fails on refundd.refunds").await;
}

/// From now on each update of a refund of which `condition` is true waits for the advisory lock 7, as with a trigger that
/// writes to a table that somebody has locked.
pub async fn wait_at(scratch: &Scratch, condition: &str) {
    at_updates(scratch, "waits", "perform pg_advisory_xact_lock(7)", condition).await;
}

/// From now on each update of a refund of which `condition` is true takes two seconds, as on a slow disk.
pub async fn slow_at(scratch: &Scratch, condition: &str) {
    at_updates(scratch, "slows", "perform pg_sleep(2)", condition).await;
}

/// Ends what [`slow_at`] began.
pub async fn slow_no_more(scratch: &Scratch) {
    scratch.sql("drop trigger slows on refundd.refunds").await;
}

/// From now on the commit of a refund that comes to `state` takes a second. A connection may be lost meanwhile, and Postgres notices
/// that only when it answers.
pub async fn dawdle_at_commits(scratch: &Scratch, state: State) {
    scratch
        .sql("create function public.dawdles() returns trigger language plpgsql as $$ begin perform pg_sleep(1); return null; end $$")
        .await;
    scratch
        .sql(&format!(
            "create constraint trigger dawdles after update on refundd.refunds deferrable initially deferred
             for each row when (new.state = '{state}') execute function public.dawdles()"
        ))
        .await;
}

/// Ends what [`dawdle_at_commits`] began.
pub async fn dawdle_no_more(scratch: &Scratch) {
    scratch.sql("drop trigger dawdles on refundd.refunds").await;
}

/// Waits until such a commit has begun.
pub async fn a_commit_dawdles(scratch: &Scratch) {
    let commits =
        "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'";
    until("a commit has begun", async || scratch.number(commits).await > 0).await;
}
