//! Saves one refund by POST, and has the problems that single refunds and batches share.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::header::LOCATION;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

use super::body::{self, BodyKind};
use super::who::OrderRefused;
use super::{Api, Json, Problem, Who};
use crate::caller::scope::CallerScope;
use crate::refund::draft::{
    Draft, DraftRules, FieldError, RefusedDraft, card_numbers_refused, no_such_channel,
};
use crate::refund::text::counted;
use crate::refund::{ChannelName, NewRefund, Refund, RefundId, TraceParent};
use crate::store::{Differences, Saved, StoreError};
use crate::unambiguous::Unambiguous;

/// How long a caller should wait when the backlog is full. It drains at the bank's rate, so sooner is pointless.
const FULL_RETRY_AFTER_S: u32 = 10;

/// How long a request waits for its place to look up refunds that rules refuse.
const LOOK_UP_WAIT: Duration = Duration::from_secs(2);

/// `POST /v1/refunds`.
pub(super) async fn one(State(api): State<Api>, who: Who, request: Request) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    body::kind(&head.headers, &[BodyKind::Json])?;
    let bytes = api.bodies.read(&head, body, body::MOST_BYTES_ONE).await?;
    let running = api.node.running();
    let rules = |channel: &ChannelName| {
        // The rules of the channels of others stay unknown to the caller.
        if who.has_channel(channel.as_str()) { running.draft_rules(channel) } else { DraftRules::default() }
    };
    let read = {
        // The values take many times the room of the text. None is kept while the save waits for Postgres.
        let Unambiguous(json) = serde_json::from_slice(&bytes).map_err(|error| Problem::malformed(&error))?;
        Draft::read(&json, &rules)
    };
    let mut refund = match read {
        Ok(refund) => refund,
        Err(RefusedDraft { errors, readable }) => {
            return repeat_or(Problem::invalid(errors), readable.map(|refund| *refund), &api, &who).await;
        }
    };
    refund.traceparent = trace_parent(&head.headers);
    if let Err(why) = who.check_order(&refund) {
        return repeat_or(refused(why), Some(refund), &api, &who).await;
    }
    let (refund_ref, channel, amount_minor) =
        (refund.refund_ref.clone(), refund.channel.clone(), refund.money.amount_minor);
    match saved(api.group_committer.one(who.name(), refund).await?)? {
        Saved::Created(refund) => {
            let place = HeaderValue::try_from(format!("/v1/refunds/{}", refund.id));
            let place = place.map_err(|_| Problem::internal())?;
            Ok((StatusCode::CREATED, [(LOCATION, place)], Json(refund)).into_response())
        }
        Saved::Same(refund) => Ok(repeated(refund, &who)),
        Saved::Conflict { id, channel: saved_in, differs } => {
            let (id, why) = conflict(&who, id, &saved_in, &differs);
            let detail = format!("refund_ref `{refund_ref}` {why}");
            let problem = Problem::new(StatusCode::CONFLICT, "conflict", "Conflict", detail);
            Err(match id {
                Some(id) => problem.with("id", id.0).with("differs", differs.fields()),
                None => problem,
            })
        }
        Saved::NoSuchChannel => Err(Problem::invalid(vec![nobody_runs(&api, &who, channel.as_str())])),
        Saved::AboveBound(why) => Err(Problem::invalid(vec![above_bound(amount_minor, why)])),
        Saved::CardNumbers(fields) => Err(Problem::invalid(card_numbers_refused(fields))),
        Saved::Full { max_backlog } => Err(Problem::new(
            StatusCode::TOO_MANY_REQUESTS,
            "backlog-full",
            "Backlog full",
            full(channel.as_str(), max_backlog),
        )
        .retry_after(FULL_RETRY_AFTER_S)),
    }
}

/// The answer to a repeat. Somebody may have moved the refund to a channel that the caller does not have.
fn repeated(refund: Refund, who: &Who) -> Response {
    let refund = if who.has_channel(&refund.channel) { refund } else { refund.for_another_channel() };
    Json(refund).into_response()
}

/// The saved refund, if the refused one repeats it: the rules are stricter since. A caller that is refused might refund in
/// another way. Otherwise the problem.
async fn repeat_or(
    problem: Problem,
    refused: Option<NewRefund>,
    api: &Api,
    who: &Who,
) -> Result<Response, Problem> {
    let refused: Vec<_> =
        refused.into_iter().filter(|refund| who.has_channel(refund.channel.as_str())).collect();
    match saved_before(api, who, refused).await?.pop() {
        Some((_, refund)) => Ok(repeated(refund, who)),
        None => Err(problem),
    }
}

/// Those of these refused refunds that are saved with the same content: the place of each, and its present row. The look is a
/// list of the caller's, so that nobody keeps Postgres busy by refunds that are refused. It waits for its place for a moment only.
pub(super) async fn saved_before(
    api: &Api,
    who: &Who,
    refused: Vec<NewRefund>,
) -> Result<Vec<(usize, Refund)>, Problem> {
    if refused.is_empty() {
        return Ok(Vec::new());
    }
    let store = api.node.store.clone();
    let look = async move { Ok(store.saved_before(&refused).await?) };
    let busy = "refunds that may be saved already could not be looked up yet; repeating is safe";
    api.lists.place_within(who, LOOK_UP_WAIT, busy).await?.run(look).await
}

/// The trace that a request belongs to. As the standard demands, a bad header counts for nothing, and so do several.
pub(super) fn trace_parent(headers: &HeaderMap) -> Option<TraceParent> {
    let mut given = headers.get_all(TraceParent::HEADER).iter();
    let only = given.next().filter(|_| given.next().is_none())?;
    only.to_str().ok().and_then(TraceParent::read)
}

/// The error for an amount above the published bound of its channel.
pub(super) fn above_bound(amount_minor: i64, why: String) -> FieldError {
    FieldError::new("amount_minor", Some(&amount_minor.into()), why)
}

/// The error for a refund that only the database refuses, with the database's message.
pub(super) fn database_refuses(why: String) -> FieldError {
    FieldError::new("refund", None, why)
}

/// The message for a full backlog.
pub(super) fn full(channel: &str, max_backlog: i64) -> String {
    format!(
        "channel `{channel}` already has max_backlog = {} waiting; try again later",
        counted(max_backlog.unsigned_abs(), "refund")
    )
}

/// The error for a channel that no node runs.
pub(super) fn nobody_runs(api: &Api, who: &Who, channel: &str) -> FieldError {
    let running = api.node.running();
    let known = running.names().map(ChannelName::as_str).filter(|name| who.has_channel(name));
    let mut error = no_such_channel(channel, known);
    if who.may(CallerScope::Look) {
        error.message.push_str("; GET /v1/channels lists the channels");
    }
    error
}

/// The problem of a refund that its caller may not order.
fn refused(refused: OrderRefused) -> Problem {
    match refused {
        OrderRefused::NoSuchChannel(error) => {
            let detail = "this caller has no such channel; errors names it";
            let problem = Problem::new(StatusCode::NOT_FOUND, "no-such-channel", "No such channel", detail);
            problem.because_of(vec![error])
        }
        OrderRefused::TooHigh(error) => Problem::invalid(vec![error]),
    }
}

/// What a caller learns of the refund in this channel that has its ref: the id, and a message. All callers share the refund refs.
/// So nothing is said of a refund of a channel that the caller does not have. A caller that may not look at refunds gets the
/// names of the fields that differ, without the saved values. It keeps the id, by which people find the refund that has the ref.
pub(super) fn conflict(
    who: &Who,
    id: RefundId,
    channel: &str,
    differs: &Differences,
) -> (Option<RefundId>, String) {
    if !who.has_channel(channel) {
        return (None, "is saved already, with other content".to_owned());
    }
    let said = if who.may(CallerScope::Look) { differs.to_string() } else { differs.fields().join(", ") };
    (Some(id), format!("is already refund {id}, with other content: {said}"))
}

/// The group committer's result, or the problem to answer with.
pub(super) fn saved<T>(answer: Option<Result<T, Arc<StoreError>>>) -> Result<T, Problem> {
    let Some(saved) = answer else {
        tracing::error!("Saving panicked, answered 500");
        return Err(Problem::internal());
    };
    saved.map_err(|error| match error.refusal() {
        Some(why) => Problem::invalid(vec![database_refuses(why)]),
        None => Problem::store(&error),
    })
}
