//! Mistakes in the order of things, and in what an answer is taken for.

use refundd::refund::{Answer, Outcome, Settlement, State};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    SendBeforeTheClaim,
    SendAfterALostClaim,
    NoLeash,
    PermitUsedLate,
    KeyPerAttempt,
    RedirectsFollowed,
    TimeOutIsNotExecuted,
    CutAnswerIsNotExecuted,
    ServerErrorIsRetried,
    ServerErrorIsFailed,
    AcceptedIsSucceeded,
    UnknownIsFailed,
    NodesClock,
    ResendIsFirst,
}

pub const ALL: &[(&str, Mistake)] = &[
    ("a request leaves before the answer to its claim is known", Mistake::SendBeforeTheClaim),
    ("a claim whose answer was lost is taken for made", Mistake::SendAfterALostClaim),
    ("nobody looks whether the lease still covers the call", Mistake::NoLeash),
    ("a permit is used after it closed", Mistake::PermitUsedLate),
    ("every attempt has a key of its own", Mistake::KeyPerAttempt),
    ("redirects are followed", Mistake::RedirectsFollowed),
    ("a time-out counts as not executed", Mistake::TimeOutIsNotExecuted),
    ("a cut answer counts as not executed", Mistake::CutAnswerIsNotExecuted),
    ("500 is retried", Mistake::ServerErrorIsRetried),
    ("500 and 409 count as refusals", Mistake::ServerErrorIsFailed),
    ("pending counts as paid", Mistake::AcceptedIsSucceeded),
    ("what is unknown is failed", Mistake::UnknownIsFailed),
    ("what a second send came to is taken for the first's", Mistake::ResendIsFirst),
    ("windows are counted by each node's own clock", Mistake::NodesClock),
];

impl Mistake {
    /// What the answer is taken for.
    pub fn reads(self, answer: &mut Answer) {
        answer.outcome = match (self, answer.code, answer.status) {
            (Mistake::TimeOutIsNotExecuted, "timeout", _)
            | (Mistake::CutAnswerIsNotExecuted, "answer_lost", _)
            | (Mistake::ServerErrorIsRetried, _, Some(500..=599)) => Outcome::NotExecuted,
            (Mistake::AcceptedIsSucceeded, "accepted", _) => Outcome::Succeeded,
            (Mistake::ServerErrorIsFailed, "bank_trouble", _) => Outcome::Rejected,
            _ => return,
        };
    }

    /// Where the refund goes.
    pub fn settles(self, answer: &Answer, settlement: &mut Settlement) {
        if self == Mistake::UnknownIsFailed && answer.outcome == Outcome::Unknown {
            settlement.next = State::Failed;
        }
    }
}
