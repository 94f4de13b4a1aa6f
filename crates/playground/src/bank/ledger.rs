//! What reached the pretend bank, in the bank's own words. The judge of every promise.
//!
//! The ledger takes nobody's word: what refundd believes it sent does not appear in it. An arrival is
//! dated by the first byte of its request, by the wall clock of this machine, when the kernel received it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use serde::Serialize;

/// One request that reached the bank.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// When its first byte came, in microseconds since 1970.
    pub at_us: i64,
    /// When the bank's application took it up; what it did before that may have delayed it.
    pub handled_us: i64,
    /// The first part of the path: `acme` of `/acme/refunds`.
    pub channel: Arc<str>,
    pub kind: Kind,
    /// The `Idempotency-Key`; for an inquiry the key it asks about.
    pub key: Arc<str>,
    /// The `Refundd-Attempt` header, or 0 without one.
    pub attempt: u32,
    /// From the body; empty if the body never came whole.
    pub refund_ref: Arc<str>,
    pub amount_minor: i64,
    pub body_hash: u64,
    /// Whether money moved.
    pub paid: bool,
    /// Whether money has yet to move.
    pub executing: bool,
    /// Until when whoever asks is told that it is pending, in microseconds since 1970; 0 for never.
    pub pending_until_us: i64,
    /// Whether whoever asks is told that it was refused.
    pub refused: bool,
    /// The status the bank sent, or was about to send; `None` for silence and for a reset.
    pub answered: Option<u16>,
    /// When the bank was done with it: about to answer, or to hang up. `None` while it is at it, when it
    /// fell silent, and when the caller left first.
    pub ended_us: Option<i64>,
    /// When the bank saw that the caller had left before it was done.
    pub left_us: Option<i64>,
}

/// What a request wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Send,
    /// A GET that asks what became of a request.
    Inquiry,
}

/// How a refund stands in the bank's books.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    Pending,
    Paid,
    Refused,
}

/// All arrivals, in the order in which the bank understood them.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    pub(super) arrivals: Vec<Arrival>,
    pub(super) unreadable: Vec<i64>,
    /// Where the sends of each key stand, in the order in which they came.
    sends: HashMap<Arc<str>, Vec<usize>>,
}

/// The arrivals of one channel in short.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Account {
    pub channel: String,
    pub arrivals: usize,
    pub paid: usize,
    /// Refunds that were paid more than once.
    pub doubled: usize,
    /// Arrivals in the fullest second.
    pub worst_second: usize,
    pub per_second: Option<f64>,
}

impl Ledger {
    /// The requests of two banks in one ledger, for a judge; what this bank saw comes first.
    #[must_use]
    pub fn and(mut self, other: Ledger) -> Ledger {
        for arrival in other.arrivals {
            self.enter(arrival);
        }
        self.unreadable.extend(other.unreadable);
        self
    }

    /// Every request, whatever its channel.
    pub fn all(&self) -> &[Arrival] {
        &self.arrivals
    }

    /// The requests of one channel, inquiries among them: they too need a permit.
    pub fn arrivals<'a>(&'a self, channel: &'a str) -> impl Iterator<Item = &'a Arrival> {
        self.arrivals.iter().filter(move |arrival| &*arrival.channel == channel)
    }

    /// When bytes arrived that never became a request: the caller died over them, or they were not HTTP.
    pub fn unreadable(&self) -> &[i64] {
        &self.unreadable
    }

    /// How often each key was paid; keys that were never paid are not in it.
    pub fn paid_by_key(&self) -> HashMap<&str, usize> {
        count(self.paid().map(|arrival| &*arrival.key))
    }

    /// Those of the expected refunds that were never paid.
    pub fn lost<'a>(&self, expected: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
        let paid: HashSet<&str> = self.paid().map(|arrival| &*arrival.refund_ref).collect();
        expected.into_iter().filter(|refund_ref| !paid.contains(refund_ref)).collect()
    }

    /// Refunds that were paid more than once, with how often.
    pub fn doubled(&self) -> Vec<(&str, usize)> {
        let mut doubled = count(self.paid().map(|arrival| &*arrival.refund_ref));
        doubled.retain(|_, times| *times > 1);
        let mut doubled: Vec<_> = doubled.into_iter().collect();
        doubled.sort_unstable();
        doubled
    }

    /// Refunds that were sent more than once, paid or not, with how often.
    pub fn repeated(&self) -> Vec<(&str, usize)> {
        let sent = self.sent().filter(|arrival| !arrival.refund_ref.is_empty());
        let mut repeated = count(sent.map(|arrival| &*arrival.refund_ref));
        repeated.retain(|_, times| *times > 1);
        let mut repeated: Vec<_> = repeated.into_iter().collect();
        repeated.sort_unstable();
        repeated
    }

    /// Refunds whose requests did not all have the same key and the same body.
    pub fn altered(&self) -> Vec<&str> {
        let mut first: HashMap<&str, (&str, u64)> = HashMap::new();
        let mut altered = BTreeSet::new();
        for arrival in self.sent().filter(|arrival| !arrival.refund_ref.is_empty()) {
            let this = (&*arrival.key, arrival.body_hash);
            if *first.entry(&arrival.refund_ref).or_insert(this) != this {
                altered.insert(&*arrival.refund_ref);
            }
        }
        altered.into_iter().collect()
    }

    /// The inquiries about a channel's refunds.
    pub fn inquiries<'a>(&'a self, channel: &'a str) -> impl Iterator<Item = &'a Arrival> {
        self.arrivals(channel).filter(|arrival| arrival.kind == Kind::Inquiry)
    }

    /// Enters one request; answers where it stands.
    pub(super) fn enter(&mut self, arrival: Arrival) -> usize {
        let entry = self.arrivals.len();
        if arrival.kind == Kind::Send {
            self.sends.entry(Arc::clone(&arrival.key)).or_default().push(entry);
        }
        self.arrivals.push(arrival);
        entry
    }

    fn sends_of(&self, key: &str) -> &[usize] {
        self.sends.get(key).map_or(&[], Vec::as_slice)
    }

    /// Whether a request with this key is under way in the bank's own house.
    pub(super) fn is_executing(&self, key: &str) -> bool {
        self.sends_of(key).iter().any(|entry| self.arrivals[*entry].executing)
    }

    /// When a request with this key last arrived.
    pub(super) fn last_seen_us(&self, key: &str) -> Option<i64> {
        self.sends_of(key).last().map(|entry| self.arrivals[*entry].at_us)
    }

    /// What the bank knows of a key: how it stands, and where it first arrived.
    pub(super) fn standing(&self, key: &str, now_us: i64) -> Option<(Standing, usize)> {
        let is = |standing, arrival: &Arrival| match standing {
            Standing::Pending => arrival.pending_until_us > now_us,
            Standing::Paid => arrival.paid,
            Standing::Refused => arrival.refused,
        };
        [Standing::Pending, Standing::Paid, Standing::Refused].into_iter().find_map(|standing| {
            let first = self.sends_of(key).iter().find(|entry| is(standing, &self.arrivals[**entry]))?;
            Some((standing, *first))
        })
    }

    fn sent(&self) -> impl Iterator<Item = &Arrival> {
        self.arrivals.iter().filter(|arrival| arrival.kind == Kind::Send)
    }

    fn paid(&self) -> impl Iterator<Item = &Arrival> {
        self.arrivals.iter().filter(|arrival| arrival.paid)
    }
}

fn count<'a>(names: impl Iterator<Item = &'a str>) -> HashMap<&'a str, usize> {
    let mut counts = HashMap::new();
    for name in names {
        *counts.entry(name).or_insert(0) += 1;
    }
    counts
}
