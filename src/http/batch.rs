//! Batches: saves up to 10,000 refunds from a JSON array or from NDJSON, with one result for each.
//!
//! A wrong refund does not stop the others, and a caller may repeat the whole batch unchanged. One commit saves all
//! correct refunds. So either all their results are true, or the answer is a 503 and promises nothing.
//!
//! Two refunds with one refund ref in a batch are saved in their order, as if they had come one by one.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::Value;
use tracing::Instrument;

use super::body::{self, BodyKind};
use super::who::OrderRefused;
use super::{Api, Problem, Who, problem, save, to_the_end};
use crate::node::running::Running;
use crate::refund::draft::{Draft, DraftLaws, FieldError, RefusedDraft, card_numbers_refused};
use crate::refund::{ChannelName, NewRefund, RefundId, State as RefundState, TraceParent, card, text};
use crate::store::Saved;

mod items;

/// The most errors that are listed for one refund. Otherwise the answer could be many times as large as the batch.
const MOST_ERRORS: usize = 8;

/// What became of one refund of a batch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ItemResult {
    /// Its place in the batch, from 0.
    index: usize,
    /// Null if the refund ref could not be read.
    refund_ref: Option<String>,
    /// The HTTP status that a single POST of the refund would get.
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<RefundId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<RefundState>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<FieldError>,
}

/// `POST /v1/refunds/batch`.
pub(super) async fn many(State(api): State<Api>, who: Who, request: Request) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let kind = body::kind(&head.headers, &[BodyKind::Json, BodyKind::Ndjson])?;
    let bytes = api.bodies.read(&head, body, body::MOST_BYTES_BATCH).await?;
    let parent = save::trace_parent(&head.headers);
    // Only now: a caller that sends its batch slowly keeps no other batch waiting.
    let mut place = api.batches.place(&who).await;
    let work = async move {
        // The place and the bytes stay until Postgres is done: a client that hangs up and repeats starts no further save, and
        // reserves no further memory.
        let _kept = bytes.clone();
        let (mut results, refused) = save_all(&api, &who, bytes, kind, parent).await?;
        // The look waits for the caller's own lists, and batches of other callers must not wait for them.
        place.leave_to_others();
        answer_repeats(&api, &who, &mut results, refused).await?;
        Ok::<_, Problem>(written(&results, kind)?.into_response())
    };
    to_the_end(work.in_current_span()).await?
}

/// Parses and saves a batch. Every refund of it belongs to the trace `parent`. Answers the results in the order of the batch,
/// and the refused items that may be saved already.
async fn save_all(
    api: &Api,
    who: &Who,
    bytes: Bytes,
    kind: BodyKind,
    parent: Option<TraceParent>,
) -> Result<(Vec<ItemResult>, Vec<(usize, NewRefund)>), Problem> {
    // Parsing tens of MiB would delay every other task on this thread.
    let running = api.node.running();
    let orders = Orders { running, who: who.clone() };
    let reading = tokio::task::spawn_blocking(move || Sorted::read(&bytes, kind, &orders));
    let Sorted { refunds, mut results, refused } = reading.await.map_err(|_| Problem::internal())??;
    let (places, mut refunds): (Vec<usize>, Vec<NewRefund>) = refunds.into_iter().unzip();
    for refund in &mut refunds {
        refund.traceparent = parent;
    }
    if !refunds.is_empty() {
        let name = |r: &NewRefund| (r.refund_ref.clone(), r.channel.clone(), r.money.amount_minor);
        let names: Vec<_> = refunds.iter().map(name).collect();
        let saved = save::saved(api.group_committer.batch(refunds).await)?;
        for ((index, (refund_ref, channel, amount_minor)), saved) in places.into_iter().zip(names).zip(saved)
        {
            results.push(match saved {
                Ok(saved) => result_of(index, refund_ref, channel.as_str(), amount_minor, &saved, api, who),
                Err(why) => refused_by_database(index, refund_ref, why),
            });
        }
        results.sort_unstable_by_key(|result| result.index);
    }
    Ok((results, refused))
}

/// What decides whether a refund may be ordered.
#[derive(Debug)]
pub(super) struct Orders {
    pub(super) running: Arc<Running>,
    pub(super) who: Who,
}

/// A batch after reading: the refunds to save, each with its place, and the results of the refused items.
#[derive(Debug, Default)]
pub(super) struct Sorted {
    pub(super) refunds: Vec<(usize, NewRefund)>,
    pub(super) results: Vec<ItemResult>,
    /// The refused items that laws alone refuse, so that they may be saved already; each with its place.
    refused: Vec<(usize, NewRefund)>,
}

impl Sorted {
    pub(super) fn read(bytes: &Bytes, kind: BodyKind, orders: &Orders) -> Result<Self, Problem> {
        let items = match kind {
            BodyKind::Json => items::of_array(bytes)?,
            BodyKind::Ndjson => items::of_lines(bytes)?,
        };
        let mut sorted = Sorted::default();
        for (index, item) in items.into_iter().enumerate() {
            match checked(item, orders) {
                Ok(refund) => sorted.refunds.push((index, refund)),
                Err(Wrong { status, refund_ref, errors, readable }) => {
                    let status = status.as_u16();
                    sorted.refused.extend(readable.map(|refund| (index, *refund)));
                    sorted.results.push(ItemResult {
                        index,
                        refund_ref,
                        status,
                        id: None,
                        state: None,
                        errors,
                    });
                }
            }
        }
        Ok(sorted)
    }
}

/// An item that is not saved. The refund ref is without card numbers, if it could be read at all.
#[derive(Debug)]
struct Wrong {
    status: StatusCode,
    refund_ref: Option<String>,
    errors: Vec<FieldError>,
    /// The refund, if laws alone refuse it, and its channel exists for the caller.
    readable: Option<Box<NewRefund>>,
}

/// Reads and checks one item.
fn checked(item: &[u8], orders: &Orders) -> Result<NewRefund, Wrong> {
    let wrong = |status, refund_ref, errors| Wrong { status, refund_ref, errors, readable: None };
    let invalid = |refund_ref, errors| wrong(StatusCode::UNPROCESSABLE_ENTITY, refund_ref, errors);
    let refused = |message: String| invalid(None, vec![FieldError::new("refund", None, message)]);
    if item.len() > body::MOST_BYTES_ONE {
        let message = format!("has {} bytes; at most {} are allowed", item.len(), body::MOST_BYTES_ONE);
        return Err(refused(message));
    }
    let json: Value = serde_json::from_slice(item).map_err(|error| refused(problem::unread(&error)))?;
    let Orders { running, who } = orders;
    let laws = |channel: &ChannelName| {
        // What is law on the channels of others stays unknown to the caller.
        if who.has_channel(channel.as_str()) { running.draft_laws(channel) } else { DraftLaws::default() }
    };
    let refund = Draft::read(&json, &laws).map_err(|RefusedDraft { mut errors, readable }| {
        if errors.len() > MOST_ERRORS {
            let more = errors.split_off(MOST_ERRORS - 1).len();
            errors.push(FieldError::new("refund", None, format!("{more} more fields are wrong")));
        }
        let refund_ref = json.get("refund_ref").and_then(Value::as_str);
        let refund_ref = refund_ref.map(|text| card::masked(text).chars().take(200).collect());
        let readable = readable.filter(|refund| who.has_channel(refund.channel.as_str()));
        Wrong { readable, ..invalid(refund_ref, errors) }
    })?;
    match who.check_order(&refund) {
        Ok(()) => Ok(refund),
        Err(OrderRefused::NoSuchChannel(error)) => {
            Err(wrong(StatusCode::NOT_FOUND, Some(refund.refund_ref), vec![error]))
        }
        Err(OrderRefused::TooHigh(error)) => {
            let wrong = invalid(Some(refund.refund_ref.clone()), vec![error]);
            Err(Wrong { readable: Some(Box::new(refund)), ..wrong })
        }
    }
}

/// Answers each refused item that repeats a saved refund as a repeat: the laws are stricter since.
async fn answer_repeats(
    api: &Api,
    who: &Who,
    results: &mut [ItemResult],
    refused: Vec<(usize, NewRefund)>,
) -> Result<(), Problem> {
    let (places, refunds): (Vec<usize>, Vec<NewRefund>) = refused.into_iter().unzip();
    for (nth, refund) in save::saved_before(api, who, refunds).await? {
        // The results are in the order of the batch.
        let Ok(at) = results.binary_search_by_key(&places[nth], |result| result.index) else { continue };
        results[at] = ItemResult {
            index: places[nth],
            refund_ref: Some(refund.refund_ref),
            status: StatusCode::OK.as_u16(),
            id: Some(refund.id),
            state: Some(refund.state),
            errors: Vec::new(),
        };
    }
    Ok(())
}

/// The result of one refund that only the database refuses.
fn refused_by_database(index: usize, refund_ref: String, why: String) -> ItemResult {
    ItemResult {
        index,
        refund_ref: Some(refund_ref),
        status: StatusCode::UNPROCESSABLE_ENTITY.as_u16(),
        id: None,
        state: None,
        errors: vec![save::database_refuses(why)],
    }
}

/// The result of one refund that the store has answered.
fn result_of(
    index: usize,
    refund_ref: String,
    channel: &str,
    amount_minor: i64,
    saved: &Saved,
    api: &Api,
    who: &Who,
) -> ItemResult {
    let mut result = ItemResult {
        index,
        refund_ref: Some(refund_ref),
        status: 0,
        id: None,
        state: None,
        errors: Vec::new(),
    };
    let status = match saved {
        Saved::Created(refund) | Saved::Same(refund) => {
            (result.id, result.state) = (Some(refund.id), Some(refund.state));
            if matches!(saved, Saved::Created(_)) { StatusCode::CREATED } else { StatusCode::OK }
        }
        Saved::Conflict { id, channel: saved_in, differs } => {
            result.id = save::visible(who, *id, saved_in);
            // Nothing is said of a refund that does not exist for the caller.
            let message = match result.id {
                Some(id) => format!("already names refund {id}, with other content: {differs}"),
                None => "already names a refund, with other content".to_owned(),
            };
            result.errors.push(FieldError::new("refund_ref", None, message));
            StatusCode::CONFLICT
        }
        Saved::NoSuchChannel => {
            result.errors.push(save::nobody_runs(api, who, channel));
            StatusCode::UNPROCESSABLE_ENTITY
        }
        Saved::AboveBound(why) => {
            result.errors.push(save::above_bound(amount_minor, why.clone()));
            StatusCode::UNPROCESSABLE_ENTITY
        }
        Saved::CardNumbers(fields) => {
            result.errors.extend(card_numbers_refused(*fields));
            StatusCode::UNPROCESSABLE_ENTITY
        }
        Saved::Full { max_backlog } => {
            result.errors.push(FieldError::new("channel", None, save::full(channel, *max_backlog)));
            StatusCode::TOO_MANY_REQUESTS
        }
    };
    result.status = status.as_u16();
    result
}

/// The results, as JSON or NDJSON like the batch itself.
fn written(results: &[ItemResult], kind: BodyKind) -> Result<impl IntoResponse, Problem> {
    let text = match kind {
        BodyKind::Json => serde_json::to_string(results),
        BodyKind::Ndjson => results.iter().try_fold(String::new(), |mut lines, result| {
            lines.push_str(&serde_json::to_string(result)?);
            lines.push('\n');
            Ok(lines)
        }),
    };
    let text = text.map_err(|_| Problem::internal())?;
    Ok(([(CONTENT_TYPE, kind.content_type())], text::shown_json(text)))
}

#[cfg(test)]
mod tests;
