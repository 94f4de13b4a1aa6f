//! Runs the scripts: on one Redis, on the masters of a Redis Cluster, or in this process.
//!
//! There is one multiplexed connection to each Redis. It is made anew after it breaks.

mod cluster;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod kind;
mod link;
mod sentinel;
mod trust;

use std::sync::Arc;
use std::time::Instant;

use redis::aio::MultiplexedConnection;
use redis::{
    Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, ServerErrorKind, ToRedisArgs, Value,
};

use super::clear_text::unchecked_host;
use super::memory::Memory;
use super::script::Verb;
use crate::steady;
use cluster::Cluster;
pub use kind::WrongServer;
use link::{Link, is_the_end};
pub use trust::ServerTrust;

/// The mistake in an address, as the end of a sentence; `None` for an address that can be opened. The text never quotes the
/// address, which may have a password.
pub fn trouble_of(url: &str) -> Option<String> {
    let named = sentinel::trouble_of(url).or_else(|| cluster::trouble_of(url));
    named.or_else(|| {
        let form = "cannot be read as an address; write it as redis://[user:password@]host:6379[/db], and `/`, `?`, `#` and `@` of \
                    a password as %2F, %3F, %23 and %40";
        Server::redis(url.trim(), ServerTrust::default()).err().map(|_| form.to_owned())
    })
}

/// The hosts that an address names and that are reached without TLS, or without a check of their certificates. Empty for
/// Unix sockets, and for an address that cannot be read.
pub fn unchecked_hosts(url: &str) -> Vec<String> {
    named(url).iter().filter_map(unchecked_host).map(str::to_owned).collect()
}

/// The hosts and ports that an address names and that are reached by TLS.
pub fn secure_servers(url: &str) -> Vec<(String, u16)> {
    let secure = |server: &ConnectionInfo| match server.addr() {
        ConnectionAddr::TcpTls { host, port, .. } => Some((host.clone(), *port)),
        _ => None,
    };
    named(url).iter().filter_map(secure).collect()
}

/// The servers that an address names; none for an address that cannot be read.
fn named(url: &str) -> Vec<ConnectionInfo> {
    match Cluster::of(url.trim(), ServerTrust::default()) {
        Ok(Some(cluster)) => cluster.named(),
        _ => sentinel::ServerOrigin::of(url.trim()).map(sentinel::ServerOrigin::named).unwrap_or_default(),
    }
}

/// The keys and arguments of one call.
#[derive(Debug, Default)]
pub(super) struct Call {
    pub keys: Vec<String>,
    pub args: Vec<Vec<u8>>,
}

impl Call {
    pub fn key(&mut self, key: String) -> &mut Self {
        self.keys.push(key);
        self
    }

    pub fn arg(&mut self, arg: impl ToRedisArgs) -> &mut Self {
        self.args.extend(arg.to_redis_args());
        self
    }
}

/// The simulation's Redis, and the simulation's clock of the node that calls it.
#[doc(hidden)]
pub trait SimulatedServer: Send + Sync {
    fn run(&self, script: &str, keys: &[String], args: &[Vec<u8>]) -> Result<Value, RedisError>;
    /// The monotonic clock of the calling node.
    fn now(&self) -> Instant;
}

#[derive(Clone)]
pub(super) enum Server {
    Redis(Arc<Link>),
    Cluster(Arc<Cluster>),
    Memory(Arc<Memory>),
    Simulated(Arc<dyn SimulatedServer>),
}

impl Server {
    /// Prepares the connection. The first call connects, so a node can start while Redis is away.
    pub fn redis(url: &str, trust: ServerTrust) -> Result<Self, RedisError> {
        if let Some(cluster) = Cluster::of(url, trust.clone())? {
            return Ok(Server::Cluster(Arc::new(cluster)));
        }
        Ok(Server::Redis(Arc::new(Link::new(url, trust)?)))
    }

    pub fn memory() -> Result<Self, RedisError> {
        Ok(Server::Memory(Arc::new(Memory::new()?)))
    }

    /// Runs a verb. Returns its reply, and the moment at which the call started that was answered.
    pub async fn run(&self, verb: &Verb, call: &Call) -> Result<(Value, Instant), RedisError> {
        let started = self.now();
        let reply = match self {
            Server::Memory(memory) => memory.run(&verb.source, &call.keys, &call.args)?,
            Server::Simulated(other) => other.run(&verb.source, &call.keys, &call.args)?,
            Server::Cluster(cluster) => return cluster.run(verb, call).await,
            Server::Redis(link) => {
                let mut invocation = verb.script.prepare_invoke();
                for key in &call.keys {
                    invocation.key(key);
                }
                for arg in &call.args {
                    invocation.arg(arg);
                }
                link.ask(async |connection| invocation.invoke_async(connection).await).await?
            }
        };
        Ok((reply, started))
    }

    /// Sends one command to the server that has this key.
    pub async fn command(&self, key: &str, command: &Cmd) -> Result<Value, RedisError> {
        match self {
            Server::Redis(link) => link.ask(async |to| command.query_async(to).await).await,
            Server::Cluster(cluster) => cluster.command(key, command).await,
            Server::Memory(_) | Server::Simulated(_) => {
                Err((ErrorKind::Client, "a bucket in memory takes no single commands").into())
            }
        }
    }

    /// The clock that measures calls.
    pub fn now(&self) -> Instant {
        match self {
            Server::Redis(_) | Server::Cluster(_) | Server::Memory(_) => Instant::now(),
            Server::Simulated(other) => other.now(),
        }
    }

    /// How far the steady clock is ahead of [`Self::now`]; only differences say something.
    pub fn steady_ahead_us(&self) -> i64 {
        match self {
            Server::Redis(_) | Server::Cluster(_) => steady::ahead_us(),
            // Both count by the clock of `now`.
            Server::Memory(_) | Server::Simulated(_) => 0,
        }
    }

    /// Whether this failure of one call means that calls about other keys fail, too. A cluster may have lost one master
    /// alone, and calls to that master then fail at once.
    pub fn is_lost_by(&self, error: &RedisError) -> bool {
        match self {
            Server::Cluster(_) => false,
            Server::Redis(_) | Server::Memory(_) | Server::Simulated(_) => is_the_end(error),
        }
    }

    /// Runs the verb that looks at buckets. Returns the depth and the head of each.
    pub async fn look(
        &self,
        verb: &Verb,
        lists: &[String],
        what: &str,
    ) -> Vec<Result<(Value, Value), RedisError>> {
        let args = [what.as_bytes().to_vec()];
        let reply = match self {
            Server::Cluster(cluster) => return cluster.look(verb, lists, what).await,
            Server::Memory(memory) => memory.run(&verb.source, lists, &args).and_then(as_list),
            Server::Simulated(other) => other.run(&verb.source, lists, &args).and_then(as_list),
            Server::Redis(link) => link.ask(async |to| look_on(to, verb, lists, what).await).await,
        };
        match reply {
            Ok(items) => items.chunks_exact(2).map(|pair| Ok((pair[0].clone(), pair[1].clone()))).collect(),
            Err(error) => lists.iter().map(|_| Err(error.clone())).collect(),
        }
    }
}

/// Looks at lists on one server, in one round trip. Other calls have their turn between two scripts.
async fn look_on(
    to: &mut MultiplexedConnection,
    verb: &Verb,
    lists: &[String],
    what: &str,
) -> Result<Vec<Value>, RedisError> {
    const AT_ONCE: usize = 100;
    let mut pipe = redis::pipe();
    for lists in lists.chunks(AT_ONCE) {
        pipe.cmd("EVALSHA").arg(verb.script.get_hash()).arg(lists.len()).arg(lists).arg(what);
    }
    let replies: Result<Vec<Vec<Value>>, RedisError> = match pipe.query_async(to).await {
        Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
            verb.script.load_async(to).await?;
            pipe.query_async(to).await
        }
        replies => replies,
    };
    Ok(replies?.concat())
}

fn as_list(reply: Value) -> Result<Vec<Value>, RedisError> {
    redis::from_redis_value(reply).map_err(RedisError::from)
}
