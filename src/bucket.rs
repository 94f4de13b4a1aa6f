//! Puts ids of refunds into buckets in Redis, and takes them out under permits of the channels' limits.
//!
//! A bucket is the bounded Redis list of a channel. It decides nothing: an id in it is a hint that a row is due, and
//! the claim in Postgres decides. The ledger refuses a permit that Redis grants twice. It also refuses a permit that
//! Redis granted after it lost its count. So a Redis that loses everything costs time, and never a wrong request.
//!
//! A call that timed out may have run. Every verb may be repeated without harm. When a reply is lost, the ids that
//! left the bucket come back from their rows, and the granted permits are never used.

mod clock;
mod exchange;
pub mod keys;
#[cfg(test)]
mod laws;
mod local;
pub mod memory;
mod reply;
mod script;
mod server;
pub mod slot_group;
mod taking;
mod watch;

use std::collections::HashMap;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use redis::{ErrorKind, FromRedisValue, ServerErrorKind, Value};

use crate::channel::Channel;
use crate::limiter::{LedgerCount, Limit, Permit, Placement};
use crate::lock::SharedLock;
use crate::refund::id::{ChannelName, RefundId};
use clock::{Clock, Reading};
use exchange::Sharing;
pub use exchange::{Acquired, BucketDepth, End, LimitWait, Order, Purpose, StricterRule, Take};
use keys::Keys;
use script::{Scripts, Verb};
use server::{Call, Server};
pub use server::{ServerRoots, SimulatedServer, WrongServer};
use slot_group::{SlotGroups, Tag};
use watch::Watches;

pub use server::{trouble_of as trouble_of_address, unchecked_hosts};

/// Why a call to Redis failed.
#[derive(Debug, thiserror::Error)]
pub enum BucketError {
    /// The url cannot be understood.
    #[error("read the Redis url")]
    Url(#[source] redis::RedisError),
    /// The scripts cannot be run in this process.
    #[error("make a bucket in memory")]
    Memory(#[source] redis::RedisError),
    /// Redis could not be reached, closed the connection during the call, or refused the command.
    #[error("ask Redis about `{what}`")]
    Ask { what: String, source: redis::RedisError },
    /// The address leads to another kind of server.
    #[error("ask Redis about `{what}`: [redis] url {wrong}")]
    WrongServer { what: String, wrong: WrongServer },
    /// The reply does not have the form that the script gives it: another program wrote to the keys.
    #[error(
        "understand Redis's reply about `{what}`: {reply}; if another program wrote to its keys, delete them: \
         refundd makes them anew"
    )]
    Reply { what: String, reply: String },
}

/// The buckets of all channels.
#[derive(Clone)]
pub struct Bucket {
    server: Server,
    watches: Arc<Watches>,
    /// Counts the limits of which this node has a share of its own.
    local: Server,
    local_clock: Arc<Clock>,
    /// Locked from the look at those limits until their permits are spent.
    counting: Arc<tokio::sync::Mutex<()>>,
    keys: Keys,
    scripts: Arc<Scripts>,
    /// How far Redis's clock may be from Postgres's clock.
    tolerance: Duration,
    /// For each time zone the beginnings of its days in us, separated by blanks, as the scripts read them. All nodes
    /// use the same ones.
    edges: Arc<RwLock<HashMap<String, String>>>,
}

impl std::fmt::Debug for Bucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bucket").field("keys", &self.keys).finish_non_exhaustive()
    }
}

impl Bucket {
    /// The most ids that one call may name. The bound keeps scripts short.
    pub const MOST_AT_ONCE: u32 = 500;
    /// The longest lead time. A node with slower claims does not ask earlier than this.
    pub const LONGEST_LEAD_TIME: Duration = Permit::LONGEST_LEAD_TIME;
    /// For this long after a script asked one node to fill a bucket, it asks no other node.
    const FEEDING: Duration = Duration::from_secs(1);
    /// Windows of at least this length are long: see [`Self::forget_long_windows`].
    pub const LONG_WINDOW: Duration = Duration::from_secs(10);

    /// Prepares the connection. The first call connects, so a node can start while Redis is away.
    /// `tolerance` is how far Redis's clock may be from Postgres's clock.
    ///
    /// # Errors
    /// When the url cannot be understood.
    pub fn open(url: &str, key_prefix: &str, tolerance: Duration) -> Result<Self, BucketError> {
        Self::open_trusting(ServerRoots::default(), url, key_prefix, tolerance)
    }

    /// The same, with the roots by which the servers' certificates are checked.
    ///
    /// # Errors
    /// When the url cannot be understood.
    pub fn open_trusting(
        roots: ServerRoots,
        url: &str,
        key_prefix: &str,
        tolerance: Duration,
    ) -> Result<Self, BucketError> {
        Self::over(Server::redis(url, roots).map_err(BucketError::Url)?, key_prefix, tolerance)
    }

    /// Keeps the buckets in the memory of this process. No other process sees them.
    pub fn in_memory(tolerance: Duration) -> Result<Self, BucketError> {
        Self::over(Server::memory().map_err(BucketError::Memory)?, "refundd", tolerance)
    }

    /// Uses a server and a clock of the simulation.
    #[doc(hidden)]
    pub fn simulated(by: Arc<dyn SimulatedServer>, tolerance: Duration) -> Result<Self, BucketError> {
        Self::over(Server::Simulated(by), "refundd", tolerance)
    }

    fn over(server: Server, key_prefix: &str, tolerance: Duration) -> Result<Self, BucketError> {
        let watches = Arc::<Watches>::default();
        let (local, local_clock) = match &server {
            Server::Memory(_) | Server::Simulated(_) => (server.clone(), watches.clock(&None)),
            Server::Redis(_) | Server::Cluster(_) => {
                (Server::memory().map_err(BucketError::Memory)?, Arc::default())
            }
        };
        let keys = match &server {
            Server::Cluster(_) => Keys::in_slots(key_prefix),
            Server::Redis(_) | Server::Memory(_) | Server::Simulated(_) => Keys::new(key_prefix),
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

    /// Sets where the days of a time zone begin, in us since 1970 and in order. All nodes must give the same ones.
    /// Before the first call, no limit of that zone grants a permit: the scripts reply FORGOT.
    pub fn share_edges(&self, zone: &str, edges_us: impl IntoIterator<Item = i64>) {
        let edges: Vec<String> = edges_us.into_iter().map(|us| us.to_string()).collect();
        self.edges.write_locked().insert(zone.to_owned(), edges.join(" "));
    }

    fn edges(&self, limit: &Limit) -> String {
        let Some(zone) = limit.rule.zone() else { return String::new() };
        let edges = self.edges.read_locked();
        edges.get(zone).cloned().unwrap_or_default()
    }

    /// Sets the channels and limits of the configuration. In a cluster, their slot groups choose the hash tags of the
    /// keys. Before the first call, every channel and every limit is a slot group of its own. On one server the call
    /// changes nothing.
    pub fn group<'a>(
        &self,
        channels: impl IntoIterator<Item = &'a Channel>,
        limits: impl IntoIterator<Item = &'a Limit>,
    ) {
        let slot_groups = SlotGroups::of(channels, limits);
        self.watches.keep(&slot_groups);
        self.keys.group(slot_groups);
    }

    /// The server that counts limits of this placement, and the watch on that server's clock.
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

    /// Adds a limit to a call: two keys and three arguments.
    fn add_limit(&self, limit: &Limit, call: &mut Call) {
        call.key(self.keys.limit(&limit.name)).key(self.keys.log(&limit.name));
        call.arg(limit.rule.to_string()).arg(micros(limit.ahead)).arg(self.edges(limit));
    }

    /// Puts ids into the channel's bucket for sends, the oldest first. Returns how many were not in it yet.
    pub async fn fill(
        &self,
        channel: &ChannelName,
        ids: &[RefundId],
        end: End,
        capacity: u32,
    ) -> Result<u64, BucketError> {
        self.fill_for(Purpose::Send, channel, ids, end, capacity).await
    }

    /// Puts ids into one of the channel's buckets, the oldest first. Returns how many were not in it yet.
    pub async fn fill_for(
        &self,
        purpose: Purpose,
        channel: &ChannelName,
        ids: &[RefundId],
        end: End,
        capacity: u32,
    ) -> Result<u64, BucketError> {
        let mut call = Call::default();
        call.key(self.keys.bucket(channel, purpose)).key(self.keys.present(channel, purpose));
        call.key(self.keys.feeding(channel, purpose));
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

    /// Removes ids from both of a channel's buckets, because their refunds have ended. Returns how many it removed.
    /// Without the call the ids do no harm: the claim drops them.
    pub async fn withdraw(&self, channel: &ChannelName, ids: &[RefundId]) -> Result<u64, BucketError> {
        let tag = self.keys.tag(channel);
        let mut total = 0;
        for purpose in [Purpose::Send, Purpose::Inquire] {
            let mut left = ids;
            while !left.is_empty() {
                let mut call = Call::default();
                call.key(self.keys.bucket(channel, purpose)).key(self.keys.present(channel, purpose));
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

    /// Reads the depth and the head of the channels' buckets for one purpose, and changes nothing. Each bucket has a
    /// result of its own: when one master of a cluster is away, the buckets of the other masters still have theirs.
    pub async fn survey(
        &self,
        purpose: Purpose,
        channels: &[ChannelName],
    ) -> Vec<Result<BucketDepth, BucketError>> {
        if channels.is_empty() {
            return Vec::new();
        }
        let lists: Vec<String> = channels.iter().map(|channel| self.keys.bucket(channel, purpose)).collect();
        let replies = self.server.look(&lists).await;
        let read = |(depth, head): &(Value, Value)| {
            let depth = u64::from_redis_value_ref(depth).ok()?;
            let head = Option::<i64>::from_redis_value_ref(head).ok().flatten().map(RefundId);
            Some(BucketDepth { depth, head })
        };
        channels
            .iter()
            .zip(replies)
            .map(|(channel, reply)| {
                let tag = self.keys.tag(channel);
                let reply = reply.map_err(|source| self.failed(channel.as_str(), "look", &tag, source))?;
                self.watches.worked(&tag, "look");
                read(&reply)
                    .ok_or_else(|| misread(channel.as_str(), &Value::Array([reply.0, reply.1].to_vec())))
            })
            .collect()
    }

    /// How far Redis's clock may be from Postgres's clock.
    pub fn tolerance(&self) -> Duration {
        self.tolerance
    }

    /// Gives Redis the count of a limit that the ledger has.
    pub async fn restore(&self, limit: &Limit, spent: &LedgerCount) -> Result<(), BucketError> {
        let mut call = Call::default();
        let tag = self.keys.tag_of_limit(&limit.name);
        call.key(self.keys.limit(&limit.name)).key(self.keys.log(&limit.name)).key(self.keys.clock(&tag));
        call.arg(limit.rule.to_string()).arg(spent.generation).arg(self.edges(limit));
        call.arg(micros(self.tolerance)).arg(spent.window_start_us).arg(spent.used);
        match spent.rest_us {
            Some(rest) => call.arg(rest),
            None => call.arg(""),
        };
        call.arg(spent.server.0.as_str());
        for past in &spent.history {
            call.arg(past.at_us).arg(past.count);
            match past.over_us {
                Some(over) => call.arg(over),
                None => call.arg(""),
            };
        }
        self.ask(self.counter_of(limit), &self.scripts.restore, &call, limit.name.as_str(), &tag).await?;
        Ok(())
    }

    /// Deletes the count that Redis has of a limit, if it is of an older generation than `generation`. Then the next
    /// take replies FORGOT, and a node restores the count from the ledger.
    pub async fn forget(&self, limit: &Limit, generation: i64) -> Result<(), BucketError> {
        self.forget_what(limit, generation, "count").await
    }

    /// Deletes the rule that Redis has of a limit, and its count. For a rule that no node published.
    pub async fn forget_rule(&self, limit: &Limit) -> Result<(), BucketError> {
        self.forget_what(limit, i64::MAX, "rule").await
    }

    async fn forget_what(&self, limit: &Limit, generation: i64, what: &str) -> Result<(), BucketError> {
        let mut call = Call::default();
        call.key(self.keys.limit(&limit.name)).key(self.keys.log(&limit.name)).arg(generation).arg(what);
        let tag = self.keys.tag_of_limit(&limit.name);
        self.ask(self.counter_of(limit), &self.scripts.forget, &call, limit.name.as_str(), &tag).await?;
        Ok(())
    }

    /// Deletes the turns of the nodes that wait for these limits, because one of the nodes is gone. A turn is the
    /// time at which a denied node asks again. The turns of the node that is gone would otherwise stay unused.
    pub async fn give_up_turns(&self, limits: &[Arc<Limit>]) -> Result<(), BucketError> {
        for limit in limits.iter().filter(|limit| limit.placement == Placement::Shared) {
            let mut call = Call::default();
            call.key(self.keys.limit(&limit.name));
            let tag = self.keys.tag_of_limit(&limit.name);
            self.ask(&self.server, &self.scripts.turns, &call, limit.name.as_str(), &tag).await?;
        }
        Ok(())
    }

    /// Deletes the counts of long windows, so that the ledger restores them. The ledger has no permits that were
    /// granted and never claimed, so they can be granted again; otherwise they would be missing for hours. A short
    /// window is over before this helps. The call is safe at any time, because the ledger refuses permits that are
    /// spent or of an older generation.
    pub async fn forget_long_windows(&self, limits: &[Arc<Limit>]) -> Result<(), BucketError> {
        for limit in limits.iter().filter(|limit| limit.rule.per >= Self::LONG_WINDOW) {
            self.forget(limit, i64::MAX).await?;
        }
        Ok(())
    }

    /// Reports a step of a server's clock to that server, if the step is not reported yet. Returns the step in us.
    async fn report_step(&self, placement: Placement, tag: &Tag) -> Result<Option<i64>, BucketError> {
        let (server, clock) = self.counter(placement, tag);
        let Some(step) = clock.unreported() else { return Ok(None) };
        let mut call = Call::default();
        call.key(self.keys.clock(tag)).arg(step.by_us).arg(step.right_us);
        self.ask(server, &self.scripts.stepped, &call, "the clock", tag).await?;
        clock.reported(step, server.now());
        Ok(Some(step.by_us))
    }

    /// Checks a reading. Returns the step in us when the reading shows that the clock was set; the step is reported
    /// first. Returns 0 when the call began before an earlier step was reported.
    async fn doubt(
        &self,
        placement: Placement,
        tag: &Tag,
        read: Reading,
    ) -> Result<Option<i64>, BucketError> {
        if self.counter(placement, tag).1.is_right(read) {
            return Ok(None);
        }
        Ok(Some(self.report_step(placement, tag).await?.unwrap_or(0)))
    }

    /// Runs a verb. Returns its reply, and the reading of the server's clock in it.
    async fn ask(
        &self,
        server: &Server,
        verb: &Verb,
        call: &Call,
        what: &str,
        tag: &Tag,
    ) -> Result<(Value, Reading), BucketError> {
        let (reply, started) =
            server.run(verb, call).await.map_err(|source| self.failed(what, verb.name, tag, source))?;
        let answered = server.now();
        self.watches.worked(tag, verb.name);
        let redis_us = reply::now_us(&reply).unwrap_or(0);
        Ok((reply, Reading { redis_us, started, answered }))
    }

    /// Reads the clock that counts for a channel, if this node has not read that clock yet. Two readings of one node
    /// show a step between them. Without the first reading, a step before the node's first take would go unnoticed.
    pub async fn watch_clock(&self, channel: &Channel) -> Result<(), BucketError> {
        let is_counted = channel.limits.iter().any(|limit| limit.placement == Placement::Shared);
        let tag = self.keys.tag(&channel.name);
        if !is_counted || self.watches.clock(&tag).was_read() {
            return Ok(());
        }
        self.read_clock(&tag).await
    }

    /// Reads every clock again that this node has read before, and reports steps to Redis. Each heartbeat calls it.
    /// So a step shows within a second even while no channel of this node takes.
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

    /// Reads Redis's clock, in us since 1970. Returns also the moment of the reading on this node's monotonic clock:
    /// the middle between the call and its reply. In a cluster, the call always goes to the master of the same slot.
    pub async fn time(&self) -> Result<(i64, Instant), BucketError> {
        let mut call = Call::default();
        call.key(self.keys.clock(&None));
        let failed = |source| BucketError::Ask { what: "its clock".to_owned(), source };
        let (reply, started) = self.server.run(&self.scripts.time, &call).await.map_err(failed)?;
        let redis_us = reply::now_us(&reply).ok_or_else(|| misread("its clock", &reply))?;
        Ok((redis_us, started + self.server.now().saturating_duration_since(started) / 2))
    }

    /// Why the last call failed; `None` when it worked. In a cluster, the failure of any slot group.
    pub fn trouble(&self) -> Option<String> {
        self.watches.trouble()
    }

    /// Asks the server at the address what kind of server it is. Returns the kind when the address is written for
    /// another kind. Returns `None` also when no server answers.
    pub async fn wrong_server(&self) -> Option<WrongServer> {
        self.server.wrong_server().await
    }

    fn failed(&self, what: &str, verb: &'static str, tag: &Tag, source: redis::RedisError) -> BucketError {
        let what = what.to_owned();
        // Other errors of a server are about its slots, and end for all verbs at once. `OOM` is an extension. A replica
        // refuses verbs that write and answers the others.
        let is_refusal = matches!(
            source.kind(),
            ErrorKind::Extension
                | ErrorKind::Server(
                    ServerErrorKind::ResponseError
                        | ServerErrorKind::NoPerm
                        | ServerErrorKind::ExecAbort
                        | ServerErrorKind::ReadOnly
                )
        );
        if let Some(wrong) = self.server.wrong_server_of(&source) {
            self.watches.failed(tag, verb, format!("[redis] url {wrong}"), is_refusal);
            return BucketError::WrongServer { what, wrong };
        }
        self.watches.failed(tag, verb, source.to_string(), is_refusal);
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
    BucketError::Reply { what: what.to_owned(), reply: format!("{reply:?}") }
}
