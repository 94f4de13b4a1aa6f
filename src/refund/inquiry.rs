//! Asking the bank what became of a refund: when, and what an answer proves. Pure.
//!
//! The one thing to get wrong: "not found" is no proof by itself. The first POST may still be on its
//! way, and of a refund that the bank has accepted it is nonsense.

use std::time::Duration;

use super::retry::RetryPolicy;
use super::{Code, Owed, RefundId, RequestId, State};

/// When a refund is asked about, counted from when it became `unknown` or `accepted`; a day after the
/// last hour it is asked daily, until a week is over.
const AGES: [Duration; 6] = [
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_mins(2),
    Duration::from_mins(10),
    Duration::from_hours(1),
    Duration::from_hours(6),
];
const DAY: Duration = Duration::from_hours(24);

/// A person sees it at this age, whatever became of the last inquiry: a bank that cannot be reached, and a channel
/// that is paused for good, would else keep it from everybody. The schedule's last inquiry has some minutes to itself.
pub const SHOWN_AFTER: Duration = Duration::from_mins(7 * 24 * 60 + 10);

/// How long an accepted refund waits for the bank's word before a person is asked.
pub const ACCEPTED_PATIENCE: Duration = Duration::from_hours(7 * 24);

/// The time until the first inquiry.
pub const FIRST: Duration = AGES[0];

/// How long after this age the bank is asked next; `None` when the schedule is used up.
#[must_use]
pub fn wait_at(age: Duration) -> Option<Duration> {
    let daily = (1..=7).map(|days| DAY * days);
    AGES.into_iter().chain(daily).find_map(|at| at.checked_sub(age).filter(|wait| !wait.is_zero()))
}

/// What a channel's bank can be asked, and how far its word goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trust {
    /// A refund that the bank does not find was never executed and never will be ...
    pub not_found_is_final: bool,
    /// ... if it was asked this long after it became unknown.
    pub grace: Duration,
}

/// What the bank said when asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    Succeeded,
    /// The bank has it and has not decided.
    Pending,
    Rejected,
    NotFound,
    /// The bank asked us to wait; the channel cools down.
    AskedToWait {
        retry_after: Option<Duration>,
    },
    /// The bank does not let us in; the channel pauses itself.
    Unauthorised,
    /// The permit or the lease ran out before the first byte, or the node is stopping.
    HandedBack,
    /// Whatever else: silence, trouble, words we do not know.
    Nothing,
    /// An answer that only a person can judge.
    Review,
}

impl Finding {
    /// The word for metrics and logs.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Finding::Succeeded => "succeeded",
            Finding::Pending => "pending",
            Finding::Rejected => "rejected",
            Finding::NotFound => "not_found",
            Finding::AskedToWait { .. } => "asked_to_wait",
            Finding::Unauthorised => "unauthorised",
            Finding::HandedBack => "handed_back",
            Finding::Nothing => "nothing",
            Finding::Review => "review",
        }
    }
}

/// A finding with the evidence for it, as the journal keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub finding: Finding,
    /// The HTTP status, if one was read.
    pub status: Option<u16>,
    pub code: Code,
    /// At most 500 characters for people, without account data.
    pub message: String,
    /// The bank's own reference.
    pub bank_ref: Option<String>,
}

impl Found {
    #[must_use]
    pub fn new(finding: Finding, code: Code, message: &str) -> Self {
        let message = message.chars().filter(|c| !c.is_control()).take(500).collect();
        Found { finding, status: None, code, message, bank_ref: None }
    }
}

/// A refund that this node may ask about, once.
#[derive(Debug, Clone)]
pub struct Asked {
    pub id: RefundId,
    /// As it was when the inquiry was leased; settling must find all three unchanged.
    pub state: State,
    pub epoch: i64,
    /// Which inquiry of this refund it is.
    pub number: i32,
    /// Sends that counted.
    pub attempts: u32,
    pub request_id: RequestId,
    pub owed: Owed,
    /// Since it became unknown or accepted, when the inquiry was leased.
    pub age: Duration,
    /// Since the last send that may have been executed; `None` where that is not known.
    pub uncertain_for: Option<Duration>,
}

/// Where an inquiry leaves its refund.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolution {
    pub next: State,
    /// Until its next action, where the move gives it one: in `ready`, and newly in `accepted`.
    pub wait: Option<Duration>,
    /// Until it is asked about again.
    pub inquire_in: Option<Duration>,
    /// The word in the journal: what is proved about the refund.
    pub outcome: &'static str,
    /// The refund goes to a person because there is nothing left to try: why.
    pub used_up: Option<&'static str>,
}

impl Resolution {
    /// `took` is the time since the inquiry was leased; `cool_down` how long the channel rests when the
    /// bank does not say; `jitter` is drawn from [0, 1).
    #[must_use]
    pub fn of(
        finding: &Finding,
        asked: &Asked,
        took: Duration,
        trust: Trust,
        retry: &RetryPolicy,
        cool_down: Duration,
        jitter: f64,
    ) -> Self {
        let to = |next, outcome| Resolution { next, wait: None, inquire_in: None, outcome, used_up: None };
        let stay = |inquire_in| Resolution { inquire_in: Some(inquire_in), ..to(asked.state, "unknown") };
        let later = || match wait_at(asked.age + took) {
            Some(wait) => stay(wait),
            None => Resolution { used_up: Some("inquiries_used_up"), ..to(State::Review, "unknown") },
        };
        match finding {
            Finding::Succeeded => to(State::Succeeded, "succeeded"),
            Finding::Rejected => to(State::Failed, "rejected"),
            Finding::Review => to(State::Review, "review"),
            Finding::Pending if asked.state == State::Accepted => {
                Resolution { outcome: "accepted", ..later() }
            }
            // Asked for anew, since the bank has it now.
            Finding::Pending => Resolution {
                wait: Some(ACCEPTED_PATIENCE),
                inquire_in: Some(FIRST),
                ..to(State::Accepted, "accepted")
            },
            Finding::NotFound if proves_absence(asked, trust) => match retry
                .wait_after(asked.attempts, jitter)
            {
                Some(wait) => Resolution { wait: Some(wait), ..to(State::Ready, "not_executed") },
                None => Resolution { used_up: Some("sends_used_up"), ..to(State::Review, "not_executed") },
            },
            Finding::NotFound | Finding::Nothing => later(),
            // Its time to tell is over, whatever keeps the bank from telling.
            Finding::AskedToWait { .. } | Finding::Unauthorised if wait_at(asked.age + took).is_none() => {
                later()
            }
            Finding::AskedToWait { retry_after } => stay(retry_after.unwrap_or(cool_down).max(FIRST)),
            // The channel is paused with it; whoever resumes it wants to know soon.
            Finding::Unauthorised | Finding::HandedBack => stay(Duration::from_secs(1)),
        }
    }
}

/// Counted when the inquiry was leased, which is before its first byte: less than the truth.
fn proves_absence(asked: &Asked, trust: Trust) -> bool {
    trust.not_found_is_final
        && asked.state == State::Unknown
        && asked.uncertain_for.is_some_and(|passed| passed >= trust.grace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);
    const FINAL: Trust = Trust { not_found_is_final: true, grace: Duration::from_secs(30) };

    fn asked(state: State, uncertain_for: Duration) -> Asked {
        Asked {
            id: RefundId(1),
            state,
            epoch: 1,
            number: 1,
            attempts: 1,
            request_id: RequestId(uuid::Uuid::nil()),
            owed: Owed {
                refund_id: RefundId(1),
                refund_ref: "R-1".to_owned(),
                amount_minor: 1,
                currency: "EUR".to_owned(),
                bank_ref: None,
            },
            age: uncertain_for,
            uncertain_for: Some(uncertain_for),
        }
    }

    fn resolve(finding: &Finding, asked: &Asked, trust: Trust) -> Resolution {
        Resolution::of(finding, asked, Duration::ZERO, trust, &RetryPolicy::default(), 5 * SECOND, 0.5)
    }

    #[test]
    fn the_schedule_is_ten_seconds_to_six_hours_and_then_daily_for_a_week() {
        let mut age = Duration::ZERO;
        let mut at = Vec::new();
        while let Some(wait) = wait_at(age) {
            age += wait;
            at.push(age.as_secs());
        }
        let day = 86_400;
        assert_eq!(
            at,
            [10, 30, 120, 600, 3600, 21_600, day, 2 * day, 3 * day, 4 * day, 5 * day, 6 * day, 7 * day]
        );
        assert_eq!(wait_at(DAY * 7), None);
    }

    #[test]
    fn not_found_counts_only_where_it_is_final_and_after_its_grace() {
        let after = asked(State::Unknown, 30 * SECOND);
        assert_eq!(resolve(&Finding::NotFound, &after, FINAL).next, State::Ready);
        let before = asked(State::Unknown, 29 * SECOND);
        assert_eq!(resolve(&Finding::NotFound, &before, FINAL).next, State::Unknown);
        let not_final = Trust { not_found_is_final: false, ..FINAL };
        assert_eq!(resolve(&Finding::NotFound, &after, not_final).next, State::Unknown);
        let since_nobody_knows = Asked { uncertain_for: None, ..after };
        assert_eq!(resolve(&Finding::NotFound, &since_nobody_knows, FINAL).next, State::Unknown);
    }

    #[test]
    fn of_an_accepted_refund_not_found_proves_nothing() {
        let settled = resolve(&Finding::NotFound, &asked(State::Accepted, DAY), FINAL);
        assert_eq!((settled.next, settled.outcome), (State::Accepted, "unknown"));
        assert_eq!(settled.inquire_in, Some(DAY));
    }

    #[test]
    fn an_inquiry_that_failed_moves_the_schedule_and_nothing_else() {
        for finding in [Finding::Nothing, Finding::HandedBack, Finding::Unauthorised] {
            for state in [State::Unknown, State::Accepted] {
                let settled = resolve(&finding, &asked(state, 30 * SECOND), FINAL);
                assert_eq!((settled.next, settled.outcome), (state, "unknown"), "{finding:?}");
                assert!(settled.inquire_in.is_some());
            }
        }
        assert_eq!(
            resolve(&Finding::Nothing, &asked(State::Unknown, 30 * SECOND), FINAL).inquire_in,
            Some(90 * SECOND)
        );
    }

    #[test]
    fn after_a_week_a_person_is_asked() {
        for state in [State::Unknown, State::Accepted] {
            let settled = resolve(&Finding::Nothing, &asked(state, 7 * DAY), FINAL);
            assert_eq!((settled.next, settled.used_up), (State::Review, Some("inquiries_used_up")));
        }
        // The bank was asked a moment ago; its word is not about the schedule.
        assert_eq!(
            resolve(&Finding::Succeeded, &asked(State::Unknown, 8 * DAY), FINAL).next,
            State::Succeeded
        );
    }

    #[test]
    fn what_was_not_found_is_sent_again_only_while_sends_are_left() {
        let twelve = Asked { attempts: 12, ..asked(State::Unknown, DAY) };
        let settled = resolve(&Finding::NotFound, &twelve, FINAL);
        assert_eq!((settled.next, settled.used_up), (State::Review, Some("sends_used_up")));
    }

    #[test]
    fn pending_is_asked_about_again() {
        let newly = resolve(&Finding::Pending, &asked(State::Unknown, DAY), FINAL);
        assert_eq!((newly.next, newly.inquire_in), (State::Accepted, Some(FIRST)));
        assert_eq!(newly.wait, Some(ACCEPTED_PATIENCE));
        let still = resolve(&Finding::Pending, &asked(State::Accepted, 10 * SECOND), FINAL);
        assert_eq!((still.next, still.inquire_in, still.wait), (State::Accepted, Some(20 * SECOND), None));
    }

    proptest! {
        #[test]
        fn every_resolution_stays_or_is_a_legal_move(which in 0usize..9, accepted: bool, secs in 0u64..1_000_000, attempts in 0u32..20) {
            let all = [
                Finding::Succeeded, Finding::Pending, Finding::Rejected, Finding::NotFound,
                Finding::AskedToWait { retry_after: None }, Finding::Unauthorised, Finding::HandedBack, Finding::Nothing, Finding::Review,
            ];
            let state = if accepted { State::Accepted } else { State::Unknown };
            let asked = Asked { attempts, ..asked(state, Duration::from_secs(secs)) };
            let settled = resolve(&all[which], &asked, FINAL);
            prop_assert!(settled.next == state || state.may_move_to(settled.next));
            prop_assert_eq!(settled.inquire_in.is_some(), matches!(settled.next, State::Unknown | State::Accepted));
        }
    }
}
