//! The bucket: a channel's bounded waiting line in Redis, and the limits that let ids leave it.
//!
//! Nothing kept here is needed for correctness. An id in line is a hint that a row is due; the claim
//! in Postgres decides, and a permit is refused there if Redis ever hands it out again, or under a
//! count that was lost.
//!
//! A call that timed out may have run. Every verb is harmless when repeated: ids that left the line
//! unseen come back from their rows, and permits that were granted unseen are never used.

mod clock;
mod exchange;
pub mod family;
pub mod keys;
#[cfg(test)]
mod laws;
mod local;
pub mod memory;
mod reply;
mod script;
mod server;
mod taking;
mod watch;

use std::collections::HashMap;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use redis::{FromRedisValue, Value};

use crate::channel::Channel;
use crate::limiter::{Limit, Permit, Placement, Told};
use crate::lock::SharedLock;
use crate::refund::id::{ChannelName, RefundId};
use clock::{Clock, Reading};
use exchange::Turn;
pub use exchange::{Acquired, End, Errand, Line, Order, Overruled, Take, Wait};
use family::{Families, Tag};
use keys::Keys;
use script::{Scripts, Verb};
use server::{Call, Server};
pub use server::{Mistaken, StandIn};
use watch::Watches;

pub use server::trouble_of as trouble_of_address;

/// What went wrong between us and Redis.
#[derive(Debug, thiserror::Error)]
pub enum BucketError {
    /// The url cannot be understood.
    #[error("read the Redis url")]
    Url(#[source] redis::RedisError),
    /// The scripts cannot be run in this process.
    #[error("make a bucket in memory")]
    Memory(#[source] redis::RedisError),
    /// Redis could not be reached, hung up mid-question, or refused it.
    #[error("ask Redis about `{what}`")]
    Ask { what: String, source: redis::RedisError },
    /// The address leads to another kind of server.
    #[error("ask Redis about `{what}`: [redis] url {found}")]
    Mistaken { what: String, found: Mistaken },
    /// A script's reply, or what stands in a key, is not of our making.
    #[error(
        "understand what Redis holds for `{what}`: {found}; if somebody else wrote there, delete its keys, they are made anew"
    )]
    Reply { what: String, found: String },
}

/// The buckets of all channels.
#[derive(Clone)]
pub struct Bucket {
    server: Server,
    watches: Arc<Watches>,
    /// Where limits are counted that this node counts alone.
    local: Server,
    local_clock: Arc<Clock>,
    /// Held from looking at those limits to spending them.
    counting: Arc<tokio::sync::Mutex<()>>,
    keys: Keys,
    scripts: Arc<Scripts>,
    /// How far Redis's clock may be wrong and still be believed.
    tolerance: Duration,
    /// Where the days of time zones begin, as all nodes share them; as the scripts want it.
    edges: Arc<RwLock<HashMap<String, String>>>,
}

impl std::fmt::Debug for Bucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bucket").field("keys", &self.keys).finish_non_exhaustive()
    }
}

impl Bucket {
    /// The most ids one take may ask for; bounds the script's time.
    pub const MOST_AT_ONCE: u32 = 500;
    /// A node whose claims take longer than this does not ask further ahead for it.
    pub const MOST_HASTE: Duration = Permit::MOST_HASTE;
    /// How long one node is left alone with feeding a line.
    const FEEDING: Duration = Duration::from_secs(1);
    /// Windows from this length on ask the ledger again for permits that nobody used.
    pub const LONG_WINDOW: Duration = Duration::from_secs(10);

    /// Prepares the connection; it is made when first used, so a node starts while Redis is away.
    /// `tolerance` is how far Redis's clock may be from Postgres's.
    pub fn open(url: &str, key_prefix: &str, tolerance: Duration) -> Result<Self, BucketError> {
        Self::over(Server::redis(url).map_err(BucketError::Url)?, key_prefix, tolerance)
    }

    /// A bucket in this process alone.
    pub fn in_memory(tolerance: Duration) -> Result<Self, BucketError> {
        Self::over(Server::memory().map_err(BucketError::Memory)?, "refundd", tolerance)
    }

    /// A bucket whose server and clock are the simulation's.
    #[doc(hidden)]
    pub fn stood_in(by: Arc<dyn StandIn>, tolerance: Duration) -> Result<Self, BucketError> {
        Self::over(Server::StandIn(by), "refundd", tolerance)
    }

    fn over(server: Server, key_prefix: &str, tolerance: Duration) -> Result<Self, BucketError> {
        let watches = Arc::<Watches>::default();
        let (local, local_clock) = match &server {
            Server::Memory(_) | Server::StandIn(_) => (server.clone(), watches.clock(&None)),
            Server::Redis(_) | Server::Cluster(_) => {
                (Server::memory().map_err(BucketError::Memory)?, Arc::default())
            }
        };
        let keys = match &server {
            Server::Cluster(_) => Keys::in_slots(key_prefix),
            Server::Redis(_) | Server::Memory(_) | Server::StandIn(_) => Keys::new(key_prefix),
        };
        Ok(Bucket {
            server,
            watches,
            local,
            local_clock,
            counting: Arc::default(),
            keys,
            scripts: Arc::new(Scripts::new()),
            tolerance,
            edges: Arc::default(),
        })
    }

    /// Takes over where the days of a time zone begin, in microseconds and in order, as all nodes share them.
    /// Before, nothing is granted under limits of that zone: Redis says that it knows nothing of them.
    pub fn share_edges(&self, zone: &str, edges_us: impl IntoIterator<Item = i64>) {
        let edges: Vec<String> = edges_us.into_iter().map(|us| us.to_string()).collect();
        self.edges.write_locked().insert(zone.to_owned(), edges.join(" "));
    }

    fn edges(&self, limit: &Limit) -> String {
        let Some(zone) = limit.rule.zone() else { return String::new() };
        let edges = self.edges.read_locked();
        edges.get(zone).cloned().unwrap_or_default()
    }

    /// Takes over which channels and limits there are. Only a cluster has to know, to keep in one slot what
    /// is counted together; before, every channel and limit is taken to be by itself.
    pub fn group<'a>(
        &self,
        channels: impl IntoIterator<Item = &'a Channel>,
        limits: impl IntoIterator<Item = &'a Limit>,
    ) {
        let families = Families::of(channels, limits);
        self.watches.keep(&families);
        self.keys.group(families);
    }

    /// Who counts limits of that placement, and the watch on its clock.
    fn counter(&self, placement: Placement, tag: &Tag) -> (&Server, Arc<Clock>) {
        match placement {
            Placement::Shared => (&self.server, self.watches.clock(tag)),
            Placement::LocalShare { .. } => (&self.local, Arc::clone(&self.local_clock)),
        }
    }

    fn counter_of(&self, limit: &Limit) -> &Server {
        match limit.placement {
            Placement::Shared => &self.server,
            Placement::LocalShare { .. } => &self.local,
        }
    }

    /// A limit as the scripts want it.
    fn say(&self, limit: &Limit, call: &mut Call) {
        call.key(self.keys.limit(&limit.name)).key(self.keys.log(&limit.name));
        call.arg(limit.rule.to_string()).arg(micros(limit.ahead)).arg(self.edges(limit));
    }

    /// Puts ids in line to be sent, the oldest first; answers how many were not there yet.
    pub async fn fill(
        &self,
        channel: &ChannelName,
        ids: &[RefundId],
        end: End,
        capacity: u32,
    ) -> Result<u64, BucketError> {
        self.fill_for(Errand::Send, channel, ids, end, capacity).await
    }

    /// The same for any of a channel's lines.
    pub async fn fill_for(
        &self,
        errand: Errand,
        channel: &ChannelName,
        ids: &[RefundId],
        end: End,
        capacity: u32,
    ) -> Result<u64, BucketError> {
        let mut call = Call::default();
        call.key(self.keys.bucket(channel, errand)).key(self.keys.present(channel, errand));
        call.key(self.keys.feeding(channel, errand));
        call.arg(capacity).arg(match end {
            End::Back => "back",
            End::Front => "front",
        });
        for id in ids {
            call.arg(id.0);
        }
        let tag = self.keys.tag(channel);
        let (reply, _) = self.ask(&self.server, &self.scripts.fill, &call, channel.as_str(), &tag).await?;
        let (_now, _depth, added): (i64, u64, u64) =
            FromRedisValue::from_redis_value_ref(&reply).map_err(|_| misread(channel.as_str(), &reply))?;
        Ok(added)
    }

    /// Takes ids out of both of a channel's lines, because their refunds have ended; answers how many stood there.
    /// Only saves work: an id that stays is dropped by its claim.
    pub async fn withdraw(&self, channel: &ChannelName, ids: &[RefundId]) -> Result<u64, BucketError> {
        let tag = self.keys.tag(channel);
        let mut total = 0;
        for errand in [Errand::Send, Errand::Inquire] {
            let mut left = ids;
            while !left.is_empty() {
                let mut call = Call::default();
                call.key(self.keys.bucket(channel, errand)).key(self.keys.present(channel, errand));
                let batch = left.len().min(Self::MOST_AT_ONCE as usize);
                for id in &left[..batch] {
                    call.arg(id.0);
                }
                let (reply, _) =
                    self.ask(&self.server, &self.scripts.withdraw, &call, channel.as_str(), &tag).await?;
                let (_now, looked, removed): (i64, usize, u64) = FromRedisValue::from_redis_value_ref(&reply)
                    .map_err(|_| misread(channel.as_str(), &reply))?;
                total += removed;
                left = &left[looked.clamp(1, batch)..];
            }
        }
        Ok(total)
    }

    /// Looks at several lines, without touching them.
    ///
    /// # Errors
    /// When one of them cannot be looked at.
    pub async fn look(&self, channels: &[ChannelName]) -> Result<Vec<Line>, BucketError> {
        self.look_for(Errand::Send, channels).await
    }

    /// The same for any of the channels' lines.
    pub async fn look_for(&self, errand: Errand, channels: &[ChannelName]) -> Result<Vec<Line>, BucketError> {
        self.survey(errand, channels).await.into_iter().collect()
    }

    /// The same, each line for itself: a master of a cluster that is away hides no more than its own.
    pub async fn survey(&self, errand: Errand, channels: &[ChannelName]) -> Vec<Result<Line, BucketError>> {
        if channels.is_empty() {
            return Vec::new();
        }
        let lists: Vec<String> = channels.iter().map(|channel| self.keys.bucket(channel, errand)).collect();
        let found = self.server.look(&lists).await;
        let line = |(depth, head): &(Value, Value)| {
            let depth = u64::from_redis_value_ref(depth).ok()?;
            let head = Option::<i64>::from_redis_value_ref(head).ok().flatten().map(RefundId);
            Some(Line { depth, head })
        };
        channels
            .iter()
            .zip(found)
            .map(|(channel, found)| {
                let tag = self.keys.tag(channel);
                let found = found.map_err(|source| self.failed(channel.as_str(), &tag, source))?;
                self.watches.worked(&tag);
                line(&found)
                    .ok_or_else(|| misread(channel.as_str(), &Value::Array([found.0, found.1].to_vec())))
            })
            .collect()
    }

    /// How far Redis's clock may be from Postgres's.
    pub fn tolerance(&self) -> Duration {
        self.tolerance
    }

    /// Tells Redis what the ledger knows of a limit.
    pub async fn remind(&self, limit: &Limit, told: &Told) -> Result<(), BucketError> {
        let mut call = Call::default();
        let tag = self.keys.tag_of_limit(&limit.name);
        call.key(self.keys.limit(&limit.name)).key(self.keys.log(&limit.name)).key(self.keys.clock(&tag));
        call.arg(limit.rule.to_string()).arg(told.generation).arg(self.edges(limit));
        call.arg(micros(self.tolerance)).arg(told.window_start_us).arg(told.used);
        match told.rest_us {
            Some(rest) => call.arg(rest),
            None => call.arg(""),
        };
        call.arg(told.server.0.as_str());
        for past in &told.history {
            call.arg(past.at_us).arg(past.count);
            match past.over_us {
                Some(over) => call.arg(over),
                None => call.arg(""),
            };
        }
        self.ask(self.counter_of(limit), &self.scripts.remind, &call, limit.name.as_str(), &tag).await?;
        Ok(())
    }

    /// Drops what Redis counted of a limit under generations older than this one, so that the ledger is
    /// asked at the next take.
    pub async fn forget(&self, limit: &Limit, generation: i64) -> Result<(), BucketError> {
        let mut call = Call::default();
        call.key(self.keys.limit(&limit.name)).key(self.keys.log(&limit.name)).arg(generation);
        let tag = self.keys.tag_of_limit(&limit.name);
        self.ask(self.counter_of(limit), &self.scripts.forget, &call, limit.name.as_str(), &tag).await?;
        Ok(())
    }

    /// Gives up the turns that askers of these limits were given: some of them are gone.
    pub async fn give_up_turns(&self, limits: &[Arc<Limit>]) -> Result<(), BucketError> {
        for limit in limits.iter().filter(|limit| limit.placement == Placement::Shared) {
            let mut call = Call::default();
            call.key(self.keys.limit(&limit.name));
            let tag = self.keys.tag_of_limit(&limit.name);
            self.ask(&self.server, &self.scripts.turns, &call, limit.name.as_str(), &tag).await?;
        }
        Ok(())
    }

    /// Makes long windows ask the ledger again: permits that were granted and never claimed would be
    /// missing from them for hours. Short windows are over before that pays. Safe at any time, because
    /// the ledger refuses what was spent or is of an older generation.
    pub async fn forget_long_windows(&self, limits: &[Arc<Limit>]) -> Result<(), BucketError> {
        for limit in limits.iter().filter(|limit| limit.rule.per >= Self::LONG_WINDOW) {
            self.forget(limit, i64::MAX).await?;
        }
        Ok(())
    }

    /// Tells a counter of a step of its clock that it has not been told of; answers whether there was one.
    async fn tell_of_step(&self, placement: Placement, tag: &Tag) -> Result<Option<i64>, BucketError> {
        let (server, clock) = self.counter(placement, tag);
        let Some(step) = clock.untold() else { return Ok(None) };
        let mut call = Call::default();
        call.key(self.keys.clock(tag)).arg(step.by_us).arg(step.right_us);
        self.ask(server, &self.scripts.stepped, &call, "the clock", tag).await?;
        clock.told(step, server.now());
        Ok(Some(step.by_us))
    }

    /// Whether a reading shows that a counter's clock was set, or was made before that was cleared up.
    async fn doubt(
        &self,
        placement: Placement,
        tag: &Tag,
        read: Reading,
    ) -> Result<Option<i64>, BucketError> {
        if self.counter(placement, tag).1.is_right(read) {
            return Ok(None);
        }
        Ok(Some(self.tell_of_step(placement, tag).await?.unwrap_or(0)))
    }

    /// Runs a verb; answers its reply and when it was there.
    async fn ask(
        &self,
        server: &Server,
        verb: &Verb,
        call: &Call,
        what: &str,
        tag: &Tag,
    ) -> Result<(Value, Reading), BucketError> {
        let (reply, asked) = server.run(verb, call).await.map_err(|source| self.failed(what, tag, source))?;
        let answered = server.now();
        self.watches.worked(tag);
        let redis_us = reply::now_us(&reply).unwrap_or(0);
        Ok((reply, Reading { redis_us, asked, answered }))
    }

    /// Reads the clock that counts for a channel, if this node has not read it yet. A clock that is set shows only
    /// between two readings of one node: without this one a step before the node's first take would go unnoticed.
    pub async fn watch_clock(&self, channel: &Channel) -> Result<(), BucketError> {
        let is_counted = channel.limits.iter().any(|limit| limit.placement == Placement::Shared);
        let tag = self.keys.tag(&channel.name);
        if !is_counted || self.watches.clock(&tag).was_read() {
            return Ok(());
        }
        self.read_clock(&tag).await
    }

    /// Reads every clock again that this node has read before, and tells Redis of a step. Each heartbeat does: a step
    /// shows within a second even where no channel of this node takes.
    pub async fn watch_clocks(&self) -> Result<(), BucketError> {
        let tags = self.watches.read_tags();
        join_all(tags.iter().map(|tag| self.read_clock(tag))).await.into_iter().collect()
    }

    async fn read_clock(&self, tag: &Tag) -> Result<(), BucketError> {
        let mut call = Call::default();
        call.key(self.keys.clock(tag));
        let (_, read) = self.ask(&self.server, &self.scripts.time, &call, "the clock", tag).await?;
        self.doubt(Placement::Shared, tag, read).await?;
        Ok(())
    }

    /// What Redis's clock shows, in microseconds since 1970, and when on this node's monotonic clock: halfway
    /// between asking and being answered. Of a cluster, always the master of the same slot is asked.
    pub async fn time(&self) -> Result<(i64, Instant), BucketError> {
        let mut call = Call::default();
        call.key(self.keys.clock(&None));
        let failed = |source| BucketError::Ask { what: "its clock".to_owned(), source };
        let (reply, asked) = self.server.run(&self.scripts.time, &call).await.map_err(failed)?;
        let redis_us = reply::now_us(&reply).ok_or_else(|| misread("its clock", &reply))?;
        Ok((redis_us, asked + self.server.now().saturating_duration_since(asked) / 2))
    }

    /// What went wrong with the last call; `None` when it worked. In a cluster of any family.
    pub fn trouble(&self) -> Option<String> {
        self.watches.trouble()
    }

    /// Whether the address leads to another kind of server than it says; asks it. `None` too where nothing answers.
    pub async fn mistake(&self) -> Option<Mistaken> {
        self.server.mistake().await
    }

    fn failed(&self, what: &str, tag: &Tag, source: redis::RedisError) -> BucketError {
        let what = what.to_owned();
        if let Some(found) = self.server.mistaken(&source) {
            self.watches.failed(tag, format!("[redis] url {found}"));
            return BucketError::Mistaken { what, found };
        }
        self.watches.failed(tag, source.to_string());
        BucketError::Ask { what, source }
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

fn misread(what: &str, reply: &Value) -> BucketError {
    BucketError::Reply { what: what.to_owned(), found: format!("{reply:?}") }
}
