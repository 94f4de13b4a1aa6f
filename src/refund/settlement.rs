//! What becomes of a refund after one send: outcome and attempt number in, next state out. Pure.

use std::time::Duration;

use super::retry::RetryPolicy;
use super::{Outcome, State};

/// Where a settled refund goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    pub next: State,
    /// Until its next action; matters for `ready` and `accepted`.
    pub wait: Duration,
    /// Whether the send uses up an attempt.
    pub counted: bool,
}

/// How long an accepted refund waits for the bank's word before a person is asked.
pub const ACCEPTED_PATIENCE: Duration = Duration::from_hours(7 * 24);

/// A bank that asks us to wait is not asked again sooner.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);

impl Settlement {
    /// `attempt` is the number of the send that came to `outcome`; `cool_down` is how long the
    /// channel rests when the bank does not say; `jitter` is drawn from [0, 1).
    #[must_use]
    pub fn of(
        outcome: &Outcome,
        attempt: u32,
        policy: &RetryPolicy,
        cool_down: Duration,
        jitter: f64,
    ) -> Self {
        let to = |next| Settlement { next, wait: Duration::ZERO, counted: true };
        let again = |wait| Settlement { next: State::Ready, wait, counted: false };
        match outcome {
            Outcome::Succeeded => to(State::Succeeded),
            Outcome::Accepted => Settlement { wait: ACCEPTED_PATIENCE, ..to(State::Accepted) },
            Outcome::Rejected => to(State::Failed),
            Outcome::NotExecuted => match policy.wait_after(attempt, jitter) {
                Some(wait) => Settlement { wait, ..to(State::Ready) },
                None => to(State::Review),
            },
            // A wait of nothing would send the whole backlog against the same answer.
            Outcome::AskedToWait { retry_after } => {
                again(retry_after.unwrap_or(cool_down).max(SHORTEST_WAIT))
            }
            // The channel is paused with them; they go out first when it is resumed.
            Outcome::Unauthorised | Outcome::HandedBack => again(Duration::ZERO),
            Outcome::Unknown => to(State::Unknown),
            Outcome::Review => to(State::Review),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settle(outcome: &Outcome, attempt: u32) -> Settlement {
        Settlement::of(outcome, attempt, &RetryPolicy::default(), Duration::from_secs(5), 0.5)
    }

    #[test]
    fn only_what_provably_was_not_executed_goes_back_to_ready() {
        let asked_to_wait = Outcome::AskedToWait { retry_after: None };
        for outcome in [Outcome::NotExecuted, asked_to_wait, Outcome::Unauthorised, Outcome::HandedBack] {
            assert_eq!(settle(&outcome, 1).next, State::Ready, "{outcome:?}");
        }
        for outcome in
            [Outcome::Succeeded, Outcome::Accepted, Outcome::Rejected, Outcome::Unknown, Outcome::Review]
        {
            assert_ne!(settle(&outcome, 1).next, State::Ready, "{outcome:?}");
        }
    }

    #[test]
    fn the_twelfth_send_that_was_not_executed_goes_to_a_person() {
        assert_eq!(settle(&Outcome::NotExecuted, 11).next, State::Ready);
        assert_eq!(settle(&Outcome::NotExecuted, 12).next, State::Review);
    }

    #[test]
    fn being_told_to_wait_uses_up_no_attempt() {
        let told = settle(&Outcome::AskedToWait { retry_after: Some(Duration::from_secs(90)) }, 12);
        assert_eq!(told, Settlement { next: State::Ready, wait: Duration::from_secs(90), counted: false });
        assert_eq!(settle(&Outcome::AskedToWait { retry_after: None }, 1).wait, Duration::from_secs(5));
    }

    #[test]
    fn every_settlement_is_a_legal_move_from_sending() {
        for outcome in [
            Outcome::Succeeded,
            Outcome::Accepted,
            Outcome::Rejected,
            Outcome::NotExecuted,
            Outcome::AskedToWait { retry_after: None },
            Outcome::Unauthorised,
            Outcome::HandedBack,
            Outcome::Unknown,
            Outcome::Review,
        ] {
            for attempt in [1, 12, 40] {
                assert!(State::Sending.may_move_to(settle(&outcome, attempt).next), "{outcome:?}");
            }
        }
    }
}
