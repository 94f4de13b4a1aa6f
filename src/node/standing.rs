//! How a node's channels stand with their limits and their banks, as it last saw: which limit makes a channel wait,
//! which are overruled by another node's file, which banks cannot be reached, and how far away they are. For
//! people; nothing is decided by it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::bank::Reading;
use crate::bucket::{Overruled, Wait};
use crate::lock::Lock;
use crate::refund::{ChannelName, LimitName};

#[derive(Debug, Default)]
struct Inner {
    waits: HashMap<ChannelName, (LimitName, Instant)>,
    overruled: HashMap<LimitName, String>,
    banks: HashMap<ChannelName, BankStanding>,
}

/// How one channel's bank looks from this node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BankStanding {
    /// Why no connection for sends can be had.
    pub unreachable: Option<String>,
    /// The same of inquiries.
    pub unreachable_to_ask: Option<String>,
    pub reading: Reading,
    measured: Option<Instant>,
    /// Why a limit's `lateness` is too small for the way there.
    pub lateness: Option<String>,
    /// Why permits lapse one after the other.
    pub lapses: Option<String>,
}

impl BankStanding {
    fn told(&self, now: Instant) -> Value {
        let mut told = Map::new();
        let texts = [
            ("unreachable", &self.unreachable),
            ("unreachable_to_ask", &self.unreachable_to_ask),
            ("lateness_too_small", &self.lateness),
            ("permits_lapse", &self.lapses),
        ];
        for (name, text) in texts {
            if let Some(text) = text {
                told.insert(name.to_owned(), json!(text));
            }
        }
        if self.measured.is_some_and(|at| now.saturating_duration_since(at) < Standing::LATELY) {
            let Reading { set_up, round_trip, round_trip_variation } = self.reading;
            let spans = [
                ("set_up_ms", set_up),
                ("round_trip_ms", round_trip),
                ("round_trip_variation_ms", round_trip_variation),
            ];
            for (name, span) in spans {
                if let Some(span) = span {
                    told.insert(name.to_owned(), json!(millis(span)));
                }
            }
        }
        told.into()
    }
}

/// With three digits behind the point.
#[must_use]
pub fn millis(span: Duration) -> f64 {
    span.as_micros() as f64 / 1000.0
}

/// Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Standing(Arc<Mutex<Inner>>);

impl Standing {
    /// A wait that other nodes, and people, are told of: longer than anybody waits for a mere turn, of
    /// which each channel has one.
    const LONG: Duration = Duration::from_secs(30);
    /// Distances that were measured longer ago are not told to others.
    const LATELY: Duration = Duration::from_mins(1);

    /// Notes what a take told; answers whether other rules are in force than were before.
    pub fn note<'l>(
        &self,
        channel: &ChannelName,
        limits: impl Iterator<Item = &'l LimitName>,
        wait: Option<&Wait>,
        overruled: &[Overruled],
    ) -> bool {
        let mut inner = self.inner();
        match wait {
            Some(wait) => {
                inner.waits.insert(channel.clone(), (wait.limit.clone(), Instant::now() + wait.span));
            }
            None => drop(inner.waits.remove(channel)),
        }
        let mut changed = false;
        for limit in limits {
            let by = overruled.iter().find(|o| o.limit == *limit).map(|o| &o.by);
            if inner.overruled.get(limit) != by {
                changed = true;
                match by {
                    Some(by) => drop(inner.overruled.insert(limit.clone(), by.clone())),
                    None => drop(inner.overruled.remove(limit)),
                }
            }
        }
        changed
    }

    /// The limit a channel waits for, and for how long yet.
    pub fn wait_of(&self, channel: &ChannelName) -> Option<(LimitName, Duration)> {
        let inner = self.inner();
        let (limit, until) = inner.waits.get(channel)?;
        let left = until.checked_duration_since(Instant::now())?;
        Some((limit.clone(), left))
    }

    /// The rule of another file that is in force for a limit.
    pub fn overruled_by(&self, limit: &LimitName) -> Option<String> {
        self.inner().overruled.get(limit).cloned()
    }

    pub fn note_unreachable(&self, channel: &ChannelName, why: Option<&str>) {
        self.change(channel, |bank| bank.unreachable = why.map(ToOwned::to_owned));
    }

    pub fn note_unreachable_to_ask(&self, channel: &ChannelName, why: Option<&str>) {
        self.change(channel, |bank| bank.unreachable_to_ask = why.map(ToOwned::to_owned));
    }

    pub fn note_lapses(&self, channel: &ChannelName, why: Option<String>) {
        self.change(channel, |bank| bank.lapses = why);
    }

    pub fn note_distance(&self, channel: &ChannelName, reading: Reading, lateness: Option<String>) {
        self.change(channel, |bank| {
            (bank.reading, bank.measured, bank.lateness) = (reading, Some(Instant::now()), lateness);
        });
    }

    fn change(&self, channel: &ChannelName, change: impl FnOnce(&mut BankStanding)) {
        let mut inner = self.inner();
        match inner.banks.get_mut(channel) {
            Some(bank) => change(bank),
            None => change(inner.banks.entry(channel.clone()).or_default()),
        }
    }

    pub fn forget_bank(&self, channel: &ChannelName) {
        self.inner().banks.remove(channel);
    }

    /// How a channel's bank looks from here.
    pub fn bank_of(&self, channel: &ChannelName) -> BankStanding {
        self.inner().banks.get(channel).cloned().unwrap_or_default()
    }

    /// All of it, less the waits that are over in a moment; `{}` when there is nothing to tell.
    pub fn told(&self) -> Value {
        let inner = self.inner();
        let now = Instant::now();
        let waits: Map<String, Value> = inner
            .waits
            .iter()
            .filter_map(|(channel, (limit, until))| {
                let left = until.checked_duration_since(now).filter(|left| *left > Self::LONG)?;
                Some((channel.to_string(), json!({ "limit": limit.as_str(), "seconds": left.as_secs() })))
            })
            .collect();
        let overruled: Map<String, Value> =
            inner.overruled.iter().map(|(limit, by)| (limit.to_string(), json!(by))).collect();
        let banks: Map<String, Value> = inner
            .banks
            .iter()
            .map(|(channel, bank)| (channel.to_string(), bank.told(now)))
            .filter(|(_, told)| told.as_object().is_some_and(|told| !told.is_empty()))
            .collect();
        let mut told = Map::new();
        for (name, part) in [("waits", waits), ("overruled", overruled), ("banks", banks)] {
            if !part.is_empty() {
                told.insert(name.to_owned(), part.into());
            }
        }
        told.into()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.locked()
    }
}
