//! A real Redis Cluster of three private masters. Moves slots between them by the documented steps.
//!
//! At first there are no replicas. When a master is killed, its slots are gone until it is started again. The other
//! two masters go on, because of `cluster-require-full-coverage no`. If the killed master has a replica, they elect
//! it.

use std::time::{Duration, Instant};

use jiff::SignedDuration;
use tokio::time::sleep;

use super::{ADMIN, PrivateRedis, RedisOptions};
use crate::{PlaygroundError, place};

/// Three masters that share the slots, and the replicas that were added. They end when this is dropped.
#[derive(Debug)]
pub struct RedisCluster {
    servers: Vec<PrivateRedis>,
    ids: Vec<String>,
    /// The cluster bus port of each server.
    bus: Vec<u16>,
    options: RedisOptions,
}

impl RedisCluster {
    const MASTERS: usize = 3;
    const SLOTS: usize = 16384;
    const PATIENCE: Duration = Duration::from_secs(30);
    /// How long a server that does not know the others waits until it is introduced again.
    const AGAIN: Duration = Duration::from_secs(2);

    /// Starts the masters, joins them, and waits until each sees `cluster_state:ok` with all slots.
    pub async fn start(options: &RedisOptions) -> Result<Self, PlaygroundError> {
        let options = RedisOptions { tcp: true, ..options.clone() };
        let mut cluster = RedisCluster { servers: Vec::new(), ids: Vec::new(), bus: Vec::new(), options };
        for nth in 0..Self::MASTERS {
            cluster.add().await?;
            let (first, next) = (nth * Self::SLOTS / Self::MASTERS, (nth + 1) * Self::SLOTS / Self::MASTERS);
            let master = cluster.server(nth);
            master.command(&format!("CLUSTER ADDSLOTSRANGE {first} {}", next - 1)).await?;
            master.command(&format!("CLUSTER SET-CONFIG-EPOCH {}", nth + 1)).await?;
        }
        for nth in 1..Self::MASTERS {
            cluster.meet(nth).await?;
        }
        for nth in 0..Self::MASTERS {
            cluster.until_in_order(nth).await?;
        }
        Ok(cluster)
    }

    /// Adds a replica of a master, waits until it has the master's memory, and returns its number.
    pub async fn add_replica(&mut self, of: usize) -> Result<usize, PlaygroundError> {
        self.add().await?;
        let nth = self.servers.len() - 1;
        self.meet(nth).await?;
        self.until_in_order(nth).await?;
        let began = Instant::now();
        // The new server may not know the master yet.
        while self.servers[nth].command(&format!("CLUSTER REPLICATE {}", self.ids[of])).await.is_err()
            || !self.servers[nth].has_caught_up().await?
        {
            if began.elapsed() > Self::PATIENCE {
                return Err(PlaygroundError::Silent { name: "Redis", log: "it never caught up".to_owned() });
            }
            sleep(Duration::from_millis(100)).await;
        }
        Ok(nth)
    }

    async fn add(&mut self) -> Result<(), PlaygroundError> {
        let bus = place::free_port()?;
        let mut options = self.options.clone();
        let settings = [
            ("cluster-enabled", "yes".to_owned()),
            ("cluster-port", bus.to_string()),
            ("cluster-node-timeout", "1000".to_owned()),
            ("cluster-require-full-coverage", "no".to_owned()),
            ("repl-diskless-sync-delay", "0".to_owned()),
        ];
        options.settings.extend(settings.map(|(name, value)| (name.to_owned(), value)));
        let server = PrivateRedis::start_with(&options).await?;
        self.ids.push(server.ask("CLUSTER MYID", 2).await?.pop().unwrap_or_default());
        self.servers.push(server);
        self.bus.push(bus);
        Ok(())
    }

    async fn meet(&self, nth: usize) -> Result<(), PlaygroundError> {
        let port = self.servers[nth].port.ok_or(PlaygroundError::NoPort)?;
        self.servers[0].command(&format!("CLUSTER MEET 127.0.0.1 {port} {}", self.bus[nth])).await
    }

    /// The URL of all servers, for `[redis] url`.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<String> =
            self.servers.iter().filter_map(|m| Some(format!("127.0.0.1:{}", m.port?))).collect();
        format!("redis-cluster://{}{}", self.servers[0].login(), hosts.join(","))
    }

    /// One server, from 0. The first three began as masters.
    pub fn server(&self, nth: usize) -> &PrivateRedis {
        &self.servers[nth]
    }

    /// The names of all keys of one server.
    pub async fn keys(&self, nth: usize) -> Result<Vec<String>, PlaygroundError> {
        let said = self.servers[nth].ask("KEYS *", usize::MAX).await?;
        Ok(items(said))
    }

    /// The slot of a hash tag.
    pub async fn slot_of(&self, tag: &str) -> Result<u16, PlaygroundError> {
        let said = self.servers[0].ask(&format!("CLUSTER KEYSLOT {tag}"), 1).await?;
        Ok(said[0].trim_start_matches(':').parse().unwrap_or_default())
    }

    /// The number of the server that says it owns a slot; `None` if no server says so.
    pub async fn owner(&self, slot: u16) -> Option<usize> {
        for nth in 0..self.servers.len() {
            if self.has(nth, slot).await {
                return Some(nth);
            }
        }
        None
    }

    async fn has(&self, nth: usize, slot: u16) -> bool {
        let Ok(nodes) = self.servers[nth].ask("CLUSTER NODES", 50).await else { return false };
        let own = nodes.iter().find(|line| line.contains("myself"));
        own.into_iter().flat_map(|line| line.split_ascii_whitespace().skip(8)).any(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let bounds = first.parse::<u16>().ok().zip(last.parse::<u16>().ok());
            bounds.is_some_and(|(first, last)| (first..=last).contains(&slot))
        })
    }

    /// Moves a slot with all its keys, and returns how long that took.
    pub async fn move_slot(&self, slot: u16, from: usize, to: usize) -> Result<Duration, PlaygroundError> {
        let began = Instant::now();
        self.begin_to_move(slot, from, to).await?;
        self.finish_moving(slot, from, to).await?;
        Ok(began.elapsed())
    }

    /// The first half of a move: marks the slot as moving. No key is moved yet.
    pub async fn begin_to_move(&self, slot: u16, from: usize, to: usize) -> Result<(), PlaygroundError> {
        let (source, target) = (&self.ids[from], &self.ids[to]);
        self.servers[to].command(&format!("CLUSTER SETSLOT {slot} IMPORTING {source}")).await?;
        self.servers[from].command(&format!("CLUSTER SETSLOT {slot} MIGRATING {target}")).await
    }

    /// Moves at most `most` keys of a slot that is moving, and returns how many were found.
    pub async fn move_keys(
        &self,
        slot: u16,
        from: usize,
        to: usize,
        most: u32,
    ) -> Result<usize, PlaygroundError> {
        let port = self.servers[to].port.ok_or(PlaygroundError::NoPort)?;
        let said =
            self.servers[from].ask(&format!("CLUSTER GETKEYSINSLOT {slot} {most}"), usize::MAX).await?;
        let keys = items(said);
        if !keys.is_empty() {
            let login = if self.options.open { String::new() } else { format!("AUTH2 {ADMIN} {ADMIN} ") };
            let words = format!("MIGRATE 127.0.0.1 {port} \"\" 0 5000 {login}KEYS {}", keys.join(" "));
            let said = self.servers[from].ask(&words, 1).await?;
            // A key may be gone since it was listed.
            if !said.iter().any(|line| line.starts_with("+OK") || line.starts_with("+NOKEY")) {
                let source = std::io::Error::other(said.join(" "));
                return Err(PlaygroundError::Say { words, source });
            }
        }
        Ok(keys.len())
    }

    /// The second half of a move: moves the remaining keys and gives the slot to the other server.
    pub async fn finish_moving(&self, slot: u16, from: usize, to: usize) -> Result<(), PlaygroundError> {
        while self.move_keys(slot, from, to, 100).await? > 0 {}
        for nth in [to, from].into_iter().chain((0..Self::MASTERS).filter(|n| *n != to && *n != from)) {
            self.servers[nth].command(&format!("CLUSTER SETSLOT {slot} NODE {}", self.ids[to])).await?;
        }
        Ok(())
    }

    /// Starts a killed master with empty memory, and waits until the cluster is in order.
    pub async fn restart(&self, nth: usize) -> Result<(), PlaygroundError> {
        self.servers[nth].restart(None).await?;
        self.until_in_order(nth).await
    }

    /// Steps the clock of one server; see [`PrivateRedis::step_clock`].
    pub async fn step_clock(&self, nth: usize, by: SignedDuration) -> Result<(), PlaygroundError> {
        self.servers[nth].step_clock(by).await.map(|_| ())
    }

    /// Ends all servers and waits until their folders are gone.
    pub async fn stop(self) -> Result<(), PlaygroundError> {
        for server in self.servers {
            server.stop().await?;
        }
        Ok(())
    }

    async fn until_in_order(&self, nth: usize) -> Result<(), PlaygroundError> {
        let (began, mut met) = (Instant::now(), Instant::now());
        loop {
            let info = self.servers[nth].ask("CLUSTER INFO", 30).await?;
            let says = |fact: &str| info.iter().any(|line| line == fact);
            if says("cluster_state:ok") && says("cluster_slots_ok:16384") {
                return Ok(());
            }
            if began.elapsed() > Self::PATIENCE {
                return Err(PlaygroundError::Silent { name: "Redis Cluster", log: info.join("; ") });
            }
            // A busy machine may let a handshake time out, and Redis does not repeat it.
            if met.elapsed() > Self::AGAIN {
                for nth in 1..self.servers.len() {
                    self.meet(nth).await?;
                }
                met = Instant::now();
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// The items of a list reply: `*count`, then for each item its length and the item. The answer to QUIT comes last.
fn items(said: Vec<String>) -> Vec<String> {
    let count = said.first().and_then(|line| line.strip_prefix('*')?.parse().ok()).unwrap_or(0);
    said.into_iter().skip(2).step_by(2).take(count).collect()
}
