//! Puts ids of refunds into buckets in Redis, and takes them out under permits of the channels' limits.
//!
//! A bucket is the bounded Redis list of a channel. It decides nothing: an id in it is a hint that a row is due, and
//! the claim in Postgres decides. The ledger refuses a permit that Redis grants twice. It also refuses a permit that
//! Redis granted after it lost its count. So a Redis that loses everything costs time, and never a wrong request.
//!
//! A call that timed out may have run. Every verb may be repeated without harm. When a reply is lost, the ids that
//! left the bucket come back from their rows, and the granted permits are never used.

mod checkup;
mod clear_text;
mod clock;
mod clock_steps;
mod counts;
mod days;
mod exchange;
mod failing;
mod filling;
pub mod keys;
mod kind;
mod local;
pub mod memory;
mod misread;
#[cfg(test)]
mod properties;
mod reply;
mod script;
mod server;
pub mod slot_group;
mod taking;
mod watch;

use std::collections::HashMap;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use redis::{ErrorKind, ServerErrorKind, Value};

use crate::channel::Channel;
use crate::limiter::{Limit, Permit, Placement};
use clock::{Clock, ClockReading};
pub use exchange::{Acquired, BucketDepth, End, LimitWait, Order, Purpose, StricterRule, Take, Yield};
use exchange::{OpeningTimes, Sharing};
use keys::Keys;
pub use kind::BucketKind;
use local::ShareLocks;
use misread::{misread, short};
use script::{Scripts, Verb};
use server::{Call, Server};
pub use server::{ServerTrust, SimulatedServer, WrongServer};
use slot_group::{SlotGroups, Tag};
use watch::Watches;

pub use checkup::{ServerCheckup, certificates_of};
pub use clear_text::{ClearText, is_this_host};
#[cfg(any(test, feature = "fuzzing"))]
pub use server::fuzzing;
pub use server::{secure_servers, trouble_of as trouble_of_address, unchecked_hosts};

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
    /// A key has a value of another type: another program wrote it.
    #[error("ask Redis about `{what}`: {why}")]
    WrongType { what: String, why: String },
    /// The reply does not have the form that the script gives it: another program wrote to the keys.
    #[error(
        "understand Redis's reply about `{what}`: {reply}; if another program wrote to its keys, delete them: \
         refundd makes them anew"
    )]
    Reply { what: String, reply: String },
}

impl BucketError {
    /// Whether the server refused because its user lacks a right, to a command or to a key.
    pub fn is_missing_right(&self) -> bool {
        let BucketError::Ask { source, .. } = self else { return false };
        source.kind() == ErrorKind::Server(ServerErrorKind::NoPerm)
    }
}

/// The buckets of all channels.
#[derive(Clone)]
pub struct Bucket {
    server: Server,
    watches: Arc<Watches>,
    /// Counts the limits of which this node has a share of its own.
    local: Server,
    local_clock: Arc<Clock>,
    /// Each of those limits is locked from the look at it until its permits are spent, and while another service
    /// acquires from it.
    counting: Arc<ShareLocks>,
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
    /// `tolerance` is how far Redis's clock may be from Postgres's clock. `trust` holds also for the servers that
    /// sentinels and the nodes of a cluster name.
    ///
    /// # Errors
    /// When the url cannot be understood.
    pub fn open(
        url: &str,
        trust: ServerTrust,
        key_prefix: &str,
        tolerance: Duration,
    ) -> Result<Self, BucketError> {
        Self::over(Server::redis(url, trust).map_err(BucketError::Url)?, key_prefix, tolerance)
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

    fn clock_of(&self, server: &Server, tag: &Tag) -> Arc<Clock> {
        let is_local = std::ptr::eq(server, &raw const self.local);
        self.counter(if is_local { Placement::LocalShare { nodes: 1 } } else { Placement::Shared }, tag).1
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

    /// How far Redis's clock may be from Postgres's clock.
    pub fn tolerance(&self) -> Duration {
        self.tolerance
    }

    /// Runs a verb. Returns its reply, and the reading of the server's clock in it.
    async fn ask(
        &self,
        server: &Server,
        verb: &Verb,
        call: &Call,
        what: &str,
        tag: &Tag,
    ) -> Result<(Value, ClockReading), BucketError> {
        let (reply, started) = server
            .run(verb, call)
            .await
            .map_err(|source| self.failed(what, verb.name, tag, &call.keys, source))?;
        let (answered, steady_ahead_us) = (server.now(), server.steady_ahead_us());
        self.watches.worked(tag, verb.name);
        let redis_us = reply::now_us(&reply).unwrap_or(0);
        let without_step = self.clock_of(server, tag).without_step(answered);
        Ok((reply, ClockReading { redis_us, started, answered, steady_ahead_us, without_step }))
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
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
