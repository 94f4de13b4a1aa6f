//! Reads the body of a bank's answer as JSON. Pure.
//!
//! `serde_json` reads a number that 64 bits do not hold as a floating-point number, which keeps about 16 digits. Two
//! references of 20 digits would become one. So such a number is read as the text that the bank wrote.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Number, Value};

/// The body as JSON; `None` if it is something else.
pub(super) fn read(body: &[u8]) -> Option<Value> {
    let json = serde_json::from_slice(body).ok()?;
    if is_rounded(&json) { exact(serde_json::from_slice(body).ok()?) } else { Some(json) }
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
