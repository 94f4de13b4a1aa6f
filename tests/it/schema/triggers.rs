//! The conditions of triggers: they spare the usual moves a call, and must let nothing else pass.

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use crate::harness::Scratch;

/// Of both the function decides alone, and the condition saves its call.
const TRIGGERS: [&str; 2] = ["refunds_make_only_legal_moves", "refunds_move_with_a_line"];

#[tokio::test]
async fn the_condition_of_a_trigger_spares_only_moves_that_its_function_lets_pass() {
    let scratch = Scratch::with_refunds(1).await;
    let mut owner = scratch.connect().await;
    owner.execute(include_str!("triggers.sql")).await.unwrap();
    let mut node = PgConnection::connect(&scratch.database_url).await.unwrap();
    let node: String = sqlx::query_scalar("select current_user::text").fetch_one(&mut node).await.unwrap();
    let mut outcomes = Vec::new();
    for with_conditions in [true, false] {
        if !with_conditions {
            for trigger in TRIGGERS {
                let always: String = sqlx::query_scalar(
                    r"select regexp_replace(pg_get_triggerdef(oid), '^CREATE (.*?) WHEN .* EXECUTE', 'create or replace \1 execute')
                        from pg_trigger where tgrelid = 'refundd.refunds'::regclass and tgname = $1",
                )
                .bind(trigger)
                .fetch_one(&mut owner)
                .await
                .unwrap();
                assert!(always.starts_with("create or replace"), "{always}");
                owner.execute(AssertSqlSafe(always)).await.unwrap();
            }
        }
        owner.execute(AssertSqlSafe(format!("call public.tries('{node}')"))).await.unwrap();
        let tried: Vec<String> = sqlx::query_scalar(
            "with gone as (delete from public.tried returning *) select outcome from gone order by id",
        )
        .fetch_all(&mut owner)
        .await
        .unwrap();
        outcomes.push(tried);
    }
    let (with, without) = (&outcomes[0], &outcomes[1]);
    let differ: Vec<_> = with.iter().zip(without).filter(|(with, without)| with != without).take(5).collect();
    assert!(differ.is_empty(), "with the condition, and without: {differ:#?}");
    // The tries meet moves that pass and every refusal, so that the comparison means something.
    for outcome in [
        "XX001 state succeeded",
        "1 lines",
        "cannot go back from version",
        "rise by one at a time",
        "cannot move from",
        "no update changes that",
        "is written by refundd.decide",
        "only with a line in the journal",
    ] {
        let count = with.iter().filter(|tried| tried.contains(outcome)).count();
        assert!(count > 5, "{count} of {}: {outcome}", with.len());
    }
}
