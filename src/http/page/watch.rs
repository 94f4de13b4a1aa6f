//! What the page reads from Postgres and shares among its viewers.
//!
//! One read of a channel or a refund is under way at a time, and one of the nodes, so all viewers together use two connections at
//! most. The nodes stand on each page, also on the one that stops everything: they wait for no channel. A result stays good
//! for ten times as long as its read took, times the number of the channels and refunds that are watched, and for a second
//! at least. So the reads fill at most a fifth of one connection, however many viewers there are: a tenth for the nodes, a
//! tenth for the channels and refunds.
//!
//! A read goes on when its viewer hangs up. So a viewer waits for its place inside its own request: one that asks for many
//! pages and hangs up leaves one read behind, and keeps no other viewer waiting for more than that.

mod by_name;
mod unread;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::time::timeout;

use self::by_name::ReadsByName;
use self::unread::logged;
pub(super) use self::unread::unread;
use super::super::log_throttle::LogThrottle;
use super::super::request_places::RequestPlaces;
use super::super::shared_read::SharedRead;
use super::super::{Api, Problem, Who, find};
use super::limit_bars::{LimitBars, MINUTES};
use crate::caller::Names;
use crate::desk::story::Story;
use crate::limiter::{Limit, Placement};
use crate::refund::{LimitName, Refund};
use crate::store::{
    AnswerSecond, BankOfNode, Event, EventFilter, NodeRow, PermitSecond, Store, StoreError, Suspension,
};

/// The events on the page of a channel and in the story of a refund.
pub(super) const EVENTS: u32 = 10;
const LEAST: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_mins(5);
/// How long a viewer waits for the first result, and for a newer one.
const FIRST: Duration = Duration::from_secs(10);
const NEWER: Duration = Duration::from_millis(100);
/// How long an older result stands in after its time. A page that goes on with it would show dead nodes as alive.
const MOST_OVERDUE: Duration = Duration::from_secs(30);

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
    /// The last events of the channel, newest first, without those of single refunds.
    pub events: Vec<Event>,
}

/// A refund's story, and what happened to its channel meanwhile. No story: the refund is gone.
#[derive(Debug)]
pub(super) struct StoryRead {
    pub story: Option<Story>,
    /// Newest first.
    pub events: Vec<Event>,
}

/// What one limit did in the last minutes.
#[derive(Debug)]
pub(super) struct LimitMinutes {
    pub limit: Arc<Limit>,
    /// The bars of its chart; `None` for a limit without one.
    pub bars: Option<LimitBars>,
    /// The permits of all bars.
    pub permits: Vec<PermitSecond>,
    /// The beginning of the newest window in microseconds since 1970, and its permits; for numbered windows.
    pub window: Option<(i64, i32)>,
}

/// The shared reads of one node.
#[derive(Debug)]
pub(in crate::http) struct Watch {
    cluster: Arc<SharedRead<Cluster>>,
    channels: ReadsByName<Minutes>,
    /// By the refund's id and version and by what suspends its channel, so that a change of them is read at once.
    stories: ReadsByName<StoryRead>,
    /// One read of the nodes at a time.
    of_nodes: RequestPlaces,
    /// One read of a channel or a refund at a time.
    of_names: RequestPlaces,
    failures: Arc<LogThrottle>,
    /// Proofs may read millions of permits: one at a time.
    pub(super) proofs: RequestPlaces,
}

impl Default for Watch {
    fn default() -> Self {
        Watch {
            cluster: Arc::new(SharedRead::overdue_at_most(MOST_OVERDUE)),
            channels: ReadsByName::default(),
            stories: ReadsByName::default(),
            of_nodes: RequestPlaces::new(1),
            of_names: RequestPlaces::new(1),
            failures: Arc::default(),
            proofs: RequestPlaces::new(1),
        }
    }
}

impl Watch {
    /// The nodes, and what is wrong with their banks.
    pub(super) async fn cluster(&self, store: &Store, who: &Who) -> Result<Arc<Cluster>, Problem> {
        let (store, failures) = (store.clone(), Arc::clone(&self.failures));
        let read = || async move { logged(read_cluster(&store).await, &failures) };
        read_shared(&self.cluster, &self.of_nodes, who, 1, read).await
    }

    /// What a channel with these limits did in the last minutes.
    pub(super) async fn minutes(
        &self,
        store: &Store,
        who: &Who,
        channel: &str,
        limits: &[Arc<Limit>],
    ) -> Result<Arc<Minutes>, Problem> {
        let shared = self.channels.named(channel);
        let (store, failures) = (store.clone(), Arc::clone(&self.failures));
        let (channel, limits) = (channel.to_owned(), limits.to_vec());
        let read = || async move { logged(read_minutes(&store, &channel, &limits).await, &failures) };
        read_shared(&shared, &self.of_names, who, self.watched(), read).await
    }

    /// The story of a refund.
    pub(super) async fn story(
        &self,
        api: &Api,
        who: &Who,
        refund: &Refund,
    ) -> Result<Arc<StoryRead>, Problem> {
        let census = find::census_for(api, refund, patience(api.census.has_value())).await;
        let suspended = if let Ok(census) = &census {
            let of_channel = census.iter().filter(|one| one.channel == refund.channel);
            key_of(of_channel.flat_map(|one| &one.suspensions))
        } else {
            let now = api.census.suspended(&api.whole_node).await?;
            let is_of = |name: &str| name == refund.channel;
            let stops = now.suspensions.iter().filter(|one| one.channel.as_deref().is_none_or(is_of));
            format!("not counted {}", key_of(stops))
        };
        let key = format!("{}@{} {suspended}", refund.id, refund.version);
        let shared = self.stories.named(&key);
        let (api, refund) = (api.clone(), refund.clone());
        let read = || async move { read_story(&api, refund, &census).await };
        read_shared(&shared, &self.of_names, who, self.watched(), read).await
    }

    /// How many channels and refunds somebody looks at.
    fn watched(&self) -> usize {
        self.channels.watched() + self.stories.watched()
    }
}

/// Reads in a place of this viewer, unless the last value is fresh.
async fn read_shared<T, F>(
    shared: &Arc<SharedRead<T>>,
    places: &RequestPlaces,
    who: &Who,
    watched: usize,
    read: impl FnOnce() -> F + Send + 'static,
) -> Result<Arc<T>, Problem>
where
    T: Send + Sync + 'static,
    F: Future<Output = Result<T, Problem>> + Send,
{
    if let Some(value) = shared.fresh() {
        return value;
    }
    let patience = patience(shared.has_value());
    let began = Instant::now();
    let Ok(place) = timeout(patience, places.place(who)).await else { return shared.last() };
    let in_place = move || async move {
        let _place = place;
        read().await
    };
    let patience = patience.saturating_sub(began.elapsed());
    shared.read(in_place, move |_, took| rest_after(took, watched), patience).await
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
    let answers = store.answer_seconds(channel, until - MINUTES * 60, until).await?;
    let mut read = Vec::with_capacity(limits.len());
    for limit in limits {
        let name = limit.name.as_str();
        let names = match limit.placement {
            Placement::Shared => vec![name.to_owned()],
            // Each share is counted under a name of its own.
            Placement::LocalShare { nodes } => {
                let share = |number| LimitName::derived(name, &format!("share{number}")).to_string();
                (1..=nodes).map(share).collect()
            }
        };
        let bars = LimitBars::before(until, &limit.rule);
        let permits = match bars {
            Some(bars) => store.permit_seconds(&names, bars.from, bars.until).await?,
            None => Vec::new(),
        };
        let window = match limit.placement {
            Placement::Shared if limit.rule.window().is_some() => store.newest_window(name).await?,
            Placement::Shared | Placement::LocalShare { .. } => None,
        };
        read.push(LimitMinutes { limit: Arc::clone(limit), bars, permits, window });
    }
    let filter = EventFilter { limit: EVENTS, ..of_channel(channel) };
    let events = store.events(&filter).await?.events;
    Ok(Minutes { until, limits: read, answers, banks: store.banks(Some(channel)).await?, events })
}

fn of_channel(channel: &str) -> EventFilter {
    EventFilter { channel: Some(channel.to_owned()), without_refunds: true, ..EventFilter::of(Names::All) }
}

/// What suspends a channel, for a key.
fn key_of<'s>(suspensions: impl Iterator<Item = &'s Suspension>) -> String {
    let told = |one: &Suspension| {
        format!("{:?}", (&one.channel, one.by, &one.reason, &one.who, one.since, one.until))
    };
    suspensions.map(told).collect::<Vec<_>>().concat()
}

async fn read_story(api: &Api, refund: Refund, census: &find::CensusRead) -> Result<StoryRead, Problem> {
    let (from, to) = (Some(refund.created_at), refund.settled_at);
    let filter = EventFilter { from, to, limit: EVENTS, ..of_channel(&refund.channel) };
    let events = api.node.store.events(&filter).await?.events;
    Ok(StoryRead { story: find::story(api, refund, census).await?, events })
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
}
