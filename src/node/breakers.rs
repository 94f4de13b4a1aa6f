//! The breakers of this node's channels: they count the outcomes of one kind that come one after the other.
//!
//! The count is in memory, so that no send writes a row for it. Each node counts its own sends: with n nodes, up to n
//! times as many may fail before the first node trips. The trip itself is written once, and holds on all nodes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::channel::Breaker;
use crate::lock::Lock;
use crate::refund::{Answer, ChannelName, Code, Outcome};

/// A kind of outcome that a breaker counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The bank refused the refund for good.
    Rejected,
    /// Nobody can be sure what the bank did, or only a person can read the answer.
    Unknown,
}

impl Failure {
    /// The text in the database and in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Failure::Rejected => "rejected",
            Failure::Unknown => "unknown",
        }
    }

    fn most(self, breaker: &Breaker) -> u32 {
        match self {
            Failure::Rejected => breaker.rejected,
            Failure::Unknown => breaker.unknown,
        }
    }
}

/// What an answer to a send says about its channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerInput {
    Failed(Failure),
    /// The bank answered, and not with one of these failures.
    Answered,
    /// Nothing left, so the bank answered nothing. Or the bank refused a resend, as sound and sick banks do.
    Nothing,
}

impl BreakerInput {
    #[must_use]
    pub fn of(answer: &Answer, is_resend: bool) -> BreakerInput {
        match &answer.outcome {
            // The bank knows the key from an earlier send, and says so.
            Outcome::Rejected | Outcome::Conflict if is_resend => BreakerInput::Nothing,
            // So may a rule of the channel. Without a rule it is a proxy's page, or an answer about another refund.
            Outcome::Review if is_resend && answer.code == Code::ChannelRule => BreakerInput::Nothing,
            Outcome::Rejected => BreakerInput::Failed(Failure::Rejected),
            Outcome::Unknown | Outcome::Conflict | Outcome::Review => BreakerInput::Failed(Failure::Unknown),
            Outcome::Succeeded
            | Outcome::Accepted
            | Outcome::NotExecuted
            | Outcome::SlowDown { .. }
            | Outcome::Unauthorised => BreakerInput::Answered,
            Outcome::HandedBack => BreakerInput::Nothing,
        }
    }
}

/// Failures of one kind, one after the other.
#[derive(Debug, Default)]
struct Row {
    failures: Option<(Failure, u32)>,
    /// Sends that began before do not count: they belong to a suspension that is over, or to earlier settings.
    not_before: Option<Instant>,
    /// Answers whose bank reference another refund has, one after the other.
    taken: u32,
    /// As `not_before`, for these answers. A probe begins after it, although its answer begins the other count anew.
    taken_not_before: Option<Instant>,
}

/// The counts of all channels. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Breakers(Arc<Mutex<HashMap<ChannelName, Row>>>);

impl Breakers {
    /// Notes what the answer to a send that began at `began` says. Answers the kind and the number of failures when they trip
    /// the breaker; the count then begins anew.
    pub fn note(
        &self,
        channel: &ChannelName,
        breaker: &Breaker,
        input: BreakerInput,
        began: Instant,
    ) -> Option<(Failure, u32)> {
        let mut rows = self.0.locked();
        let failure = match input {
            BreakerInput::Nothing => return None,
            // The usual case: a channel without a count stays without one.
            BreakerInput::Answered => {
                if let Some(row) =
                    rows.get_mut(channel).filter(|row| row.not_before.is_none_or(|at| began >= at))
                {
                    row.failures = None;
                }
                return None;
            }
            BreakerInput::Failed(failure) => failure,
        };
        let row = rows.entry(channel.clone()).or_default();
        if row.not_before.is_some_and(|at| began < at) {
            return None;
        }
        let failures = match row.failures {
            Some((before, failures)) if before == failure => failures.saturating_add(1),
            _ => 1,
        };
        row.failures = Some((failure, failures)).filter(|_| failures < failure.most(breaker));
        row.failures.is_none().then_some((failure, failures))
    }

    /// Notes that another refund has the bank reference in the answer to a send that began at `began`. The answer itself did not show
    /// it, and counted as a success. Answers the number of such answers when they trip the breaker. From then on each further one
    /// does, until a refund has a reference of its own.
    pub fn note_taken(&self, channel: &ChannelName, breaker: &Breaker, began: Instant) -> Option<u32> {
        let mut rows = self.0.locked();
        let row = rows.entry(channel.clone()).or_default();
        if row.taken_not_before.is_some_and(|at| began < at) {
            return None;
        }
        row.taken = row.taken.saturating_add(1);
        let trips = row.taken >= breaker.unknown;
        if trips {
            // What is in flight now does not trip it once more.
            row.taken_not_before = Some(Instant::now());
        }
        trips.then_some(row.taken)
    }

    /// Notes that refunds of these channels have a bank reference of their own. A success without a reference is no reason to call
    /// it: of a bank that names only taken ones, such successes would keep the breaker from tripping.
    pub fn note_kept<'a>(&self, channels: impl Iterator<Item = &'a ChannelName>) {
        let mut rows = self.0.locked();
        for channel in channels {
            if let Some(row) = rows.get_mut(channel) {
                row.taken = 0;
            }
        }
    }

    /// Begins the count of a channel anew with the sends that begin from now on: its breaker suspends it.
    pub fn start_anew(&self, channel: &ChannelName) {
        let mut rows = self.0.locked();
        let row = rows.entry(channel.clone()).or_default();
        (row.failures, row.not_before) = (None, Some(Instant::now()));
    }

    /// Begins all counts of a channel anew with the sends that begin from now on: a reload changed it.
    pub fn forget(&self, channel: &ChannelName) {
        let not_before = Some(Instant::now());
        let row = Row { not_before, taken_not_before: not_before, ..Row::default() };
        self.0.locked().insert(channel.clone(), row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acme() -> ChannelName {
        ChannelName::new("acme").unwrap()
    }

    /// What the answer to a first send says if it has this outcome.
    fn input(outcome: &Outcome) -> BreakerInput {
        BreakerInput::of(&Answer::new(outcome.clone(), Code::Unmapped, ""), false)
    }

    /// The trips of these outcomes of first sends, each with its place from 1.
    fn trips(outcomes: &[Outcome]) -> Vec<(usize, Failure, u32)> {
        trips_of(outcomes.iter().map(input))
    }

    fn trips_of(said: impl Iterator<Item = BreakerInput>) -> Vec<(usize, Failure, u32)> {
        let (breakers, breaker) =
            (Breakers::default(), Breaker { rejected: 3, unknown: 2, ..Breaker::default() });
        let noted = said.map(|input| breakers.note(&acme(), &breaker, input, Instant::now()));
        (1..).zip(noted).filter_map(|(nth, trip)| trip.map(|(kind, times)| (nth, kind, times))).collect()
    }

    #[test]
    fn it_trips_at_exactly_the_configured_number_and_counts_anew() {
        assert_eq!(trips(&vec![Outcome::Rejected; 2]), []);
        assert_eq!(
            trips(&vec![Outcome::Rejected; 7]),
            [(3, Failure::Rejected, 3), (6, Failure::Rejected, 3)]
        );
        let unreadable = [Outcome::Unknown, Outcome::Conflict, Outcome::Review];
        assert_eq!(trips(&unreadable), [(2, Failure::Unknown, 2)]);
    }

    #[test]
    fn another_answer_between_begins_the_count_anew_and_a_refund_that_never_left_does_not() {
        for between in [
            Outcome::Succeeded,
            Outcome::Accepted,
            Outcome::Unknown,
            Outcome::NotExecuted,
            Outcome::SlowDown { retry_after: None },
            Outcome::Unauthorised,
        ] {
            let outcomes =
                [Outcome::Rejected, Outcome::Rejected, between.clone(), Outcome::Rejected, Outcome::Rejected];
            assert_eq!(trips(&outcomes), [], "{between:?}");
        }
        let handed_back = [Outcome::Rejected, Outcome::Rejected, Outcome::HandedBack, Outcome::Rejected];
        assert_eq!(trips(&handed_back), [(4, Failure::Rejected, 3)]);
    }

    #[test]
    fn a_resend_that_the_bank_refuses_neither_counts_nor_begins_the_count_anew() {
        let resend = |outcome, code| BreakerInput::of(&Answer::new(outcome, code, ""), true);
        let (failed, lost) = (input(&Outcome::Rejected), input(&Outcome::Unknown));
        for refused in [
            resend(Outcome::Conflict, Code::BankTrouble),
            resend(Outcome::Rejected, Code::Rejected),
            resend(Outcome::Review, Code::ChannelRule),
        ] {
            assert_eq!(trips_of([refused; 9].into_iter()), []);
            let rejected = [failed, refused, failed, refused, failed];
            assert_eq!(trips_of(rejected.into_iter()), [(5, Failure::Rejected, 3)]);
            assert_eq!(trips_of([lost, refused, lost].into_iter()), [(3, Failure::Unknown, 2)]);
        }
        for counted in [
            resend(Outcome::Unknown, Code::Timeout),
            resend(Outcome::Review, Code::NoJson),
            resend(Outcome::Review, Code::EchoDiffers),
        ] {
            assert_eq!(trips_of([counted; 2].into_iter()), [(2, Failure::Unknown, 2)]);
        }
    }

    #[test]
    fn sends_that_began_before_the_suspension_ended_do_not_count() {
        let (breakers, breaker) = (Breakers::default(), Breaker { unknown: 1, ..Breaker::default() });
        let before = Instant::now();
        breakers.start_anew(&acme());
        assert_eq!(breakers.note(&acme(), &breaker, input(&Outcome::Unknown), before), None);
        let after = Instant::now();
        assert_eq!(
            breakers.note(&acme(), &breaker, input(&Outcome::Unknown), after),
            Some((Failure::Unknown, 1))
        );
    }

    #[test]
    fn once_it_tripped_each_taken_reference_trips_it_again_until_a_refund_has_one_of_its_own() {
        let (breakers, breaker) = (Breakers::default(), Breaker { unknown: 2, ..Breaker::default() });
        let taken = |began| breakers.note_taken(&acme(), &breaker, began);
        let before = Instant::now();
        assert_eq!([taken(before), taken(before)], [None, Some(2)]);
        let probe = Instant::now();
        breakers.start_anew(&acme());
        assert_eq!(
            [taken(before), taken(probe)],
            [None, Some(3)],
            "those in flight do not count, and a probe does"
        );
        breakers.note_kept([&acme()].into_iter());
        assert_eq!([taken(Instant::now()), taken(Instant::now())], [None, Some(2)]);
        breakers.forget(&acme());
        assert_eq!([taken(before), taken(Instant::now())], [None, None], "a reload changed the channel");
    }
}
