//! What the page reads from Postgres and shares among its viewers.
//!
//! One such read of a node is under way at a time, so all viewers together use one connection at most. A result stays good
//! for ten times as long as its read took, times the number of the channels that are watched, and for a second at least. So
//! the reads fill at most a fifth of that connection, however many viewers there are: a tenth for the nodes, a tenth for
//! the channels.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::Semaphore;

use super::super::Problem;
use super::super::kept::Kept;
use crate::limiter::{Limit, Placement};
use crate::lock::Lock;
use crate::refund::LimitName;
use crate::store::{AnswerSecond, BankOfNode, NodeRow, PermitSecond, Store, StoreError};

/// How far back the page of a channel looks.
pub(super) const MINUTES: i64 = 15;
/// The most channels whose last minutes are kept at the same time.
const MOST_CHANNELS: usize = 32;
const LEAST: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_mins(5);
/// How long a viewer waits for the first result, and for a newer one.
const FIRST: Duration = Duration::from_secs(10);
const NEWER: Duration = Duration::from_millis(100);

/// The nodes, and what is wrong with their banks.
#[derive(Debug)]
pub(super) struct Cluster {
    pub nodes: Vec<NodeRow>,
    /// By channel.
    pub banks: HashMap<String, Vec<BankOfNode>>,
}

/// What one channel did in the last minutes.
#[derive(Debug)]
pub(super) struct Minutes {
    /// The end of the minutes: a whole second, by Postgres's clock.
    pub until: i64,
    pub limits: Vec<LimitMinutes>,
    pub answers: Vec<AnswerSecond>,
    pub banks: Vec<BankOfNode>,
}

/// What one limit did in the last minutes.
#[derive(Debug)]
pub(super) struct LimitMinutes {
    pub limit: Arc<Limit>,
    /// Empty for a window that is longer than the minutes: its permits all have the time of its beginning.
    pub permits: Vec<PermitSecond>,
    /// The beginning of the newest window in microseconds since 1970, and its permits; for numbered windows.
    pub window: Option<(i64, i32)>,
}

/// The shared reads of one node.
#[derive(Debug)]
pub(in crate::http) struct Watch {
    cluster: Arc<Kept<Cluster>>,
    channels: Mutex<HashMap<String, Watched>>,
    one_at_a_time: Arc<tokio::sync::Mutex<()>>,
    /// Proofs may read millions of permits: one at a time.
    pub(super) proofs: Semaphore,
}

#[derive(Debug)]
struct Watched {
    minutes: Arc<Kept<Minutes>>,
    used: Instant,
}

impl Default for Watch {
    fn default() -> Self {
        let one_at_a_time = Arc::default();
        Watch {
            cluster: Arc::new(Kept::beside(Arc::clone(&one_at_a_time))),
            channels: Mutex::default(),
            one_at_a_time,
            proofs: Semaphore::new(1),
        }
    }
}

impl Watch {
    /// The nodes, and what is wrong with their banks.
    pub(super) async fn cluster(&self, store: &Store) -> Result<Arc<Cluster>, Problem> {
        let store = store.clone();
        let read = || async move { read_cluster(&store).await.map_err(|error| Problem::store(&error)) };
        let patience = patience(self.cluster.has_value());
        self.cluster.read(read, |_, took| rest_after(took, 1), patience).await
    }

    /// What a channel with these limits did in the last minutes.
    pub(super) async fn minutes(
        &self,
        store: &Store,
        channel: &str,
        limits: &[Arc<Limit>],
    ) -> Result<Arc<Minutes>, Problem> {
        let (kept, watched) = self.watched(channel);
        let (store, channel, limits) = (store.clone(), channel.to_owned(), limits.to_vec());
        let patience = patience(kept.has_value());
        let read = || async move {
            read_minutes(&store, &channel, &limits).await.map_err(|error| Problem::store(&error))
        };
        kept.read(read, move |_, took| rest_after(took, watched), patience).await
    }

    /// The kept minutes of a channel, and how many channels are watched.
    fn watched(&self, channel: &str) -> (Arc<Kept<Minutes>>, usize) {
        let mut channels = self.channels.locked();
        if !channels.contains_key(channel) && channels.len() >= MOST_CHANNELS {
            let oldest = channels.iter().min_by_key(|(_, watched)| watched.used);
            if let Some(name) = oldest.map(|(name, _)| name.clone()) {
                channels.remove(&name);
            }
        }
        let new = || Watched {
            minutes: Arc::new(Kept::beside(Arc::clone(&self.one_at_a_time))),
            used: Instant::now(),
        };
        let watched = channels.entry(channel.to_owned()).or_insert_with(new);
        watched.used = Instant::now();
        (Arc::clone(&watched.minutes), channels.len())
    }
}

/// How long a viewer waits for a value, if an older one is there or not.
pub(super) fn patience(has_value: bool) -> Duration {
    if has_value { NEWER } else { FIRST }
}

fn rest_after(took: Duration, watched: usize) -> Duration {
    let watched = u32::try_from(watched).unwrap_or(u32::MAX).max(1);
    (took * 10).saturating_mul(watched).clamp(LEAST, MOST)
}

async fn read_cluster(store: &Store) -> Result<Cluster, StoreError> {
    let nodes = store.nodes().await?;
    let mut banks: HashMap<String, Vec<BankOfNode>> = HashMap::new();
    for bank in store.banks(None).await? {
        banks.entry(bank.channel.clone()).or_default().push(bank);
    }
    Ok(Cluster { nodes, banks })
}

async fn read_minutes(store: &Store, channel: &str, limits: &[Arc<Limit>]) -> Result<Minutes, StoreError> {
    let until = store.now().await?.as_second();
    let from = until - MINUTES * 60;
    let answers = store.answer_seconds(channel, from, until).await?;
    let mut read = Vec::with_capacity(limits.len());
    for limit in limits {
        let name = limit.name.as_str();
        let is_numbered = limit.rule.window().is_some();
        let is_short = limit.rule.per.as_secs() <= MINUTES.unsigned_abs() * 60;
        let permits = match limit.placement {
            _ if is_numbered && !is_short => Vec::new(),
            Placement::Shared => store.permit_seconds(&[name.to_owned()], from, until).await?,
            // Each share is counted under a name of its own.
            Placement::LocalShare { nodes } => {
                let share = |number| LimitName::derived(name, &format!("share{number}")).to_string();
                store.permit_seconds(&(1..=nodes).map(share).collect::<Vec<_>>(), from, until).await?
            }
        };
        let window = match limit.placement {
            Placement::Shared if is_numbered => store.newest_window(name).await?,
            Placement::Shared | Placement::LocalShare { .. } => None,
        };
        read.push(LimitMinutes { limit: Arc::clone(limit), permits, window });
    }
    Ok(Minutes { until, limits: read, answers, banks: store.banks(Some(channel)).await? })
}

/// A second since 1970 as a moment.
pub(super) fn moment(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap_or(Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_of_channels_fill_at_most_a_tenth_of_one_connection_however_many_are_watched() {
        let took = Duration::from_secs(2);
        assert_eq!(rest_after(took, 1), Duration::from_secs(20));
        assert_eq!(rest_after(took, 10), Duration::from_secs(200));
        assert_eq!(rest_after(Duration::ZERO, 10), LEAST);
    }

    #[test]
    fn the_channel_that_was_watched_longest_ago_makes_room() {
        let watch = Watch::default();
        let first = watch.watched("first").0;
        for nth in 0..MOST_CHANNELS {
            watch.watched(&format!("c{nth}"));
        }
        assert_eq!(watch.watched("c1").1, MOST_CHANNELS);
        assert!(!Arc::ptr_eq(&first, &watch.watched("first").0), "the first channel was kept");
    }
}
