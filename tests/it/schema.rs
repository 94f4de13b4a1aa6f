//! The database keeps the rules by itself, whoever writes to it.

mod keeping;
mod migrating;
mod triggers;

use refundd::refund::State;
use sqlx::{Executor, SqlSafeStr};

use crate::harness::Scratch;

#[tokio::test]
async fn every_statement_prepares_on_a_migrated_database() {
    let scratch = Scratch::new().await;
    let mut connection = scratch.connect().await;
    connection.execute("set search_path = pg_catalog, pg_temp").await.unwrap();
    let statements = refundd::store::statements();
    assert!(statements.len() > 25, "{}", statements.len());
    for (name, sql) in statements {
        if let Err(error) = connection.prepare(sql.into_sql_str()).await {
            panic!("statement `{name}`: {error}");
        }
    }
}

#[tokio::test]
async fn rust_and_the_database_hold_the_same_table_of_legal_moves() {
    let scratch = Scratch::new().await;
    let mut connection = scratch.connect().await;
    for from in State::ALL {
        for to in State::ALL {
            let legal: bool = sqlx::query_scalar("select refundd.move_is_legal($1, $2)")
                .bind(from.as_str())
                .bind(to.as_str())
                .fetch_one(&mut connection)
                .await
                .unwrap();
            assert_eq!(legal, from.may_move_to(to), "{from} -> {to}");
        }
    }
}

#[tokio::test]
async fn an_illegal_move_is_refused_by_the_trigger() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    scratch.insert("acme", "R-", 1).await;
    let error = scratch.sql_error("update refundd.refunds set state = 'succeeded', settled_at = now()").await;
    assert!(error.to_string().contains("cannot move from ready to succeeded"), "{error}");
}

#[tokio::test]
async fn what_is_owed_cannot_be_changed_once_saved() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    scratch.publish("other").await;
    scratch.insert("acme", "R-", 1).await;
    for change in [
        "amount_minor = 1",
        "currency = 'USD'",
        "channel = 'other'",
        "request_id = gen_random_uuid()",
        "refund_ref = 'R-2'",
        "payment_ref = 'P-9'",
        "payload = '{}'",
    ] {
        let error = scratch.sql_error(&format!("update refundd.refunds set {change}")).await;
        assert!(error.to_string().contains("cannot be changed"), "{change}: {error}");
    }
}

#[tokio::test]
async fn the_journal_is_only_ever_added_to() {
    let scratch = Scratch::new().await;
    for statement in [
        "update refundd.attempts set node = 'x'",
        "delete from refundd.attempts",
        "truncate refundd.attempts",
    ] {
        let error = scratch.sql_error(statement).await;
        assert!(error.to_string().contains("append-only"), "{error}");
    }
}

#[tokio::test]
async fn a_refund_for_a_channel_nobody_runs_is_refused() {
    let scratch = Scratch::new().await;
    let error = scratch
        .sql_error("insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency) values ('R', 'nobody', 'P', 1, 'EUR')")
        .await;
    assert!(error.to_string().contains("refunds_channel_is_one_that_nodes_run"), "{error}");
}

#[tokio::test]
async fn one_refund_for_a_channel_nobody_runs_refuses_the_whole_statement() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    let error = scratch
        .sql_error(
            "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency)
             select 'R-' || n, case when n = 777 then 'nobody' else 'acme' end, 'P', 1, 'EUR' from generate_series(1, 1000) n",
        )
        .await;
    let refusal = error.as_database_error().unwrap();
    assert_eq!(refusal.code().as_deref(), Some("23503"));
    assert_eq!(refusal.constraint(), Some("refunds_channel_is_one_that_nodes_run"));
    assert_eq!(scratch.number("select count(*) from refundd.refunds").await, 0);
}

#[tokio::test]
async fn a_channel_is_never_deleted_and_never_gets_another_name() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    for statement in [
        "delete from refundd.channels",
        "truncate refundd.channels",
        "update refundd.channels set channel = 'other'",
    ] {
        let error = scratch.sql_error(statement).await;
        assert!(error.to_string().contains("is refused"), "{statement}: {error}");
    }
    scratch.sql("update refundd.channels set channel = channel, retired_at = now()").await;
}

#[tokio::test]
async fn nonsense_is_refused_by_a_constraint_that_names_the_rule() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    for (values, rule) in [
        ("'', 'acme', 'P', 1, 'EUR', null", "refunds_ref_has_1_to_200_characters"),
        ("'R', 'acme', '', 1, 'EUR', null", "refunds_payment_ref_has_1_to_200_characters"),
        ("'R', 'acme', 'P', 0, 'EUR', null", "refunds_amount_is_positive"),
        ("'R', 'acme', 'P', -5, 'EUR', null", "refunds_amount_is_positive"),
        ("'R', 'acme', 'P', 1, 'eur', null", "refunds_currency_is_three_capitals"),
        ("'R', 'acme', 'P', 1, 'EUR', to_jsonb(repeat('x', 16385))", "refunds_payload_is_at_most_16_kib"),
    ] {
        let error = scratch
            .sql_error(&format!(
                "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency, payload) values ({values})"
            ))
            .await;
        assert!(error.to_string().contains(rule), "{values}: {error}");
    }
}

#[tokio::test]
async fn enqueue_saves_once_and_tells_a_repeat_from_a_conflict() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    let call = |amount: i32| {
        format!(
            "select created::int::bigint from refundd.enqueue('R-1', 'acme', 'P-1', {amount}, 'EUR', '{{\"a\": 1}}')"
        )
    };
    assert_eq!(scratch.number(&call(5)).await, 1);
    assert_eq!(scratch.number(&call(5)).await, 0);
    let code = |error: &sqlx::Error| {
        error.as_database_error().and_then(sqlx::error::DatabaseError::code).map(|c| c.to_string())
    };
    let detail = async |call: &str| {
        let error = scratch.sql_error(call).await;
        assert_eq!(code(&error).as_deref(), Some("RD001"), "{error}");
        let error = error.into_database_error().unwrap().downcast::<sqlx::postgres::PgDatabaseError>();
        error.detail().unwrap().to_owned()
    };
    assert_eq!(detail(&call(6)).await, "What differs: amount_minor.");
    let all = "select refundd.enqueue('R-1', 'globex', 'P-2', 6, 'USD', '{}')";
    assert_eq!(
        detail(all).await,
        "What differs: channel (saved acme, sent globex), payment_ref, amount_minor, currency, payload."
    );
    let unknown = "select refundd.enqueue('R-2', 'nobody', 'P-1', 5, 'EUR')";
    assert_eq!(code(&scratch.sql_error(unknown).await).as_deref(), Some("RD004"));
    scratch.sql("update refundd.channels set max_backlog = 1, full_since = now()").await;
    let full = "select refundd.enqueue('R-3', 'acme', 'P-1', 5, 'EUR')";
    assert_eq!(code(&scratch.sql_error(full).await).as_deref(), Some("RD005"));
    assert_eq!(scratch.number(&call(5)).await, 0, "a repeat is answered even when the backlog is full");
}

#[tokio::test]
async fn a_new_schema_is_enough_for_an_old_node() {
    let scratch = Scratch::new().await;
    scratch
        .sql("insert into refundd.migrations (version, description, success, checksum, execution_time) values (9999, 'from the future', true, '', 0)")
        .await;
    assert!(scratch.store.schema().await.unwrap().is_enough());
    let owner = refundd::store::Store::open(&scratch.owner_url, None, 1).unwrap();
    owner.migrate().await.unwrap();
}

#[tokio::test]
async fn a_time_that_cannot_be_told_is_refused() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    for column in ["due_at", "deadline_at"] {
        for time in ["infinity", "-infinity", "20000-01-01"] {
            let error = scratch
                .sql_error(&format!(
                    "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency, {column})
                     values ('R', 'acme', 'P', 1, 'EUR', '{time}')"
                ))
                .await;
            assert!(error.to_string().contains("refunds_times_can_be_told"), "{column} {time}: {error}");
        }
    }
}

#[tokio::test]
async fn a_refund_is_never_deleted_and_never_gets_another_id() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    scratch.insert("acme", "R-", 1).await;
    for statement in ["delete from refundd.refunds", "truncate refundd.refunds cascade"] {
        let error = scratch.sql_error(statement).await;
        assert!(error.to_string().contains("is refused"), "{statement}: {error}");
    }
    let error = scratch.sql_error("update refundd.refunds set id = default").await;
    assert!(error.to_string().contains("cannot be changed"), "{error}");
}

#[tokio::test]
async fn an_address_is_the_same_to_the_database_and_to_nodes() {
    let scratch = Scratch::new().await;
    for (endpoint, inquiry) in [
        ("https://Bank.example/Acme/refunds", "https://bank.example/{request_id}?key=hunter2"),
        ("http://bank.example:80", "http://bank.example?id={request_id}"),
        ("http://bank.example:443/", "http://BANK.example:80/a/{request_id}"),
        ("https://bank.example:443/refunds?key=hunter2", "https://[::1]:443/r/{request_id}?x"),
        ("https://bank.example:8443/?a=/b", "https://bank.example:8443/{request_id}"),
    ] {
        let file = format!(
            "[channel.acme]\nendpoint = \"{endpoint}\"\nplain_http = \"accepted\"\nlimits = []\ninquiry = {{ url = \"{inquiry}\" }}\n"
        );
        let config = scratch.config("a", &file);
        let channel = config.channels.values().next().unwrap();
        let here = channel.bank_address();
        // As nodes wrote it down before they knew of addresses.
        let shown = refundd::config::Config::public_settings(channel)["inquiry"]["url"].clone();
        let there = |url: &str| format!("select refundd.address_of('{url}')");
        assert_eq!(scratch.text(&there(&channel.endpoint.to_string())).await, here.endpoint);
        assert_eq!(scratch.text(&there(shown.as_str().unwrap())).await, here.inquiry);
        assert!(!format!("{here:?}").contains("hunter2"));
    }
}

#[tokio::test]
async fn addresses_are_only_ever_added_to() {
    let scratch = Scratch::new().await;
    for statement in [
        "update refundd.addresses set endpoint = 'x'",
        "delete from refundd.addresses",
        "truncate refundd.addresses",
    ] {
        let error = scratch.sql_error(statement).await;
        assert!(error.to_string().contains("append-only"), "{error}");
    }
}
