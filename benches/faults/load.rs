//! Full load: three nodes as processes, and refunds that always wait in every channel.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use playground::bank::Ledger;
pub use playground::bank::now_us;
use playground::stage::{ANY, NodeProcess, Stage};
use playground::{RedisOptions, RedisPair};
use refundd::refund::{Money, NewRefund, State};
use refundd::store::Store;
use sqlx::{Connection, PgConnection};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const NODES: [&str; 3] = ["a", "b", "c"];

/// Everything that runs. The nodes use the Redis pair, each through its own door. The stage's own Redis is idle.
pub struct Load {
    pub redis: RedisPair,
    pub nodes: Vec<NodeProcess>,
    stage: Arc<Stage>,
    store: Store,
    feeding: JoinHandle<anyhow::Result<Vec<String>>>,
    enough: CancellationToken,
}

/// One permit from the ledger in Postgres.
pub struct Spent {
    pub limit: String,
    pub window_us: i64,
    pub ordinal: i32,
    pub refund_ref: String,
}

/// The state after the part has ended.
pub struct Outcome {
    pub ledger: Ledger,
    pub saved: Vec<String>,
    pub states: HashMap<String, State>,
    pub spent: Vec<Spent>,
}

/// Waits for a random time between the two, in milliseconds.
pub async fn pause(dice: &mut fastrand::Rng, least_ms: u64, most_ms: u64) {
    tokio::time::sleep(Duration::from_millis(dice.u64(least_ms..=most_ms))).await;
}

/// Each channel under a limit of its own.
pub fn alone(channels: &[&'static str]) -> Vec<Vec<&'static str>> {
    channels.iter().map(|channel| vec![*channel]).collect()
}

impl Load {
    /// The longest time that a fault may keep a limit silent.
    const PATIENCE: Duration = Duration::from_secs(20);

    /// Starts everything and waits until every channel sends. `file` contains the nodes' limits and channels.
    pub async fn start(
        channels: &[&'static str],
        file: &str,
        options: &RedisOptions,
    ) -> anyhow::Result<Load> {
        let stage = Stage::set(PathBuf::from(env!("CARGO_BIN_EXE_refundd")), ANY).await?;
        let store = Store::open(&stage.database_url(), None, 10)?;
        let redis = RedisPair::start(options, NODES.len()).await?;
        let mut nodes = Vec::new();
        for (door, name) in NODES.into_iter().enumerate() {
            nodes.push(stage.node_with(name, ANY, file, &redis.url(door)).await?);
        }
        let stage = Arc::new(stage);
        let enough = CancellationToken::new();
        let feeding =
            tokio::spawn(feed(Arc::clone(&stage), store.clone(), channels.to_vec(), enough.clone()));
        let load = Load { redis, nodes, stage, store, feeding, enough };
        if !load.is_mended(&alone(channels), now_us()).await {
            bail!("the load does not begin");
        }
        // Some seconds without a fault, to compare with.
        tokio::time::sleep(Duration::from_secs(5)).await;
        Ok(load)
    }

    /// Waits until every limit has let a request through after `after_us`. Returns false, and prints the silent
    /// limits, if one does not. `limits` gives the channels of each limit. Nothing is promised about how they share
    /// it.
    pub async fn is_mended(&self, limits: &[Vec<&'static str>], after_us: i64) -> bool {
        let began = Instant::now();
        loop {
            let silent: Vec<String> = self.stage.bank.look(|ledger| {
                let newest = ledger.all().iter().rev().take(2000).filter(|a| a.at_us > after_us);
                let sent: Vec<_> = newest.map(|a| Arc::clone(&a.channel)).collect();
                let is_silent = |limit: &&Vec<&str>| !sent.iter().any(|sent| limit.contains(&&**sent));
                limits.iter().filter(is_silent).map(|limit| limit.join("+")).collect()
            });
            if silent.is_empty() {
                return true;
            }
            if began.elapsed() > Self::PATIENCE || self.feeding.is_finished() {
                println!("{} sent nothing for {:?}; the part ends here", silent.join(", "), began.elapsed());
                return false;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Gives a node a new file and waits until the node applies it. Fails if the node refuses the file.
    pub async fn reload(&self, node: usize, file: &str) -> anyhow::Result<()> {
        let process = &self.nodes[node];
        let mut seen = std::fs::metadata(process.log_file())?.len();
        process.rewrite(&self.stage.file_with(&process.name, ANY, file, &self.redis.url(node)))?;
        process.signal(rustix::process::Signal::HUP)?;
        let began = Instant::now();
        loop {
            let lines = process.new_log(&mut seen);
            if lines.iter().any(|line| line.contains("Configuration read again and in force")) {
                return Ok(());
            }
            if let Some(refusal) = lines.iter().find(|line| line.contains("stays in force")) {
                bail!("node {} refused its file: {refusal}", process.name);
            }
            if began.elapsed() > Duration::from_secs(20) {
                bail!("node {} did not take its file over", process.name);
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Waits until no refund is ready or sending, at most a minute, stops everything, and returns the final state.
    /// Copies the evidence of this part to the folder `keep`.
    pub async fn finish(self, part: &str, keep: Option<&Path>) -> anyhow::Result<Outcome> {
        self.enough.cancel();
        let saved = self.feeding.await??;
        let began = Instant::now();
        loop {
            let census = self.store.census().await?;
            let open = |state| census.iter().filter_map(|c| c.counts.get(&state)).sum::<u64>();
            if open(State::Ready) + open(State::Sending) == 0 || began.elapsed() > Duration::from_mins(1) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        if let Some(folder) = keep {
            std::fs::create_dir_all(folder)?;
            for node in &self.nodes {
                std::fs::copy(node.log_file(), folder.join(format!("{part}.{}.log", node.name)))?;
            }
        }
        NodeProcess::stop_all(self.nodes).await?;
        let mut connection = PgConnection::connect(&self.stage.database_url()).await?;
        let states: Vec<(String, String)> = sqlx::query_as("select refund_ref, state from refundd.refunds")
            .fetch_all(&mut connection)
            .await?;
        let spent: Vec<(String, i64, i32, String)> = sqlx::query_as(
            "select p.limit_name, (extract(epoch from p.window_start) * 1000000)::bigint, p.ordinal, r.refund_ref
               from refundd.permits p join refundd.refunds r on r.id = p.refund_id",
        )
        .fetch_all(&mut connection)
        .await?;
        if let Some(folder) = keep {
            let attempts: Vec<String> = sqlx::query_scalar(
                "select row_to_json(a)::text from refundd.attempts a order by a.refund_id, a.number",
            )
            .fetch_all(&mut connection)
            .await?;
            std::fs::write(folder.join(format!("{part}.attempts.jsonl")), attempts.join("\n"))?;
        }
        connection.close().await?;
        self.redis.stop().await?;
        let stage = Arc::try_unwrap(self.stage).map_err(|_| anyhow::anyhow!("the stage is still in use"))?;
        let ledger = stage.bank.ledger();
        stage.strike().await?;
        let states = states
            .into_iter()
            .map(|(name, state)| Ok((name, state.parse::<State>().context("a state nobody knows")?)))
            .collect::<anyhow::Result<_>>()?;
        let spent = spent
            .into_iter()
            .map(|(limit, window_us, ordinal, refund_ref)| Spent { limit, window_us, ordinal, refund_ref })
            .collect();
        Ok(Outcome { ledger, saved, states, spent })
    }
}

/// Saves refunds so that some hundred always wait in every channel. Returns all refund refs.
async fn feed(
    stage: Arc<Stage>,
    store: Store,
    channels: Vec<&'static str>,
    enough: CancellationToken,
) -> anyhow::Result<Vec<String>> {
    const AT_ONCE: usize = 200;
    let mut saved = Vec::new();
    let mut waiting: HashMap<&str, i64> = HashMap::new();
    let mut seen = 0;
    while !enough.is_cancelled() {
        stage.bank.look(|ledger| {
            for arrival in &ledger.all()[seen..] {
                if let Some(channel) = channels.iter().find(|c| ***c == *arrival.channel) {
                    *waiting.entry(channel).or_default() -= 1;
                }
            }
            seen = ledger.all().len();
        });
        for channel in &channels {
            let waits = waiting.entry(channel).or_default();
            if *waits < AT_ONCE.cast_signed() as i64 {
                let refunds: Vec<NewRefund> = (saved.len()..saved.len() + AT_ONCE)
                    .map(|n| refund(channel, n))
                    .collect::<anyhow::Result<_>>()?;
                store.save(&refunds).await?;
                saved.extend(refunds.into_iter().map(|refund| refund.refund_ref));
                *waits += AT_ONCE.cast_signed() as i64;
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(saved)
}

fn refund(channel: &str, n: usize) -> anyhow::Result<NewRefund> {
    Ok(NewRefund {
        refund_ref: format!("R-{n}"),
        channel: channel.to_owned().try_into()?,
        payment_ref: format!("P-{n}"),
        money: Money { amount_minor: 100, currency: "EUR".to_owned() },
        payload: None,
        due_at: None,
        deadline_at: None,
        traceparent: None,
    })
}
