//! Problems: every refusal of the HTTP API, as problem details (RFC 9457).
//!
//! A problem says what the caller can change. It does not show internal errors: the text of a store's error goes to
//! the log only. [`super::access`] logs that a server is away, once a minute.

use std::time::Duration;

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Map, Value};

use super::Json;
use crate::logs::chain;
use crate::one_by_one::OneByOne;
use crate::refund::card;
use crate::refund::draft::FieldError;
use crate::store::StoreError;
use crate::unambiguous::why_unread;

/// A refusal on its way to the caller.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Problem {
    status: StatusCode,
    /// The last part of `type`. Programs match on it, so it never changes.
    kind: &'static str,
    pub title: &'static str,
    pub detail: String,
    /// Members beside those of RFC 9457.
    more: Map<String, Value>,
    pub errors: Box<[FieldError]>,
    pub retry_after_s: Option<u32>,
    /// For the log only. In a box, so that results with a problem stay small.
    away: Option<Box<Away>>,
}

/// The server whose outage is the reason for a problem, and the outage's chain of causes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Away {
    Postgres(String),
    /// It answers, and gave up a statement.
    SlowPostgres(String),
    Redis(String),
}

impl Problem {
    pub(super) fn new(
        status: StatusCode,
        kind: &'static str,
        title: &'static str,
        detail: impl Into<String>,
    ) -> Self {
        Problem {
            status,
            kind,
            title,
            // It may quote the path of a request.
            detail: card::masked(&detail.into()).into_owned(),
            more: Map::new(),
            errors: Box::default(),
            retry_after_s: None,
            away: None,
        }
    }

    #[must_use]
    pub(super) fn with(mut self, member: &str, value: impl Into<Value>) -> Self {
        self.more.insert(member.to_owned(), value.into());
        self
    }

    #[must_use]
    pub(super) fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after_s = Some(seconds);
        self
    }

    #[must_use]
    pub(super) fn while_away(self, away: Away) -> Self {
        Problem { away: Some(Box::new(away)), ..self }
    }

    #[must_use]
    pub(super) fn because_of(self, errors: Vec<FieldError>) -> Self {
        Problem { errors: errors.into(), ..self }
    }

    /// The problem of wrong fields or parameters.
    pub(super) fn invalid(errors: Vec<FieldError>) -> Self {
        let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        let detail = format!("cannot be accepted because of: {}", fields.join(", "));
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", "Invalid fields", detail).because_of(errors)
    }

    /// The problem of a body that is not JSON, or that is not read.
    pub(super) fn malformed(error: &serde_json::Error) -> Self {
        let detail = format!("the body {}", why_unread(error));
        Problem::new(StatusCode::BAD_REQUEST, "malformed", "Malformed JSON", detail)
            .with("line", error.line())
            .with("column", error.column())
    }

    pub(super) fn no_such_refund(id: &str) -> Self {
        let detail = format!("no refund has the id `{id}`");
        Problem::new(StatusCode::NOT_FOUND, "no-such-refund", "No such refund", detail)
    }

    /// The problem of a failed store. Logs the chain of causes, or keeps that of an outage for the log.
    pub(super) fn store(error: &StoreError) -> Self {
        if error.is_too_slow() {
            return Problem::too_slow().while_away(Away::SlowPostgres(chain(error).to_string()));
        }
        if error.is_outage() {
            return Problem::outage().while_away(Away::Postgres(chain(error).to_string()));
        }
        tracing::error!(error = %chain(error), "A request failed in the store, answered 500");
        Problem::internal()
    }

    /// The problem of decisions of which none has a result. If some have, the log gets the first failure of the others.
    pub(super) fn unless_some_were_written(all: OneByOne) -> Result<(), Self> {
        if let Some(error) = all.end()? {
            tracing::warn!(error = %chain(&error), "Failed to write some decisions of a request; its answer says which");
        }
        Ok(())
    }

    /// Postgres answers, and gave up a statement that took too long.
    fn too_slow() -> Self {
        let detail =
            "Postgres worked on it for too long and gave it up; nothing was written by this statement";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too-slow", "Too slow", detail).retry_after(5)
    }

    pub(super) fn outage() -> Self {
        Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "postgres-away",
            "Postgres is away",
            "nothing was acknowledged; repeat the request: a refund_ref is never saved twice",
        )
        .retry_after(2)
    }

    pub(super) fn starting() -> Self {
        Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "starting",
            "Starting",
            "this node waits for Postgres before it starts; nothing was acknowledged, and repeating is safe",
        )
        .retry_after(2)
    }

    /// The problem of too many bytes that wait for slow callers.
    pub(super) fn busy(detail: &str) -> Self {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", "Busy", detail).retry_after(5)
    }

    pub(super) fn internal() -> Self {
        Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "Internal error",
            "something went wrong on our side and was logged; repeating is safe",
        )
    }

    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    pub(super) fn kind(&self) -> &'static str {
        self.kind
    }

    /// The server that is away, if that is the reason.
    pub(super) fn away(&self) -> Option<&Away> {
        self.away.as_deref()
    }

    fn body(&self) -> Body<'_> {
        Body {
            kind: format!("urn:refundd:problem:{}", self.kind),
            title: self.title,
            status: self.status.as_u16(),
            detail: &self.detail,
            more: &self.more,
            errors: &self.errors,
        }
    }
}

/// Whole seconds, rounded up, at least 1.
pub(super) fn seconds(span: Duration) -> u32 {
    let whole = span.as_secs() + u64::from(span.subsec_nanos() > 0);
    u32::try_from(whole).unwrap_or(u32::MAX).max(1)
}

/// The members, in a good order for people.
#[derive(Debug, Serialize)]
struct Body<'a> {
    #[serde(rename = "type")]
    kind: String,
    title: &'a str,
    status: u16,
    detail: &'a str,
    #[serde(flatten)]
    more: &'a Map<String, Value>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    errors: &'a [FieldError],
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Problem {
        Problem::store(&error)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body())).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after_s {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        // For `guard`, which shows it to people as a page.
        response.extensions_mut().insert(self);
        response
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_invalid_draft_names_every_field() {
        let errors = vec![
            FieldError::new("amount_minor", Some(&json!(0)), "too small"),
            FieldError::new("currency", None, "is missing"),
        ];
        insta::assert_json_snapshot!(Problem::invalid(errors).body(), @r#"
        {
          "type": "urn:refundd:problem:invalid",
          "title": "Invalid fields",
          "status": 422,
          "detail": "cannot be accepted because of: amount_minor, currency",
          "errors": [
            {
              "field": "amount_minor",
              "value": "0",
              "message": "too small"
            },
            {
              "field": "currency",
              "message": "is missing"
            }
          ]
        }
        "#);
    }

    #[test]
    fn the_problem_of_malformed_json_names_line_and_column() {
        let error = serde_json::from_str::<Value>("{\n  \"a\": 1,,\n}").unwrap_err();
        let body = serde_json::to_value(Problem::malformed(&error).body()).unwrap();
        assert_eq!((&body["status"], &body["line"], &body["column"]), (&json!(400), &json!(2), &json!(10)));
    }

    #[test]
    fn json_that_is_too_deep_or_has_too_large_a_number_is_said_to_be_so() {
        let deep = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        assert!(serde_json::from_str::<Value>(&deep(127)).is_ok());
        for (json, says) in
            [(deep(128).as_str(), "is nested too deeply"), ("[1e400]", "has a number that is too large")]
        {
            let error = serde_json::from_str::<Value>(json).unwrap_err();
            let detail = Problem::malformed(&error).detail;
            assert!(detail.starts_with(&format!("the body {says} at line 1 column ")), "{detail}");
        }
    }

    #[test]
    fn a_problem_says_what_it_is_and_when_to_come_back() {
        let response = Problem::outage().into_response();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
        assert_eq!(response.headers()[RETRY_AFTER], "2");
        assert!(!Problem::too_slow().detail.contains("safe"), "a repeated resume may not be");
    }
}
