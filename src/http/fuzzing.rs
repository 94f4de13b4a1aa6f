//! Opens the reading of batches and of tokens to [`crate::fuzzing`].

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::HeaderValue;
use axum::http::header::AUTHORIZATION;

use super::Who;
use super::access::{Access, Audience, Needs};
use super::batch::{Orders, Sorted};
use super::body::BodyKind;
use crate::caller::scope::CallerScope;
use crate::caller::{Callers, ClientNames};
use crate::node::running::Running;
use crate::refund::{CallerName, NewRefund, text};

/// A batch after reading.
#[derive(Debug)]
pub struct Batch {
    /// The refunds to save, each with its place in the batch.
    pub refunds: Vec<(usize, NewRefund)>,
    /// The results of the refused items, as JSON.
    pub results: String,
}

/// Reads a batch as a node without channels does. `None` if the whole batch is refused.
#[must_use]
pub fn batch(bytes: &[u8], is_ndjson: bool) -> Option<Batch> {
    let kind = if is_ndjson { BodyKind::Ndjson } else { BodyKind::Json };
    let orders = Orders { running: Arc::new(Running::default()), who: Who::Anyone };
    let sorted = Sorted::read(&Bytes::copy_from_slice(bytes), kind, &orders).ok()?;
    let results = text::shown_json(serde_json::to_string(&sorted.results).ok()?);
    Some(Batch { refunds: sorted.refunds, results })
}

/// The caller whose request to look at refunds is let in. Each item of `authorization` is the value of one such header. A
/// value that no HTTP server takes is left out.
#[must_use]
pub fn caller(callers: &Callers, authorization: &[&[u8]], names: &[String]) -> Option<CallerName> {
    let access = Access::default();
    access.set(callers);
    let mut request = Request::new(Body::empty());
    for value in authorization {
        if let Ok(value) = HeaderValue::from_bytes(value) {
            request.headers_mut().append(AUTHORIZATION, value);
        }
    }
    request.extensions_mut().insert(ClientNames(names.into()));
    let who = access.admit(&request, Needs::Scope(CallerScope::Look), Audience::Programs).ok()?;
    who.name().cloned()
}
