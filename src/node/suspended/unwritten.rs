//! The bank's refusals that Postgres has not got yet. Only this node knows them, and suspends the channel alone.

use std::time::Instant;

use super::Until;

/// What a bank refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// So many requests: the channel cools.
    Requests,
    /// The credentials.
    Credentials,
}

/// A refusal that this node learned from the bank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotedRefusal {
    /// Until when it suspends the channel, unless Postgres has it before.
    pub until: Instant,
    /// Until when the bank asked to wait, if it named a time.
    pub named_until: Option<Instant>,
    /// When the refused request began.
    pub began: Instant,
    /// Why the channel is suspended, for people.
    pub reason: String,
}

impl NotedRefusal {
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
        }
    }

    pub fn until(&self) -> Option<Instant> {
        self.requests.until().max(self.credentials.until())
    }

    pub fn holds(&self, refused: Refused, now: Instant) -> bool {
        let note = match refused {
            Refused::Requests => &self.requests,
            Refused::Credentials => &self.credentials,
        };
        note.until().is_some_and(|until| until > now)
    }

    /// Without what is over, and without what Postgres has: `refused` is the bank's refusal as Postgres has it.
    pub fn missing_in(&self, refused: Option<Until>, now: Instant) -> Unwritten {
        let cools = |until| matches!(refused, Some(Until::At(at)) if at + Until::SAME >= until);
        let is_let_in = refused != Some(Until::Ended);
        let mut missing = self.clone();
        missing.requests.keep_if(|until| until > now && !cools(until));
        missing.credentials.keep_if(|until| until > now && is_let_in);
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

    pub fn forget(&mut self) {
        self.refusals.clear();
    }

    /// Postgres has this refusal. It may not have others that last longer, or whose requests began later.
    pub fn written(&mut self, noted: &NotedRefusal) {
        self.refusals.retain(|refusal| !noted.covers(refusal));
    }

    pub fn begin_retries(&mut self, now: Instant) -> bool {
        let begins = !self.is_retried && self.until().is_some_and(|until| until > now);
        self.is_retried |= begins;
        begins
    }

    /// All that is left, as one refusal.
    pub fn next_retry(&mut self, now: Instant) -> Option<NotedRefusal> {
        self.keep_if(|until| until > now);
        self.is_retried = !self.refusals.is_empty();
        self.refusals.iter().cloned().reduce(NotedRefusal::and)
    }

    fn keep_if(&mut self, mut keeps: impl FnMut(Instant) -> bool) {
        self.refusals.retain(|refusal| keeps(refusal.until));
    }
}
