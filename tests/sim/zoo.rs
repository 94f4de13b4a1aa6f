//! Known mistakes of systems like this one.

use refundd::refund::{Answer, Outcome, Settlement, State};

/// Mistakes in the order of things, or in what an answer is taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    SendBeforeTheClaim,
    SendAfterALostClaim,
    UnclaimByNode,
    NoLeash,
    PermitUsedLate,
    KeyPerAttempt,
    RedirectsFollowed,
    TimeOutIsNotExecuted,
    ServerErrorIsRetried,
    CutAnswerIsNotExecuted,
    AcceptedIsSucceeded,
    NotFoundPageIsFailed,
    ThrottledIsFailed,
}

impl Mistake {
    /// What the answer is taken for.
    pub fn reads(self, answer: &mut Answer) {
        let outcome = match (self, answer.code, answer.status) {
            (Mistake::TimeOutIsNotExecuted, "timeout", _)
            | (Mistake::CutAnswerIsNotExecuted, "answer_lost", _)
            | (Mistake::ServerErrorIsRetried, _, Some(500..=599)) => Outcome::NotExecuted,
            (Mistake::AcceptedIsSucceeded, "accepted", _) => Outcome::Succeeded,
            (Mistake::NotFoundPageIsFailed, "bank_trouble", _) => Outcome::Rejected,
            _ => return,
        };
        answer.outcome = outcome;
    }

    /// Where the refund goes.
    pub fn settles(self, answer: &Answer, settlement: &mut Settlement) {
        if self == Mistake::ThrottledIsFailed && answer.outcome == Outcome::Unknown {
            settlement.next = State::Failed;
        }
    }
}
