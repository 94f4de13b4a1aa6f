//! The span of a request for permits.

use axum::http::HeaderMap;

use crate::acquire::AcquireOutcome;
use crate::http::save::trace_parent;
use crate::node::restoring::ServerError;
use crate::refund::LimitName;
use crate::traces::{Attribute, OpenSpan, SpanKind, Traces};

pub(super) fn begin(traces: &Traces, headers: &HeaderMap) -> Option<OpenSpan> {
    traces.begin("refundd.acquire", SpanKind::Server, trace_parent(headers), || fastrand::u128(1..))
}

pub(super) fn end(span: Option<OpenSpan>, limit: &LimitName, answer: &Result<AcquireOutcome, ServerError>) {
    let Some(span) = span else { return };
    let (outcome, granted, wait, error) = match answer {
        Ok(AcquireOutcome::Granted { permits, .. }) => ("granted", permits.len(), None, None),
        Ok(AcquireOutcome::Refused { retry_after, .. }) => ("refused", 0, Some(*retry_after), None),
        Ok(AcquireOutcome::Paused { retry_after }) => ("paused", 0, Some(*retry_after), None),
        Ok(AcquireOutcome::Unsure(_)) => ("unsure", 0, None, Some("unsure")),
        Err(ServerError::Store(_)) => ("failed", 0, None, Some("postgres")),
        Err(ServerError::Bucket(_)) => ("failed", 0, None, Some("redis")),
    };
    let mut values = vec![
        ("refundd.limit", Attribute::from(limit.as_str())),
        ("refundd.outcome", Attribute::from(outcome)),
        ("refundd.permits", Attribute::Number(i64::try_from(granted).unwrap_or(i64::MAX))),
    ];
    values.extend(wait.map(|wait| ("refundd.retry_after", Attribute::Real(wait.as_secs_f64()))));
    span.end(values, error);
}
