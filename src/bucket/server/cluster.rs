//! Runs scripts on the masters of a cluster: each call goes to the master that has the slot of its keys.
//!
//! Each master has one [`Link`], so a slow master delays only the calls for its own slots. After a master did not
//! answer, calls to it fail at once until it answers again, because loops call for all channels one after another.
//!
//! A call is sent again only when the answer proves that nothing was done. The slot is on another master (MOVED,
//! ASK), the slot is moving between two masters (TRYAGAIN), or the master does not know the script. The caller
//! handles every other error, as with one server.
//!
//! The cluster learns from its nodes which master has which slot, and learns again after an answer shows a mistake.
//! Meanwhile calls use the known masters.

pub(super) mod address;
mod learning;
pub(super) mod slots;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use redis::{Cmd, ConnectionInfo, ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::time::sleep;

use super::Call;
use super::link::{Link, is_the_end};
use super::sentinel::ServerOrigin;
use super::trust::ServerTrust;
use crate::bucket::script::Verb;
use crate::lock::Lock;
use address::ClusterAddress;
use slots::slot_of;

/// A cluster. Its address names some of its nodes.
#[derive(Debug, Clone)]
pub(in crate::bucket) struct Cluster(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    address: ClusterAddress,
    trust: ServerTrust,
    /// The master of each slot, as `host:port`.
    owners: Mutex<HashMap<u16, Arc<str>>>,
    links: Mutex<HashMap<String, Arc<Link>>>,
    /// Nodes that do not answer, each with its last error. Calls to them fail at once.
    away: Mutex<HashMap<Arc<str>, RedisError>>,
    /// When the masters of the slots were learnt last. Locked while a task learns them.
    learning: tokio::sync::Mutex<Option<Instant>>,
    /// A task was started that learns the masters of the slots.
    doubted: AtomicBool,
}

/// See [`crate::bucket::trouble_of_address`].
pub(super) fn trouble_of(url: &str) -> Option<String> {
    address::of(url.trim())?.err()
}

impl Cluster {
    /// A slot that is moving refuses calls with several keys. They are sent again after this time.
    const UNDER_WAY: Duration = Duration::from_millis(5);
    /// One call follows at most this many redirections.
    const MOST_MOVES: u32 = 8;
    /// A node that does not answer within this time is left out when the masters of the slots are learnt.
    const ANSWER_WITHIN: Duration = Duration::from_millis(500);
    /// A node that is away is tried again after this time.
    const TRY_AGAIN: Duration = Duration::from_millis(50);
    /// The masters of the slots are learnt at most once in this time.
    const LEARN_AGAIN: Duration = Duration::from_millis(100);

    /// The nodes that the address names.
    pub fn named(&self) -> Vec<ConnectionInfo> {
        let address = &self.0.address;
        address.seeds.iter().filter_map(|seed| address.node(seed).ok()).collect()
    }

    /// Reads the url of a cluster; `None` for the url of another kind of server. It does not connect.
    ///
    /// # Errors
    /// When the url of a cluster is malformed.
    pub fn of(url: &str, trust: ServerTrust) -> Result<Option<Self>, RedisError> {
        let Some(address) = address::of(url) else { return Ok(None) };
        let address = address
            .map_err(|why| -> RedisError { (ErrorKind::InvalidClientConfig, "the address", why).into() })?;
        // A malformed address fails at the start of the node, not at its first call.
        for seed in &address.seeds {
            address.node(seed)?;
        }
        Ok(Some(Cluster(Arc::new(Inner {
            address,
            trust,
            owners: Mutex::default(),
            links: Mutex::default(),
            away: Mutex::default(),
            learning: tokio::sync::Mutex::default(),
            doubted: AtomicBool::new(false),
        }))))
    }

    /// Runs a verb on the master of its keys. Returns its reply, and the moment at which the answered call started.
    pub async fn run(&self, verb: &Verb, call: &Call) -> Result<(Value, Instant), RedisError> {
        let slot = one_slot(&call.keys)?;
        let command = |how: &str, script: &str| {
            let mut command = redis::cmd(how);
            command.arg(script).arg(call.keys.len()).arg(&call.keys).arg(&call.args);
            command
        };
        match self.ask(slot, &command("EVALSHA", verb.script.get_hash())).await {
            // EVAL names keys, so it goes to the one master that needs the script. SCRIPT LOAD names no keys.
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                self.ask(slot, &command("EVAL", &verb.source)).await
            }
            answer => answer,
        }
    }

    /// Runs the verb that looks at buckets, once for each of them. Returns the depth and the head of each.
    pub async fn look(
        &self,
        verb: &Verb,
        lists: &[String],
        what: &str,
    ) -> Vec<Result<(Value, Value), RedisError>> {
        join_all(lists.iter().map(async |list| {
            let mut call = Call::default();
            call.key(list.clone()).arg(what);
            let (reply, _) = self.run(verb, &call).await?;
            Ok(redis::from_redis_value(reply)?)
        }))
        .await
    }

    /// Sends one command to the master of this key.
    pub async fn command(&self, key: &str, command: &Cmd) -> Result<Value, RedisError> {
        Ok(self.ask(slot_of(key), command).await?.0)
    }

    /// Sends a command to the master of a slot, and follows redirections to other masters. Returns the reply, and the
    /// moment at which the answered call started.
    async fn ask(&self, slot: u16, command: &Cmd) -> Result<(Value, Instant), RedisError> {
        let began = Instant::now();
        let mut moves = 0;
        let mut lent_to: Option<String> = None;
        loop {
            let (node, lent) = match lent_to.take() {
                Some(node) => (Arc::from(node), true),
                None => (self.owner(slot).await?, false),
            };
            if let Some(error) = self.0.away.locked().get(&node) {
                return Err(error.clone());
            }
            let started = Instant::now();
            let error = match self.link(&node)?.ask(async |to| say(command, lent, to).await).await {
                Ok(answer) => return Ok((answer, started)),
                Err(error) => error,
            };
            let named = error.redirect_node().and_then(|(to, _)| slots::redirect(to, &node));
            moves += 1;
            match (error.kind(), named) {
                (ErrorKind::Server(ServerErrorKind::Moved), Some(to)) if moves <= Self::MOST_MOVES => {
                    self.0.owners.locked().insert(slot, to.into());
                    self.doubt();
                }
                (ErrorKind::Server(ServerErrorKind::Ask), Some(to)) if moves <= Self::MOST_MOVES => {
                    lent_to = Some(to);
                }
                // This master owns the slot since, or lost it again. The next call goes to the known owner.
                (ErrorKind::Server(ServerErrorKind::Moved), None) if lent && moves <= Self::MOST_MOVES => {}
                (ErrorKind::Server(ServerErrorKind::TryAgain), _)
                    if began.elapsed() < Link::RESPONSE_TIMEOUT =>
                {
                    moves = 0;
                    sleep(Self::UNDER_WAY).await;
                }
                _ => {
                    if is_the_end(&error) {
                        self.doubt();
                    }
                    if !is_an_answer(&error) {
                        self.pass_over(node, &error);
                    }
                    return Err(error);
                }
            }
        }
    }

    fn link(&self, node: &str) -> Result<Arc<Link>, RedisError> {
        let mut links = self.0.links.locked();
        if let Some(link) = links.get(node) {
            return Ok(Arc::clone(link));
        }
        let link = Arc::new(Link::to(ServerOrigin::Here(self.0.address.node(node)?), self.0.trust.clone()));
        links.insert(node.to_owned(), Arc::clone(&link));
        Ok(link)
    }

    async fn owner(&self, slot: u16) -> Result<Arc<str>, RedisError> {
        let known = |cluster: &Self| cluster.0.owners.locked().get(&slot).cloned();
        if let Some(owner) = known(self) {
            return Ok(owner);
        }
        self.learn().await?;
        known(self).ok_or_else(|| {
            let why = format!("no master of the cluster has slot {slot}");
            (ErrorKind::Server(ServerErrorKind::ClusterDown), "the cluster", why).into()
        })
    }

    /// Lets calls to a node fail at once, until the node answers a PING or has no slots any more.
    fn pass_over(&self, node: Arc<str>, why: &RedisError) {
        if self.0.away.locked().insert(Arc::clone(&node), why.clone()).is_some() {
            return;
        }
        let cluster = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            loop {
                sleep(Self::TRY_AGAIN).await;
                let Some(cluster) = cluster.upgrade().map(Cluster) else { return };
                let has_slots = cluster.0.owners.locked().values().any(|owner| *owner == node);
                if !has_slots {
                    // It may never come back. A call that meets it again starts this task again.
                    cluster.0.away.locked().remove(&node);
                    return;
                }
                let Ok(link) = cluster.link(&node) else { return };
                let ping = link.ask(async |to| redis::cmd("PING").query_async::<Value>(to).await).await;
                if ping.as_ref().err().is_none_or(is_an_answer) {
                    cluster.0.away.locked().remove(&node);
                    return;
                }
                // Another node may be the master of its slots now.
                cluster.doubt();
            }
        });
    }

    /// Starts a task that learns the masters of the slots again. Calls go on meanwhile.
    fn doubt(&self) {
        if self.0.doubted.swap(true, Ordering::Relaxed) {
            return;
        }
        let cluster = self.clone();
        tokio::spawn(async move {
            // If no node answers now, the next failed call starts the task again.
            if let Err(error) = cluster.learn().await {
                tracing::debug!("No node of the Redis cluster says where its slots are: {error}");
            }
            sleep(Self::LEARN_AGAIN).await;
            cluster.0.doubted.store(false, Ordering::Relaxed);
        });
    }
}

/// Sends a command to a master. `lent` is true when another master redirected us with ASK: this one does not own the
/// slot yet.
async fn say(
    command: &Cmd,
    lent: bool,
    to: &mut redis::aio::MultiplexedConnection,
) -> Result<Value, RedisError> {
    if !lent {
        return command.query_async(to).await;
    }
    let mut both = redis::pipe();
    both.cmd("ASKING").ignore().add_command(command.clone());
    let (answer,): (Value,) = both.query_async(to).await?;
    Ok(answer)
}

/// Whether the error is an answer of a node. If not, the node did not answer.
fn is_an_answer(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension)
}

/// The slot of the keys; an error when they are in several slots.
fn one_slot(keys: &[String]) -> Result<u16, RedisError> {
    let mut slots = keys.iter().map(|key| slot_of(key));
    let first = slots.next().unwrap_or_default();
    if slots.all(|slot| slot == first) {
        return Ok(first);
    }
    // It happens for a moment while the node takes over a new configuration file.
    Err((ErrorKind::Server(ServerErrorKind::CrossSlot), "the keys are in several slots of the cluster")
        .into())
}
