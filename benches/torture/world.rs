//! Everything that runs: the servers, two banks, and the nodes. Forwarders ("doors") lead from the nodes to all of
//! them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use jiff::SignedDuration;
pub use playground::bank::now_us;
use playground::bank::{Ledger, Step};
use playground::stage::{ANY, Addresses, NodeProcess, Stage};
use playground::{
    Authority, Forward, PostgresOptions, PretendBank, RedisOptions, RedisPair, Target, Weather,
};
use refundd::lock::Lock;
use refundd::store::{Store, SuspendedBy};
use rustix::process::Signal;
use sqlx::{Connection, PgConnection};

use crate::channels::{AWAY, CHANNELS, DISTANCE, DOORS, OnUnknown};
use crate::clock::PostgresClock;
use crate::limits::Limits;
use crate::paused::LongPauses;
use crate::plan::Plan;
use crate::records::{Decision, Fault, Frozen, Shown};

pub const NODES: [&str; 4] = ["a", "b", "c", "d"];

/// The servers, the banks, the nodes and the doors between them, and what was done to them.
pub struct World {
    pub stage: Stage,
    pub store: Store,
    pub redis: RedisPair,
    pub postgres_doors: Vec<Forward>,
    /// The bank to which channels are moved. It has its own ledger.
    pub second: PretendBank,
    /// The doors to the bank. All nodes use the same ones, because refundd knows a bank by its address.
    pub bank_doors: Vec<Forward>,
    /// Doors to the same bank, at a distance.
    pub far_doors: Vec<Forward>,
    pub second_doors: Vec<Forward>,
    pub authority: Authority,
    /// The content of the configuration files. Locked while the files are changed.
    pub limits: tokio::sync::Mutex<Limits>,
    /// Read by hands while they stop nodes, Redis or Postgres; written while Postgres's clock is set.
    pub settled: tokio::sync::RwLock<()>,
    pub paused: LongPauses,
    clock: Mutex<PostgresClock>,
    /// The nodes. Each is locked while something is done to it.
    pub nodes: Vec<tokio::sync::Mutex<Option<NodeProcess>>>,
    /// The HTTP addresses of the nodes that run.
    listening: Mutex<Vec<Option<SocketAddr>>>,
    file: Mutex<String>,
    faults: Mutex<Vec<Fault>>,
    frozen: Mutex<Vec<Frozen>>,
    decisions: Mutex<Vec<Decision>>,
    shown: Mutex<BTreeMap<(String, i64), Shown>>,
    replies: Mutex<BTreeMap<String, usize>>,
}

/// Asks again for up to a minute: a connection may break off although nobody disturbs Postgres any more.
pub async fn repeated<T, E>(mut ask: impl AsyncFnMut() -> Result<T, E>) -> Result<T, E> {
    let began = Instant::now();
    loop {
        match ask().await {
            Err(_) if began.elapsed() < Duration::from_mins(1) => {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            answer => return answer,
        }
    }
}

impl World {
    /// Starts the servers, the banks and all nodes.
    pub async fn begin(plan: &Plan) -> anyhow::Result<World> {
        let authority = Authority::new()?;
        let bank = PretendBank::start_secure(ANY, authority.identity()?)?;
        let program = PathBuf::from(env!("CARGO_BIN_EXE_refundd"));
        let postgres = PostgresOptions { clock: plan.sets_postgres_clock(), ..PostgresOptions::default() };
        let stage = Stage::set_around(program, bank, &postgres).await?;
        let store = Store::open(&stage.database_url(), None, 10)?;
        let options = RedisOptions { clock: true, ..RedisOptions::default() };
        let redis = RedisPair::start(&options, NODES.len()).await?;
        let second = PretendBank::start_here()?;
        let doors =
            |to: &Target| NODES.iter().map(|_| Forward::to(to.clone())).collect::<Result<Vec<_>, _>>();
        let ways =
            |to: SocketAddr| (0..DOORS).map(|_| Forward::to(Target::Tcp(to))).collect::<Result<Vec<_>, _>>();
        let limits = Limits::usual(plan);
        let world = World {
            postgres_doors: doors(&Target::Unix(stage.postgres.socket()))?,
            bank_doors: ways(stage.bank.address())?,
            far_doors: ways(stage.bank.address())?,
            second_doors: ways(second.address())?,
            second,
            store,
            stage,
            redis,
            file: Mutex::new(limits.file(&authority.file())),
            authority,
            limits: tokio::sync::Mutex::new(limits),
            settled: tokio::sync::RwLock::default(),
            paused: LongPauses::default(),
            clock: Mutex::default(),
            nodes: NODES.iter().map(|_| tokio::sync::Mutex::default()).collect(),
            listening: Mutex::new(vec![None; NODES.len()]),
            faults: Mutex::default(),
            frozen: Mutex::default(),
            decisions: Mutex::default(),
            shown: Mutex::default(),
            replies: Mutex::default(),
        };
        for door in &world.far_doors {
            door.set_distance(DISTANCE);
        }
        world.introduce();
        for node in 0..NODES.len() {
            world.start_node(node).await?;
        }
        Ok(world)
    }

    /// Gives both banks the behaviour that each channel's policy relies on.
    fn introduce(&self) {
        let bank = &self.stage.bank;
        for channel in CHANNELS {
            let away = format!("{}{AWAY}", channel.name);
            if let OnUnknown::Resend { key_retention } = channel.on_unknown {
                bank.remembers(channel.name, key_retention);
                self.second.remembers(&away, key_retention);
            }
            if let Some(grace) = channel.final_after() {
                let overlooked = grace.saturating_sub(Duration::from_secs(2));
                bank.overlooks(channel.name, overlooked);
                self.second.overlooks(&away, overlooked);
            }
        }
    }

    fn addresses(&self, node: usize) -> Addresses {
        Addresses {
            postgres: self.stage.database_through(self.postgres_doors[node].address()),
            redis: self.redis.url(node),
            bank: self.bank_doors[node].address(),
            http: String::new(),
        }
    }

    /// Puts the addresses of the doors to the banks into a file.
    fn with_ways(&self, file: &str) -> String {
        let ways = [("near", &self.bank_doors), ("far", &self.far_doors), ("second", &self.second_doors)];
        let mut text = file.to_owned();
        for (name, doors) in ways {
            for (nth, door) in doors.iter().enumerate() {
                text = text.replace(&format!("{{{name}-{nth}}}"), &door.address().to_string());
            }
        }
        text
    }

    /// A node's configuration file as it is now.
    pub fn file_of(&self, node: usize) -> String {
        Stage::file_at(NODES[node], ANY, &self.with_ways(&self.file.locked()), &self.addresses(node))
    }

    /// Sets Postgres's clock forward or back.
    pub fn step_postgres(&self, by: SignedDuration) -> anyhow::Result<()> {
        let now_us = now_us();
        let ahead = self.stage.postgres.step_clock(by)?;
        self.clock.locked().note(now_us, i64::try_from(ahead.as_micros())?);
        Ok(())
    }

    pub fn clock(&self) -> PostgresClock {
        self.clock.locked().clone()
    }

    /// Reads the ledgers of both banks, one after the other.
    pub fn look<T>(&self, look: impl Fn(&Ledger) -> T) -> [T; 2] {
        [self.stage.bank.look(&look), self.second.look(&look)]
    }

    /// A copy of both banks' ledgers, joined.
    pub fn ledger(&self) -> Ledger {
        self.stage.bank.ledger().and(self.second.ledger())
    }

    /// Starts a node that does not run. Tries up to ten times, because a server may be down.
    pub async fn start_node(&self, node: usize) -> anyhow::Result<()> {
        let mut place = self.nodes[node].lock().await;
        for _ in 0..10 {
            let file = self.with_ways(&self.file.locked());
            match self.stage.node_at(NODES[node], ANY, &file, &self.addresses(node)).await {
                Ok(process) => {
                    self.listening.locked()[node] = Some(process.address);
                    *place = Some(process);
                    return Ok(());
                }
                Err(error) => println!("node {} did not start, once more: {error:#}", NODES[node]),
            }
        }
        bail!("node {} does not start", NODES[node])
    }

    /// Kills a node with SIGKILL, as a power cut would.
    pub async fn kill_node(&self, node: usize) -> anyhow::Result<()> {
        self.listening.locked()[node] = None;
        match self.nodes[node].lock().await.take() {
            Some(mut process) => process.kill_hard(),
            None => Ok(()),
        }
    }

    /// Stops a node with SIGTERM. Returns whether it ended with success.
    pub async fn stop_node(&self, node: usize) -> anyhow::Result<bool> {
        self.listening.locked()[node] = None;
        let process = self.nodes[node].lock().await.take();
        match process {
            Some(process) => process.stop().await,
            None => Ok(true),
        }
    }

    /// Stops a node's process at any point of its work, and lets it go on after `span`. False if the node is down.
    pub async fn freeze_node(&self, node: usize, span: Duration) -> anyhow::Result<bool> {
        let place = self.nodes[node].lock().await;
        let Some(process) = place.as_ref() else { return Ok(false) };
        let from_us = now_us();
        process.signal(Signal::STOP)?;
        tokio::time::sleep(span).await;
        let until_us = now_us();
        process.signal(Signal::CONT)?;
        self.frozen.locked().push(Frozen { node: NODES[node], from_us, until_us });
        Ok(true)
    }

    pub fn frozen(&self) -> Vec<Frozen> {
        self.frozen.locked().clone()
    }

    /// The HTTP address of a node that runs, chosen at random; `None` if none runs.
    pub fn somewhere(&self, dice: &mut fastrand::Rng) -> Option<SocketAddr> {
        let listening: Vec<SocketAddr> = self.listening.locked().iter().flatten().copied().collect();
        dice.choice(listening)
    }

    /// Gives every node a new file, one after the other, and waits until each node applies it.
    pub async fn reload(&self, file: &str) -> anyhow::Result<()> {
        file.clone_into(&mut self.file.locked());
        for (node, name) in NODES.into_iter().enumerate() {
            let place = self.nodes[node].lock().await;
            let Some(process) = place.as_ref() else { continue };
            process.rewrite(&Stage::file_at(name, ANY, &self.with_ways(file), &self.addresses(node)))?;
            let mut seen = std::fs::metadata(process.log_file())?.len();
            process.signal(Signal::HUP)?;
            let (began, mut signalled) = (Instant::now(), Instant::now());
            loop {
                let lines = process.new_log(&mut seen);
                if lines.iter().any(|line| line.contains("Configuration read again and in force")) {
                    break;
                }
                let refused = lines.iter().any(|line| line.contains("stays in force"));
                if refused || signalled.elapsed() > Duration::from_secs(10) {
                    // Postgres may be down. The signal is sent again, as a person would do.
                    tokio::time::sleep(Duration::from_millis(300)).await;
                    process.signal(Signal::HUP)?;
                    signalled = Instant::now();
                }
                if began.elapsed() > Duration::from_mins(1) {
                    bail!("node {name} did not take its file over");
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        Ok(())
    }

    /// Records a fault that began at `from_us` and is healed now.
    pub fn record_fault(&self, kind: impl Into<String>, from_us: i64) {
        self.faults.locked().push(Fault { kind: kind.into(), forged: None, from_us, healed_us: now_us() });
    }

    /// Records that somebody forged what Redis says about the limit under `key`, from `from_us` until now.
    pub fn record_forgery(&self, key: String, kind: String, from_us: i64) {
        self.faults.locked().push(Fault { kind, forged: Some(key), from_us, healed_us: now_us() });
    }

    /// Records decisions that people have sent.
    pub fn decided(&self, decisions: Vec<Decision>) {
        self.decisions.locked().extend(decisions);
    }

    /// Records a refund that a page showed in review, once for each version.
    pub fn saw(&self, shown: Shown) {
        self.shown.locked().entry((shown.refund_ref.clone(), shown.version)).or_insert(shown);
    }

    pub fn shown(&self) -> Vec<Shown> {
        self.shown.locked().values().cloned().collect()
    }

    /// Counts one result of a decision.
    pub fn answered(&self, result: &str) {
        *self.replies.locked().entry(result.to_owned()).or_default() += 1;
    }

    pub fn replies(&self) -> BTreeMap<String, usize> {
        self.replies.locked().clone()
    }

    pub fn decisions(&self) -> Vec<Decision> {
        self.decisions.locked().clone()
    }

    pub fn faults(&self) -> Vec<Fault> {
        self.faults.locked().clone()
    }

    /// Heals everything: the doors, the banks, the paused channels, and the nodes that are down.
    pub async fn heal(&self) -> anyhow::Result<()> {
        for node in 0..NODES.len() {
            self.postgres_doors[node].set(Weather::Fair);
            self.bank_doors[node].set(Weather::Fair);
            self.far_doors[node].set(Weather::Fair);
            self.second_doors[node].set(Weather::Fair);
            self.redis.door(node).set(Weather::Fair);
        }
        self.stage.postgres.set_read_only(false).await?;
        for channel in CHANNELS {
            self.stage.bank.clear(channel.name);
            self.stage.bank.then(channel.name, Step::pays());
            self.stage.bank.then_inquiries(channel.name, None);
            let away = format!("{}{AWAY}", channel.name);
            self.second.clear(&away);
            self.second.then(&away, Step::pays());
            self.second.then_inquiries(&away, None);
        }
        for node in 0..NODES.len() {
            let down = self.nodes[node].lock().await.is_none();
            if down {
                self.start_node(node).await?;
            }
        }
        self.paused.end(now_us());
        // An answer that is under way may pause a channel once more.
        for _ in 0..4 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            for channel in CHANNELS {
                for by in [SuspendedBy::Person, SuspendedBy::Credentials, SuspendedBy::Breaker] {
                    let release = async || self.store.release(channel.name, by, "torture", None).await;
                    repeated(release).await.context("failed to resume a channel")?;
                }
            }
        }
        Ok(())
    }

    /// How many refunds wait in each of `names`, in their order. Counts up to `most` for each, by an index. Fails while Postgres is away.
    ///
    /// A census answers more, and counts a long journal for it: with one twice a second, it took a third of Postgres's time.
    pub async fn waiting(&self, names: &[&str], most: u64) -> anyhow::Result<Vec<u64>> {
        let mut connection = PgConnection::connect(&self.stage.database_url()).await?;
        let counts: Vec<i64> = sqlx::query_scalar(
            "select (select count(*) from (select from refundd.refunds r
                       where r.channel = named.channel and r.state = 'ready' limit $2) w)
               from unnest($1) with ordinality as named (channel, nth) order by named.nth",
        )
        .bind(names)
        .bind(i64::try_from(most)?)
        .fetch_all(&mut connection)
        .await?;
        connection.close().await?;
        Ok(counts.into_iter().map(u64::try_from).collect::<Result<_, _>>()?)
    }

    /// Makes inquiries due now. `names` are refund refs, or channels for all their refunds.
    pub async fn ask_now(&self, names: &[&str]) -> anyhow::Result<()> {
        let mut connection = PgConnection::connect(&self.stage.database_url()).await?;
        sqlx::query(
            "update refundd.refunds set inquire_at = now()
              where inquire_at > now() and (channel = any($1) or refund_ref = any($1))",
        )
        .bind(names)
        .execute(&mut connection)
        .await?;
        Ok(connection.close().await?)
    }
}
