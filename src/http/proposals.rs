//! Proposals: decisions that wait for a second person. Lists them, and takes the second person's approval or a withdrawal.
//!
//! [`super::review`] takes the decisions. Whether the second person is another one is checked by the database, where the
//! journal is written.

use axum::extract::{Request, State};
use serde::Serialize;
use serde_json::{Map, Value};

mod result;

pub(super) use self::result::{ProposalResult, ProposalResults};
use super::person::{Person, read_id, read_id_and_version, read_list, unknown_fields};
use super::query::{self, Pairs, Parameters, read_each};
use super::{Api, Json, Problem, Who, json, named_channel};
use crate::caller::Names;
use crate::one_by_one::OneByOne;
use crate::refund::ProposalId;
use crate::refund::draft::FieldError;
use crate::store::{ProposalAnswer, ProposalFilter, StoreError, WaitingProposal};

const MOST_BYTES: usize = 128 * 1024;
/// Each answer is a commit of its own, so their number is bounded.
const MOST_AT_ONCE: usize = 1000;
const KNOWN: [&str; 3] = ["proposals", "reason", "by"];
/// Proposals on a page, unless the caller gives a number.
const LIMIT: u32 = 100;
/// The most proposals on a page.
const MOST: u32 = 500;
/// About the most bytes of one proposal.
const MOST_BYTES_OF_A_PROPOSAL: usize = 4 * 1024;

/// One page of proposals, oldest first.
#[derive(Debug, Serialize)]
pub(super) struct ProposalPage {
    proposals: Vec<WaitingProposal>,
    /// The value for `after` that gets the next page; null on the last page.
    next: Option<String>,
}

/// What a second person answers to some proposals, in the order of the request.
#[derive(Debug)]
pub(super) struct ProposalAnswers {
    named: Vec<(ProposalId, Verb)>,
    person: Person,
}

#[derive(Debug, Clone, Copy)]
enum Verb {
    /// With the version of the refund that the person saw.
    Approve {
        seen: i32,
    },
    Withdraw,
}

/// `GET /v1/proposals`.
pub(super) async fn list(
    State(api): State<Api>,
    who: Who,
    Parameters(pairs): Parameters<Pairs>,
) -> Result<Json<ProposalPage>, Problem> {
    let filter = filter(pairs, who.channels()).map_err(Problem::invalid)?;
    named_channel::exists(&api, &who, filter.channel.as_deref()).await?;
    let place = api.lists.place(&who).await;
    let most_bytes = filter.limit as usize * MOST_BYTES_OF_A_PROPOSAL;
    let _room = api.room_for_answer(&who, most_bytes)?;
    let (node, most) = (api.node.clone(), filter.limit);
    let read = async move { Ok(node.store.proposals(&filter).await?) };
    let proposals = place.run(read).await?;
    let is_full = u32::try_from(proposals.len()).is_ok_and(|n| n >= most);
    let next = proposals.last().filter(|_| is_full).map(|last| last.proposal.id.to_string());
    Ok(Json(ProposalPage { proposals, next }))
}

/// `POST /v1/proposals/approve`. Safe to repeat: a proposal is approved once.
pub(super) async fn approve(
    State(api): State<Api>,
    who: Who,
    request: Request,
) -> Result<Json<ProposalResults>, Problem> {
    let answers = read_approvals(&body(&api, request).await?, &who).map_err(Problem::invalid)?;
    carry_out(api, who, answers).await.map(Json)
}

/// `POST /v1/proposals/withdraw`. Safe to repeat: a proposal ends once.
pub(super) async fn withdraw(
    State(api): State<Api>,
    who: Who,
    request: Request,
) -> Result<Json<ProposalResults>, Problem> {
    let answers = read_withdrawals(&body(&api, request).await?, &who).map_err(Problem::invalid)?;
    carry_out(api, who, answers).await.map(Json)
}

/// Writes the answers one after the other, also when the caller hangs up.
pub(super) async fn carry_out(
    api: Api,
    who: Who,
    answers: ProposalAnswers,
) -> Result<ProposalResults, Problem> {
    let ProposalAnswers { named, person } = answers;
    let place = api.place_to_decide(&who).await?;
    let written = async move {
        let (mut all, mut results) = (OneByOne::default(), Vec::with_capacity(named.len()));
        for (id, verb) in named {
            let answer = ProposalAnswer { id, why: &person.reason, who: &person.by };
            let result = all.make(write(&api, &who, &answer, verb)).await;
            results.push(result.unwrap_or_else(|not_made| ProposalResult::not_decided(id, not_made)));
        }
        Problem::unless_some_were_written(all)?;
        Ok(ProposalResults::new(results))
    };
    place.run(written).await
}

/// Writes one answer.
async fn write(
    api: &Api,
    who: &Who,
    answer: &ProposalAnswer<'_>,
    verb: Verb,
) -> Result<ProposalResult, StoreError> {
    let (id, store) = (answer.id, &api.node.store);
    Ok(match verb {
        _ if !exists(api, who, id).await? => ProposalResult::no_such_proposal(id),
        Verb::Approve { seen } => ProposalResult::of_approval(id, &store.approve(answer, seen).await?),
        Verb::Withdraw => ProposalResult::of_withdrawal(id, &store.withdraw(answer).await?),
    })
}

/// Whether the proposal exists for the caller. A proposal's channel never changes.
async fn exists(api: &Api, who: &Who, id: ProposalId) -> Result<bool, StoreError> {
    if who.has_all_channels() {
        return Ok(true);
    }
    let channel = api.node.store.channel_of_proposal(id).await?;
    Ok(channel.is_some_and(|channel| who.has_channel(&channel)))
}

async fn body(api: &Api, request: Request) -> Result<Map<String, Value>, Problem> {
    let rule = "must be a JSON object with proposals, reason and by";
    json::read_object(api, request, MOST_BYTES, rule).await
}

pub(super) fn read_approvals(
    object: &Map<String, Value>,
    who: &Who,
) -> Result<ProposalAnswers, Vec<FieldError>> {
    let what = "objects with a proposal's id and the version of the refund that you saw";
    read(object, who, what, |value| {
        read_id_and_version(value).map(|(id, seen)| (ProposalId(id), Verb::Approve { seen }))
    })
}

pub(super) fn read_withdrawals(
    object: &Map<String, Value>,
    who: &Who,
) -> Result<ProposalAnswers, Vec<FieldError>> {
    read(object, who, "proposals' ids", |value| read_id(value).map(|id| (ProposalId(id), Verb::Withdraw)))
}

/// Reads the proposals, of which `what` says how they are named, and the person.
fn read(
    object: &Map<String, Value>,
    who: &Who,
    what: &str,
    named: fn(&Value) -> Option<(ProposalId, Verb)>,
) -> Result<ProposalAnswers, Vec<FieldError>> {
    let mut wrong = Vec::new();
    let person = Person::read(object, who, &mut wrong);
    let named = read_list(object, "proposals", MOST_AT_ONCE, what, named);
    let named = named.map_err(|error| wrong.push(error)).unwrap_or_default();
    wrong.extend(unknown_fields(object, &KNOWN));
    if wrong.is_empty() { Ok(ProposalAnswers { named, person }) } else { Err(wrong) }
}

/// Reads the query. The error names every wrong parameter.
fn filter(pairs: Pairs, channels: Names) -> Result<ProposalFilter, Vec<FieldError>> {
    let mut filter = ProposalFilter { limit: LIMIT, ..ProposalFilter::of(channels) };
    read_each(pairs, |name, text| {
        match name {
            "channel" => filter.channel = Some(query::channel(text)?),
            "limit" => filter.limit = query::limit(text, MOST)?,
            "after" => match text.parse() {
                Ok(id @ 1..) => filter.after = Some(ProposalId(id)),
                _ => return Err("must be the `next` of a page before".to_owned()),
            },
            _ => return Err("is unknown; there are channel, limit and after".to_owned()),
        }
        Ok(())
    })?;
    Ok(filter)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(query: &str) -> Result<ProposalFilter, Vec<FieldError>> {
        filter(query::pairs(query), Names::All)
    }

    #[test]
    fn a_query_is_read_into_a_filter_and_every_wrong_parameter_is_named() {
        let filter = parsed("channel=acme&limit=7&after=12").unwrap();
        assert_eq!(
            (filter.channel.as_deref(), filter.limit, filter.after),
            (Some("acme"), 7, Some(ProposalId(12)))
        );
        assert_eq!(parsed("").unwrap().limit, LIMIT);
        let errors = parsed("channel=A%20B&limit=501&after=0&state=review&limit=5").unwrap_err();
        let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(fields, ["channel", "limit", "after", "state", "limit"]);
    }
}
