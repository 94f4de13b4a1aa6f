//! Review: shows the journal of a refund, and takes a person's decisions. Other programs can build their own review
//! page on it.
//!
//! This module does not list the refunds that wait for a person; `GET /v1/refunds?state=review` does. A decision that needs
//! a second person becomes a proposal; [`super::proposals`] takes the second person's answer.

mod result;

use axum::extract::{Request, State};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};

pub(super) use self::result::{DecisionResult, DecisionResults};
use super::look::{Named as Path, refund_of};
use super::person::{Person, read_id_and_version, read_list, unknown_fields};
use super::{Api, Json, Problem, Who, json};
use crate::one_by_one::OneByOne;
use crate::refund::draft::FieldError;
use crate::refund::{Refund, RefundId, State as RefundState};
use crate::store::{Decided, Decision, Evidence, StoreError};

const MOST_BYTES: usize = 128 * 1024;
/// The room for the answer with a refund's journal: a thousand lines, and more only of a refund that was tried for months.
const ABOUT_BYTES_OF_A_FILE: usize = 1024 * 1024;
/// Each decision is a commit of its own, so their number is bounded.
const MOST_AT_ONCE: usize = 1000;
const KNOWN: [&str; 5] = ["refunds", "state", "confirm", "reason", "by"];

/// A refund with everything that the journal has about it, oldest first.
#[derive(Debug, Serialize)]
pub(super) struct File {
    refund: Refund,
    attempts: Vec<Evidence>,
    /// The journal goes back to this moment only, so earlier attempts may be missing. Absent if none can be missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    forgotten_before: Option<Timestamp>,
}

/// One request: what a person decided about some refunds, in the order of the request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Decisions {
    refunds: Vec<Named>,
    state: RefundState,
    not_executed: bool,
    person: Person,
}

/// A refund, and the version of it that the decision is based on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Named {
    id: RefundId,
    seen: i32,
}

/// `GET /v1/refunds/{id}/attempts`.
pub(super) async fn attempts(
    State(api): State<Api>,
    who: Who,
    Path(id): Path,
) -> Result<Json<File>, Problem> {
    let refund = refund_of(&api, &who, id).await?;
    // Nothing bounds the sends and inquiries of a refund over the years, so this counts among the lists.
    let place = api.lists.place(&who).await;
    let _room = api.room_for_answer(&who, ABOUT_BYTES_OF_A_FILE)?;
    let (store, channels) = (api.node.store.clone(), who.channels());
    let read = async move {
        let attempts = store.evidence(id).await?;
        let attempts = attempts.into_iter().map(|line| line.shown_to(&channels)).collect();
        let forgotten_before = store.forgotten_before(&refund).await?;
        Ok(File { refund, attempts, forgotten_before })
    };
    place.run(read).await.map(Json)
}

/// `POST /v1/review`. Safe to repeat: a decided refund has another version, so a second decision does not change it.
pub(super) async fn decide(
    State(api): State<Api>,
    who: Who,
    request: Request,
) -> Result<Json<DecisionResults>, Problem> {
    let rule = "must be a JSON object with refunds, state, reason and by";
    let object = json::read_object(&api, request, MOST_BYTES, rule).await?;
    let decisions = read(&object, &who).map_err(Problem::invalid)?;
    carry_out(&api, &who, decisions).await.map(Json)
}

/// Writes decisions one after the other, also when the caller hangs up.
pub(super) async fn carry_out(
    api: &Api,
    who: &Who,
    decisions: Decisions,
) -> Result<DecisionResults, Problem> {
    let place = api.place_to_decide(who).await?;
    let (api, who) = (api.clone(), who.clone());
    let written = async move {
        let (mut all, mut results) = (OneByOne::default(), Vec::with_capacity(decisions.refunds.len()));
        for &named in &decisions.refunds {
            results.push(match all.make(write(&api, &who, &decisions, named)).await {
                Ok(decided) => DecisionResult::of(named, decisions.state, decided),
                Err(not_made) => DecisionResult::not_decided(named.id, not_made),
            });
        }
        Problem::unless_some_were_written(all)?;
        Ok(DecisionResults::new(results))
    };
    place.run(written).await
}

/// Writes the decision about one of these refunds.
async fn write(api: &Api, who: &Who, decisions: &Decisions, named: Named) -> Result<Decided, StoreError> {
    let store = &api.node.store;
    // Only a move changes a refund's channel. It moves `ready` refunds alone, about which nobody decides, and makes a new
    // version.
    if !who.has_all_channels()
        && store.refund(named.id).await?.is_none_or(|refund| !who.has_channel(&refund.channel))
    {
        return Ok(Decided::NoSuchRefund);
    }
    let decision = Decision {
        id: named.id,
        seen: named.seen,
        next: decisions.state,
        not_executed: decisions.not_executed,
        why: &decisions.person.reason,
        who: &decisions.person.by,
    };
    store.decide(&decision).await
}

/// Reads the body of a decision; the errors name every wrong field.
pub(super) fn read(object: &Map<String, Value>, who: &Who) -> Result<Decisions, Vec<FieldError>> {
    let mut wrong = Vec::new();
    let person = Person::read(object, who, &mut wrong);
    let state =
        object.get("state").and_then(Value::as_str).and_then(|name| name.parse().ok()).filter(|state| {
            matches!(
                state,
                RefundState::Succeeded
                    | RefundState::Failed
                    | RefundState::Cancelled
                    | RefundState::Ready
                    | RefundState::Review
            )
        });
    if state.is_none() {
        let expected = "must be succeeded (the bank paid it), failed (the bank refused it, so nothing was paid), \
                        cancelled (nothing was paid, and nothing will be), ready (nothing was paid; refundd sends it again) or \
                        review (failed or cancelled by mistake; a person looks at it again, and nothing is sent)";
        wrong.push(FieldError::new("state", object.get("state"), expected));
    }
    let confirm = object.get("confirm").filter(|confirm| !confirm.is_null());
    let not_executed = confirm.is_some();
    if confirm.is_some_and(|confirm| confirm != "not_executed") {
        let expected = "must be not_executed: the bank says that it executed none of the earlier sends";
        wrong.push(FieldError::new("confirm", confirm, expected));
    } else if not_executed && state.is_some_and(|state| state != RefundState::Ready) {
        wrong.push(FieldError::new("confirm", confirm, "goes with the state ready only"));
    }
    let what = "refunds with the versions that you saw, such as \"refunds\": [{\"id\": 4711, \"version\": 7}]; \
                GET /v1/refunds/4711 shows the version";
    let named = |value: &Value| read_id_and_version(value).map(|(id, seen)| Named { id: RefundId(id), seen });
    let refunds = read_list(object, "refunds", MOST_AT_ONCE, what, named);
    let refunds = refunds.map_err(|error| wrong.push(error)).unwrap_or_default();
    wrong.extend(unknown_fields(object, &KNOWN));
    match state {
        Some(state) if wrong.is_empty() => Ok(Decisions { refunds, state, not_executed, person }),
        _ => Err(wrong),
    }
}

#[cfg(test)]
mod tests;
