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

/// An outcome of a POST or of an inquiry with its evidence, as the journal keeps them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer<O = Outcome> {
    pub outcome: O,
    /// The HTTP status; `None` if no status was read.
    pub status: Option<u16>,
    pub code: Code,
    /// At most 500 characters for people, without account data.
    pub message: String,
    /// The bank's reference, if the channel names its place in the answer.
    pub bank_ref: Option<String>,
    /// The answer names another refund: its connection may be one answer off.
    pub names_another: bool,
}

impl<O> Answer<O> {
    /// Makes an answer without a status and a reference. Keeps 500 characters of the message, no hidden characters
    /// and no card number.
    #[must_use]
    pub fn new(outcome: O, code: Code, message: impl Into<String>) -> Self {
        let message = for_the_journal(&message.into());
        Answer { outcome, status: None, code, message, bank_ref: None, names_another: false }
    }
}

/// A message as the journal keeps it: at most 500 characters, without hidden characters and card numbers. The hidden
/// characters go first: between digits they could keep a card number from being seen.
///
/// A line of the journal may end with `; bank reference` and the reference, which Postgres adds and reads (`settle.sql`, `settle_inquiry.sql`,
/// `late_evidence_makes_a_version`). A bank's own text must not look so.
fn for_the_journal(message: &str) -> String {
    let shown = card::masked(&text::visible(message)).replace("; bank reference ", ", bank reference ");
    text::first(shown, 500)
}

const MASKED_REFERENCE: &str = ", or masking made two references one: it looks like a card number; if it is none, set \
     `card_numbers = \"accepted\"` for the channel";

/// The message for people about an answer with a bank reference that belongs to another refund. Two references that look
/// like card numbers may be one after their middle digits are masked, and then the other refund has no part in it.
#[must_use]
pub fn taken_reference(reference: &str, holder: Option<RefundId>, answered: &str) -> String {
    let holder = holder.map_or_else(|| "another refund".to_owned(), |id| format!("refund {id}"));
    let masked = if reference.contains(card::SHORTEST_MASK) { MASKED_REFERENCE } else { "" };
    format!("the bank's reference in the answer belongs to {holder}{masked}; it was: {answered}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_reference_names_its_holder_and_a_masked_one_the_way_out() {
        let holder = Some(RefundId(7));
        assert_eq!(
            taken_reference("B-1", holder, "HTTP 200"),
            "the bank's reference in the answer belongs to refund 7; it was: HTTP 200"
        );
        assert_eq!(
            taken_reference("B-1", None, "HTTP 200"),
            "the bank's reference in the answer belongs to another refund; it was: HTTP 200"
        );
        for number in ["4111111111111111", "4222222222222"] {
            let said = taken_reference(&card::masked(number), holder, "HTTP 200");
            assert!(said.contains("masking") && said.contains("card_numbers = \"accepted\""), "{said}");
            assert!(said.contains("refund 7") && said.ends_with("it was: HTTP 200"), "{said}");
        }
    }

    #[test]
    fn no_text_of_a_bank_looks_like_the_reference_that_postgres_adds_to_a_line() {
        for said in ["done; bank reference 77", "done; bank\u{200b} reference 77"] {
            let answer = Answer::new(Outcome::Succeeded, Code::Succeeded, said);
            assert_eq!(answer.message, "done, bank reference 77");
        }
    }
}
