//! One table of bad values, at three doors: HTTP, a CSV file, and a plain insert. Each door refuses each value.

use std::collections::BTreeSet;
use std::io::Write;

use refundd::refund::State;
use refundd::refund::draft::{Draft, DraftRules};
use serde_json::{Value, json};
use sqlx::PgConnection;
use sqlx::postgres::PgDatabaseError;

use crate::cli::{file, refundd, text};
use crate::dispatch::UNLIMITED;
use crate::harness::{Scratch, TestNode, until};

/// A field, a value that it must not have, and the constraint that Postgres names.
type Bad = (&'static str, Value, &'static str);

fn bad_values() -> Vec<Bad> {
    let mut table = vec![
        ("channel", json!("nobody"), "refunds_channel_is_one_that_nodes_run"),
        ("amount_minor", json!(0), "refunds_amount_is_positive"),
        ("amount_minor", json!(-5), "refunds_amount_is_positive"),
        ("currency", json!("eur"), "refunds_currency_is_three_capitals"),
        ("currency", json!("EU"), "refunds_currency_is_three_capitals"),
        ("currency", json!("ZZZ"), "refunds_currency_is_of_iso_4217"),
        ("currency", json!("XXX"), "refunds_currency_is_of_iso_4217"),
        ("currency", json!("XTS"), "refunds_currency_is_of_iso_4217"),
        ("payload", json!("x".repeat(16_384)), "refunds_payload_is_at_most_16_kib"),
        ("deadline_at", json!("2030-01-01T00:00:00Z"), "refunds_deadline_is_after_due_at"),
        ("deadline_at", json!("9999-06-01T00:00:00Z"), "refunds_times_can_be_told"),
        ("deadline_at", json!("9999-12-31T23:59:59Z"), "refunds_times_can_be_told"),
        ("due_at", json!("9999-01-01T00:00:00Z"), "refunds_times_can_be_told"),
    ];
    let of_refund = [
        "refunds_ref_has_1_to_200_characters",
        "refunds_ref_is_plain_text",
        "refunds_ref_holds_no_card_number",
    ];
    let of_payment = [
        "refunds_payment_ref_has_1_to_200_characters",
        "refunds_payment_ref_is_plain_text",
        "refunds_payment_ref_holds_no_card_number",
    ];
    for (field, [length, plain, no_card]) in [("refund_ref", of_refund), ("payment_ref", of_payment)] {
        table.push((field, json!("ä".repeat(201)), length));
        let commands = ['\u{1}', '\t', '\n', '\u{1b}', '\u{7f}', '\u{80}', '\u{9f}'];
        // Of no width, or of another direction.
        let unseen = "\u{ad}\u{34f}\u{61c}\u{180e}\u{200b}\u{200f}\u{2028}\u{2029}\u{202a}\u{202e}\u{2060}\u{206f}\u{fe0f}\u{feff}\u{e0041}\u{115f}\u{17b5}\u{2800}\u{3164}\u{ffa0}\u{fff9}\u{1bca0}\u{1d173}";
        for character in commands.into_iter().chain(unseen.chars()) {
            table.push((field, json!(format!("R{character}1")), plain));
        }
        for blank in ['\u{a0}', '\u{1680}', '\u{2000}', '\u{200a}', '\u{202f}', '\u{205f}', '\u{3000}'] {
            table.push((field, json!(format!("R{blank}1")), plain));
        }
        for blank in [' ', '\u{a0}', '\u{2009}', '\u{3000}'] {
            table.push((field, json!(format!("R1{blank}")), plain));
            table.push((field, json!(format!("{blank}R1")), plain));
        }
        for card in [
            "4111111111111111",
            "P-4111 1111-1111–1111",
            "4111é1111é1111é1111",
            "٣4111 1111 1111 1111",
            "4111--1111--1111--1111",
            "4111 - 1111 - 1111 - 1111",
            "4111:1111:1111:1111",
            "4111, 1111, 1111, 1111",
        ] {
            table.push((field, json!(card), no_card));
        }
    }
    for payload in [
        json!({ "pan": 4_111_111_111_111_111_u64 }),
        json!({ "a": [{ "4111.1111.1111.1111": 1 }] }),
        json!({ "note": "DE89370400440532013000 4111 1111 1111 1111" }),
    ] {
        table.push(("payload", payload, "refunds_payload_holds_no_card_number"));
    }
    table
}

/// A refund that every door takes, but for one field.
fn with(nth: usize, field: &str, value: &Value) -> Value {
    let mut refund = json!({
        "refund_ref": format!("R-{nth}"), "channel": "acme", "payment_ref": "P-1", "amount_minor": 5, "currency": "EUR",
        "due_at": "2031-01-01T00:00:00Z",
    });
    refund[field] = value.clone();
    refund
}

async fn insert(connection: &mut PgConnection, refund: &Value) -> Result<(), sqlx::Error> {
    sqlx::query(
        "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency, payload, due_at, deadline_at)
         select j ->> 'refund_ref', j ->> 'channel', j ->> 'payment_ref', (j ->> 'amount_minor')::bigint, j ->> 'currency', j -> 'payload',
                coalesce((j ->> 'due_at')::timestamptz, now()), (j ->> 'deadline_at')::timestamptz
           from (select $1::text::jsonb as j) given",
    )
    .bind(refund.to_string())
    .execute(connection)
    .await
    .map(drop)
}

/// The constraint and the text of a refused insert.
async fn refusal(connection: &mut PgConnection, refund: &Value) -> (String, String) {
    let Err(error) = insert(connection, refund).await else { panic!("not refused: {refund}") };
    let error: &PgDatabaseError = error.as_database_error().unwrap().downcast_ref();
    (error.constraint().unwrap_or_default().to_owned(), error.message().to_owned())
}

#[tokio::test]
async fn every_door_refuses_the_same_values_and_names_the_field() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    scratch.pause("acme", "nothing is sent", "test").await;
    let mut connection = scratch.connect().await;
    // Where a backslash in a plain literal begins an escape.
    let mut escaping = scratch.connect().await;
    sqlx::query("set standard_conforming_strings = off").execute(&mut escaping).await.unwrap();
    let columns = [
        "refund_ref",
        "channel",
        "payment_ref",
        "amount_minor",
        "currency",
        "payload",
        "due_at",
        "deadline_at",
    ];
    let mut csv = format!("{}\n", columns.join(","));
    let mut lines = Vec::new();
    for (nth, (field, value, constraint)) in bad_values().iter().enumerate() {
        let refund = with(nth, field, value);
        let (named, said) = refusal(&mut connection, &refund).await;
        assert_eq!(named, *constraint, "{field} = {value}: {said}");
        assert_eq!(refusal(&mut escaping, &refund).await, (named, said));
        let answer = node.post("/v1/refunds", &refund).await;
        let named = answer.json()["errors"][0]["field"].as_str().map(str::to_owned);
        assert_eq!(
            (answer.status.as_u16(), named.as_deref()),
            (422, Some(*field)),
            "{field} = {value}: {answer:?}"
        );
        lines.push((csv.lines().count() + 1, *field, value.clone()));
        let cell = |column: &&str| match &refund[*column] {
            Value::Null => String::new(),
            Value::String(text) if *column != "payload" => format!("\"{text}\""),
            other => format!("\"{}\"", other.to_string().replace('"', "\"\"")),
        };
        csv.push_str(&columns.iter().map(cell).collect::<Vec<_>>().join(","));
        csv.push('\n');
    }
    let config = file(&scratch.file("a", UNLIMITED));
    let mut rows = tempfile::Builder::new().suffix(".csv").tempfile().unwrap();
    rows.write_all(csv.as_bytes()).unwrap();
    let imported = text(&refundd(config.path(), &["import", rows.path().to_str().unwrap()]));
    for (line, field, value) in &lines {
        let named = imported.lines().any(|said| said.starts_with(&format!("line {line}: {field}")));
        assert!(named, "line {line}, {field} = {value}: {imported}");
    }
    assert_eq!(scratch.number("select count(*) from refundd.refunds").await, 0);
    // The table says no to bad values alone.
    insert(&mut connection, &with(0, "payment_ref", &json!("P 1ä  x 漢🦀"))).await.unwrap();
    assert_eq!(
        node.post("/v1/refunds", &with(1, "payload", &json!({"a\u{200d}": "\u{1}"}))).await.status,
        201
    );
    node.stop().await;
}

#[tokio::test]
async fn an_insert_with_what_may_be_a_card_number_is_refused_and_the_number_is_not_repeated() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    let mut connection = scratch.connect().await;
    for (field, value, constraint) in [
        ("refund_ref", json!("4111-1111-1111-1111"), "refunds_ref_holds_no_card_number"),
        ("payment_ref", json!("4111 1111 1111 1111"), "refunds_payment_ref_holds_no_card_number"),
        ("payload", json!({"pan": 4_111_111_111_111_111_u64}), "refunds_payload_holds_no_card_number"),
        ("payload", json!({"a": [{"4111.1111.1111.1111": 1}]}), "refunds_payload_holds_no_card_number"),
    ] {
        let (named, said) = refusal(&mut connection, &with(1, field, &value)).await;
        assert_eq!(named, constraint);
        assert!(
            said.starts_with(&format!("{field} holds a card number")) && !said.contains("1111"),
            "{said}"
        );
    }
}

#[tokio::test]
async fn numbers_of_cards_are_told_from_other_numbers() {
    let scratch = Scratch::new().await;
    let mut connection = scratch.connect().await;
    let mut holds = async |value: &str, kind: &str| -> bool {
        let query = format!("select refundd.holds_card_number($1::text::{kind})");
        sqlx::query_scalar(sqlx::AssertSqlSafe(query)).bind(value).fetch_one(&mut connection).await.unwrap()
    };
    for card in [
        "4111111111111111",
        "4012888888899",
        "4000000000000000006",
        "5555555555554444",
        "2223003122003222",
        "378282246310005",
        "30569309025904",
        "36227206271667",
        "3530111333300000",
        "6011111111111117",
        "6200000000000005",
        "6759649826438453",
        "5018000000000009",
        "6304000000000000",
        "4111-1111 1111/1111",
        "4.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1",
        "PAN4111111111111111",
        "R-2024-4111_1111_1111_1111-7",
        "2026-07-28 4111 1111 1111 1111 12/27",
    ] {
        assert!(holds(card, "text").await, "{card}");
    }
    for other in [
        "",
        "4111111111111112",     // fails Luhn
        "1111111111111117",     // no scheme
        "411111111111111",      // no Visa has 15 digits
        "41111111111111111111", // 20 digits
        "4111    1111    1111    1111",
        "4111, 1111, 1111, 1111, 2222",
        "41111111-1111-1111-8111-111111111111",
        "a4111111111111111",
        "DE12 5001 0517 0648 4898 90",
        "refund for NO9386011117947 of today",
        "+4915112345678",
        "52.52000659999999",
        "4006381333931",
        "2026-07-30 05:50:46.704573",
        "1785240646704573",
    ] {
        assert!(!holds(other, "text").await, "{other}");
    }
    for (payload, is_one) in [
        (r#"{"note": ["paid by", {"card": "4111 1111 1111 1111"}]}"#, true),
        (r#"{"4111111111111111": true}"#, true),
        ("[-4111111111111111]", true),
        (r#""4111\t1111\t1111\t1111""#, true),
        ("41.40338123456789", false),
        ("[4111, 1111, 1111, 1111]", false),
    ] {
        assert_eq!(holds(payload, "jsonb").await, is_one, "{payload}");
    }
}

#[tokio::test]
async fn an_insert_with_a_hidden_character_is_refused_and_the_character_is_not_repeated() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    let mut connection = scratch.connect().await;
    for (field, constraint) in
        [("refund_ref", "refunds_ref_is_plain_text"), ("payment_ref", "refunds_payment_ref_is_plain_text")]
    {
        let (named, said) = refusal(&mut connection, &with(1, field, &json!("R\u{202e}1"))).await;
        assert_eq!((named.as_str(), said), (constraint, format!("{field} holds U+202E")));
    }
}

#[tokio::test]
async fn rust_and_the_database_know_the_same_currencies() {
    let scratch = Scratch::new().await;
    let letters = || 'A'..='Z';
    let codes =
        letters().flat_map(|a| letters().flat_map(move |b| letters().map(move |c| format!("{a}{b}{c}"))));
    let known: BTreeSet<String> = codes
        .filter(|code| Draft::check(&with(1, "currency", &json!(code)), &|_| DraftRules::default()).is_ok())
        .collect();
    let mut connection = scratch.connect().await;
    let letters = "unnest(string_to_array('ABCDEFGHIJKLMNOPQRSTUVWXYZ', null))";
    let query = format!(
        "select a || b || c from {letters} a, {letters} b, {letters} c where refundd.is_currency(a || b || c)"
    );
    let stored: Vec<String> =
        sqlx::query_scalar(sqlx::AssertSqlSafe(query)).fetch_all(&mut connection).await.unwrap();
    assert_eq!(stored.into_iter().collect::<BTreeSet<_>>(), known);
}

#[tokio::test]
async fn what_was_saved_before_these_rules_is_sent_and_settled_as_before() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    scratch.sql("alter table refundd.refunds disable trigger refunds_are_what_http_takes").await;
    let mut old = with(1, "payment_ref", &json!("4111 1111\u{202e} 1111 1111\u{1}"));
    old["currency"] = json!("ZZZ");
    old["due_at"] = Value::Null;
    insert(&mut scratch.connect().await, &old).await.unwrap();
    scratch.sql("alter table refundd.refunds enable trigger refunds_are_what_http_takes").await;
    until("it is sent", async || scratch.count(State::Succeeded).await == 1).await;
    node.stop().await;
}
