//! Saving: one refund by POST, and what both ways in share.

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::header::LOCATION;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

use super::body::{self, Kind};
use super::{Api, Problem};
use crate::crash;
use crate::refund::NewRefund;
use crate::refund::draft::{Draft, FieldError, no_such_channel};
use crate::store::Saved;
use crate::telemetry::chain;

/// A full backlog drains at the bank's pace; asking sooner than this is pointless.
const FULL_RETRY_AFTER_S: u32 = 10;

/// `POST /v1/refunds`.
pub(super) async fn one(State(api): State<Api>, request: Request) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    body::kind(&head.headers, &[Kind::Json])?;
    let bytes = body::read(&head.headers, body, body::MOST_BYTES_ONE).await?;
    let json = serde_json::from_slice(&bytes).map_err(|error| Problem::malformed(&error))?;
    let refund = Draft::check(&json).map_err(Problem::invalid)?;
    let (refund_ref, channel) = (refund.refund_ref.clone(), refund.channel.clone());
    let saved = save(&api, vec![refund], "http").await?.pop().ok_or_else(Problem::internal)?;
    match saved {
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

pub(super) fn full(channel: &str, max_backlog: i64) -> String {
    format!("channel `{channel}` already has max_backlog = {max_backlog} refunds waiting; try again later")
}

pub(super) fn nobody_runs(api: &Api, channel: &str) -> FieldError {
    no_such_channel(channel, api.status.config().iter().map(|known| known.name.as_str()))
}

/// Saves refunds in one commit and nudges their channels. The answers stand in the order of the question.
///
/// Runs in a task of its own, so that a caller who hangs up does not undo it halfway.
pub(super) async fn save(
    api: &Api,
    refunds: Vec<NewRefund>,
    way: &'static str,
) -> Result<Vec<Saved>, Problem> {
    let api = api.clone();
    let task = tokio::spawn(async move {
        crash::point("saving");
        let saved = api.store.save(&refunds).await?;
        crash::point("saved");
        let created = |saved: &&Saved| matches!(saved, Saved::Created(_));
        api.metrics.saved(way, saved.iter().filter(created).count() as u64);
        let channels: BTreeSet<_> = refunds
            .iter()
            .zip(&saved)
            .filter(|(_, saved)| created(saved))
            .map(|(refund, _)| &refund.channel)
            .collect();
        for channel in channels {
            (api.nudge)(channel);
        }
        Ok(saved)
    });
    match task.await {
        Ok(saved) => saved.map_err(|error| Problem::store(&error)),
        Err(error) => {
            tracing::error!(error = %chain(&error), "Saving panicked, answered 500");
            Err(Problem::internal())
        }
    }
}
