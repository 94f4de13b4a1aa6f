//! Saves one refund by POST, and has the problems that single refunds and batches share.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::LOCATION;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

use super::body::{self, Kind};
use super::{Api, Json, Problem};
use crate::refund::ChannelName;
use crate::refund::draft::{Draft, FieldError, no_such_channel};
use crate::store::{Saved, StoreError};

/// How long a caller should wait when the backlog is full. It drains at the bank's rate, so sooner is pointless.
const FULL_RETRY_AFTER_S: u32 = 10;

/// `POST /v1/refunds`.
pub(super) async fn one(State(api): State<Api>, request: Request) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    body::kind(&head.headers, &[Kind::Json])?;
    let bytes = api.bodies.read(&head.headers, body, body::MOST_BYTES_ONE).await?;
    let json = serde_json::from_slice(&bytes).map_err(|error| Problem::malformed(&error))?;
    let running = api.node.running();
    let accepts_cards = |channel: &ChannelName| running.accepts_card_numbers(channel);
    let refund = Draft::check(&json, &accepts_cards).map_err(Problem::invalid)?;
    let (refund_ref, channel) = (refund.refund_ref.clone(), refund.channel.clone());
    match saved(api.group_committer.one(refund).await)? {
        Saved::Created(refund) => {
            let place = HeaderValue::try_from(format!("/v1/refunds/{}", refund.id));
            let place = place.map_err(|_| Problem::internal())?;
            Ok((StatusCode::CREATED, [(LOCATION, place)], Json(refund)).into_response())
        }
        Saved::Same(refund) => Ok(Json(refund).into_response()),
        Saved::Conflict { id } => {
            let detail = format!("refund_ref `{refund_ref}` already names refund {id}, with other content");
            Err(Problem::new(StatusCode::CONFLICT, "conflict", "Conflict", detail).with("id", id.0))
        }
        Saved::NoSuchChannel => Err(Problem::invalid(vec![nobody_runs(&api, channel.as_str())])),
        Saved::Full { max_backlog } => Err(Problem::new(
            StatusCode::TOO_MANY_REQUESTS,
            "backlog-full",
            "Backlog full",
            full(channel.as_str(), max_backlog),
        )
        .retry_after(FULL_RETRY_AFTER_S)),
    }
}

/// The message for a full backlog.
pub(super) fn full(channel: &str, max_backlog: i64) -> String {
    format!("channel `{channel}` already has max_backlog = {max_backlog} refunds waiting; try again later")
}

/// The error for a channel that no node runs.
pub(super) fn nobody_runs(api: &Api, channel: &str) -> FieldError {
    no_such_channel(channel, api.node.running().names().map(ChannelName::as_str))
}

/// The group committer's result, or the problem to answer with.
pub(super) fn saved<T>(answer: Option<Result<T, Arc<StoreError>>>) -> Result<T, Problem> {
    let Some(saved) = answer else {
        tracing::error!("Saving panicked, answered 500");
        return Err(Problem::internal());
    };
    saved.map_err(|error| Problem::store(&error))
}
