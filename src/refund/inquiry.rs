//! Inquiries: when the bank is asked what became of a refund, and what an answer proves. Pure.
//!
//! The module neither sends inquiries nor reads answers: `channel_worker` and `bank` do.
//!
//! Beware: "not found" by itself proves nothing. The first POST may still be on its way. About a refund that the
//! bank has accepted, "not found" makes no sense.

use std::time::Duration;

use super::attempt::Answer;
use super::retry::RetryPolicy;
use super::{ExpectedEcho, RefundId, RequestId, State};

/// The ages at which refundd asks about a refund on its first day. The age counts from the move to `unknown` or
/// `accepted`. Afterwards refundd asks daily, until a week is over. The first age stands in store/sql/lapse.sql, too:
/// keep the two equal.
const AGES: [Duration; 6] = [
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_mins(2),
    Duration::from_mins(10),
    Duration::from_hours(1),
    Duration::from_hours(6),
];
const DAY: Duration = Duration::from_hours(24);

/// At this age a refund goes to a person, whatever the last inquiry's outcome is. Otherwise an unreachable bank, or a
/// channel that is paused for good, would hide the refund from everybody. The ten minutes beyond the week leave time
/// for the last inquiry of the schedule.
pub const SHOWN_AFTER: Duration = Duration::from_mins(7 * 24 * 60 + 10);

/// How long an accepted refund waits for the bank's decision before a person decides.
pub const ACCEPTED_PATIENCE: Duration = Duration::from_hours(7 * 24);

/// The time from the move to `unknown` or `accepted` until the first inquiry.
pub const FIRST: Duration = AGES[0];

/// The time from this age until the next inquiry; `None` when the schedule is used up.
#[must_use]
pub fn wait_at(age: Duration) -> Option<Duration> {
    let daily = (1..=7).map(|days| DAY * days);
    AGES.into_iter().chain(daily).find_map(|at| at.checked_sub(age).filter(|wait| !wait.is_zero()))
}

/// How much an answer "not found" of a channel's bank proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trust {
    /// "Not found" proves that the refund was never executed and never will be.
    pub not_found_is_final: bool,
    /// "Not found" counts only this long after the last send that may have been executed.
    pub grace: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InquiryOutcome {
    Succeeded,
    /// The bank has the refund and has not decided.
    Pending,
    Rejected,
    NotFound,
    /// The bank answered "slow down". The channel cools down.
    SlowDown {
        /// How long the bank wants refundd to wait; `None` if the bank gave no time.
        retry_after: Option<Duration>,
    },
    /// The bank refused the credentials. The channel is suspended until a person ends that.
    Unauthorised,
    /// The permit or the lease ran out before the first byte, or the node is stopping.
    HandedBack,
    /// Anything else: silence, trouble, or a status text that refundd does not know.
    Nothing,
    /// Only a person can judge the answer.
    Review,
}

impl InquiryOutcome {
    /// Whether the bank has the refund: it executed it, it took it, or its answer contradicts what was sent.
    #[must_use]
    pub fn has_refund(&self) -> bool {
        matches!(self, InquiryOutcome::Succeeded | InquiryOutcome::Pending | InquiryOutcome::Review)
    }

    /// The text for metrics and logs.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            InquiryOutcome::Succeeded => "succeeded",
            InquiryOutcome::Pending => "pending",
            InquiryOutcome::Rejected => "rejected",
            InquiryOutcome::NotFound => "not_found",
            InquiryOutcome::SlowDown { .. } => "asked_to_wait",
            InquiryOutcome::Unauthorised => "unauthorised",
            InquiryOutcome::HandedBack => "handed_back",
            InquiryOutcome::Nothing => "nothing",
            InquiryOutcome::Review => "review",
        }
    }
}

/// An inquiry outcome with its evidence.
pub type InquiryAnswer = Answer<InquiryOutcome>;

/// A refund under an inquiry's lease: this node may ask about it once.
#[derive(Debug, Clone)]
pub struct LeasedInquiry {
    pub id: RefundId,
    /// The state when the inquiry was leased. Settling requires that `state`, `epoch`, `number` and `uncertain_at_us` are
    /// unchanged.
    pub state: State,
    /// The refund's lease epoch when the inquiry was leased.
    pub epoch: i64,
    /// The number of this inquiry among all inquiries about the refund.
    pub number: i32,
    /// Since when the refund was uncertain, by Postgres's clock: it names the send that the inquiry is about. `None` if the bank
    /// answered each send.
    pub uncertain_at_us: Option<i64>,
    /// How many sends counted.
    pub attempts: u32,
    pub request_id: RequestId,
    /// The values that the bank's answer may repeat.
    pub expected: ExpectedEcho,
    /// The time from the move to `unknown` or `accepted` to the lease of the inquiry.
    pub age: Duration,
    /// The time since the last send that may have been executed; `None` where nobody knows that send's time.
    pub uncertain_for: Option<Duration>,
}

/// The effect of an inquiry's outcome on its refund.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InquirySettlement {
    pub next: State,
    /// The time until the refund's next action. Set for a move to `ready`, and for a new move to `accepted`.
    pub wait: Option<Duration>,
    /// The time until the next inquiry; `None` if there is none.
    pub inquire_in: Option<Duration>,
    /// The text in the journal: what is proved about the refund.
    pub outcome: &'static str,
    /// The reason why nothing is left to try and the refund goes to a person.
    pub used_up: Option<&'static str>,
}

impl InquirySettlement {
    /// Decides what an outcome does to its refund.
    ///
    /// `took` is the time since the inquiry was leased. `cool_down` is the channel's rest if the bank gives no
    /// time. `jitter` is drawn from [0, 1).
    #[must_use]
    pub fn of(
        outcome: &InquiryOutcome,
        inquiry: &LeasedInquiry,
        took: Duration,
        trust: Trust,
        retry: &RetryPolicy,
        cool_down: Duration,
        jitter: f64,
    ) -> Self {
        let to = |next, proved| InquirySettlement {
            next,
            wait: None,
            inquire_in: None,
            outcome: proved,
            used_up: None,
        };
        let stay =
            |inquire_in| InquirySettlement { inquire_in: Some(inquire_in), ..to(inquiry.state, "unknown") };
        let later = || match wait_at(inquiry.age + took) {
            Some(wait) => stay(wait),
            None => InquirySettlement { used_up: Some("inquiries_used_up"), ..to(State::Review, "unknown") },
        };
        match outcome {
            InquiryOutcome::Succeeded => to(State::Succeeded, "succeeded"),
            InquiryOutcome::Rejected => to(State::Failed, "rejected"),
            InquiryOutcome::Review => to(State::Review, "review"),
            InquiryOutcome::Pending if inquiry.state == State::Accepted => {
                InquirySettlement { outcome: "accepted", ..later() }
            }
            // The schedule begins anew, because the bank has the refund now.
            InquiryOutcome::Pending => InquirySettlement {
                wait: Some(ACCEPTED_PATIENCE),
                inquire_in: Some(FIRST),
                ..to(State::Accepted, "accepted")
            },
            InquiryOutcome::NotFound if proves_absence(inquiry, trust) => match retry
                .wait_after(inquiry.attempts, jitter)
            {
                Some(wait) => InquirySettlement { wait: Some(wait), ..to(State::Ready, "not_executed") },
                None => {
                    InquirySettlement { used_up: Some("sends_used_up"), ..to(State::Review, "not_executed") }
                }
            },
            InquiryOutcome::NotFound | InquiryOutcome::Nothing => later(),
            // The schedule is used up, for whatever reason the bank gives no answer.
            InquiryOutcome::SlowDown { .. } | InquiryOutcome::Unauthorised
                if wait_at(inquiry.age + took).is_none() =>
            {
                later()
            }
            InquiryOutcome::SlowDown { retry_after } => {
                // A refund with a planned inquiry goes to no person. So no wait may end after `SHOWN_AFTER`.
                let left = SHOWN_AFTER.saturating_sub(inquiry.age + took);
                stay(retry_after.unwrap_or(cool_down).min(left).max(FIRST))
            }
            // `Unauthorised` also suspends the channel. A person who resumes the channel wants an answer soon.
            InquiryOutcome::Unauthorised | InquiryOutcome::HandedBack => stay(Duration::from_secs(1)),
        }
    }
}

/// Whether "not found" proves that nothing was executed. `uncertain_for` ends at the lease of the inquiry, before its
/// first byte. So the true time is longer.
fn proves_absence(inquiry: &LeasedInquiry, trust: Trust) -> bool {
    trust.not_found_is_final
        && inquiry.state == State::Unknown
        && inquiry.uncertain_for.is_some_and(|passed| passed >= trust.grace)
}

#[cfg(test)]
mod tests;
