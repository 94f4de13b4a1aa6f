//! Mistakes in the order of a node's steps, and in the reading of answers. `zoo/order.rs` names them.

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
