//! Settles one send: its outcome and its attempt number in, the refund's next state out. Pure.
//!
//! A resend follows a send that may have been executed. So only a positive answer to a resend counts. Any other
//! outcome of a resend says nothing about the first send.
//!
//! The module does not settle inquiries: [`inquiry`] does.

use std::time::Duration;

use super::inquiry::{self, ACCEPTED_PATIENCE};
use super::on_unknown::OnUnknown;
use super::retry::RetryPolicy;
use super::{Answer, Outcome, State};

/// The effect of a send's outcome on its refund.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    pub next: State,
    /// The time until the next action. It matters for `ready`, for `accepted`, and for `unknown` with a resend.
    pub wait: Duration,
    /// Whether the send uses up an attempt.
    pub counted: bool,
    /// The time until the first inquiry; `None` if there is none.
    pub inquire_in: Option<Duration>,
}

/// The send to settle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sending {
    /// The number of this send among the refund's counted sends.
    pub number: u32,
    /// An earlier send may have been executed.
    pub is_resend: bool,
    /// How many earlier leases ended without a counted attempt: the bank answered "slow down", or no byte left. After a
    /// person's `ready` these are also the sends before it. 0 if no byte left before this send.
    pub uncounted_leases: u32,
}

impl Sending {
    /// Whether the refund goes first again after a refusal that concerns its channel.
    #[must_use]
    pub fn keeps_place(self) -> bool {
        self.uncounted_leases < UNCOUNTED_LEASES
    }
}

/// How a channel's refunds are settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    pub retry: RetryPolicy,
    /// How long the channel cools down if the bank gives no time.
    pub cool_down: Duration,
    pub on_unknown: OnUnknown,
    /// Whether the channel has an inquiry.
    pub inquires: bool,
}

/// After this many uncounted leases a refund no longer goes first: the bank's refusals may concern it alone.
const UNCOUNTED_LEASES: u32 = 3;

/// The shortest wait of such a refund.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);

impl Settlement {
    /// Decides what an answer does to the refund. `jitter` is drawn from [0, 1).
    #[must_use]
    pub fn of(answer: &Answer, send: Sending, policy: &Policy, jitter: f64) -> Self {
        let to = |next| Settlement { next, wait: Duration::ZERO, counted: true, inquire_in: None };
        // The outcome of a resend never proves that nothing was executed.
        let unexecuted = if send.is_resend { State::Unknown } else { State::Ready };
        let again = |wait| Settlement { wait, counted: false, ..to(unexecuted) };
        let retry = || policy.retry.wait_after(send.number, jitter);
        let behind = |wait: Option<Duration>| again(wait.unwrap_or(policy.cool_down).max(SHORTEST_WAIT));
        match &answer.outcome {
            Outcome::Succeeded => to(State::Succeeded),
            Outcome::Accepted => Settlement {
                wait: ACCEPTED_PATIENCE,
                inquire_in: policy.inquires.then_some(inquiry::FIRST),
                ..to(State::Accepted)
            },
            Outcome::NotExecuted => match retry() {
                Some(wait) => Settlement { wait, ..to(unexecuted) },
                None if send.is_resend => policy.inquire_or_review(),
                None => to(State::Review),
            },
            Outcome::HandedBack => again(Duration::ZERO),
            // The channel cools down, or is suspended. The refund keeps its place and goes first afterwards.
            Outcome::SlowDown { .. } | Outcome::Unauthorised if send.keeps_place() => again(Duration::ZERO),
            Outcome::SlowDown { retry_after } => behind(*retry_after),
            Outcome::Unauthorised => behind(None),
            // The bank says that it had a first send, or it refuses the second.
            Outcome::Rejected | Outcome::Review if send.is_resend && !answer.code.is_mixed_up() => {
                policy.inquire_or_review()
            }
            Outcome::Conflict if send.is_resend => policy.inquire_or_review(),
            Outcome::Rejected => to(State::Failed),
            Outcome::Review => to(State::Review),
            Outcome::Unknown | Outcome::Conflict => match policy.on_unknown {
                OnUnknown::Review => to(State::Unknown),
                OnUnknown::Inquire => policy.inquire_or_review(),
                OnUnknown::Resend { .. } => match retry() {
                    Some(wait) => Settlement { wait, ..to(State::Unknown) },
                    None => policy.inquire_or_review(),
                },
            },
        }
    }
}

impl Policy {
    /// Asks the bank if the channel has an inquiry; otherwise a person decides.
    fn inquire_or_review(&self) -> Settlement {
        Settlement {
            next: if self.inquires { State::Unknown } else { State::Review },
            wait: Duration::ZERO,
            counted: true,
            inquire_in: self.inquires.then_some(inquiry::FIRST),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refund::Code;

    const RESEND: OnUnknown = OnUnknown::Resend { key_retention: Duration::from_hours(24) };

    fn policy(on_unknown: OnUnknown, inquires: bool) -> Policy {
        Policy { retry: RetryPolicy::default(), cool_down: Duration::from_secs(5), on_unknown, inquires }
    }

    fn settle(outcome: &Outcome, number: u32) -> Settlement {
        let answer = Answer::new(outcome.clone(), Code::Unmapped, "");
        Settlement::of(
            &answer,
            Sending { number, is_resend: false, uncounted_leases: 0 },
            &policy(OnUnknown::Review, false),
            0.5,
        )
    }

    fn settle_resend(answer: &Answer, number: u32, inquires: bool) -> Settlement {
        Settlement::of(
            answer,
            Sending { number, is_resend: true, uncounted_leases: 0 },
            &policy(RESEND, inquires),
            0.5,
        )
    }

    fn every_outcome() -> [Outcome; 10] {
        [
            Outcome::Succeeded,
            Outcome::Accepted,
            Outcome::Rejected,
            Outcome::NotExecuted,
            Outcome::SlowDown { retry_after: None },
            Outcome::Unauthorised,
            Outcome::HandedBack,
            Outcome::Unknown,
            Outcome::Conflict,
            Outcome::Review,
        ]
    }

    #[test]
    fn only_what_provably_was_not_executed_goes_back_to_ready() {
        let slow_down = Outcome::SlowDown { retry_after: None };
        for outcome in [Outcome::NotExecuted, slow_down, Outcome::Unauthorised, Outcome::HandedBack] {
            assert_eq!(settle(&outcome, 1).next, State::Ready, "{outcome:?}");
        }
        for outcome in [
            Outcome::Succeeded,
            Outcome::Accepted,
            Outcome::Rejected,
            Outcome::Unknown,
            Outcome::Conflict,
            Outcome::Review,
        ] {
            assert_ne!(settle(&outcome, 1).next, State::Ready, "{outcome:?}");
        }
    }

    #[test]
    fn the_twelfth_send_that_was_not_executed_goes_to_a_person() {
        assert_eq!(settle(&Outcome::NotExecuted, 11).next, State::Ready);
        assert_eq!(settle(&Outcome::NotExecuted, 12).next, State::Review);
    }

    #[test]
    fn slow_down_uses_up_no_attempt() {
        let wait = |retry_after, uncounted_leases| {
            let answer = Answer::new(Outcome::SlowDown { retry_after }, Code::Unmapped, "");
            let send = Sending { number: 12, is_resend: false, uncounted_leases };
            let settled = Settlement::of(&answer, send, &policy(OnUnknown::Review, false), 0.5);
            assert_eq!((settled.next, settled.counted), (State::Ready, false));
            settled.wait
        };
        let named = Some(Duration::from_secs(90));
        assert_eq!(wait(named, 0), Duration::ZERO, "the channel waits, and the refund goes first");
        assert_eq!(
            wait(named, UNCOUNTED_LEASES),
            Duration::from_secs(90),
            "and after some times lets others go first"
        );
        assert_eq!(wait(None, UNCOUNTED_LEASES), Duration::from_secs(5));
    }

    #[test]
    fn a_refund_that_is_never_let_in_lets_others_go_first_after_some_times() {
        let wait = |uncounted_leases| {
            let answer = Answer::new(Outcome::Unauthorised, Code::Unauthorised, "");
            let send = Sending { number: 1, is_resend: false, uncounted_leases };
            Settlement::of(&answer, send, &policy(RESEND, false), 0.5).wait.as_secs()
        };
        assert_eq!([0, 2, 3, 40].map(wait), [0, 0, 5, 5]);
    }

    #[test]
    fn no_resend_goes_back_to_ready_and_none_fails_whatever_it_came_to() {
        for outcome in every_outcome() {
            for inquires in [true, false] {
                for number in [2, 12] {
                    let answer = Answer::new(outcome.clone(), Code::Unmapped, "");
                    let next = settle_resend(&answer, number, inquires).next;
                    assert!(!matches!(next, State::Ready | State::Failed), "{outcome:?} came to {next}");
                    let positive = matches!(outcome, Outcome::Succeeded | Outcome::Accepted);
                    assert_eq!(matches!(next, State::Succeeded | State::Accepted), positive, "{outcome:?}");
                }
            }
        }
    }

    #[test]
    fn a_refusal_of_a_resend_ends_resending() {
        let refused = Answer::new(Outcome::Rejected, Code::Rejected, "");
        let duplicate = Answer::new(Outcome::Conflict, Code::BankTrouble, "");
        for answer in [refused, duplicate] {
            let settled = settle_resend(&answer, 2, true);
            assert_eq!(
                (settled.next, settled.inquire_in),
                (State::Unknown, Some(inquiry::FIRST)),
                "{answer:?}"
            );
            assert_eq!(settle_resend(&answer, 2, false).next, State::Review, "{answer:?}");
        }
        let other = Answer::new(Outcome::Review, Code::EchoDiffers, "");
        assert_eq!(settle_resend(&other, 2, true).next, State::Review, "a person sees what is mixed up");
    }

    #[test]
    fn an_unknown_refund_waits_for_a_person_an_inquiry_or_a_resend_as_the_channel_says() {
        let answer = Answer::new(Outcome::Unknown, Code::Timeout, "");
        let first = Sending { number: 1, is_resend: false, uncounted_leases: 0 };
        let of = |on_unknown, inquires| Settlement::of(&answer, first, &policy(on_unknown, inquires), 0.5);
        assert_eq!(
            (of(OnUnknown::Review, true).next, of(OnUnknown::Review, true).inquire_in),
            (State::Unknown, None)
        );
        assert_eq!(of(OnUnknown::Inquire, true).inquire_in, Some(inquiry::FIRST));
        let again = of(RESEND, true);
        assert_eq!(
            (again.next, again.wait, again.inquire_in),
            (State::Unknown, Duration::from_secs(1), None)
        );
        let last = Sending { number: 12, is_resend: true, uncounted_leases: 0 };
        let used_up = |inquires| Settlement::of(&answer, last, &policy(RESEND, inquires), 0.5);
        assert_eq!((used_up(true).next, used_up(true).inquire_in), (State::Unknown, Some(inquiry::FIRST)));
        assert_eq!(used_up(false).next, State::Review);
    }

    #[test]
    fn accepted_refunds_get_an_inquiry_wherever_the_channel_has_one() {
        let answer = Answer::new(Outcome::Accepted, Code::Accepted, "");
        for on_unknown in [OnUnknown::Review, OnUnknown::Inquire, RESEND] {
            for inquires in [true, false] {
                let first = Sending { number: 1, is_resend: false, uncounted_leases: 0 };
                let settled = Settlement::of(&answer, first, &policy(on_unknown, inquires), 0.5);
                assert_eq!(settled.inquire_in.is_some(), inquires);
            }
        }
    }

    #[test]
    fn every_settlement_is_a_legal_move_from_sending() {
        for outcome in every_outcome() {
            for attempt in [1, 12, 40] {
                assert!(State::Sending.may_move_to(settle(&outcome, attempt).next), "{outcome:?}");
                let answer = Answer::new(outcome.clone(), Code::Unmapped, "");
                assert!(State::Sending.may_move_to(settle_resend(&answer, attempt, true).next));
            }
        }
    }
}
