//! Mistakes in the order of a node's steps, and in the reading of answers.

use refundd::refund::inquiry::{InquiryAnswer, InquiryOutcome, Trust};
use refundd::refund::{Answer, Code, Outcome, Settlement, State};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    SendBeforeTheClaim,
    SendAfterALostClaim,
    NoSendDeadline,
    PermitUsedLate,
    LeftOverUsedLate,
    KeyPerAttempt,
    RedirectsFollowed,
    TimeOutIsNotExecuted,
    CutAnswerIsNotExecuted,
    CutAnswerIsSucceeded,
    ServerErrorIsRetried,
    ServerErrorIsFailed,
    AcceptedIsSucceeded,
    UnknownIsFailed,
    NodesClock,
    ClockIsReadByTakesAlone,
    ResendIsFirst,
    NotFoundAtOnce,
    NotFoundAnywhere,
    NotFoundIsFailed,
    TroubleIsNotFound,
    SilenceIsNotFound,
    AnyPageIsNotFound,
    AskWithoutAPermit,
    AnotherAmountIsPaid,
    LookBeforeTheDial,
    AcquireAnsweredLate,
}

pub const ALL: &[(&str, Mistake)] = &[
    ("a request leaves before the answer to its claim is known", Mistake::SendBeforeTheClaim),
    ("a claim whose answer was lost is taken for made", Mistake::SendAfterALostClaim),
    ("nobody looks whether the lease still covers the call", Mistake::NoSendDeadline),
    ("a permit is used after it closed", Mistake::PermitUsedLate),
    ("a left-over permit is used after its span", Mistake::LeftOverUsedLate),
    ("every attempt has a key of its own", Mistake::KeyPerAttempt),
    ("redirects are followed", Mistake::RedirectsFollowed),
    ("a time-out counts as not executed", Mistake::TimeOutIsNotExecuted),
    ("a cut answer counts as not executed", Mistake::CutAnswerIsNotExecuted),
    ("an answer that ends before any body counts as success", Mistake::CutAnswerIsSucceeded),
    ("500 is retried", Mistake::ServerErrorIsRetried),
    ("500 and 409 count as refusals", Mistake::ServerErrorIsFailed),
    ("pending counts as paid", Mistake::AcceptedIsSucceeded),
    ("what is unknown is failed", Mistake::UnknownIsFailed),
    ("what a second send came to is taken for the first's", Mistake::ResendIsFirst),
    ("what the bank does not find is believed before the grace is over", Mistake::NotFoundAtOnce),
    ("what the bank does not find is believed where that is not final", Mistake::NotFoundAnywhere),
    ("what the bank does not find has failed", Mistake::NotFoundIsFailed),
    ("an inquiry that comes to 500 is taken for not found", Mistake::TroubleIsNotFound),
    ("an inquiry without an answer is taken for not found", Mistake::SilenceIsNotFound),
    ("a proxy's 404 is taken for the bank's", Mistake::AnyPageIsNotFound),
    ("the bank is asked without a permit", Mistake::AskWithoutAPermit),
    ("an answer about another amount is taken for this refund's", Mistake::AnotherAmountIsPaid),
    ("a permit is looked at before the connection is open", Mistake::LookBeforeTheDial),
    ("another service is told of a permit that is over", Mistake::AcquireAnsweredLate),
    ("windows are counted by each node's own clock", Mistake::NodesClock),
    ("heartbeats do not read Redis's clock", Mistake::ClockIsReadByTakesAlone),
];

impl Mistake {
    /// Misreads the answer to a send.
    pub fn reads(self, answer: &mut Answer) {
        answer.outcome = match (self, answer.code, answer.status) {
            (Mistake::TimeOutIsNotExecuted, Code::Timeout, _)
            | (Mistake::CutAnswerIsNotExecuted, Code::AnswerLost, _)
            | (Mistake::ServerErrorIsRetried, _, Some(500..=599)) => Outcome::NotExecuted,
            (Mistake::AcceptedIsSucceeded, Code::Accepted, _)
            | (Mistake::CutAnswerIsSucceeded, Code::EmptyUnframed, _) => Outcome::Succeeded,
            (Mistake::ServerErrorIsFailed, Code::BankTrouble, _) => Outcome::Rejected,
            _ => return,
        };
    }

    /// Misreads the answer to an inquiry.
    pub fn reads_inquiry(self, answer: &mut InquiryAnswer) {
        answer.outcome = match (self, answer.code) {
            (Mistake::TroubleIsNotFound, Code::BankTrouble)
            | (Mistake::SilenceIsNotFound, Code::AnswerLost | Code::Timeout)
            | (Mistake::AnyPageIsNotFound, Code::NotJson) => InquiryOutcome::NotFound,
            (Mistake::AnotherAmountIsPaid, Code::EchoDiffers) => InquiryOutcome::Succeeded,
            _ => return,
        };
    }

    /// Trusts "not found" too far.
    pub fn trusts(self, trust: &mut Trust) {
        match self {
            Mistake::NotFoundAtOnce => trust.grace = std::time::Duration::ZERO,
            Mistake::NotFoundAnywhere => trust.not_found_is_final = true,
            _ => {}
        }
    }

    /// Settles a refund wrongly.
    pub fn settles(self, answer: &Answer, settlement: &mut Settlement) {
        if self == Mistake::UnknownIsFailed && matches!(answer.outcome, Outcome::Unknown | Outcome::Conflict)
        {
            settlement.next = State::Failed;
        }
    }
}
