//! JSON of the API. Answers have a text that commands no terminal: hidden characters are escaped, and mean the same to programs.
//! Bodies of requests have each field once.

use axum::extract::Request;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Map, Value};

use super::body::{self, BodyKind};
use super::{Api, Problem};
use crate::refund::draft::FieldError;
use crate::refund::text;
use crate::unambiguous::Unambiguous;

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

/// Reads an object.
pub(super) fn object(bytes: &[u8], rule: &str) -> Result<Map<String, Value>, Problem> {
    let read: Unambiguous = serde_json::from_slice(bytes).map_err(|error| Problem::malformed(&error))?;
    match read.0 {
        Value::Object(object) => Ok(object),
        other => Err(Problem::invalid(vec![FieldError::new("body", Some(&other), rule)])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_is_given_twice_is_named() {
        let problem = object(br#"{"a": [{"b": 1, "b": 1}]}"#, "must be {}").unwrap_err();
        assert_eq!(problem.title, "Malformed JSON");
        assert!(problem.detail.contains("field `b` is given twice"), "{problem:?}");
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
