//! The ledger of the pretend bank: every request that arrived. Tests judge every promise by it.
//!
//! The ledger contains only what the bank saw. Nothing that refundd believes it sent appears in it. An arrival's date
//! is the time at which the kernel received the first byte of its request, by the wall clock of this machine.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

use serde::Serialize;

use super::BankSays;

/// One request that reached the bank.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// When its first byte came, in microseconds since 1970.
    pub at_us: i64,
    /// When the bank's application began to handle it, in microseconds since 1970. Earlier work may have delayed
    /// this.
    pub handled_us: i64,
    /// The first part of the path: `acme` of `/acme/refunds`.
    pub channel: Arc<str>,
    pub kind: Kind,
    /// The `Idempotency-Key`; for an inquiry, the key in its path.
    pub key: Arc<str>,
    /// The `Refundd-Attempt` header, or 0 without one.
    pub attempt: u32,
    /// The `traceparent` header; empty without one.
    pub traceparent: Arc<str>,
    /// The refund ref in the body; empty if the whole body never came.
    pub refund_ref: Arc<str>,
    /// The amount in the body, in minor units.
    pub amount_minor: i64,
    /// The [`hash_of`] the whole body. Repeats of one refund must have the same.
    pub body_hash: u64,
    /// Whether money moved.
    pub paid: bool,
    /// Whether money has yet to move.
    pub executing: bool,
    /// Until when an inquiry is answered "pending", in microseconds since 1970; 0 for never.
    pub pending_until_us: i64,
    /// Whether an inquiry is answered "rejected".
    pub refused: bool,
    /// The status the bank sent, or was about to send; `None` for silence and for a reset.
    pub answered: Option<u16>,
    /// What that answer says about the refund.
    pub says: BankSays,
    /// When the bank was about to answer or to hang up, in microseconds since 1970. `None` while the bank handles the
    /// request, when the bank stays silent, and when the caller left first.
    pub ended_us: Option<i64>,
    /// When the bank saw that the caller had left before the answer, in microseconds since 1970.
    pub left_us: Option<i64>,
}

impl Arrival {
    /// What the bank's answer said to its caller: nothing if the caller left before the answer. Whether the caller read the
    /// answer, the bank cannot know.
    pub fn answer_sent(&self) -> BankSays {
        if self.ended_us.is_some() { self.says } else { BankSays::Nothing }
    }
}

/// Whether a request is a send or an inquiry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Send,
    /// A GET that asks what became of a request.
    Inquiry,
}

/// The result of a key in the bank's ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Execution {
    Pending,
    Paid,
    Refused,
}

/// All arrivals, in the order in which the bank read their headers.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    pub(super) arrivals: Vec<Arrival>,
    pub(super) unreadable: Vec<i64>,
    /// For each key the indexes of its sends in `arrivals`, in order.
    sends: HashMap<Arc<str>, Vec<usize>>,
}

/// A summary of one channel's arrivals.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Account {
    pub channel: String,
    pub arrivals: usize,
    pub paid: usize,
    /// Refunds that were paid more than once.
    pub doubled: usize,
    /// Arrivals in the fullest aligned second.
    pub worst_second: usize,
    /// Arrivals a second from the first to the last; `None` with fewer than two.
    pub per_second: Option<f64>,
}

impl Ledger {
    /// Joins the requests of two banks into one ledger, those of this bank first.
    #[must_use]
    pub fn and(mut self, other: Ledger) -> Ledger {
        for arrival in other.arrivals {
            self.enter(arrival);
        }
        self.unreadable.extend(other.unreadable);
        self
    }

    /// Every request of all channels.
    pub fn all(&self) -> &[Arrival] {
        &self.arrivals
    }

    /// The sends under one key, in order. Found through an index: a scan of a long ledger would keep the bank waiting.
    pub fn sends_under<'a>(&'a self, key: &str) -> impl Iterator<Item = &'a Arrival> {
        self.sends_of(key).iter().map(|entry| &self.arrivals[*entry])
    }

    /// The sends and the inquiries of one channel. Inquiries need permits too.
    pub fn arrivals<'a>(&'a self, channel: &'a str) -> impl Iterator<Item = &'a Arrival> {
        self.arrivals.iter().filter(move |arrival| &*arrival.channel == channel)
    }

    /// When bytes arrived that never became a request, in microseconds since 1970. The caller died, or spoke no HTTP.
    pub fn unreadable(&self) -> &[i64] {
        &self.unreadable
    }

    /// How often each key was paid. Keys that were never paid are left out.
    pub fn paid_by_key(&self) -> HashMap<&str, usize> {
        count(self.paid().map(|arrival| &*arrival.key))
    }

    /// The expected refunds that were never paid.
    pub fn lost<'a>(&self, expected: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
        let paid: HashSet<&str> = self.paid().map(|arrival| &*arrival.refund_ref).collect();
        expected.into_iter().filter(|refund_ref| !paid.contains(refund_ref)).collect()
    }

    /// Refunds that were paid more than once, and how often.
    pub fn doubled(&self) -> Vec<(&str, usize)> {
        let mut doubled = count(self.paid().map(|arrival| &*arrival.refund_ref));
        doubled.retain(|_, times| *times > 1);
        let mut doubled: Vec<_> = doubled.into_iter().collect();
        doubled.sort_unstable();
        doubled
    }

    /// Refunds that were sent more than once, paid or not, and how often.
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

    /// Adds one request and returns its index.
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

    /// Whether the bank will still execute a request with this key.
    pub(super) fn is_executing(&self, key: &str) -> bool {
        self.sends_of(key).iter().any(|entry| self.arrivals[*entry].executing)
    }

    /// When a request with this key last arrived.
    pub(super) fn last_seen_us(&self, key: &str) -> Option<i64> {
        self.sends_of(key).last().map(|entry| self.arrivals[*entry].at_us)
    }

    /// The result of a key, and the index of the first arrival with that result. `None` if the bank has no result.
    pub(super) fn execution_of(&self, key: &str, now_us: i64) -> Option<(Execution, usize)> {
        let is = |execution, arrival: &Arrival| match execution {
            Execution::Pending => arrival.pending_until_us > now_us,
            Execution::Paid => arrival.paid,
            Execution::Refused => arrival.refused,
        };
        [Execution::Pending, Execution::Paid, Execution::Refused].into_iter().find_map(|execution| {
            let first = self.sends_of(key).iter().find(|entry| is(execution, &self.arrivals[**entry]))?;
            Some((execution, *first))
        })
    }

    fn sent(&self) -> impl Iterator<Item = &Arrival> {
        self.arrivals.iter().filter(|arrival| arrival.kind == Kind::Send)
    }

    fn paid(&self) -> impl Iterator<Item = &Arrival> {
        self.arrivals.iter().filter(|arrival| arrival.paid)
    }
}

/// The hash of a body in the ledger. A test that knows the body of a refund compares it with the arrivals.
pub fn hash_of(body: &[u8]) -> u64 {
    let mut hash = DefaultHasher::new();
    hash.write(body);
    hash.finish()
}

fn count<'a>(names: impl Iterator<Item = &'a str>) -> HashMap<&'a str, usize> {
    let mut counts = HashMap::new();
    for name in names {
        *counts.entry(name).or_insert(0) += 1;
    }
    counts
}
