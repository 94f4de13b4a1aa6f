//! Who runs the scripts: Redis, over one multiplexed connection that mends itself, or this process.

mod link;
mod sentinel;

use std::sync::Arc;
use std::time::Instant;

use redis::{RedisError, ToRedisArgs, Value};

use super::memory::Memory;
use super::script::Verb;
use link::Link;
pub use sentinel::trouble_of;

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
        Ok(Server::Redis(Arc::new(Link::new(url)?)))
    }

    pub fn memory() -> Result<Self, RedisError> {
        Ok(Server::Memory(Arc::new(Memory::new()?)))
    }

    pub async fn run(&self, verb: &Verb, call: &Call) -> Result<Value, RedisError> {
        let link = match self {
            Server::Memory(memory) => return memory.run(&verb.source, &call.keys, &call.args),
            Server::StandIn(other) => return other.run(&verb.source, &call.keys, &call.args),
            Server::Redis(link) => link,
        };
        let mut invocation = verb.script.prepare_invoke();
        for key in &call.keys {
            invocation.key(key);
        }
        for arg in &call.args {
            invocation.arg(arg);
        }
        link.ask(async |connection| invocation.invoke_async(connection).await).await
    }

    /// The clock by which answers are measured.
    pub fn now(&self) -> Instant {
        match self {
            Server::Redis(_) | Server::Memory(_) => Instant::now(),
            Server::StandIn(other) => other.now(),
        }
    }

    /// For each list its length and the element that leaves next.
    pub async fn look(&self, lists: &[String]) -> Result<Vec<Value>, RedisError> {
        let link = match self {
            Server::Memory(memory) => {
                let found = memory.run(LOOK, lists, &[])?;
                return redis::from_redis_value(found).map_err(RedisError::from);
            }
            Server::StandIn(other) => {
                let found = other.run(LOOK, lists, &[])?;
                return redis::from_redis_value(found).map_err(RedisError::from);
            }
            Server::Redis(link) => link,
        };
        let mut pipe = redis::pipe();
        for list in lists {
            pipe.cmd("LLEN").arg(list).cmd("LINDEX").arg(list).arg(-1);
        }
        link.ask(async |connection| pipe.query_async(connection).await).await
    }
}
