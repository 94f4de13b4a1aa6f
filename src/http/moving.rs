//! Moves refunds of which no byte ever left from one channel to another, for programs.
//!
//! `crate::bulk` does the work, as for `refundd move`. A caller must have both channels.

mod order;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use serde::Serialize;

use self::order::MoveRequest;
use super::named_channel::{in_path, known, no_such_channel};
use super::{Api, Json, Problem, Who, json};
use crate::bulk::{AT_ONCE, Bulk, BulkAction, BulkOutcome, BulkResult};
use crate::refund::draft::FieldError;
use crate::refund::{ChannelName, Refund, RefundId, RequestId, State as RefundState, card};
use crate::store::{Move, StoreError};

/// Enough for [`AT_ONCE`] refs with their versions.
const MOST_BYTES: usize = 320 * 1024;

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
    /// The one that the next order names.
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
            BulkOutcome::Changed => ("stays", Some("changed")),
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
            version: one.refund.as_ref().map(|refund| refund.version),
            request_id: None,
            message: bulk.why(one),
        }
    }
}

/// `POST /v1/channels/{name}/move`. A refund that is in the other channel is answered `is_there`, so a repeat changes nothing. If
/// somebody has moved the refund back meanwhile, a repeat moves it again, unless the request names the version that the caller saw.
pub(super) async fn moving(
    State(api): State<Api>,
    who: Who,
    from: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Json<MoveResults>, Problem> {
    let from = in_path(from)?;
    let rule = "must be a JSON object with to, refunds, refund_refs or all, reason and by";
    let object = json::read_object(&api, request, MOST_BYTES, rule).await?;
    let order = order::read(&object, &from, &who).map_err(Problem::invalid)?;
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

async fn carry_out(
    api: &Api,
    who: &Who,
    from: ChannelName,
    order: MoveRequest,
) -> Result<MoveResults, StoreError> {
    let MoveRequest { to, refs, up_to, is_dry, person } = order;
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
