//! Reads JSON in which no object has a field twice.
//!
//! `serde_json` keeps the last value of such a field, and another reader may keep the first. So the JSON says two things.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::refund::text;

/// Any JSON value in which each object has each field once. Other JSON is an error about the data, which names the field.
#[derive(Debug)]
pub struct Unambiguous(pub Value);

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
                let shown: String = text::shown(&name).chars().take(60).collect();
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
        }
    }
}
