//! How a node's channels stand with their limits, as it last heard: which one makes a channel wait, and
//! which are overruled by another node's file. For people; nothing is decided by it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::bucket::{Overruled, Wait};
use crate::refund::{ChannelName, LimitName};

#[derive(Debug, Default)]
struct Inner {
    waits: HashMap<ChannelName, (LimitName, Instant)>,
    overruled: HashMap<LimitName, String>,
}

/// Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Standing(Arc<Mutex<Inner>>);

impl Standing {
    /// A wait that other nodes, and people, are told of: longer than anybody waits for a mere turn, of
    /// which each channel has one.
    const LONG: Duration = Duration::from_secs(30);

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
        let mut told = Map::new();
        for (name, part) in [("waits", waits), ("overruled", overruled)] {
            if !part.is_empty() {
                told.insert(name.to_owned(), part.into());
            }
        }
        told.into()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
