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

use super::body::{self, BodyKind};
use super::who::OrderRefused;
use super::{Api, Problem, Who, problem, save};
use crate::node::running::Running;
use crate::refund::draft::{Draft, DraftLaws, FieldError};
use crate::refund::{ChannelName, NewRefund, RefundId, State as RefundState, card, text};
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
    let bytes = api.bodies.read(&head.headers, body, body::MOST_BYTES_BATCH).await?;
    // Only now: a caller that sends its batch slowly keeps no other batch waiting. The semaphore is not closed while the
    // router lives, so this does not fail.
    let _guard = api.batches.acquire().await.map_err(|_| Problem::internal())?;
    // Parsing tens of MiB would delay every other task on this thread.
    let running = api.node.running();
    let orders = Orders { running, who: who.clone() };
    let reading = tokio::task::spawn_blocking(move || Sorted::read(&bytes, kind, &orders));
    let Sorted { refunds, mut results } = reading.await.map_err(|_| Problem::internal())??;
    let (places, mut refunds): (Vec<usize>, Vec<NewRefund>) = refunds.into_iter().unzip();
    let parent = save::trace_parent(&head.headers);
    for refund in &mut refunds {
        refund.traceparent = parent;
    }
    if !refunds.is_empty() {
        let name = |r: &NewRefund| (r.refund_ref.clone(), r.channel.clone(), r.money.amount_minor);
        let names: Vec<_> = refunds.iter().map(name).collect();
        let saved = save::saved(api.group_committer.batch(refunds).await)?;
        for ((index, (refund_ref, channel, amount_minor)), saved) in places.into_iter().zip(names).zip(saved)
        {
            let result = result_of(index, refund_ref, channel.as_str(), amount_minor, &saved, &api, &who);
            results.push(result.await?);
        }
        results.sort_unstable_by_key(|result| result.index);
    }
    Ok(written(&results, kind)?.into_response())
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
                Err(Wrong { status, refund_ref, errors }) => {
                    let status = status.as_u16();
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
}

/// Reads and checks one item.
fn checked(item: &[u8], orders: &Orders) -> Result<NewRefund, Wrong> {
    let wrong = |status, refund_ref, errors| Wrong { status, refund_ref, errors };
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
    let refund = Draft::check(&json, &laws).map_err(|mut errors| {
        if errors.len() > MOST_ERRORS {
            let more = errors.split_off(MOST_ERRORS - 1).len();
            errors.push(FieldError::new("refund", None, format!("{more} more fields are wrong")));
        }
        let refund_ref = json.get("refund_ref").and_then(Value::as_str);
        invalid(refund_ref.map(|text| card::masked(text).chars().take(200).collect()), errors)
    })?;
    match who.check_order(&refund) {
        Ok(()) => Ok(refund),
        Err(OrderRefused::NoSuchChannel(error)) => {
            Err(wrong(StatusCode::NOT_FOUND, Some(refund.refund_ref), vec![error]))
        }
        Err(OrderRefused::TooHigh(error)) => Err(invalid(Some(refund.refund_ref), vec![error])),
    }
}

/// The result of one refund that the store has answered.
async fn result_of(
    index: usize,
    refund_ref: String,
    channel: &str,
    amount_minor: i64,
    saved: &Saved,
    api: &Api,
    who: &Who,
) -> Result<ItemResult, Problem> {
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
        Saved::Conflict { id, differs } => {
            result.id = save::visible(api, who, *id).await?;
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
        Saved::Full { max_backlog } => {
            result.errors.push(FieldError::new("channel", None, save::full(channel, *max_backlog)));
            StatusCode::TOO_MANY_REQUESTS
        }
    };
    result.status = status.as_u16();
    Ok(result)
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
mod tests {
    use super::*;

    const GOOD: &str =
        r#"{"refund_ref":"R-1","channel":"acme","payment_ref":"P","amount_minor":1,"currency":"EUR"}"#;

    fn anyone() -> Orders {
        Orders { running: Arc::default(), who: Who::Anyone }
    }

    #[test]
    fn a_bad_item_is_refused_alone_and_keeps_its_place() {
        let bytes = Bytes::from(format!("{GOOD}\n{{oops\n\r\n{}\n{GOOD}", GOOD.replace(":1,", ":0,")));
        let sorted = Sorted::read(&bytes, BodyKind::Ndjson, &anyone()).unwrap();
        assert_eq!(sorted.refunds.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [0, 3]);
        let refused: Vec<_> =
            sorted.results.iter().map(|one| (one.index, one.status, one.refund_ref.as_deref())).collect();
        assert_eq!(refused, [(1, 422, None), (2, 422, Some("R-1"))]);
        assert!(sorted.results[0].errors[0].message.contains("line 1 column 2"), "{:?}", sorted.results[0]);
    }

    #[test]
    fn an_item_larger_than_a_single_post_may_be_is_refused_alone() {
        let large = format!("\"{}\"", "x".repeat(body::MOST_BYTES_ONE));
        let sorted =
            Sorted::read(&Bytes::from(format!("[{large},{GOOD}]")), BodyKind::Json, &anyone()).unwrap();
        assert_eq!(sorted.refunds[0].0, 1);
        assert!(sorted.results[0].errors[0].message.contains("at most 131072"));
    }

    #[test]
    fn a_refund_with_many_wrong_fields_lists_only_some() {
        let fields: Vec<String> = (0..20).map(|n| format!("\"field{n}\":1,")).collect();
        let fields = fields.concat();
        let bytes = Bytes::from(format!("{{{fields}\"more\":1}}"));
        let sorted = Sorted::read(&bytes, BodyKind::Ndjson, &anyone()).unwrap();
        let errors = &sorted.results[0].errors;
        assert_eq!(errors.len(), MOST_ERRORS);
        assert!(errors[MOST_ERRORS - 1].message.contains("more fields are wrong"), "{errors:?}");
    }

    #[test]
    fn a_result_leaves_out_unknown_fields() {
        let result = ItemResult {
            index: 3,
            refund_ref: None,
            status: 422,
            id: None,
            state: None,
            errors: vec![FieldError::new("refund", None, "is not JSON")],
        };
        assert_eq!(
            serde_json::to_string(&result).unwrap(),
            r#"{"index":3,"refund_ref":null,"status":422,"errors":[{"field":"refund","message":"is not JSON"}]}"#
        );
    }
}
