//! Acquire: permits for other services that share a bank's limit, granted or refused at once.
//!
//! The handler checks the request and formats the answer; [`crate::acquire`] gets the permits.
//!
//! The headers are those of the IETF draft "`RateLimit` header fields for HTTP" (httpapi-ratelimit-headers).

mod quota;
mod span;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};

use super::body::{self, BodyKind};
use super::problem::{Away, seconds};
use super::{Api, Json, Problem, Who, json, to_the_end};
use crate::acquire::{self as permits_for_others, AcquireOutcome};
use crate::limiter::{Limit, Permit, PermitNumber};
use crate::logs::chain;
use crate::node::restoring::ServerError;
use crate::refund::card;
use crate::refund::draft::FieldError;
use quota::{rate_limit, reset};

const MOST_BYTES: usize = 4096;
/// One statement in Postgres writes all permits of a call, so their number is bounded.
const MOST_AT_ONCE: u32 = 1000;

/// What the caller wants.
#[derive(Debug, PartialEq, Eq)]
struct AcquireRequest {
    permits: u32,
    caller: String,
}

#[derive(Debug, Serialize)]
struct Grant {
    limit: String,
    granted: usize,
    /// The permits, as the ledger and the journal describe them.
    permits: Vec<String>,
    /// The first byte of each request belongs between these two moments of Redis's clock.
    opens_at: Option<Timestamp>,
    closes_at: Option<Timestamp>,
    /// The same span, measured from now, for a caller that trusts its own clock more. Now lies between the moment at which the caller
    /// sent its request and the moment at which it has the answer. So the caller counts `opens_in_ms` from the answer and `valid_for_ms` from the request.
    opens_in_ms: u64,
    valid_for_ms: u64,
}

/// `POST /v1/limits/{name}/acquire`.
pub(super) async fn acquire(
    State(api): State<Api>,
    who: Who,
    name: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, Problem> {
    // A name that is no text names no limit.
    let name = name.map_or_else(|_| "\u{fffd}".to_owned(), |Path(name)| name);
    let (head, body) = request.into_parts();
    body::kind(&head.headers, &[BodyKind::Json])?;
    let bytes = api.bodies.read(&head, body, MOST_BYTES).await?;
    let running = api.node.running();
    let known = || running.limits.iter().filter(|limit| who.has_limit(limit.name.as_str()));
    let Some(limit) = known().find(|limit| limit.name.as_str() == name) else {
        let shown: String = name.chars().take(63).collect();
        let known: Vec<&str> = known().map(|limit| limit.name.as_str()).collect();
        let detail = format!(
            "no limit of this node is called `{shown}`, or it is unlimited (`permits = -1`) and needs no permits, or this \
             caller does not have it; there are: {}",
            known.join(", ")
        );
        return Err(Problem::new(StatusCode::NOT_FOUND, "no-such-limit", "No such limit", detail));
    };
    let object = json::object(&bytes, "must be a JSON object, such as {\"permits\": 1}")?;
    let wanted = read(&object, limit, &who).map_err(Problem::invalid)?;
    let span = span::begin(&api.node.traces, &head.headers);
    // Spent permits must be written to the ledger even if the caller hangs up.
    let (node, of) = (api.node.clone(), Arc::clone(limit));
    let answer =
        to_the_end(
            async move { permits_for_others::acquire(&node, &of, wanted.permits, &wanted.caller).await },
        )
        .await?;
    span::end(span, &limit.name, &answer);
    match answer {
        Ok(AcquireOutcome::Granted { permits, left }) => {
            api.node.metrics.acquired(&limit.name, "granted", u64::from(wanted.permits));
            let day_of = |at_us| api.node.bucket.day_of(limit, at_us);
            let headers = rate_limit(limit, left, reset(&limit.rule, &permits, Instant::now(), day_of));
            Ok((headers, Json(grant(limit, &permits))).into_response())
        }
        Ok(AcquireOutcome::Refused { retry_after, left }) => {
            api.node.metrics.acquired(&limit.name, "refused", u64::from(wanted.permits));
            let detail = format!(
                "limit `{}` ({}) has no {} for now; nothing was spent",
                limit.name,
                limit.rule.describe(),
                if wanted.permits == 1 { "permit".to_owned() } else { format!("{} permits", wanted.permits) },
            );
            let problem =
                Problem::new(StatusCode::TOO_MANY_REQUESTS, "limit-used-up", "Limit used up", detail)
                    .with("limit", limit.name.as_str())
                    .with("retry_after_ms", u64::try_from(retry_after.as_millis()).unwrap_or(u64::MAX).max(1))
                    .retry_after(seconds(retry_after));
            Ok((rate_limit(limit, left, retry_after), problem).into_response())
        }
        Ok(AcquireOutcome::Paused { retry_after }) => {
            api.node.metrics.acquired(&limit.name, "paused", u64::from(wanted.permits));
            let detail = format!(
                "a person paused everything, or every channel with the limit `{}`; nothing was spent",
                limit.name
            );
            Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "paused", "Paused", detail)
                .with("limit", limit.name.as_str())
                .retry_after(seconds(retry_after)))
        }
        Ok(AcquireOutcome::Unsure(why)) => Err(unsure(why)),
        Err(ServerError::Store(error)) => Err(error.into()),
        Err(ServerError::Bucket(error)) => {
            let away = Away::Redis(chain(&error).to_string());
            Err(unsure("Redis is away, and only it can count").while_away(away))
        }
    }
}

fn unsure(why: &str) -> Problem {
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "cannot-count",
        "Cannot count",
        format!("{why}; nothing was granted"),
    )
    .retry_after(1)
}

fn read(object: &Map<String, Value>, limit: &Limit, who: &Who) -> Result<AcquireRequest, Vec<FieldError>> {
    let mut errors = Vec::new();
    let caller = who.name().map_or_else(|| "http".to_owned(), ToString::to_string);
    let mut wanted = AcquireRequest { permits: 1, caller };
    errors.extend(who.check_name("caller", object.get("caller")).err());
    // Of a limit that nodes count by shares, this node can grant one share only.
    let most = Arc::new(limit.clone()).share(1).rule.at_once().min(MOST_AT_ONCE);
    for (key, value) in object {
        match key.as_str() {
            "permits" => match value.as_u64().and_then(|n| u32::try_from(n).ok()) {
                Some(n) if (1..=most).contains(&n) => wanted.permits = n,
                _ => errors.push(FieldError::new(
                    key,
                    Some(value),
                    format!(
                        "must be a whole number from 1 to {most}, the most this limit ever grants at once"
                    ),
                )),
            },
            "caller" if who.name().is_some() => {}
            "caller" => match value.as_str() {
                Some(name)
                    if (1..=100).contains(&name.len()) && name.chars().all(|c| c.is_ascii_graphic()) && !card::is_in(name) =>
                {
                    name.clone_into(&mut wanted.caller);
                }
                _ => errors.push(FieldError::new(
                    key,
                    Some(value),
                    "must be a name of 1 to 100 visible ASCII characters without a card number; it is written to the ledger",
                )),
            },
            _ => errors.push(FieldError::new(key, Some(value), "is not known; known here: permits, caller")),
        }
    }
    if errors.is_empty() { Ok(wanted) } else { Err(errors) }
}

fn grant(limit: &Limit, permits: &[Permit]) -> Grant {
    let spans = || permits.iter().filter_map(|permit| permit.span);
    let time = |us: Option<i64>| us.and_then(|us| Timestamp::from_microsecond(us).ok());
    let closes = spans().map(|span| span.closes).min();
    let opens = spans().map(|span| span.opens).max();
    let from_now = |at: Option<Instant>| {
        let span = at.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()));
        u64::try_from(span.as_micros().div_ceil(1000)).unwrap_or(u64::MAX)
    };
    Grant {
        limit: limit.name.to_string(),
        granted: permits.len(),
        permits: permits.iter().flat_map(|p| &p.numbers).map(PermitNumber::describe).collect(),
        opens_at: time(spans().map(|span| span.opens_us).max()),
        closes_at: time(spans().map(|span| span.closes_us).min()),
        opens_in_ms: from_now(opens),
        valid_for_ms: from_now(closes).saturating_sub(1),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::limiter::Placement;
    use crate::refund::LimitName;

    fn limit() -> Limit {
        Limit {
            name: LimitName::new("acme").unwrap(),
            rule: r#"{"algorithm":"fixed_window","permits":20,"per_us":1500000,"lateness_us":20000}"#
                .parse()
                .unwrap(),
            ahead: Duration::ZERO,
            placement: Placement::Shared,
        }
    }

    fn read(json: &Value) -> Result<AcquireRequest, Vec<FieldError>> {
        super::read(json.as_object().unwrap(), &limit(), &Who::Anyone)
    }

    #[test]
    fn a_request_is_for_one_permit_unless_it_says_more() {
        assert_eq!(read(&json!({})), Ok(AcquireRequest { permits: 1, caller: "http".to_owned() }));
        let wanted = read(&json!({ "permits": 20, "caller": "checkout" }));
        assert_eq!(wanted, Ok(AcquireRequest { permits: 20, caller: "checkout".to_owned() }));
    }

    #[test]
    fn a_request_for_more_than_a_limit_ever_grants_is_refused() {
        for bad in [json!({ "permits": 21 }), json!({ "permits": 0 }), json!({ "permits": "1" })] {
            let errors = read(&bad).unwrap_err();
            assert!(errors[0].message.contains("from 1 to 20"), "{errors:?}");
        }
        let errors = read(&json!({ "permit": 1, "caller": "a b" })).unwrap_err();
        assert_eq!(errors.len(), 2, "{errors:?}");
    }
}
