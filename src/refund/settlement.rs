//! What becomes of a refund after one send: outcome and attempt number in, next state out. Pure.
//!
//! Of a send that repeats one which may have been executed, only a positive word counts: whatever else
//! it came to says nothing about the first.

use std::time::Duration;

use super::inquiry::{self, ACCEPTED_PATIENCE};
use super::retry::RetryPolicy;
use super::{Answer, Outcome, State};

/// Where a settled refund goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    pub next: State,
    /// Until its next action; matters for `ready`, for `accepted`, and for `unknown` that is sent again.
    pub wait: Duration,
    /// Whether the send uses up an attempt.
    pub counted: bool,
    /// Until the bank is asked what became of it; `None` where it is not asked.
    pub inquire_in: Option<Duration>,
}

/// The send that is to be settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sending {
    /// Which counted send it is.
    pub number: u32,
    /// An earlier send may have been executed.
    pub is_resend: bool,
    /// How many leases before came to nothing that counts: the bank asked to wait, or no byte left.
    pub in_vain: u32,
}

/// What is done about a refund that may have been executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnUnknown {
    /// A person decides.
    Review,
    /// The bank is asked.
    Inquire,
    /// It is sent again under the same key, as long as the bank remembers that.
    Resend {
        /// From the first send on.
        key_retention: Duration,
    },
}

/// How a channel's refunds are settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    pub retry: RetryPolicy,
    /// How long the channel rests when the bank does not say.
    pub cool_down: Duration,
    pub on_unknown: OnUnknown,
    /// Whether the bank can be asked.
    pub inquires: bool,
}

/// A refund that was sent in vain so often does not go first any more: the bank may mean this one, and not the channel.
const IN_VAIN: u32 = 3;

/// A bank that asks us to wait is not asked again sooner about such a refund.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);

impl Settlement {
    /// `jitter` is drawn from [0, 1).
    #[must_use]
    pub fn of(answer: &Answer, send: Sending, policy: &Policy, jitter: f64) -> Self {
        let to = |next| Settlement { next, wait: Duration::ZERO, counted: true, inquire_in: None };
        // What happened to a resend is never proof that nothing was executed.
        let unexecuted = if send.is_resend { State::Unknown } else { State::Ready };
        let again = |wait| Settlement { wait, counted: false, ..to(unexecuted) };
        let retry = || policy.retry.wait_after(send.number, jitter);
        match &answer.outcome {
            Outcome::Succeeded => to(State::Succeeded),
            Outcome::Accepted => Settlement {
                wait: ACCEPTED_PATIENCE,
                inquire_in: policy.inquires.then_some(inquiry::FIRST),
                ..to(State::Accepted)
            },
            Outcome::NotExecuted => match retry() {
                Some(wait) => Settlement { wait, ..to(unexecuted) },
                None if send.is_resend => policy.ask_or_show(),
                None => to(State::Review),
            },
            // The channel pauses; the refund keeps its place, and goes first when the pause is over.
            Outcome::AskedToWait { .. } if send.in_vain < IN_VAIN => again(Duration::ZERO),
            // Others go on meanwhile.
            Outcome::AskedToWait { retry_after } => {
                again(retry_after.unwrap_or(policy.cool_down).max(SHORTEST_WAIT))
            }
            // The channel is paused with them; they go out first when it is resumed.
            Outcome::Unauthorised | Outcome::HandedBack => again(Duration::ZERO),
            // The bank says of the second send that there was a first, or that it will not have it.
            Outcome::Rejected | Outcome::Review if send.is_resend && !answer.code.is_mixed_up() => {
                policy.ask_or_show()
            }
            Outcome::Conflict if send.is_resend => policy.ask_or_show(),
            Outcome::Rejected => to(State::Failed),
            Outcome::Review => to(State::Review),
            Outcome::Unknown | Outcome::Conflict => match policy.on_unknown {
                OnUnknown::Review => to(State::Unknown),
                OnUnknown::Inquire => policy.ask_or_show(),
                OnUnknown::Resend { .. } => match retry() {
                    Some(wait) => Settlement { wait, ..to(State::Unknown) },
                    None => policy.ask_or_show(),
                },
            },
        }
    }
}

impl Policy {
    /// The bank is asked, if it can be; otherwise a person is.
    fn ask_or_show(&self) -> Settlement {
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
            Sending { number, is_resend: false, in_vain: 0 },
            &policy(OnUnknown::Review, false),
            0.5,
        )
    }

    fn settle_resend(answer: &Answer, number: u32, inquires: bool) -> Settlement {
        Settlement::of(
            answer,
            Sending { number, is_resend: true, in_vain: 0 },
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
            Outcome::AskedToWait { retry_after: None },
            Outcome::Unauthorised,
            Outcome::HandedBack,
            Outcome::Unknown,
            Outcome::Conflict,
            Outcome::Review,
        ]
    }

    #[test]
    fn only_what_provably_was_not_executed_goes_back_to_ready() {
        let asked_to_wait = Outcome::AskedToWait { retry_after: None };
        for outcome in [Outcome::NotExecuted, asked_to_wait, Outcome::Unauthorised, Outcome::HandedBack] {
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
    fn being_told_to_wait_uses_up_no_attempt() {
        let told = |retry_after, in_vain| {
            let answer = Answer::new(Outcome::AskedToWait { retry_after }, Code::Unmapped, "");
            let send = Sending { number: 12, is_resend: false, in_vain };
            let told = Settlement::of(&answer, send, &policy(OnUnknown::Review, false), 0.5);
            assert_eq!((told.next, told.counted), (State::Ready, false));
            told.wait
        };
        let named = Some(Duration::from_secs(90));
        assert_eq!(told(named, 0), Duration::ZERO, "the channel waits, and the refund goes first");
        assert_eq!(
            told(named, IN_VAIN),
            Duration::from_secs(90),
            "and after some times lets others go first"
        );
        assert_eq!(told(None, IN_VAIN), Duration::from_secs(5));
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
            let asked = settle_resend(&answer, 2, true);
            assert_eq!((asked.next, asked.inquire_in), (State::Unknown, Some(inquiry::FIRST)), "{answer:?}");
            assert_eq!(settle_resend(&answer, 2, false).next, State::Review, "{answer:?}");
        }
        let other = Answer::new(Outcome::Review, Code::EchoDiffers, "");
        assert_eq!(settle_resend(&other, 2, true).next, State::Review, "a person sees what is mixed up");
    }

    #[test]
    fn what_is_unknown_is_shown_asked_about_or_sent_again_as_the_channel_says() {
        let answer = Answer::new(Outcome::Unknown, Code::Timeout, "");
        let first = Sending { number: 1, is_resend: false, in_vain: 0 };
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
        let last = Sending { number: 12, is_resend: true, in_vain: 0 };
        let used_up = |inquires| Settlement::of(&answer, last, &policy(RESEND, inquires), 0.5);
        assert_eq!((used_up(true).next, used_up(true).inquire_in), (State::Unknown, Some(inquiry::FIRST)));
        assert_eq!(used_up(false).next, State::Review);
    }

    #[test]
    fn accepted_refunds_are_asked_about_wherever_the_bank_can_be_asked() {
        let answer = Answer::new(Outcome::Accepted, Code::Accepted, "");
        for on_unknown in [OnUnknown::Review, OnUnknown::Inquire, RESEND] {
            for inquires in [true, false] {
                let first = Sending { number: 1, is_resend: false, in_vain: 0 };
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
