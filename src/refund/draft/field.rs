//! Texts for people about one field: its allowed values, and the problem of one value.
//!
//! The module does not check whole drafts.

use serde_json::Value;

use crate::refund::{Money, card, text};

/// How many characters of a value are shown.
const SHOWN: usize = 60;

/// The allowed values of a field, as a clause for the end of a message.
pub(super) fn allowed(field: &str) -> &'static str {
    match field {
        "refund_ref" | "payment_ref" => {
            "it must be a string of 1 to 200 characters, none of them hidden, with no blank but U+0020, and none at its ends"
        }
        "channel" => "it must be 1 to 63 of a-z, 0-9, `-` and `_`, starting with a letter or digit",
        "amount_minor" => "it must be a whole number of minor units from 1 to 9223372036854775807",
        "currency" => "it must be an ISO 4217 code in capitals, such as `EUR`",
        "due_at" | "deadline_at" => {
            "it must be an RFC 3339 time of the years 0001 to 9998 with an offset, such as `2030-01-31T12:00:00Z`"
        }
        _ => "it may hold any JSON",
    }
}

/// The name of a JSON value's kind, for use in a sentence.
pub(super) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// A value as JSON, cut for people, without hidden characters and card numbers.
#[must_use]
pub fn shortened(value: &Value) -> String {
    let json = match value {
        // Cut first: escaping the rest of a long text would be wasted work.
        Value::String(text) => {
            let beginning: String = text.chars().take(2 * SHOWN).collect();
            Value::from(cut(&card::masked(&beginning))).to_string()
        }
        // Each text is masked before it is written as JSON: there an escape, such as `\n`, separates digits that belong
        // together.
        other => cut(&card::masked(&card::masked_json(other).to_string())),
    };
    text::shown_json(json)
}

pub(super) fn cut(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The problem of an amount that is no `i64`. The example is in `currency`.
pub(super) fn amount_problem(value: &Value, currency: &str) -> String {
    let allowed = allowed("amount_minor");
    match value {
        Value::String(text) if text.parse::<i64>().is_ok() => {
            format!("is a string; write the number without quotes: {}", cut(&card::masked(text)))
        }
        // From a file or the command line every value is a text, so what matters is the number in it.
        Value::String(text) => match text.parse::<f64>() {
            Ok(number) if number.is_finite() => number_problem(number, currency),
            _ => format!("is no number; {allowed}"),
        },
        // serde_json gives integers beyond `u64` as floats.
        Value::Number(number) => {
            number.as_f64().map_or_else(|| allowed.to_owned(), |number| number_problem(number, currency))
        }
        other => format!("is {}; {allowed}", kind_of(other)),
    }
}

/// The problem of a number that is no `i64`.
fn number_problem(number: f64, currency: &str) -> String {
    let allowed = allowed("amount_minor");
    if number >= 9_223_372_036_854_775_807.0 {
        format!("is larger than any amount can be; {allowed}")
    } else if number <= -9_223_372_036_854_775_808.0 {
        allowed.to_owned()
    } else {
        let example = Money { amount_minor: 1250, currency: currency.to_owned() };
        format!("has a fraction or an exponent; {allowed} ({example} is 1250)")
    }
}

pub(super) fn currency_problem(code: &str) -> Option<String> {
    use iso_currency::Currency;
    if let Some(currency) = Currency::from_code(code) {
        return matches!(currency, Currency::XXX | Currency::XTS)
            .then(|| "stands for no currency at all; no bank can pay it".to_owned());
    }
    let capitals = code.to_ascii_uppercase();
    Some(match Currency::from_code(&capitals) {
        Some(_) => format!("is not in capitals; write `{capitals}`"),
        None => format!("is not a currency; {}", allowed("currency")),
    })
}

/// The problem of a field that refundd does not know.
pub(super) fn unknown(name: &str, fields: &[&'static str]) -> String {
    if ["id", "state", "attempts", "request_id", "created_at", "settled_at", "reason"].contains(&name) {
        return "is refundd's own and cannot be given".to_owned();
    }
    match nearest(name, fields.iter().copied()) {
        Some(near) => format!("is not a field of a refund; did you mean `{near}`?"),
        None => format!("is not a field of a refund; the fields are {}", fields.join(", ")),
    }
}

/// The known name that is most similar to `name`, if it is similar enough to be meant.
pub(super) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > 100 {
        return None;
    }
    let plain = |text: &str| text.to_ascii_lowercase().replace(['-', '_', ' '], "");
    let meant = plain(name);
    known
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(&meant, &plain(candidate)), candidate))
        .filter(|(likeness, _)| *likeness >= 0.85)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}
