//! Reads the body of a bank's answer as JSON. Pure.
//!
//! `serde_json` reads a number that 64 bits do not hold as a floating-point number, which keeps about 16 digits. Two
//! references of 20 digits would become one. So such a number is read as the text that the bank wrote.
//!
//! Of a name that stands twice in an object, `serde_json` keeps the last value. Another reader, such as a gateway before the
//! bank, may keep the first. A body with such an object says two things, so it is not read.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Number, Value};

use crate::unambiguous::Unambiguous;

/// Why a body is not read as JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnreadBody {
    NotJson,
    /// An object in it has a name twice.
    SaysTwoThings,
}

/// The body without a byte order mark, which RFC 8259 (section 8.1) lets readers ignore. `serde_json` refuses it.
pub(super) fn without_mark(body: &[u8]) -> &[u8] {
    body.strip_prefix("\u{feff}".as_bytes()).unwrap_or(body)
}

/// The body as JSON.
pub(super) fn read(body: &[u8]) -> Result<Value, UnreadBody> {
    let body = without_mark(body);
    let read: Result<Unambiguous, _> = serde_json::from_slice(body);
    // All other errors are about the form.
    let why = |error: serde_json::Error| {
        if error.is_data() { UnreadBody::SaysTwoThings } else { UnreadBody::NotJson }
    };
    let Unambiguous(json) = read.map_err(why)?;
    if !is_rounded(&json) {
        return Ok(json);
    }
    serde_json::from_slice(body).ok().and_then(exact).ok_or(UnreadBody::NotJson)
}

/// Whether a value is this text, or the JSON value that the text writes.
pub(super) fn is_text(value: &Value, wanted: &str) -> bool {
    match value.as_str() {
        Some(text) => text == wanted,
        None => serde_json::from_str::<Value>(wanted).is_ok_and(|wanted| *value == wanted),
    }
}

/// Whether a number in it may have lost digits.
fn is_rounded(json: &Value) -> bool {
    match json {
        Value::Number(number) => has_lost_digits(number),
        Value::Array(items) => items.iter().any(is_rounded),
        Value::Object(fields) => fields.values().any(is_rounded),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

fn has_lost_digits(number: &Number) -> bool {
    // From here on floating-point numbers leave out whole numbers: 2^53.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    number.is_f64() && number.as_f64().is_none_or(|number| number.abs() >= EXACT)
}

fn exact(raw: &RawValue) -> Option<Value> {
    let text = raw.get();
    match text.as_bytes().first()? {
        b'{' => {
            let fields: BTreeMap<String, &RawValue> = serde_json::from_str(text).ok()?;
            let fields = fields.into_iter().map(|(name, value)| Some((name, exact(value)?)));
            fields.collect::<Option<_>>().map(Value::Object)
        }
        b'[' => {
            let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
            items.into_iter().map(exact).collect::<Option<_>>().map(Value::Array)
        }
        _ => match serde_json::from_str(text).ok()? {
            Value::Number(number) if has_lost_digits(&number) => Some(Value::String(text.to_owned())),
            value => Some(value),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_in_which_an_object_has_a_name_twice_is_not_read() {
        for body in [
            r#"{"status":"rejected","id":"B-1","status":"succeeded"}"#,
            r#"{"status":"succeeded","status":"succeeded"}"#,
            r#"{"status":"rejected","st\u0061tus":"succeeded"}"#,
            r#"{"data":[{"state":"rejected","state":null}]}"#,
            r#"{"id":20251130123456789012,"id":7}"#,
        ] {
            assert_eq!(read(body.as_bytes()), Err(UnreadBody::SaysTwoThings), "{body}");
        }
    }

    #[test]
    fn any_other_body_is_read_as_it_stands() {
        for body in [
            r#"{"a":{"name":1},"b":{"name":2}}"#,
            r#"[null,true,-7,18446744073709551615,0.5,"\u00e9",[],{}]"#,
            "{}",
            "404",
            "null",
        ] {
            assert_eq!(read(body.as_bytes()).ok(), serde_json::from_str(body).ok(), "{body}");
        }
        let long = read(br#"{"id":20251130123456789012}"#).unwrap();
        assert_eq!(long["id"], "20251130123456789012", "each digit is kept");
        let marked = read("\u{feff}{\"id\":20251130123456789012}".as_bytes()).unwrap();
        assert_eq!(marked, long, "a byte order mark is ignored");
        let deep = "[".repeat(1_000);
        for body in ["", "\u{feff}", "\u{feff}\u{feff}{}"] {
            assert_eq!(read(body.as_bytes()), Err(UnreadBody::NotJson), "{body:?}");
        }
        for body in ["<html>", r#"{"status":"succ"#, "{} {}", "1e999", deep.as_str()] {
            assert_eq!(read(body.as_bytes()), Err(UnreadBody::NotJson), "{body}");
        }
    }
}
