//! Keeps keys and their values, with the types of Redis that the scripts use.
//!
//! As in Redis, a list, hash or set that becomes empty is deleted, and a command for another type is refused.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

pub(super) type Bytes = Vec<u8>;

#[derive(Debug, Clone, Default)]
pub(super) struct Keyspace {
    pub run_id: String,
    now_us: i64,
    keys: HashMap<Bytes, Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    kind: StoredValue,
    expires_us: Option<i64>,
}

#[derive(Debug, Clone)]
pub(super) enum StoredValue {
    /// A text. Scripts only test whether it exists, so its content is not kept.
    Flag,
    List(VecDeque<Bytes>),
    Hash(BTreeMap<Bytes, Bytes>),
    SortedSet(SortedSet),
}

impl StoredValue {
    fn is_empty(&self) -> bool {
        match self {
            StoredValue::Flag => false,
            StoredValue::List(list) => list.is_empty(),
            StoredValue::Hash(hash) => hash.is_empty(),
            StoredValue::SortedSet(sorted) => sorted.scores.is_empty(),
        }
    }
}

/// The error of a command for another type.
pub(super) const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

/// Makes a reader and a writer for the keys of one type.
macro_rules! typed {
    ($read:ident, $write:ident, $variant:ident, $type:ty) => {
        pub fn $read(&self, key: &[u8]) -> Result<Option<&$type>, String> {
            match self.live(key) {
                None => Ok(None),
                Some(StoredValue::$variant(value)) => Ok(Some(value)),
                Some(_) => Err(WRONG_TYPE.to_owned()),
            }
        }

        /// Changes the value of a key. A missing key begins empty, and a key that is empty after the change is
        /// deleted.
        pub fn $write<T>(&mut self, key: &[u8], change: impl FnOnce(&mut $type) -> T) -> Result<T, String> {
            self.$read(key)?;
            if self.live(key).is_none() {
                self.put(key, StoredValue::$variant(Default::default()), None);
            }
            let Some(Entry { kind: StoredValue::$variant(value), .. }) = self.keys.get_mut(key) else {
                return Err(WRONG_TYPE.to_owned());
            };
            let done = change(value);
            if self.keys.get(key).is_some_and(|entry| entry.kind.is_empty()) {
                self.keys.remove(key);
            }
            Ok(done)
        }
    };
}

impl Keyspace {
    typed!(list, change_list, List, VecDeque<Bytes>);
    typed!(hash, change_hash, Hash, BTreeMap<Bytes, Bytes>);
    typed!(sorted, change_sorted, SortedSet, SortedSet);

    pub fn now_us(&self) -> i64 {
        self.now_us
    }

    /// Sets the time, which stands still until the next call.
    pub fn stop_clock(&mut self, now_us: i64) {
        self.now_us = now_us;
    }

    pub fn clear(&mut self) {
        self.keys.clear();
    }

    pub fn len(&self) -> usize {
        self.keys.values().filter(|entry| self.is_live(entry)).count()
    }

    pub fn exists(&self, key: &[u8]) -> bool {
        self.live(key).is_some()
    }

    pub fn put(&mut self, key: &[u8], kind: StoredValue, expires_us: Option<i64>) {
        self.keys.insert(key.to_owned(), Entry { kind, expires_us });
    }

    /// Deletes a key. Returns whether it existed.
    pub fn remove(&mut self, key: &[u8]) -> bool {
        let there = self.exists(key);
        self.keys.remove(key);
        there
    }

    fn live(&self, key: &[u8]) -> Option<&StoredValue> {
        self.keys.get(key).filter(|entry| self.is_live(entry)).map(|entry| &entry.kind)
    }

    fn is_live(&self, entry: &Entry) -> bool {
        entry.expires_us.is_none_or(|at| self.now_us < at)
    }
}

/// A set ordered by score, then by name.
#[derive(Debug, Clone, Default)]
pub(super) struct SortedSet {
    scores: HashMap<Bytes, f64>,
    order: BTreeSet<(Score, Bytes)>,
}

#[derive(Debug, Clone, Copy)]
struct Score(f64);

impl PartialEq for Score {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Score {}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl SortedSet {
    /// Sets the score of a member. Returns whether the member is new.
    pub fn insert(&mut self, member: &[u8], score: f64) -> bool {
        let score = score + 0.0; // makes 0 of minus 0
        let before = self.scores.insert(member.to_owned(), score);
        if let Some(before) = before {
            self.order.remove(&(Score(before), member.to_owned()));
        }
        self.order.insert((Score(score), member.to_owned()));
        before.is_none()
    }

    /// Removes a member. Returns whether it was in the set.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        match self.scores.remove(member) {
            Some(score) => self.order.remove(&(Score(score), member.to_owned())),
            None => false,
        }
    }

    pub fn score(&self, member: &[u8]) -> Option<f64> {
        self.scores.get(member).copied()
    }

    /// The members with scores within the bounds, the lowest score first.
    pub fn within(&self, bounds: ScoreBounds) -> impl DoubleEndedIterator<Item = (&Bytes, f64)> {
        let (from, to) = (bounds.least.first_within(), bounds.most.first_beyond());
        let range = (from < to).then(|| self.order.range(from..to));
        range.into_iter().flatten().map(|(score, member)| (member, score.0))
    }
}

/// A range of scores.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScoreBounds {
    pub least: ScoreBound,
    pub most: ScoreBound,
}

/// One end of a range: `10`, `(10` (without 10 itself), `-inf` or `+inf`.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScoreBound {
    at: f64,
    without: bool,
}

impl ScoreBound {
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let (without, number) = match text.split_first() {
            Some((b'(', rest)) => (true, rest),
            _ => (false, text),
        };
        let at = number_from(number).map_err(|_| "ERR min or max is not a float".to_owned())?;
        Ok(ScoreBound { at: at + 0.0, without })
    }

    /// The first place within the range, if this is its lower bound.
    fn first_within(self) -> (Score, Bytes) {
        (Score(if self.without { self.at.next_up() } else { self.at }), Bytes::new())
    }

    /// The first place after the range, if this is its upper bound. No score is infinite.
    fn first_beyond(self) -> (Score, Bytes) {
        (Score(if self.without { self.at } else { self.at.next_up() }), Bytes::new())
    }
}

pub(super) fn number_from(text: &[u8]) -> Result<f64, String> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
    number.filter(|number| !number.is_nan()).ok_or_else(|| "ERR value is not a valid float".to_owned())
}

/// Writes a number as Redis writes it. Redis writes fractions with 17 digits; this writes the shortest text with the
/// same value. Whole numbers are written alike, and the scripts use only whole numbers.
pub(super) fn number_text(number: f64) -> String {
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if number.abs() < 1e17 { format!("{number}") } else { format!("{number:e}").replace('e', "e+") }
}
