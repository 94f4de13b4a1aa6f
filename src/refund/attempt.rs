//! One request to a bank and what came of it.

use std::time::Duration;

use super::{Code, RefundId};

/// What a request to a bank came to. A rejection is not an error of ours; silence is not a rejection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The bank paid.
    Succeeded,
    /// The bank has it and will tell.
    Accepted,
    /// The bank refused this refund for good.
    Rejected,
    /// Provably nothing happened, for a reason that is this send's own: try again later.
    NotExecuted,
    /// The bank asked us to wait. Nothing happened, no attempt is counted, the channel cools down.
    AskedToWait {
        /// How long, where the bank said.
        retry_after: Option<Duration>,
    },
    /// The bank does not let us in. Nothing happened; the channel pauses itself.
    Unauthorised,
    /// The permit or the lease ran out before the first byte, or the node is stopping.
    /// Nothing was written, so no attempt is counted.
    HandedBack,
    /// It may have happened.
    Unknown,
    /// The same, and the bank knows the key already (409): another send under it tells nothing new.
    Conflict,
    /// An answer that only a person can read, such as a proxy's page.
    Review,
}

impl Outcome {
    /// The word for metrics and logs.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Outcome::Succeeded => "succeeded",
            Outcome::Accepted => "accepted",
            Outcome::Rejected => "rejected",
            Outcome::NotExecuted => "not_executed",
            Outcome::AskedToWait { .. } => "asked_to_wait",
            Outcome::Unauthorised => "unauthorised",
            Outcome::HandedBack => "handed_back",
            Outcome::Unknown | Outcome::Conflict => "unknown",
            Outcome::Review => "review",
        }
    }

    /// The word in the journal: what can be proved about the bank, without our own reasons.
    #[must_use]
    pub fn journal_word(&self) -> &'static str {
        match self {
            Outcome::Succeeded => "succeeded",
            Outcome::Accepted => "accepted",
            Outcome::Rejected => "rejected",
            Outcome::NotExecuted
            | Outcome::AskedToWait { .. }
            | Outcome::Unauthorised
            | Outcome::HandedBack => "not_executed",
            Outcome::Unknown | Outcome::Conflict => "unknown",
            Outcome::Review => "review",
        }
    }
}

/// An outcome with the evidence for it, as the journal keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub outcome: Outcome,
    /// The HTTP status, if one was read.
    pub status: Option<u16>,
    pub code: Code,
    /// At most 500 characters for people, without account data.
    pub message: String,
    /// The bank's own reference, where the channel says where it stands.
    pub bank_ref: Option<String>,
}

impl Answer {
    #[must_use]
    pub fn new(outcome: Outcome, code: Code, message: impl Into<String>) -> Self {
        let message: String = message.into();
        let message = message.chars().filter(|c| !c.is_control()).take(500).collect();
        Answer { outcome, status: None, code, message, bank_ref: None }
    }
}

/// What a person is told when an answer holds a reference of the bank's that another refund has.
#[must_use]
pub fn taken_reference(holder: Option<RefundId>, answered: &str) -> String {
    match holder {
        Some(id) => format!("the bank's reference in the answer belongs to refund {id}; it was: {answered}"),
        None => format!("the bank's reference in the answer belongs to another refund; it was: {answered}"),
    }
}
