//! What became of the decisions of one request, one result for each refund.

use serde::Serialize;

use super::Named;
use crate::one_by_one::NotMade;
use crate::refund::{ProposalId, Refund, RefundId, State as RefundState};
use crate::store::{Decided, Proposal};

/// The results of a request, one for each refund.
#[derive(Debug, Serialize)]
pub(in crate::http) struct DecisionResults {
    decided: usize,
    proposed: usize,
    pub results: Vec<DecisionResult>,
}

/// What became of one decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum ResultCode {
    Decided,
    Proposed,
    Refused,
    Changed,
    Unconfirmed,
    NoSuchRefund,
    NotDecided,
}

#[derive(Debug, Serialize)]
pub(in crate::http) struct DecisionResult {
    pub id: RefundId,
    result: ResultCode,
    /// The state of the refund now; absent if there is no such refund, or if nobody could look.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<RefundState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<i32>,
    /// The proposal that waits for a second person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proposal: Option<ProposalId>,
    /// Why the refund was not decided, and what to do; for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl DecisionResults {
    pub(super) fn new(results: Vec<DecisionResult>) -> DecisionResults {
        let count =
            |code: ResultCode| results.iter().filter(|one: &&DecisionResult| one.result == code).count();
        DecisionResults {
            decided: count(ResultCode::Decided),
            proposed: count(ResultCode::Proposed),
            results,
        }
    }
}

impl DecisionResult {
    pub(in crate::http) fn is_decided(&self) -> bool {
        self.result == ResultCode::Decided
    }

    pub(in crate::http) fn is_proposed(&self) -> bool {
        self.result == ResultCode::Proposed
    }

    /// The message for a person in front of the page, which has boxes instead of fields and links instead of routes.
    pub(in crate::http) fn words(&self) -> Option<String> {
        if self.result == ResultCode::Unconfirmed {
            return Some(
                "an earlier send may have been executed; if the bank says that it executed none, decide again with the box \
                 about earlier sends ticked"
                    .to_owned(),
            );
        }
        self.message.as_ref().map(|message| message.split("; GET ").next().unwrap_or(message).to_owned())
    }

    /// The result of a decision that Postgres did not take, or of which it said nothing.
    pub(super) fn not_decided(id: RefundId, why: NotMade) -> DecisionResult {
        DecisionResult {
            id,
            result: ResultCode::NotDecided,
            state: None,
            version: None,
            proposal: None,
            message: Some(why.message().to_owned()),
        }
    }

    pub(super) fn of(named: Named, next: RefundState, decided: Decided) -> DecisionResult {
        let with_state = |result, refund: &Refund, message| DecisionResult {
            id: named.id,
            result,
            state: Some(refund.state),
            version: Some(refund.version),
            proposal: None,
            message,
        };
        match decided {
            Decided::Done(refund) => with_state(ResultCode::Decided, &refund, None),
            Decided::Proposed(refund, proposal) => DecisionResult {
                proposal: Some(proposal.id),
                ..with_state(ResultCode::Proposed, &refund, Some(waits_for_approval(&proposal)))
            },
            Decided::Illegal(refund) => {
                let (state, id) = (refund.state, named.id);
                let message = if state == next {
                    format!("it is {state} already")
                } else {
                    format!(
                        "a refund that is {state} cannot become {next} by a decision; GET /v1/refunds/{id}/attempts shows what happened to it"
                    )
                };
                with_state(ResultCode::Refused, &refund, Some(message))
            }
            Decided::WasCancelled(refund) => {
                let message = "it was cancelled before it was reopened, so it is never sent; to pay it, save a new refund with another refund_ref";
                with_state(ResultCode::Refused, &refund, Some(message.to_owned()))
            }
            Decided::Changed(refund) => {
                let message = "it has moved since that version; look at it again before deciding";
                with_state(ResultCode::Changed, &refund, Some(message.to_owned()))
            }
            Decided::Unconfirmed(refund) => {
                with_state(ResultCode::Unconfirmed, &refund, Some(unconfirmed(&refund)))
            }
            Decided::NoSuchRefund => {
                let message =
                    "no refund has this id; GET /v1/refunds?refund_ref= finds one by its refund_ref";
                DecisionResult {
                    id: named.id,
                    result: ResultCode::NoSuchRefund,
                    state: None,
                    version: None,
                    proposal: None,
                    message: Some(message.to_owned()),
                }
            }
        }
    }
}

/// Why a refund is not sent again by this decision, and what the decision lacks.
fn unconfirmed(refund: &Refund) -> String {
    let since = refund.uncertain_since.map_or_else(String::new, |at| format!(", since {at}"));
    let reason = refund.reason.as_deref().unwrap_or("its send had no clear answer");
    format!(
        "an earlier send may have been executed{since} ({reason}); if the bank says that it executed none, \
         send \"confirm\": \"not_executed\""
    )
}

/// Why a decision waits for a second person, and how that person approves it.
fn waits_for_approval(proposal: &Proposal) -> String {
    let Proposal { id, version, .. } = proposal;
    format!(
        "{}, so another person must approve it: POST /v1/proposals/approve with \"proposals\": [{{\"id\": {id}, \"version\": {version}}}]",
        proposal.needed_for.why()
    )
}
