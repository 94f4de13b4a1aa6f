//! JSON of the API. Answers have a text that commands no terminal: hidden characters are escaped, and mean the same to programs.
//! Bodies of requests have each field once.

use std::collections::HashSet;
use std::fmt;

use axum::extract::Request;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::body::{self, BodyKind};
use super::{Api, Problem};
use crate::refund::draft::FieldError;
use crate::refund::text;

#[derive(Debug)]
pub(super) struct Json<T>(pub T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_string(&self.0) {
            Ok(json) => {
                let kind = (CONTENT_TYPE, HeaderValue::from_static("application/json"));
                ([kind], text::shown_json(json)).into_response()
            }
            Err(_) => Problem::internal().into_response(),
        }
    }
}

/// Reads the body of a request, an object of at most `most` bytes. `rule` is the message for another body.
pub(super) async fn read_object(
    api: &Api,
    request: Request,
    most: usize,
    rule: &str,
) -> Result<Map<String, Value>, Problem> {
    let (head, body) = request.into_parts();
    body::kind(&head.headers, &[BodyKind::Json])?;
    object(&api.bodies.read(&head, body, most).await?, rule)
}

/// Reads JSON as [`parse`] does, and refuses what is no object.
pub(super) fn object(bytes: &[u8], rule: &str) -> Result<Map<String, Value>, Problem> {
    match parse(bytes)? {
        Value::Object(object) => Ok(object),
        other => Err(Problem::invalid(vec![FieldError::new("body", Some(&other), rule)])),
    }
}

/// Reads JSON in which no object has a field twice. The caller may mean either value, and the two may decide about other
/// refunds. A refund that is saved is read elsewhere: there the last value counts, as in most programs.
fn parse(bytes: &[u8]) -> Result<Value, Problem> {
    serde_json::from_slice::<EachOnce>(bytes)
        .and_then(|_| serde_json::from_slice(bytes))
        .map_err(|error| Problem::malformed(&error))
}

/// Any JSON value in which each object has each field once.
struct EachOnce;

impl<'de> Deserialize<'de> for EachOnce {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(EachOnce)
    }
}

impl<'de> Visitor<'de> for EachOnce {
    type Value = EachOnce;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self, A::Error> {
        while list.next_element::<EachOnce>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Self, A::Error> {
        let mut seen = HashSet::new();
        while let Some(name) = object.next_key::<String>()? {
            object.next_value::<EachOnce>()?;
            if let Some(name) = seen.replace(name) {
                let shown: String = text::shown(&name).chars().take(60).collect();
                return Err(A::Error::custom(format_args!("field `{shown}` is given twice")));
            }
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_is_given_twice_is_named_and_other_json_is_read() {
        for good in
            ["{}", "[1, -2, 3.5e2, true, null, \"a\"]", r#"{"a": {"a": 1}, "b": [{"a": 1}, {"a": 2}]}"#]
        {
            assert_eq!(parse(good.as_bytes()).unwrap(), serde_json::from_str::<Value>(good).unwrap());
        }
        for bad in [r#"{"a": 1, "a": 1}"#, r#"[{"b": {"a": [], "\u0061": {}}}]"#] {
            let problem = format!("{:?}", parse(bad.as_bytes()).unwrap_err());
            assert!(problem.contains("field `a` is given twice"), "{problem}");
        }
    }

    #[test]
    fn a_body_that_is_no_object_is_refused_with_the_rule() {
        assert_eq!(object(b"{\"a\": 1}", "must be {}").unwrap()["a"], 1);
        for bad in ["[]", "7", "null", "\"a\""] {
            let problem = object(bad.as_bytes(), "must be {}").unwrap_err();
            let [error] = &*problem.errors else { panic!("{problem:?}") };
            assert_eq!((error.field.as_str(), error.message.as_str()), ("body", "must be {}"), "{bad}");
        }
    }
}
