//! Reads JSON in which no object has a field twice.
//!
//! `serde_json` keeps the last value of such a field, and another reader may keep the first. So the JSON says two things.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::refund::{card, text};

/// Any JSON value in which each object has each field once. Other JSON is an error about the data, which names the field.
#[derive(Debug)]
pub struct Unambiguous(pub Value);

/// Why JSON was not read so, as the rest of a sentence. The grammar of JSON allows any depth, any number and doubled fields.
pub fn why_unread(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!("line {} column {}", error.line(), error.column());
    if text.starts_with("recursion limit exceeded") {
        format!("is nested too deeply at {place}: at most 127 levels are read")
    } else if text.starts_with("number out of range") {
        format!("has a number that is too large at {place}: write it as a string")
    } else if error.is_data() {
        format!("says two things: {text}")
    } else {
        format!("is not JSON: {text}")
    }
}

impl<'de> Deserialize<'de> for Unambiguous {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OfAnyKind).map(Unambiguous)
    }
}

struct OfAnyKind;

impl<'de> Visitor<'de> for OfAnyKind {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut read = Vec::new();
        while let Some(Unambiguous(item)) = items.next_element()? {
            read.push(item);
        }
        Ok(Value::Array(read))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut read = Map::new();
        while let Some((name, Unambiguous(value))) = fields.next_entry::<String, Unambiguous>()? {
            if read.contains_key(&name) {
                let shown: String = card::masked(&text::shown(&name)).chars().take(60).collect();
                return Err(A::Error::custom(format_args!("field `{shown}` is given twice")));
            }
            read.insert(name, value);
        }
        Ok(Value::Object(read))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `serde_json`'s own values read the text of such a field once more, as JSON.
    #[test]
    fn no_name_of_a_field_has_a_meaning_of_its_own() {
        let text = r#"{"$serde_json::private::RawValue": "[1, 2]"}"#;
        let read: Unambiguous = serde_json::from_str(text).unwrap();
        assert_eq!(read.0["$serde_json::private::RawValue"], "[1, 2]");
        assert_eq!(read.0.to_string(), text.replace(": ", ":"));
    }

    #[test]
    fn the_card_number_in_the_name_of_a_field_is_not_quoted() {
        let text = r#"{"4111111111111111": 1, "4111111111111111": 2}"#;
        let error = serde_json::from_str::<Unambiguous>(text).unwrap_err();
        assert!(why_unread(&error).contains("field `411111******1111` is given twice"), "{error}");
    }

    #[test]
    fn a_field_that_is_given_twice_is_named_and_other_json_is_read_as_it_stands() {
        for good in [
            "{}",
            "null",
            r#"[1, -2, 3.5e2, true, null, "a", 18446744073709551615, -0, 20251130123456789012]"#,
            r#"{"a": {"a": 1}, "b": [{"a": 1}, {"a": 2}]}"#,
        ] {
            let read: Unambiguous = serde_json::from_str(good).unwrap();
            assert_eq!(read.0, serde_json::from_str::<Value>(good).unwrap(), "{good}");
        }
        for bad in [r#"{"a": 1, "a": 1}"#, r#"[{"b": {"a": [], "\u0061": {}}}]"#] {
            let error = serde_json::from_str::<Unambiguous>(bad).unwrap_err();
            assert!(error.is_data() && error.to_string().contains("field `a` is given twice"), "{error}");
            assert!(
                why_unread(&error).starts_with("says two things: field `a` is given twice at line 1"),
                "{error}"
            );
        }
    }
}
