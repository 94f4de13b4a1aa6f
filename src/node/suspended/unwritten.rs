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

/// The unwritten refusals of one channel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Unwritten {
    requests: Note,
    credentials: Note,
}

/// The unwritten refusals of one kind, as one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Note {
    refusal: Option<NotedRefusal>,
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
        self.refusal.as_ref().map(|refusal| refusal.until)
    }

    /// Takes the last refusal in place of the others, which it does not shorten.
    pub fn add(&mut self, last: NotedRefusal) {
        self.refusal = Some(match self.refusal.take() {
            None => last,
            Some(other) => NotedRefusal {
                until: other.until.max(last.until),
                named_until: other.named_until.max(last.named_until),
                began: other.began.max(last.began),
                reason: last.reason,
            },
        });
    }

    pub fn forget(&mut self) {
        self.refusal = None;
    }

    /// What was noted until `noted` is written. A refusal that came since may last longer, and is not.
    pub fn written(&mut self, noted: Instant) {
        self.keep_if(|until| until > noted);
    }

    pub fn begin_retries(&mut self, now: Instant) -> bool {
        let begins = !self.is_retried && self.until().is_some_and(|until| until > now);
        self.is_retried |= begins;
        begins
    }

    pub fn next_retry(&mut self, now: Instant) -> Option<NotedRefusal> {
        self.keep_if(|until| until > now);
        self.is_retried = self.refusal.is_some();
        self.refusal.clone()
    }

    fn keep_if(&mut self, keeps: impl FnOnce(Instant) -> bool) {
        self.refusal = self.refusal.take().filter(|refusal| keeps(refusal.until));
    }
}
