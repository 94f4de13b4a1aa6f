//! The states of a refund and the legal moves between them.
//!
//! The database has the same table (`refundd.move_is_legal`); a test compares the two. The module moves no refund:
//! the statements in `store` do.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How far a refund has come. The state does not say whether a bucket has the refund's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Saved, and waits for its `due_at`, before the first send or a later one. Provably nothing was executed.
    Ready,
    /// Leased to a node by a claim; may have been sent.
    Sending,
    /// The bank has the refund and will decide later.
    Accepted,
    /// The bank may have executed the refund.
    Unknown,
    /// A person decides.
    Review,
    /// The bank paid. Final.
    Succeeded,
    /// The bank refused, or the deadline passed before any send. Final, unless a person reopens the refund or sends it
    /// again, or the bank says too late that it has it.
    Failed,
    /// Withdrawn before anything was executed. Final, unless a person reopens the refund, or the bank says too late that
    /// it has it. Never sent again after a person reopened it.
    Cancelled,
}

impl State {
    pub const ALL: [State; 8] = [
        State::Ready,
        State::Sending,
        State::Accepted,
        State::Unknown,
        State::Review,
        State::Succeeded,
        State::Failed,
        State::Cancelled,
    ];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            State::Ready => "ready",
            State::Sending => "sending",
            State::Accepted => "accepted",
            State::Unknown => "unknown",
            State::Review => "review",
            State::Succeeded => "succeeded",
            State::Failed => "failed",
            State::Cancelled => "cancelled",
        }
    }

    /// Whether `settled_at` is set: refundd by itself does nothing more with the refund.
    #[must_use]
    pub fn is_end(self) -> bool {
        matches!(self, State::Succeeded | State::Failed | State::Cancelled)
    }

    /// Whether the move from this state to `next` is legal.
    #[must_use]
    pub fn may_move_to(self, next: State) -> bool {
        use State::{Accepted, Cancelled, Failed, Ready, Review, Sending, Succeeded, Unknown};
        let legal: &[State] = match self {
            Ready => &[Sending, Cancelled, Failed, Review],
            Sending => &[Ready, Accepted, Unknown, Review, Succeeded, Failed],
            Accepted => &[Review, Succeeded, Failed],
            Unknown => &[Ready, Sending, Accepted, Review, Succeeded, Failed],
            Review => &[Ready, Succeeded, Failed, Cancelled],
            Failed => &[Ready, Review],
            Cancelled => &[Review],
            Succeeded => &[],
        };
        legal.contains(&next)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The error for a text that is not the name of a state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a state; the states are ready, sending, accepted, unknown, review, succeeded, failed, cancelled"
)]
pub struct BadState(pub String);

impl FromStr for State {
    type Err = BadState;
    fn from_str(text: &str) -> Result<Self, BadState> {
        State::ALL.into_iter().find(|s| s.as_str() == text).ok_or_else(|| BadState(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_names_the_state_that_prints_it() {
        for state in State::ALL {
            assert_eq!(state.as_str().parse(), Ok(state));
            assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
        }
        assert!("Ready".parse::<State>().is_err());
    }

    #[test]
    fn an_end_state_is_left_only_by_a_person_who_reopens_and_for_a_person_to_look_again() {
        let legal = [
            (State::Failed, State::Ready),
            (State::Failed, State::Review),
            (State::Cancelled, State::Review),
        ];
        for from in State::ALL.into_iter().filter(|s| s.is_end()) {
            for to in State::ALL {
                assert_eq!(from.may_move_to(to), legal.contains(&(from, to)), "{from} to {to}");
            }
        }
    }
}
