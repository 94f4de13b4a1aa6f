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

/// The unwritten refusals of one channel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Unwritten {
    requests: Note,
    credentials: Note,
}

/// One unwritten refusal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Note {
    /// Until when it suspends the channel; `None` if there is none.
    until: Option<Instant>,
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
        self.requests.until.max(self.credentials.until)
    }

    pub fn holds(mut self, refused: Refused, now: Instant) -> bool {
        self.of(refused).until.is_some_and(|until| until > now)
    }

    /// Without what is over, and without what Postgres has: `refused` is the bank's refusal as Postgres has it.
    pub fn missing_in(self, refused: Option<Until>, now: Instant) -> Unwritten {
        let cools = |until| matches!(refused, Some(Until::At(at)) if at + Until::SAME >= until);
        let is_let_in = refused != Some(Until::Ended);
        Unwritten {
            requests: self.requests.kept_if(|until| until > now && !cools(until)),
            credentials: self.credentials.kept_if(|until| until > now && is_let_in),
        }
    }
}

impl Note {
    pub fn add(&mut self, until: Instant) {
        self.until = self.until.max(Some(until));
    }

    /// What was noted until `noted` is written. A refusal that came since may last longer, and is not.
    pub fn written(&mut self, noted: Instant) {
        self.until = self.until.filter(|until| *until > noted);
    }

    pub fn begin_retries(&mut self, now: Instant) -> bool {
        let begins = !self.is_retried && self.until.is_some_and(|until| until > now);
        self.is_retried |= begins;
        begins
    }

    pub fn next_retry(&mut self, now: Instant) -> Option<Instant> {
        self.until = self.until.filter(|until| *until > now);
        self.is_retried = self.until.is_some();
        self.until
    }

    fn kept_if(self, keeps: impl FnOnce(Instant) -> bool) -> Note {
        Note { until: self.until.filter(|until| keeps(*until)), ..self }
    }
}
