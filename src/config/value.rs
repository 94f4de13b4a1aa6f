//! Turns a TOML value into a Rust value, or into the second half of a message that says why it cannot.

use std::time::Duration;

use toml::de::DeValue;

use super::duration;

pub(super) fn as_text(value: &DeValue<'_>) -> Result<String, String> {
    value.as_str().map(str::to_owned).ok_or_else(|| format!("must be text in quotes, not {}", kind(value)))
}

pub(super) fn as_integer(value: &DeValue<'_>) -> Result<i64, String> {
    let integer = value.as_integer().ok_or_else(|| format!("must be a whole number, not {}", kind(value)))?;
    i64::from_str_radix(integer.as_str(), integer.radix())
        .map_err(|_| "is a larger number than can be counted".to_owned())
}

/// As [`as_integer`], for a number of permits. A fraction of a permit is a whole one in a longer time.
pub(super) fn as_permits(value: &DeValue<'_>) -> Result<i64, String> {
    if matches!(value, DeValue::Float(_)) {
        return Err("must be a whole number, not a number with a fraction; make `per` longer instead: 0.5 in \"1s\" are \
                    permits = 1 in per = \"2s\""
            .to_owned());
    }
    as_integer(value)
}

pub(super) fn as_duration(value: &DeValue<'_>) -> Result<Duration, String> {
    match (value.as_str(), value.as_integer()) {
        (Some(text), _) => duration::read(text),
        (None, Some(number)) => duration::read(number.as_str()),
        (None, None) => Err(format!("must be a duration in quotes, such as \"10s\", not {}", kind(value))),
    }
}

pub(super) fn as_texts(value: &DeValue<'_>) -> Result<Vec<String>, String> {
    let wrong = || format!("must be a list of names, such as [\"acme\"], not {}", kind(value));
    let items = value.as_array().ok_or_else(wrong)?;
    items.iter().map(|item| item.get_ref().as_str().map(str::to_owned).ok_or_else(wrong)).collect()
}

pub(super) fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

pub(super) fn as_boolean(value: &DeValue<'_>) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| format!("must be true or false, not {}", kind(value)))
}
