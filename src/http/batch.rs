//! Batches: saves up to 10,000 refunds from a JSON array or from NDJSON, with one result for each.
//!
//! A wrong refund does not stop the others, and a caller may repeat the whole batch unchanged. One commit saves all
//! correct refunds. So either all their results are true, or the answer is a 503 and promises nothing. An item that has a 503 of its
//! own promises nothing, either.
//!
//! Two refunds with one refund ref in a batch are saved in their order, as if they had come one by one.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use tracing::Instrument;

use super::body::{self, BodyKind};
use super::who::OrderRefused;
use super::{Api, Problem, Who, save, to_the_end};
use crate::node::running::Running;
use crate::refund::draft::{Draft, DraftRules, FieldError, RefusedDraft};
use crate::refund::{ChannelName, NewRefund, TraceParent, card, text};
use crate::unambiguous::{Unambiguous, why_unread};
use results::{ItemResult, answer_repeats, not_saved, result_of};

mod items;
mod results;

/// The most errors that are listed for one refund. Otherwise the answer could be many times as large as the batch.
const MOST_ERRORS: usize = 8;

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
        answer_repeats(&api, &who, &mut results, refused).await;
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
                Err(why) => not_saved(index, refund_ref, &why),
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
    /// The refused items that rules alone refuse, so that they may be saved already; each with its place.
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
    /// The refund, if rules alone refuse it, and its channel exists for the caller.
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
    let Unambiguous(json) = serde_json::from_slice(item).map_err(|error| refused(why_unread(&error)))?;
    let Orders { running, who } = orders;
    let rules = |channel: &ChannelName| {
        // The rules of the channels of others stay unknown to the caller.
        if who.has_channel(channel.as_str()) { running.draft_rules(channel) } else { DraftRules::default() }
    };
    let refund = Draft::read(&json, &rules).map_err(|RefusedDraft { mut errors, readable }| {
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
