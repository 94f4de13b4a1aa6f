//! Checks a payload: any JSON that Postgres can keep, up to a bound.
//!
//! The bound counts the text that Postgres gives back for `jsonb`, not the caller's text. Postgres puts a space
//! after every comma and colon, and writes numbers without exponents. With any other count, a payload could pass
//! here and then be refused by the table.
//!
//! The module does not look at the meaning of a payload.

use serde_json::{Number, Value};

/// The bound of the table, `refunds_payload_is_at_most_16_kib`, in bytes.
pub(super) const MOST_BYTES: usize = 16_384;

/// The problem of a payload; `None` if there is none.
pub(super) fn problem(payload: &Value) -> Option<String> {
    if holds_nul(payload) {
        return Some("holds the character \\u0000, which Postgres cannot keep".to_owned());
    }
    let bytes = length(payload);
    (bytes > MOST_BYTES).then(|| {
        format!(
            "has {bytes} bytes as Postgres writes it (a space after every comma and colon); at most {MOST_BYTES} are allowed"
        )
    })
}

fn holds_nul(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(holds_nul),
        Value::Object(fields) => fields.iter().any(|(key, value)| key.contains('\0') || holds_nul(value)),
    }
}

/// The length of a value as `jsonb` text, in bytes.
fn length(value: &Value) -> usize {
    let separators = |n: usize| 2 + 2 * n.saturating_sub(1);
    match value {
        Value::Null | Value::Bool(true) => 4,
        Value::Bool(false) => 5,
        Value::Number(number) => number_length(number),
        Value::String(text) => text_length(text),
        Value::Array(items) => separators(items.len()) + items.iter().map(length).sum::<usize>(),
        Value::Object(fields) => {
            let pair = |(key, value): (&String, &Value)| text_length(key) + 2 + length(value);
            separators(fields.len()) + fields.iter().map(pair).sum::<usize>()
        }
    }
}

fn number_length(number: &Number) -> usize {
    let written = number.to_string();
    match number.as_f64() {
        // Rust prints a float with all of its digits, like Postgres's `numeric`.
        Some(float) if written.contains('e') => float.to_string().len(),
        _ => written.len(),
    }
}

fn text_length(text: &str) -> usize {
    2 + text
        .chars()
        .map(|c| match c {
            '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
            '\0'..='\u{1f}' => 6,
            other => other.len_utf8(),
        })
        .sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_length_is_that_of_the_text_postgres_gives_back() {
        // Each right side is the result of `select '…'::jsonb::text`.
        for (value, text) in [
            (
                json!({"a": [1, 2.5, true, null], "b": "x\"\n"}),
                r#"{"a": [1, 2.5, true, null], "b": "x\"\n"}"#,
            ),
            (json!([]), "[]"),
            (json!({}), "{}"),
            (json!("\u{1}ä\u{7f}"), "\"\\u0001ä\u{7f}\""),
            (json!(1e25), "10000000000000000000000000"),
            (json!(1.5e-9), "0.0000000015"),
        ] {
            assert_eq!(length(&value), text.len(), "{value}");
        }
    }

    #[test]
    fn a_payload_of_exactly_the_bound_passes_and_one_byte_more_does_not() {
        assert_eq!(problem(&Value::from("x".repeat(MOST_BYTES - 2))), None);
        assert!(problem(&Value::from("x".repeat(MOST_BYTES - 1))).unwrap().contains("16385 bytes"));
    }

    #[test]
    fn a_nul_is_refused_in_keys_and_in_the_depths() {
        for value in [json!("a\0"), json!({"a\0": 1}), json!([[{"a": ["\0"]}]])] {
            assert!(problem(&value).unwrap().contains("u0000"), "{value}");
        }
    }
}
