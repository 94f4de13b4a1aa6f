//! Who runs the scripts: Redis, over one multiplexed connection that mends itself, the masters of a cluster,
//! over one such connection each, or this process.

mod cluster;
mod kind;
mod link;
mod sentinel;

use std::sync::Arc;
use std::time::Instant;

use redis::{RedisError, ToRedisArgs, Value};

use super::memory::Memory;
use super::script::Verb;
use cluster::Cluster;
pub use kind::Mistaken;
use link::Link;

/// What is wrong with an address of sentinels or of a cluster, as the end of a sentence; `None` for any
/// other address. Never quotes it.
pub fn trouble_of(url: &str) -> Option<String> {
    sentinel::trouble_of(url).or_else(|| cluster::trouble_of(url))
}

/// A verb's keys and arguments.
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

/// What the simulation puts in the place of Redis, and of the clock of the node that asks it.
#[doc(hidden)]
pub trait StandIn: Send + Sync {
    fn run(&self, script: &str, keys: &[String], args: &[Vec<u8>]) -> Result<Value, RedisError>;
    /// This node's monotonic clock.
    fn now(&self) -> Instant;
}

#[derive(Clone)]
pub(super) enum Server {
    Redis(Arc<Link>),
    Cluster(Arc<Cluster>),
    Memory(Arc<Memory>),
    StandIn(Arc<dyn StandIn>),
}

/// What `look` asks of this process.
const LOOK: &str = r#"
local found = {}
for _, list in ipairs(KEYS) do
    found[#found + 1] = redis.call("LLEN", list)
    found[#found + 1] = redis.call("LINDEX", list, -1) or ""
end
return found
"#;

impl Server {
    /// Prepares the connection; it is made when first used, so a node starts while Redis is away.
    pub fn redis(url: &str) -> Result<Self, RedisError> {
        if let Some(cluster) = Cluster::of(url)? {
            return Ok(Server::Cluster(Arc::new(cluster)));
        }
        Ok(Server::Redis(Arc::new(Link::new(url)?)))
    }

    pub fn memory() -> Result<Self, RedisError> {
        Ok(Server::Memory(Arc::new(Memory::new()?)))
    }

    /// Runs a verb; answers its reply, and when it was asked for that was answered.
    pub async fn run(&self, verb: &Verb, call: &Call) -> Result<(Value, Instant), RedisError> {
        let asked = self.now();
        let reply = match self {
            Server::Memory(memory) => memory.run(&verb.source, &call.keys, &call.args)?,
            Server::StandIn(other) => other.run(&verb.source, &call.keys, &call.args)?,
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
        Ok((reply, asked))
    }

    /// The clock by which answers are measured.
    pub fn now(&self) -> Instant {
        match self {
            Server::Redis(_) | Server::Cluster(_) | Server::Memory(_) => Instant::now(),
            Server::StandIn(other) => other.now(),
        }
    }

    /// For each list its length and the element that leaves next.
    pub async fn look(&self, lists: &[String]) -> Vec<Result<(Value, Value), RedisError>> {
        let found = match self {
            Server::Cluster(cluster) => return cluster.look(lists).await,
            Server::Memory(memory) => memory.run(LOOK, lists, &[]).and_then(as_list),
            Server::StandIn(other) => other.run(LOOK, lists, &[]).and_then(as_list),
            Server::Redis(link) => {
                let mut pipe = redis::pipe();
                for list in lists {
                    pipe.cmd("LLEN").arg(list).cmd("LINDEX").arg(list).arg(-1);
                }
                link.ask(async |connection| pipe.query_async(connection).await).await
            }
        };
        match found {
            Ok(found) => found.chunks_exact(2).map(|pair| Ok((pair[0].clone(), pair[1].clone()))).collect(),
            Err(error) => lists.iter().map(|_| Err(error.clone())).collect(),
        }
    }
}

fn as_list(found: Value) -> Result<Vec<Value>, RedisError> {
    redis::from_redis_value(found).map_err(RedisError::from)
}
