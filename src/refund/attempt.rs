//! The outcome of one POST to a bank, with its evidence.
//!
//! Outcomes of inquiries are in [`inquiry`](super::inquiry).

use std::time::Duration;

use super::{Code, RefundId, card, text};

/// The outcome of a POST. A rejection is not an error of refundd, and silence is not a rejection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The bank paid.
    Succeeded,
    /// The bank has the refund and will decide later.
    Accepted,
    /// The bank refused this refund for good.
    Rejected,
    /// Provably nothing happened, for a reason that concerns only this send. refundd sends again later.
    NotExecuted,
    /// The bank answered "slow down". Nothing happened, no attempt is counted, and the channel cools down.
    SlowDown {
        /// How long the bank wants refundd to wait; `None` if the bank gave no time.
        retry_after: Option<Duration>,
    },
    /// The bank refused the credentials. Nothing happened, and the channel is suspended until a person
    /// ends that.
    Unauthorised,
    /// The permit or the lease ran out before the first byte, or the node is stopping.
    /// No byte was written, so no attempt is counted.
    HandedBack,
    /// The bank may have executed the refund.
    Unknown,
    /// The bank may have executed the refund, and it knows the key already (409).
    /// Another send under the key tells nothing new.
    Conflict,
    /// Only a person can read the answer, for example a proxy's page.
    Review,
}

impl Outcome {
    /// Whether nothing happened at the bank, and the refund may be sent again.
    #[must_use]
    pub fn executed_nothing(&self) -> bool {
        matches!(
            self,
            Outcome::NotExecuted | Outcome::SlowDown { .. } | Outcome::Unauthorised | Outcome::HandedBack
        )
    }

    /// The text for metrics and logs.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Outcome::Succeeded => "succeeded",
            Outcome::Accepted => "accepted",
            Outcome::Rejected => "rejected",
            Outcome::NotExecuted => "not_executed",
            Outcome::SlowDown { .. } => "asked_to_wait",
            Outcome::Unauthorised => "unauthorised",
            Outcome::HandedBack => "handed_back",
            Outcome::Unknown | Outcome::Conflict => "unknown",
            Outcome::Review => "review",
        }
    }

    /// The text in the journal: what is proved about the bank, without refundd's own reasons.
    #[must_use]
    pub fn journal_outcome(&self) -> &'static str {
        match self {
            Outcome::Succeeded => "succeeded",
            Outcome::Accepted => "accepted",
            Outcome::Rejected => "rejected",
            Outcome::NotExecuted | Outcome::SlowDown { .. } | Outcome::Unauthorised | Outcome::HandedBack => {
                "not_executed"
            }
            Outcome::Unknown | Outcome::Conflict => "unknown",
            Outcome::Review => "review",
        }
    }
}

/// An outcome with its evidence, as the journal keeps them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub outcome: Outcome,
    /// The HTTP status; `None` if no status was read.
    pub status: Option<u16>,
    pub code: Code,
    /// At most 500 characters for people, without account data.
    pub message: String,
    /// The bank's reference, if the channel names its place in the answer.
    pub bank_ref: Option<String>,
}

impl Answer {
    /// Makes an answer without a status and a reference. Keeps 500 characters of the message, no hidden characters
    /// and no card number.
    #[must_use]
    pub fn new(outcome: Outcome, code: Code, message: impl Into<String>) -> Self {
        Answer { outcome, status: None, code, message: for_the_journal(&message.into()), bank_ref: None }
    }
}

/// A message as the journal keeps it: at most 500 characters, without hidden characters and card numbers. The hidden
/// characters go first: between digits they could keep a card number from being seen.
pub(super) fn for_the_journal(message: &str) -> String {
    text::first(card::masked(&text::visible(message)).into_owned(), 500)
}

/// The message for people about an answer with a bank reference that belongs to another refund.
#[must_use]
pub fn taken_reference(holder: Option<RefundId>, answered: &str) -> String {
    match holder {
        Some(id) => format!("the bank's reference in the answer belongs to refund {id}; it was: {answered}"),
        None => format!("the bank's reference in the answer belongs to another refund; it was: {answered}"),
    }
}
