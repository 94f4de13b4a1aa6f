//! Moves refunds of which no byte ever left from one channel to another, for programs.
//!
//! `crate::bulk` does the work, as for `refundd move`. A caller must have both channels.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use serde::Serialize;
use serde_json::{Map, Value};

use super::named_channel::{in_path, known, no_such_channel};
use super::person::{Person, read_list, unknown_fields};
use super::{Api, Json, Problem, Who, json};
use crate::bulk::{AT_ONCE, Bulk, BulkAction, BulkOutcome, BulkResult};
use crate::refund::draft::FieldError;
use crate::refund::{ChannelName, Refund, RefundId, RequestId, State as RefundState, card};
use crate::store::{Move, StoreError};

/// Enough for [`AT_ONCE`] refs.
const MOST_BYTES: usize = 256 * 1024;

/// What a request wants moved.
#[derive(Debug, PartialEq, Eq)]
struct Order {
    to: ChannelName,
    /// `None` for all refunds of the channel that may go.
    refs: Option<Vec<String>>,
    /// The newest refund that the caller foresees; refunds that were saved after it stay.
    up_to: Option<RefundId>,
    is_dry: bool,
    /// Empty in a dry run.
    person: Person,
}

/// The result of a request.
#[derive(Debug, Serialize)]
pub(super) struct MoveResults {
    moved: usize,
    /// How many would be moved; absent unless this is a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    would_move: Option<u64>,
    /// More refunds of the channel may go: repeat the request.
    more: bool,
    /// The newest refund that was looked at; absent where the request names refs.
    #[serde(skip_serializing_if = "Option::is_none")]
    up_to: Option<RefundId>,
    results: Vec<MoveResult>,
}

#[derive(Debug, Serialize)]
struct MoveResult {
    refund_ref: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<RefundId>,
    /// `moved`, `would_move`, `is_there`, `stays` or `no_such_refund`.
    result: &'static str,
    /// Why it stays, for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<RefundState>,
    /// Of a moved refund.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<i32>,
    /// The new key of a moved refund.
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<RequestId>,
    /// Why it stays, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

impl MoveResult {
    fn moved(refund: &Refund) -> MoveResult {
        MoveResult {
            refund_ref: refund.refund_ref.clone(),
            id: Some(refund.id),
            result: "moved",
            why: None,
            state: Some(refund.state),
            version: Some(refund.version),
            request_id: Some(refund.request_id),
            message: None,
        }
    }

    fn of(bulk: &Bulk, one: &BulkResult) -> MoveResult {
        let (result, why) = match &one.outcome {
            BulkOutcome::Done(refund) => return MoveResult::moved(refund),
            BulkOutcome::WouldBeDone => ("would_move", None),
            BulkOutcome::DoneBefore => ("is_there", None),
            BulkOutcome::NoSuchRefund => ("no_such_refund", None),
            BulkOutcome::Stays(why) => ("stays", Some(why.code())),
            BulkOutcome::NoRoom => ("stays", Some("channel_full")),
            BulkOutcome::WasInUse => ("stays", Some("in_use")),
        };
        MoveResult {
            // A ref of no refund may be any text.
            refund_ref: card::masked(&one.refund_ref).into_owned(),
            id: one.refund.as_ref().map(|refund| refund.id),
            result,
            why,
            state: one.refund.as_ref().map(|refund| refund.state),
            version: None,
            request_id: None,
            message: bulk.why(one),
        }
    }
}

/// `POST /v1/channels/{name}/move`. A refund that is in the other channel is answered `is_there`, so a repeat changes nothing,
/// unless somebody has moved the refund back meanwhile: the request names no version.
pub(super) async fn moving(
    State(api): State<Api>,
    who: Who,
    from: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Json<MoveResults>, Problem> {
    let from = in_path(from)?;
    let rule = "must be a JSON object with to, refund_refs or all, reason and by";
    let object = json::read_object(&api, request, MOST_BYTES, rule).await?;
    let order = read(&object, &from, &who).map_err(Problem::invalid)?;
    let from = ChannelName::new(&from).map_err(|_| no_such_channel(&from))?;
    // Moves take the places of lists: a look at all refunds of a channel takes as long as a list.
    let place = api.lists.place(&who).await;
    let moving = async move {
        exist(&api, &who, &from, &order.to).await?;
        Ok(carry_out(&api, &who, from, order).await?)
    };
    place.run(moving).await.map(Json)
}

/// Whether both channels exist for the caller, and refunds may move to the second.
async fn exist(api: &Api, who: &Who, from: &ChannelName, to: &ChannelName) -> Result<(), Problem> {
    for channel in [from, to] {
        known(who, channel.as_str())?;
        let target = api.node.store.move_target(channel.as_str()).await?;
        let target = target.ok_or_else(|| no_such_channel(channel.as_str()))?;
        if channel == to && target.is_retired {
            let message = "must be a channel that a node runs: refunds would wait there for ever";
            let error = FieldError::new("to", Some(&channel.as_str().into()), message);
            return Err(Problem::invalid(vec![error]));
        }
    }
    Ok(())
}

async fn carry_out(api: &Api, who: &Who, from: ChannelName, order: Order) -> Result<MoveResults, StoreError> {
    let Order { to, refs, up_to, is_dry, person } = order;
    let (from, target) = (from.to_string(), to.to_string());
    let move_order = Move { from: from.clone(), to: target, who: person.by, why: person.reason };
    let store = api.node.store.clone();
    let newest = store.newest_refund().await?;
    let newest = up_to.map_or(newest, |seen| seen.min(newest));
    let mut bulk = Bulk::new(store, BulkAction::Move(move_order), who.channels(), is_dry).await?;
    let mut answer =
        MoveResults { moved: 0, would_move: None, more: false, up_to: None, results: Vec::new() };
    let mut gone = Vec::new();
    if let Some(refs) = refs {
        let results = bulk.named(&refs).await?;
        answer.results = results.iter().map(|one| MoveResult::of(&bulk, one)).collect();
        let would = results.iter().filter(|one| matches!(one.outcome, BulkOutcome::WouldBeDone)).count();
        answer.would_move = is_dry.then(|| u64::try_from(would).unwrap_or(u64::MAX));
        gone.extend(results.iter().filter_map(BulkResult::done).cloned());
    } else {
        answer.up_to = Some(newest);
        if is_dry {
            let sums = bulk.sums_up_to(&from, newest).await?;
            let would: u64 = sums.iter().filter(|sum| sum.stays.is_none()).map(|sum| sum.refunds).sum();
            answer.would_move = Some(bulk.room().await?.map_or(would, |room| would.min(room)));
        } else {
            let (ready, moved) = bulk.next_of(&from, newest).await?;
            let is_full = bulk.room().await? == Some(0);
            answer.more = (ready == AT_ONCE || moved.len() < ready) && !is_full;
            answer.results = moved.iter().map(MoveResult::moved).collect();
            gone = moved;
        }
        // Those that stay are named with the last part.
        if !answer.more {
            let staying = bulk.staying(&from, newest, AT_ONCE).await?;
            answer.results.extend(staying.iter().map(|one| MoveResult::of(&bulk, one)));
        }
    }
    answer.moved = gone.len();
    if !gone.is_empty() {
        (api.nudge)(&to);
        let bucket = api.node.bucket.clone();
        tokio::spawn(async move { bulk.withdraw(&bucket, &gone).await });
    }
    Ok(answer)
}

/// Reads the body of a request; the errors name every wrong field.
fn read(object: &Map<String, Value>, from: &str, who: &Who) -> Result<Order, Vec<FieldError>> {
    let mut wrong = unknown_fields(object, &["to", "refund_refs", "all", "up_to", "dry_run", "reason", "by"]);
    let flag = |name: &str, wrong: &mut Vec<FieldError>| match object.get(name) {
        None | Some(Value::Null) => false,
        Some(Value::Bool(is_set)) => *is_set,
        value => {
            wrong.push(FieldError::new(name, value, "must be true or false"));
            false
        }
    };
    let (is_all, is_dry) = (flag("all", &mut wrong), flag("dry_run", &mut wrong));
    let to = object.get("to").and_then(Value::as_str).filter(|to| *to != from);
    let to = to.and_then(|to| ChannelName::new(to).ok());
    if to.is_none() {
        let expected = "must be the channel to move to, another one than the refunds leave";
        wrong.push(FieldError::new("to", object.get("to"), expected));
    }
    let refs = match (is_all, object.get("refund_refs")) {
        (true, None) => None,
        (true, refs) => {
            wrong.push(FieldError::new("refund_refs", refs, "goes without all only"));
            None
        }
        (false, _) => {
            // Postgres has no texts with a zero byte.
            let read: fn(&Value) -> Option<String> =
                |value| value.as_str().filter(|name| !name.contains('\0')).map(str::to_owned);
            let what = "refund refs; or send \"all\": true";
            read_list(object, "refund_refs", AT_ONCE, what, read).map_err(|error| wrong.push(error)).ok()
        }
    };
    let up_to = match object.get("up_to") {
        None | Some(Value::Null) => None,
        value => {
            let id = value.and_then(Value::as_i64).filter(|id| is_all && *id >= 0);
            if id.is_none() {
                let expected = "goes with all only, and must be the up_to of an answer before";
                wrong.push(FieldError::new("up_to", value, expected));
            }
            id.map(RefundId)
        }
    };
    let is_named = !is_dry || ["reason", "by"].iter().any(|field| object.contains_key(*field));
    let person = if is_named {
        Person::read(object, who, &mut wrong)
    } else {
        Person { reason: String::new(), by: String::new() }
    };
    match to {
        Some(to) if wrong.is_empty() => Ok(Order { to, refs, up_to, is_dry, person }),
        _ => Err(wrong),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_request_names_a_channel_refunds_a_reason_and_a_person() {
        let read = |body: &Value| read(body.as_object().unwrap(), "acme", &Who::Anyone);
        let good = json!({ "to": "globex", "refund_refs": ["R-1"], "reason": "acme is down", "by": "ann" });
        let order = read(&good).unwrap();
        assert_eq!(
            (order.refs, order.is_dry, order.to.as_str()),
            (Some(vec!["R-1".to_owned()]), false, "globex")
        );
        let all = read(&json!({ "to": "globex", "all": true, "up_to": 0, "dry_run": true })).unwrap();
        assert_eq!((all.refs, all.up_to), (None, Some(RefundId(0))));
        for (bad, field) in [
            (json!({ "refund_refs": ["R-1"], "reason": "x", "by": "ann" }), "to"),
            (json!({ "to": "acme", "refund_refs": ["R-1"], "reason": "x", "by": "ann" }), "to"),
            (json!({ "to": "gl\0", "refund_refs": ["R-1"], "reason": "x", "by": "ann" }), "to"),
            (json!({ "to": "globex", "refund_refs": ["R\0"], "reason": "x", "by": "ann" }), "refund_refs[0]"),
            (json!({ "to": 7, "refund_refs": ["R-1"], "reason": "x", "by": "ann" }), "to"),
            (json!({ "to": "globex", "reason": "x", "by": "ann" }), "refund_refs"),
            (json!({ "to": "globex", "refund_refs": [], "reason": "x", "by": "ann" }), "refund_refs"),
            (json!({ "to": "globex", "refund_refs": [7], "reason": "x", "by": "ann" }), "refund_refs[0]"),
            (
                json!({ "to": "globex", "refund_refs": ["R-1"], "all": true, "reason": "x", "by": "ann" }),
                "refund_refs",
            ),
            (
                json!({ "to": "globex", "all": "yes", "refund_refs": ["R-1"], "reason": "x", "by": "ann" }),
                "all",
            ),
            (
                json!({ "to": "globex", "refund_refs": ["R-1"], "up_to": 7, "reason": "x", "by": "ann" }),
                "up_to",
            ),
            (json!({ "to": "globex", "all": true, "up_to": "7", "reason": "x", "by": "ann" }), "up_to"),
            (json!({ "to": "globex", "all": true, "up_to": -1, "reason": "x", "by": "ann" }), "up_to"),
            (json!({ "to": "globex", "refund_refs": ["R-1"], "by": "ann" }), "reason"),
            (json!({ "to": "globex", "refund_refs": ["R-1"], "reason": "x" }), "by"),
            (
                json!({ "to": "globex", "refunds": ["R-1"], "all": true, "reason": "x", "by": "ann" }),
                "refunds",
            ),
        ] {
            let fields: Vec<String> = read(&bad).unwrap_err().into_iter().map(|error| error.field).collect();
            assert_eq!(fields, [field], "{bad}");
        }
    }
}
