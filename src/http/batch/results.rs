//! The result of each refund of a batch.

use axum::http::StatusCode;
use serde::Serialize;

use super::{Api, Who, save};
use crate::refund::draft::{FieldError, card_numbers_refused};
use crate::refund::{NewRefund, RefundId, State as RefundState};
use crate::store::{NotSaved, Saved};

/// What became of one refund of a batch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(in crate::http) struct ItemResult {
    /// Its place in the batch, from 0.
    pub(super) index: usize,
    /// Null if the refund ref could not be read.
    pub(super) refund_ref: Option<String>,
    /// The HTTP status that a single POST of the refund would get.
    pub(super) status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<RefundId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) state: Option<RefundState>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) errors: Vec<FieldError>,
}

/// Answers each refused item that repeats a saved refund as a repeat: the rules are stricter since. If the look fails, these
/// items alone have its status: the other refunds of the batch are saved, and their results are true.
pub(super) async fn answer_repeats(
    api: &Api,
    who: &Who,
    results: &mut [ItemResult],
    refused: Vec<(usize, NewRefund)>,
) {
    let (places, refunds): (Vec<usize>, Vec<NewRefund>) = refused.into_iter().unzip();
    // The results are in the order of the batch.
    let place_of =
        |results: &[ItemResult], index| results.binary_search_by_key(&index, |result| result.index);
    match save::saved_before(api, who, refunds).await {
        Ok(found) => {
            for (nth, refund) in found {
                let Ok(at) = place_of(results, places[nth]) else { continue };
                results[at] = ItemResult {
                    index: places[nth],
                    refund_ref: Some(refund.refund_ref),
                    status: StatusCode::OK.as_u16(),
                    id: Some(refund.id),
                    state: Some(refund.state),
                    errors: Vec::new(),
                };
            }
        }
        Err(problem) => {
            let why =
                "breaks a rule, may be saved already, and could not be looked up yet; repeating is safe";
            for index in places {
                let Ok(at) = place_of(results, index) else { continue };
                results[at].status = problem.status().as_u16();
                results[at].errors = vec![FieldError::new("refund", None, why)];
            }
        }
    }
}

/// The result of one refund that the store did not save, because of the database.
pub(super) fn not_saved(index: usize, refund_ref: String, why: &NotSaved) -> ItemResult {
    let status = match why {
        NotSaved::Refused(_) => StatusCode::UNPROCESSABLE_ENTITY,
        NotSaved::Locked | NotSaved::NotTried => StatusCode::SERVICE_UNAVAILABLE,
    };
    ItemResult {
        index,
        refund_ref: Some(refund_ref),
        status: status.as_u16(),
        id: None,
        state: None,
        errors: vec![save::database_refuses(why.to_string())],
    }
}

/// The result of one refund that the store has answered.
pub(super) fn result_of(
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
            let (id, message) = save::conflict(who, *id, saved_in, differs);
            result.id = id;
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
