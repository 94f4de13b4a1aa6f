//! What keys hold: Redis's types, as far as the scripts use them.
//!
//! A list, hash or set that becomes empty is gone, and a key of another type is refused, as in Redis.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

pub(super) type Bytes = Vec<u8>;

#[derive(Debug, Clone, Default)]
pub(super) struct Keyspace {
    pub run_id: String,
    now_us: i64,
    keys: HashMap<Bytes, Held>,
}

#[derive(Debug, Clone)]
struct Held {
    kind: Kind,
    expires_us: Option<i64>,
}

#[derive(Debug, Clone)]
pub(super) enum Kind {
    /// A text; no script reads it, only whether it is there.
    Flag,
    List(VecDeque<Bytes>),
    Hash(BTreeMap<Bytes, Bytes>),
    Sorted(Sorted),
}

impl Kind {
    fn is_empty(&self) -> bool {
        match self {
            Kind::Flag => false,
            Kind::List(list) => list.is_empty(),
            Kind::Hash(hash) => hash.is_empty(),
            Kind::Sorted(sorted) => sorted.scores.is_empty(),
        }
    }
}

/// Why a command was refused.
pub(super) const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

/// Makes, for one type, a reader and a writer of its keys.
macro_rules! typed {
    ($read:ident, $write:ident, $variant:ident, $type:ty) => {
        pub fn $read(&self, key: &[u8]) -> Result<Option<&$type>, String> {
            match self.live(key) {
                None => Ok(None),
                Some(Kind::$variant(held)) => Ok(Some(held)),
                Some(_) => Err(WRONG_TYPE.to_owned()),
            }
        }

        /// Does something to what the key holds, which begins empty; a key left empty is gone.
        pub fn $write<T>(&mut self, key: &[u8], change: impl FnOnce(&mut $type) -> T) -> Result<T, String> {
            self.$read(key)?;
            if self.live(key).is_none() {
                self.put(key, Kind::$variant(Default::default()), None);
            }
            let Some(Held { kind: Kind::$variant(held), .. }) = self.keys.get_mut(key) else {
                return Err(WRONG_TYPE.to_owned());
            };
            let done = change(held);
            if self.keys.get(key).is_some_and(|held| held.kind.is_empty()) {
                self.keys.remove(key);
            }
            Ok(done)
        }
    };
}

impl Keyspace {
    typed!(list, change_list, List, VecDeque<Bytes>);
    typed!(hash, change_hash, Hash, BTreeMap<Bytes, Bytes>);
    typed!(sorted, change_sorted, Sorted, Sorted);

    pub fn now_us(&self) -> i64 {
        self.now_us
    }

    /// The time until it is stopped again.
    pub fn stop_clock(&mut self, now_us: i64) {
        self.now_us = now_us;
    }

    pub fn clear(&mut self) {
        self.keys.clear();
    }

    pub fn len(&self) -> usize {
        self.keys.values().filter(|held| self.is_live(held)).count()
    }

    pub fn exists(&self, key: &[u8]) -> bool {
        self.live(key).is_some()
    }

    pub fn put(&mut self, key: &[u8], kind: Kind, expires_us: Option<i64>) {
        self.keys.insert(key.to_owned(), Held { kind, expires_us });
    }

    /// Answers whether it was there.
    pub fn remove(&mut self, key: &[u8]) -> bool {
        let there = self.exists(key);
        self.keys.remove(key);
        there
    }

    fn live(&self, key: &[u8]) -> Option<&Kind> {
        self.keys.get(key).filter(|held| self.is_live(held)).map(|held| &held.kind)
    }

    fn is_live(&self, held: &Held) -> bool {
        held.expires_us.is_none_or(|at| self.now_us < at)
    }
}

/// A set ordered by score, then by name.
#[derive(Debug, Clone, Default)]
pub(super) struct Sorted {
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

impl Sorted {
    /// Answers whether it is new.
    pub fn insert(&mut self, member: &[u8], score: f64) -> bool {
        let score = score + 0.0; // minus nought is nought
        let before = self.scores.insert(member.to_owned(), score);
        if let Some(before) = before {
            self.order.remove(&(Score(before), member.to_owned()));
        }
        self.order.insert((Score(score), member.to_owned()));
        before.is_none()
    }

    /// Answers whether it was there.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        match self.scores.remove(member) {
            Some(score) => self.order.remove(&(Score(score), member.to_owned())),
            None => false,
        }
    }

    pub fn score(&self, member: &[u8]) -> Option<f64> {
        self.scores.get(member).copied()
    }

    /// The members whose scores lie within the bounds, the lowest first.
    pub fn within(&self, bounds: Bounds) -> impl DoubleEndedIterator<Item = (&Bytes, f64)> {
        let (from, to) = (bounds.least.first_within(), bounds.most.first_beyond());
        let range = (from < to).then(|| self.order.range(from..to));
        range.into_iter().flatten().map(|(score, member)| (member, score.0))
    }
}

/// A range of scores.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub least: Bound,
    pub most: Bound,
}

/// One end of it: `10`, `(10` without itself, `-inf`, `+inf`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound {
    at: f64,
    without: bool,
}

impl Bound {
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let (without, number) = match text.split_first() {
            Some((b'(', rest)) => (true, rest),
            _ => (false, text),
        };
        let at = number_from(number).map_err(|_| "ERR min or max is not a float".to_owned())?;
        Ok(Bound { at: at + 0.0, without })
    }

    /// Where a range begins that this bounds from below.
    fn first_within(self) -> (Score, Bytes) {
        (Score(if self.without { self.at.next_up() } else { self.at }), Bytes::new())
    }

    /// Where a range is over that this bounds from above. No score is infinite.
    fn first_beyond(self) -> (Score, Bytes) {
        (Score(if self.without { self.at } else { self.at.next_up() }), Bytes::new())
    }
}

pub(super) fn number_from(text: &[u8]) -> Result<f64, String> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
    number.filter(|number| !number.is_nan()).ok_or_else(|| "ERR value is not a valid float".to_owned())
}

/// A number as Redis writes it. Redis gives fractions 17 digits and this the shortest that reads back
/// the same; whole numbers, and the scripts use no others, are written alike.
pub(super) fn number_text(number: f64) -> String {
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if number.abs() < 1e17 { format!("{number}") } else { format!("{number:e}").replace('e', "e+") }
}
