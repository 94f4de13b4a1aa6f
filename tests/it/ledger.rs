//! The ledger of permits: only added to, one table for each day, forgotten a day at a time.

mod at_start;
mod beside;

use std::sync::Arc;
use std::time::Duration;

use refundd::limiter::{Forgotten, Limit, Placement, ServerId};
use refundd::refund::LimitName;

use sqlx::{Connection, Executor};

use crate::harness::Scratch;

const DAY: Duration = Duration::from_hours(24);

/// A ledger whose tables go from `before` days ago to today, with one permit at noon of each day.
async fn days(before: u32) -> Scratch {
    let scratch = Scratch::new().await;
    scratch.keep_evidence_for_a_moment().await;
    scratch
        .sql(&format!(
            "do $$
             declare
                 table_name text;
                 day date;
             begin
                 for table_name in select relname from pg_class where relname like 'permits_until_%' and relkind = 'r' loop
                     execute format('drop table refundd.%I', table_name);
                 end loop;
                 for n in 0..{before} loop
                     day := (now() at time zone 'UTC')::date - n;
                     execute format('create table refundd.permits_until_%s partition of refundd.permits for values from (%L) to (%L)',
                                    to_char(day + 1, 'YYYYMMDD'), day::timestamp at time zone 'UTC', (day + 1)::timestamp at time zone 'UTC');
                     insert into refundd.permits (limit_name, window_start, ordinal, caller, node)
                     values ('acme', (day + time '12:00') at time zone 'UTC', 1, 'shop', 'node-a');
                 end loop;
             end $$"
        ))
        .await;
    scratch
}

const KEPT: &str = "select count(*) from refundd.permits";

#[tokio::test]
async fn whole_days_are_forgotten_and_only_those_that_ended_longer_ago_than_they_are_kept() {
    let scratch = days(6).await;
    assert_eq!(scratch.store.rotate_permits(DAY * 2).await.unwrap(), 4);
    // Of the third day ago some hours may be younger than that; of the fourth none.
    assert_eq!(scratch.number(KEPT).await, 3);
    let oldest = "select ((now() at time zone 'UTC')::date - min(window_start at time zone 'UTC')::date)::bigint from refundd.permits";
    assert_eq!(scratch.number(oldest).await, 2);
    assert_eq!(scratch.store.rotate_permits(DAY * 2).await.unwrap(), 0, "once");
}

#[tokio::test]
async fn the_tables_of_the_next_days_are_made_while_permits_are_spent() {
    let scratch = days(0).await;
    let mut spender = scratch.connect().await;
    sqlx::raw_sql(
        "begin; insert into refundd.permits (limit_name, window_start, ordinal, caller, node) values ('acme', now(), 2, 'shop', 'node-a')",
    )
    .execute(&mut spender)
    .await
    .unwrap();
    scratch.store.rotate_permits(DAY).await.unwrap();
    let ahead = "select count(*) from pg_class where relname like 'permits_until_%' and relkind = 'r'
                    and right(relname, 8) > to_char(now() at time zone 'UTC' + interval '1 day', 'YYYYMMDD')";
    assert_eq!(scratch.number(ahead).await, 2);
    sqlx::raw_sql("commit").execute(&mut spender).await.unwrap();
}

#[tokio::test]
async fn a_day_that_somebody_reads_is_dropped_by_a_later_call_and_nobody_waits_for_long() {
    let scratch = days(3).await;
    let mut reader = scratch.connect().await;
    sqlx::raw_sql("begin; select count(*) from refundd.permits").execute(&mut reader).await.unwrap();
    assert_eq!(scratch.store.rotate_permits(DAY).await.unwrap(), 0);
    sqlx::raw_sql("commit").execute(&mut reader).await.unwrap();
    assert_eq!(scratch.store.rotate_permits(DAY).await.unwrap(), 2);
}

#[tokio::test]
async fn a_permit_of_a_day_without_a_table_is_written_down_and_once_only() {
    let scratch = days(1).await;
    let insert = "insert into refundd.permits (limit_name, window_start, ordinal, caller, node)
                  values ('acme', date_trunc('day', now()) + interval '40 days', 7, 'shop', 'node-a'),
                         ('acme', date_trunc('day', now()) - interval '40 days', 7, 'shop', 'node-a')
                      on conflict on constraint permits_are_spent_once do nothing";
    scratch.sql(insert).await;
    scratch.sql(insert).await;
    assert_eq!(scratch.number(KEPT).await, 4);
    scratch.store.rotate_permits(DAY * 7).await.unwrap();
    assert_eq!(scratch.number(KEPT).await, 3, "what is old enough goes from there, too");
}

#[tokio::test]
async fn the_ledger_is_only_ever_added_to() {
    let scratch = days(1).await;
    for statement in
        ["update refundd.permits set ordinal = 2", "delete from refundd.permits", "truncate refundd.permits"]
    {
        let error = scratch.sql_error(statement).await;
        assert!(error.to_string().contains("append-only"), "{statement}: {error}");
    }
}

#[tokio::test]
async fn a_permit_of_another_service_may_open_a_second_after_it_was_written_down() {
    let scratch = Scratch::new().await;
    let limit = Limit {
        name: LimitName::stored("acme"),
        rule: r#"{"algorithm":"paced","permits":1,"per_us":1000000,"lateness_us":20000}"#.parse().unwrap(),
        ahead: Duration::from_millis(50),
        placement: Placement::Shared,
    };
    let now_us = scratch.now_us().await;
    let forgotten = Forgotten {
        limit: Arc::new(limit.clone()),
        now_us,
        generation: 0,
        window: (0, 0),
        server: ServerId::default(),
    };
    let tolerance = Duration::from_secs(5);
    scratch.store.adopt(&forgotten, "node-a", tolerance).await.unwrap();
    for (who, furthest) in [("refund_id", -300_000), ("caller", -1_150_000)] {
        let began = std::time::Instant::now();
        scratch
            .sql(&format!(
                "insert into refundd.permits (limit_name, window_start, ordinal, node, {who}) values ('acme', clock_timestamp(), 1, 'node-a', 7)"
            ))
            .await;
        let spent = scratch.store.count_spent(&limit, now_us, (0, 0), tolerance).await.unwrap();
        let over = spent.history.last().unwrap().over_us.unwrap();
        let took = i64::try_from(began.elapsed().as_micros()).unwrap();
        assert!((furthest..furthest + took + 1_000).contains(&over), "{who}: {spent:?}");
    }
}

#[tokio::test]
async fn permits_stay_as_long_as_the_longest_rule_of_any_node_looks_back_whatever_the_leader_keeps() {
    let scratch = days(9).await;
    // Another node's limit, used through `acquire` alone: three days, so its permits are kept for six.
    let rule = r#"('acme', '{"algorithm":"sliding_log","permits":5,"per_us":259200000000,"lateness_us":20000}', 'node-a')"#;
    scratch.sql(&format!("insert into refundd.limits (limit_name, rule, adopted_by) values {rule}")).await;
    // One of which no permit is kept needs nothing.
    let unused = r#"('idle', '{"algorithm":"sliding_log","permits":5,"per_us":2678400000000,"lateness_us":20000}', 'node-a')"#;
    scratch.sql(&format!("insert into refundd.limits (limit_name, rule, adopted_by) values {unused}")).await;
    assert_eq!(scratch.store.rotate_permits(DAY * 2).await.unwrap(), 3);
    assert_eq!(
        scratch.number(KEPT).await,
        7,
        "today, six whole days, and the one of which some hours are younger"
    );
    assert!(scratch.store.permits_are_kept_for(DAY * 2).await.unwrap() >= DAY * 6);
    // A node published a longer one; and one of another version may be as long as any.
    for rule in [
        r#"{"algorithm":"sliding_log","permits":5,"per_us":345600000000,"lateness_us":20000}"#,
        r#"{"algorithm":"leaky"}"#,
    ] {
        let published = format!("('acme', '{rule}', 'node-b')");
        scratch
            .sql(&format!("insert into refundd.limit_rules (limit_name, rule, node) values {published}"))
            .await;
        assert!(scratch.store.permits_are_kept_for(DAY * 2).await.unwrap() >= DAY * 8, "{rule}");
    }
    assert_eq!(scratch.store.permits_are_kept_for(DAY * 100).await.unwrap(), DAY * 100);
}

#[tokio::test]
async fn a_shorter_rule_forgets_no_permit_that_still_counts_for_the_rule_before_it() {
    let scratch = days(9).await;
    let rule = |days: u64| {
        let per = days * 86_400_000_000;
        format!(r#"'{{"algorithm":"sliding_log","permits":5,"per_us":{per},"lateness_us":20000}}'"#)
    };
    scratch
        .sql(&format!(
            "insert into refundd.limits (limit_name, rule, adopted_by) values ('acme', {}, 'a')",
            rule(3)
        ))
        .await;
    for (days, ago) in [(4, "8 days 2 hours"), (3, "1 hour"), (1, "1 minute")] {
        scratch
            .sql(&format!(
                "insert into refundd.limit_rules values ('acme', now() - interval '{ago}', {}, 'a')",
                rule(days)
            ))
            .await;
    }
    scratch.sql(&format!("update refundd.limits set rule = {}", rule(1))).await;
    // The rule of four days was followed an hour ago, and counts for eight days after that.
    let kept_days = async || scratch.store.permits_are_kept_for(DAY).await.unwrap().as_secs() / DAY.as_secs();
    assert_eq!(kept_days().await, 8);
    scratch.sql("delete from refundd.limit_rules where rule ->> 'per_us' = '345600000000'").await;
    assert_eq!(kept_days().await, 6);
    assert_eq!(scratch.store.rotate_permits(DAY).await.unwrap(), 3);
}

#[tokio::test]
async fn rules_of_slowed_channels_are_forgotten_with_the_permits_spent_under_them() {
    let scratch = days(1).await;
    for name in ["acme", "acme.slowed"] {
        let rule = |permits: i32| {
            format!(
                r#"('{{"algorithm":"sliding_log","per_us":1000000,"lateness_us":20000,"permits":{permits}}}'"#
            )
        };
        scratch
            .sql(&format!(
                "insert into refundd.limits (rule, limit_name, adopted_by) values {}, '{name}', 'a')",
                rule(1)
            ))
            .await;
        for (permits, days) in [(1, 13), (2, 12), (3, 11), (4, 9), (5, 1)] {
            let published = format!("{}, '{name}', now() - interval '{days} days', 'a')", rule(permits));
            scratch.sql(&format!("insert into refundd.limit_rules (rule, limit_name, published_at, node) values {published}")).await;
        }
    }
    scratch.store.rotate_permits(DAY * 10).await.unwrap();
    // The one of 11 days ago was in force ten days ago.
    let kept = |name: &str| {
        format!(
            "select string_agg(rule ->> 'permits', ' ' order by published_at) from refundd.limit_rules where limit_name = '{name}'"
        )
    };
    assert_eq!(scratch.text(&kept("acme.slowed")).await, "3 4 5");
    assert_eq!(scratch.text(&kept("acme")).await, "1 2 3 4 5");
}

/// A clock that was ahead made tables of later days, and then no node led for a while.
#[tokio::test]
async fn a_day_without_a_table_gets_one_although_later_days_have_theirs() {
    let scratch = days(0).await;
    let table_of = |day: u32| {
        format!(
            "do $$ declare day timestamp := (now() at time zone 'UTC')::date + {day};
             begin execute format('create table refundd.permits_until_%s partition of refundd.permits for values from (%L) to (%L)',
                                  to_char(day + interval '1 day', 'YYYYMMDD'), day at time zone 'UTC', (day + interval '1 day') at time zone 'UTC'); end $$"
        )
    };
    scratch.sql(&table_of(1)).await;
    scratch.sql(&table_of(9)).await;
    scratch.store.rotate_permits(DAY * 2).await.unwrap();
    let days = "select string_agg(((until at time zone 'UTC')::date - (now() at time zone 'UTC')::date)::text, ' ' order by until) from refundd.spans('permits')";
    assert_eq!(scratch.text(days).await, "1 2 3 10");
}

/// No node led for days, and permits were spent before one did.
#[tokio::test]
async fn a_day_whose_permits_stand_among_those_of_other_days_gets_no_table() {
    let scratch = days(0).await;
    let gone = "do $$ begin execute (select 'drop table ' || oid::regclass from pg_class where relname like 'permits_until_%' and relkind = 'r'); end $$";
    scratch.sql(gone).await;
    let spend = "insert into refundd.permits (limit_name, window_start, ordinal, caller, node) values ('acme', now(), 1, 'shop', 'node-a')";
    scratch.sql(spend).await;
    scratch.store.rotate_permits(DAY * 2).await.unwrap();
    let days = "select string_agg(((until at time zone 'UTC')::date - (now() at time zone 'UTC')::date)::text, ' ' order by until) from refundd.spans('permits')";
    assert_eq!(scratch.text(days).await, "2 3");
    // A try would lock the table of other days, which others read.
    let (mut reader, mut owner) = (scratch.connect().await, scratch.connect().await);
    let mut reading = reader.begin().await.unwrap();
    reading.execute("lock table refundd.permits_of_other_days in access share mode").await.unwrap();
    owner.execute("set lock_timeout = '100ms'").await.unwrap();
    let is_all_there: bool = sqlx::query_scalar("select refundd.make_spans('permits', 'day', '')")
        .fetch_one(&mut owner)
        .await
        .unwrap();
    assert!(is_all_there);
    reading.rollback().await.unwrap();
    assert_eq!(scratch.number(KEPT).await, 1);
}
