//! Proposals: decisions that wait for a second person. Lists them, and takes the second person's approval or a withdrawal.
//!
//! [`super::review`] takes the decisions. Whether the second person is another one is checked by the database, where the
//! journal is written.

use std::collections::HashSet;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use serde::Serialize;
use serde_json::{Map, Value};

use super::body::{self, Kind};
use super::person::{Person, read_id, read_id_and_version, read_list, unknown_fields};
use super::{Api, Json, Problem, Who};
use crate::refund::draft::FieldError;
use crate::refund::{ChannelName, ProposalId, Refund, RefundId, State as RefundState};
use crate::store::{
    Approved, Proposal, ProposalFilter, SecondOpinion, StoreError, WaitingProposal, Withdrawn,
};

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

/// The results of a request, one for each proposal.
#[derive(Debug, Serialize)]
pub(super) struct OpinionResults {
    /// How many proposals were approved or withdrawn.
    done: usize,
    results: Vec<OpinionResult>,
}

#[derive(Debug, Serialize)]
struct OpinionResult {
    id: ProposalId,
    result: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    refund_id: Option<RefundId>,
    /// The state of the refund now, where the answer was about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<RefundState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<i32>,
    /// Why nothing was done, and what to do; for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

impl OpinionResult {
    fn no_such_proposal(id: ProposalId) -> OpinionResult {
        let message = "no proposal has this id; GET /v1/proposals lists those that wait".to_owned();
        OpinionResult {
            id,
            result: "no_such_proposal",
            refund_id: None,
            state: None,
            version: None,
            message: Some(message),
        }
    }

    fn of(proposal: &Proposal, result: &'static str, message: Option<String>) -> OpinionResult {
        let refund_id = Some(proposal.refund_id);
        OpinionResult { id: proposal.id, result, refund_id, state: None, version: None, message }
    }

    fn with(self, refund: &Refund) -> OpinionResult {
        OpinionResult { state: Some(refund.state), version: Some(refund.version), ..self }
    }

    fn of_approval(id: ProposalId, approved: &Approved) -> OpinionResult {
        match approved {
            Approved::Done(refund, proposal) => OpinionResult::of(proposal, "approved", None).with(refund),
            Approved::Changed(refund, proposal) => {
                let message = if refund.version == proposal.version {
                    format!("the proposal is about version {}, and you named another one", proposal.version)
                } else {
                    "the refund has moved since it was proposed; look at it again, and decide anew".to_owned()
                };
                OpinionResult::of(proposal, "changed", Some(message)).with(refund)
            }
            Approved::SamePerson(proposal) => {
                let message = format!("{} proposed it; another person must approve it", proposal.by);
                OpinionResult::of(proposal, "same_person", Some(message))
            }
            Approved::Expired(proposal) => {
                let message = "too much time has passed since it was proposed; look at the refund again, and decide anew";
                OpinionResult::of(proposal, "expired", Some(message.to_owned()))
            }
            Approved::Ended(proposal) => OpinionResult::ended(proposal),
            Approved::NoSuchProposal => OpinionResult::no_such_proposal(id),
        }
    }

    fn of_withdrawal(id: ProposalId, withdrawn: &Withdrawn) -> OpinionResult {
        match withdrawn {
            Withdrawn::Done(proposal) => OpinionResult::of(proposal, "withdrawn", None),
            Withdrawn::Ended(proposal) => OpinionResult::ended(proposal),
            Withdrawn::NoSuchProposal => OpinionResult::no_such_proposal(id),
        }
    }

    fn ended(proposal: &Proposal) -> OpinionResult {
        let (how, by) = proposal.ended.clone().unwrap_or_default();
        OpinionResult::of(proposal, "ended", Some(format!("it was {how} by {by} before")))
    }
}

/// `GET /v1/proposals`.
pub(super) async fn list(
    State(api): State<Api>,
    who: Who,
    query: Result<Query<Vec<(String, String)>>, QueryRejection>,
) -> Result<Json<ProposalPage>, Problem> {
    let Query(pairs) =
        query.map_err(|error| Problem::invalid(vec![FieldError::new("query", None, error.body_text())]))?;
    let filter = ProposalFilter { channels: who.channels(), ..filter(pairs).map_err(Problem::invalid)? };
    let _one_of_few = api.lists.acquire().await;
    let most_bytes = filter.limit as usize * MOST_BYTES_OF_A_PROPOSAL;
    let _room = api.unread.try_reserve(most_bytes).ok_or_else(|| {
        Problem::busy("other callers do not read their answers; nothing was done, and repeating is safe")
    })?;
    let proposals = api.node.store.proposals(&filter).await.map_err(|error| Problem::store(&error))?;
    let is_full = u32::try_from(proposals.len()).is_ok_and(|n| n >= filter.limit);
    let next = proposals.last().filter(|_| is_full).map(|last| last.proposal.id.to_string());
    Ok(Json(ProposalPage { proposals, next }))
}

/// `POST /v1/proposals/approve`. Safe to repeat: a proposal is approved once.
pub(super) async fn approve(
    State(api): State<Api>,
    who: Who,
    request: Request,
) -> Result<Json<OpinionResults>, Problem> {
    let (named, person) = read(&api, &who, request, |object| {
        let what = "objects with a proposal's id and the version of the refund that you saw";
        read_list(object, "proposals", MOST_AT_ONCE, what, |value| {
            read_id_and_version(value).map(|(id, seen)| (ProposalId(id), seen))
        })
    })
    .await?;
    // In a task of its own, so that the approvals go on when the caller hangs up.
    let task = tokio::spawn(async move {
        let mut results = Vec::with_capacity(named.len());
        for (id, seen) in named {
            let opinion = SecondOpinion { id, why: &person.reason, who: &person.by };
            results.push(if exists(&api, &who, id).await? {
                OpinionResult::of_approval(id, &api.node.store.approve(&opinion, seen).await?)
            } else {
                OpinionResult::no_such_proposal(id)
            });
        }
        Ok::<_, StoreError>(results)
    });
    let results = task.await.map_err(|_| Problem::internal())?;
    results.map(|results| counted("approved", results)).map_err(|error| Problem::store(&error))
}

/// `POST /v1/proposals/withdraw`. Safe to repeat: a proposal ends once.
pub(super) async fn withdraw(
    State(api): State<Api>,
    who: Who,
    request: Request,
) -> Result<Json<OpinionResults>, Problem> {
    let (named, person) = read(&api, &who, request, |object| {
        read_list(object, "proposals", MOST_AT_ONCE, "proposals' ids", |value| read_id(value).map(ProposalId))
    })
    .await?;
    let task = tokio::spawn(async move {
        let mut results = Vec::with_capacity(named.len());
        for id in named {
            let opinion = SecondOpinion { id, why: &person.reason, who: &person.by };
            results.push(if exists(&api, &who, id).await? {
                OpinionResult::of_withdrawal(id, &api.node.store.withdraw(&opinion).await?)
            } else {
                OpinionResult::no_such_proposal(id)
            });
        }
        Ok::<_, StoreError>(results)
    });
    let results = task.await.map_err(|_| Problem::internal())?;
    results.map(|results| counted("withdrawn", results)).map_err(|error| Problem::store(&error))
}

/// Whether the proposal exists for the caller. A proposal's channel never changes.
async fn exists(api: &Api, who: &Who, id: ProposalId) -> Result<bool, StoreError> {
    if who.channels().is_none() {
        return Ok(true);
    }
    let channel = api.node.store.channel_of_proposal(id).await?;
    Ok(channel.is_some_and(|channel| who.has_channel(&channel)))
}

fn counted(done: &'static str, results: Vec<OpinionResult>) -> Json<OpinionResults> {
    let done = results.iter().filter(|one| one.result == done).count();
    Json(OpinionResults { done, results })
}

/// Reads the list of proposals in a body.
type ReadNamed<T> = fn(&Map<String, Value>) -> Result<Vec<T>, FieldError>;

/// Reads a body: the proposals by `named`, and the person.
async fn read<T>(
    api: &Api,
    who: &Who,
    request: Request,
    named: ReadNamed<T>,
) -> Result<(Vec<T>, Person), Problem> {
    let (head, body) = request.into_parts();
    body::kind(&head.headers, &[Kind::Json])?;
    let bytes = api.bodies.read(&head.headers, body, MOST_BYTES).await?;
    let json: Value = serde_json::from_slice(&bytes).map_err(|error| Problem::malformed(&error))?;
    let Some(object) = json.as_object() else {
        let expected = "must be a JSON object with proposals, reason and by";
        return Err(Problem::invalid(vec![FieldError::new("body", Some(&json), expected)]));
    };
    let mut wrong = Vec::new();
    let person = Person::read(object, who, &mut wrong);
    let named = named(object).map_err(|error| wrong.push(error)).unwrap_or_default();
    wrong.extend(unknown_fields(object, &KNOWN));
    if wrong.is_empty() { Ok((named, person)) } else { Err(Problem::invalid(wrong)) }
}

/// Reads the query. The error names every wrong parameter.
fn filter(pairs: Vec<(String, String)>) -> Result<ProposalFilter, Vec<FieldError>> {
    let mut filter = ProposalFilter { limit: LIMIT, ..ProposalFilter::default() };
    let (mut wrong, mut seen) = (Vec::new(), HashSet::new());
    for (name, text) in pairs {
        let problem = match name.as_str() {
            _ if !seen.insert(name.clone()) => Some("is given twice".to_owned()),
            "channel" => ChannelName::new(&text)
                .map(|channel| filter.channel = Some(channel.into()))
                .err()
                .map(|bad| bad.to_string()),
            "limit" => match text.parse() {
                Ok(limit @ 1..=MOST) => {
                    filter.limit = limit;
                    None
                }
                _ => Some(format!("must be a whole number from 1 to {MOST}")),
            },
            "after" => match text.parse() {
                Ok(id @ 1..) => {
                    filter.after = Some(ProposalId(id));
                    None
                }
                _ => Some("must be the `next` of a page before".to_owned()),
            },
            _ => Some("is unknown; there are channel, limit and after".to_owned()),
        };
        if let Some(problem) = problem {
            wrong.push(FieldError::new(&name, Some(&Value::from(text)), problem));
        }
    }
    if wrong.is_empty() { Ok(filter) } else { Err(wrong) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(query: &str) -> Result<ProposalFilter, Vec<FieldError>> {
        let uri = format!("/?{query}").parse().unwrap();
        filter(Query::try_from_uri(&uri).unwrap().0)
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
