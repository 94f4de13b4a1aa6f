//! What became of a second person's answers, one result for each proposal.

use serde::Serialize;

use crate::one_by_one::NotMade;
use crate::refund::{ProposalId, Refund, RefundId, State as RefundState};
use crate::store::{Approved, Proposal, Withdrawn};

/// The results of a request, one for each proposal.
#[derive(Debug, Serialize)]
pub(in crate::http) struct ProposalResults {
    /// How many proposals were approved or withdrawn.
    pub done: usize,
    pub results: Vec<ProposalResult>,
}

impl ProposalResults {
    pub(super) fn new(results: Vec<ProposalResult>) -> ProposalResults {
        ProposalResults { done: results.iter().filter(|one| one.is_done()).count(), results }
    }
}

/// What became of one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum ProposalResultCode {
    Approved,
    Withdrawn,
    Changed,
    SamePerson,
    Expired,
    Ended,
    NoSuchProposal,
    NotDecided,
}

#[derive(Debug, Serialize)]
pub(in crate::http) struct ProposalResult {
    pub id: ProposalId,
    result: ProposalResultCode,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refund_id: Option<RefundId>,
    /// The state of the refund now, where the answer was about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<RefundState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<i32>,
    /// Why nothing was done, and what to do; for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl ProposalResult {
    /// Whether the proposal was approved or withdrawn by this request.
    pub(in crate::http) fn is_done(&self) -> bool {
        matches!(self.result, ProposalResultCode::Approved | ProposalResultCode::Withdrawn)
    }

    pub(super) fn no_such_proposal(id: ProposalId) -> ProposalResult {
        ProposalResult::without_refund(
            id,
            ProposalResultCode::NoSuchProposal,
            "no proposal has this id; GET /v1/proposals lists those that wait",
        )
    }

    /// The result of an answer that Postgres did not take, or of which it said nothing.
    pub(super) fn not_decided(id: ProposalId, why: NotMade) -> ProposalResult {
        ProposalResult::without_refund(id, ProposalResultCode::NotDecided, why.message())
    }

    fn without_refund(id: ProposalId, result: ProposalResultCode, message: &str) -> ProposalResult {
        let message = Some(message.to_owned());
        ProposalResult { id, result, refund_id: None, state: None, version: None, message }
    }

    fn of(proposal: &Proposal, result: ProposalResultCode, message: Option<String>) -> ProposalResult {
        let refund_id = Some(proposal.refund_id);
        ProposalResult { id: proposal.id, result, refund_id, state: None, version: None, message }
    }

    fn with(self, refund: &Refund) -> ProposalResult {
        ProposalResult { state: Some(refund.state), version: Some(refund.version), ..self }
    }

    pub(super) fn of_approval(id: ProposalId, approved: &Approved) -> ProposalResult {
        match approved {
            Approved::Done(refund, proposal) => {
                ProposalResult::of(proposal, ProposalResultCode::Approved, None).with(refund)
            }
            Approved::Changed(refund, proposal) => {
                let message = if refund.version == proposal.version {
                    format!("the proposal is about version {}, and you named another one", proposal.version)
                } else {
                    "it is void: the refund has moved since it was proposed; look at the refund again, and decide anew".to_owned()
                };
                ProposalResult::of(proposal, ProposalResultCode::Changed, Some(message)).with(refund)
            }
            Approved::SamePerson(proposal) => {
                let message = format!("{} proposed it; another person must approve it", proposal.by);
                ProposalResult::of(proposal, ProposalResultCode::SamePerson, Some(message))
            }
            Approved::Expired(proposal) => {
                let message = "too much time has passed since it was proposed; look at the refund again, and decide anew";
                ProposalResult::of(proposal, ProposalResultCode::Expired, Some(message.to_owned()))
            }
            Approved::Ended(proposal) => ProposalResult::ended(proposal),
            Approved::NoSuchProposal => ProposalResult::no_such_proposal(id),
        }
    }

    pub(super) fn of_withdrawal(id: ProposalId, withdrawn: &Withdrawn) -> ProposalResult {
        match withdrawn {
            Withdrawn::Done(proposal) => ProposalResult::of(proposal, ProposalResultCode::Withdrawn, None),
            Withdrawn::Ended(proposal) => ProposalResult::ended(proposal),
            Withdrawn::NoSuchProposal => ProposalResult::no_such_proposal(id),
        }
    }

    fn ended(proposal: &Proposal) -> ProposalResult {
        ProposalResult::of(proposal, ProposalResultCode::Ended, Some(format!("it {}", proposal.end())))
    }
}
