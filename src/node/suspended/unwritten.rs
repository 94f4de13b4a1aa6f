//! The bank's refusals, and the trips of breakers, that Postgres has not got yet. Only this node knows them, and
//! suspends the channel alone.

use std::time::{Duration, Instant};

use super::Until;
use crate::node::breakers::Failure;

/// What a bank refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// So many requests: the channel cools.
    Requests,
    /// The credentials.
    Credentials,
    /// So many refunds that the channel's breaker tripped. This suspends sends alone.
    Sends { failure: Failure, times: u32, probe: Duration },
}

/// A refusal that this node learned from the bank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotedRefusal {
    /// Until when it suspends the channel, unless Postgres has it before.
    pub until: Instant,
    /// Until when the bank asked to wait, if it named a time.
    pub named_until: Option<Instant>,
    /// When the refused request began, or the breaker tripped.
    pub began: Instant,
    /// Why the channel is suspended, for people.
    pub reason: String,
}

impl NotedRefusal {
    /// How long after its request a "slow down" is still written. The wait that the bank named may be shorter than the
    /// first try to write it. The refusal slows the channel on all nodes afterwards, too.
    const MATTERS: Duration = Duration::from_mins(1);

    /// Until when it is written again.
    fn write_until(&self, refused: Refused) -> Instant {
        match refused {
            Refused::Requests => self.until.max(self.began + Self::MATTERS),
            // A later one would stop the channel on all nodes after this node let it go on.
            Refused::Credentials | Refused::Sends { .. } => self.until,
        }
    }

    /// Whether Postgres has the other refusal as well once it has this one.
    fn covers(&self, other: &NotedRefusal) -> bool {
        other.until <= self.until && other.named_until <= self.named_until && other.began <= self.began
    }

    /// Both as one: the later refusal, and the longer times.
    fn and(self, later: NotedRefusal) -> NotedRefusal {
        NotedRefusal {
            until: self.until.max(later.until),
            named_until: self.named_until.max(later.named_until),
            began: self.began.max(later.began),
            reason: later.reason,
        }
    }
}

/// The unwritten refusals of one channel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Unwritten {
    requests: Note,
    credentials: Note,
    trips: Note,
}

/// The unwritten refusals of one kind, the last one at the end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Note {
    refusals: Vec<NotedRefusal>,
    /// Whether a task writes it again and again.
    is_retried: bool,
}

impl Unwritten {
    pub fn of(&mut self, refused: Refused) -> &mut Note {
        match refused {
            Refused::Requests => &mut self.requests,
            Refused::Credentials => &mut self.credentials,
            Refused::Sends { .. } => &mut self.trips,
        }
    }

    /// Until when sends and inquiries are suspended.
    pub fn until(&self) -> Option<Instant> {
        self.requests.until().max(self.credentials.until())
    }

    /// Until when a trip of the breaker suspends sends.
    pub fn tripped_until(&self) -> Option<Instant> {
        self.trips.until()
    }

    pub fn holds(&self, refused: Refused, now: Instant) -> bool {
        let note = match refused {
            Refused::Requests => &self.requests,
            Refused::Credentials => &self.credentials,
            Refused::Sends { .. } => &self.trips,
        };
        note.until().is_some_and(|until| until > now)
    }

    pub fn forget_for_change(&mut self) {
        self.credentials.forget();
        self.trips.forget();
    }

    /// Without what is over, and without what Postgres has: `refused` is the bank's refusal as Postgres has it, and
    /// `is_tripped` says whether the breaker suspends the channel there.
    pub fn missing_in(&self, refused: Option<Until>, is_tripped: bool, now: Instant) -> Unwritten {
        let cools = |until| matches!(refused, Some(Until::At(at)) if at + Until::SAME >= until);
        let is_let_in = refused != Some(Until::Ended);
        let mut missing = self.clone();
        missing
            .requests
            .keep_if(|refusal| refusal.write_until(Refused::Requests) > now && !cools(refusal.until));
        missing.credentials.keep_if(|refusal| refusal.until > now && is_let_in);
        missing.trips.keep_if(|trip| trip.until > now && !is_tripped);
        missing
    }
}

impl Note {
    fn until(&self) -> Option<Instant> {
        self.refusals.iter().map(|refusal| refusal.until).max()
    }

    pub fn add(&mut self, last: NotedRefusal) {
        self.written(&last);
        self.refusals.push(last);
    }

    fn forget(&mut self) {
        self.refusals.clear();
    }

    /// Postgres has this refusal. It may not have others that last longer, or whose requests began later.
    pub fn written(&mut self, noted: &NotedRefusal) {
        self.refusals.retain(|refusal| !noted.covers(refusal));
    }

    pub fn begin_retries(&mut self, refused: Refused, now: Instant) -> bool {
        let begins = !self.is_retried && self.refusals.iter().any(|one| one.write_until(refused) > now);
        self.is_retried |= begins;
        begins
    }

    /// All that is left, as one refusal.
    pub fn next_retry(&mut self, refused: Refused, now: Instant) -> Option<NotedRefusal> {
        self.keep_if(|refusal| refusal.write_until(refused) > now);
        self.is_retried = !self.refusals.is_empty();
        self.refusals.iter().cloned().reduce(NotedRefusal::and)
    }

    fn keep_if(&mut self, keeps: impl FnMut(&NotedRefusal) -> bool) {
        self.refusals.retain(keeps);
    }
}
