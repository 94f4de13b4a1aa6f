//! The names of the mistakes in the order of a node's steps, and in the reading of answers.

use crate::mistake::Mistake;

pub const ALL: &[(&str, Mistake)] = &[
    ("a request leaves before the answer to its claim is known", Mistake::SendBeforeTheClaim),
    ("a claim whose answer was lost counts as made", Mistake::SendAfterALostClaim),
    ("the lease is not checked before the request", Mistake::NoSendDeadline),
    ("a permit is used after it closed", Mistake::PermitUsedLate),
    ("a left-over permit is used after its span", Mistake::LeftOverUsedLate),
    ("every attempt has a key of its own", Mistake::KeyPerAttempt),
    ("redirects are followed", Mistake::RedirectsFollowed),
    ("a time-out counts as not executed", Mistake::TimeOutIsNotExecuted),
    ("a cut answer counts as not executed", Mistake::CutAnswerIsNotExecuted),
    ("an answer that ends before any body counts as success", Mistake::CutAnswerIsSucceeded),
    ("an answer 500 is retried", Mistake::ServerErrorIsRetried),
    ("answers 500 and 409 count as refusals", Mistake::ServerErrorIsFailed),
    ("a pending answer counts as paid", Mistake::AcceptedIsSucceeded),
    ("an unknown outcome fails the refund", Mistake::UnknownIsFailed),
    ("the outcome of a second send counts as that of the first", Mistake::ResendIsFirst),
    ("an answer not found is believed before the grace is over", Mistake::NotFoundAtOnce),
    ("an answer not found is believed where it is not final", Mistake::NotFoundAnywhere),
    ("an answer not found fails the refund", Mistake::NotFoundIsFailed),
    ("an inquiry answered 500 counts as not found", Mistake::TroubleIsNotFound),
    ("an inquiry without an answer counts as not found", Mistake::SilenceIsNotFound),
    ("a proxy's 404 is taken for the bank's", Mistake::AnyPageIsNotFound),
    ("an inquiry is sent without a permit", Mistake::AskWithoutAPermit),
    ("an answer about another amount settles the refund", Mistake::AnotherAmountIsPaid),
    ("a permit is checked before the connection is open", Mistake::LookBeforeTheDial),
    ("another service gets a permit that is over", Mistake::AcquireAnsweredLate),
    ("windows are counted by each node's own clock", Mistake::NodesClock),
    ("heartbeats do not read Redis's clock", Mistake::ClockIsReadByTakesAlone),
];
