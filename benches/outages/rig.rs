//! Two nodes that reach Postgres, Redis and the bank through forwarders ("doors") that can fail.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use playground::bank::Ledger;
pub use playground::bank::now_us;
use playground::judge::{JudgedPeriod, JudgedSpan, LimitPromise, judge};
use playground::load::save_in;
use playground::stage::{ANY, NodeProcess, Stage};
use playground::{Forward, RedisOptions, RedisPair, Sentinels, Target};
use refundd::store::{Store, SuspendedBy};
use sqlx::{Connection, PgConnection};

use crate::cell::{Cell, Fault, Server};

pub const CHANNEL: &str = "steady";
/// The node that leads is the one to be cut off.
const NODES: [&str; 2] = ["a", "b"];

/// A `paced` limit: its even spacing shows a pause to the hundredth of a second.
const FILE: &str = r#"
[limit.steady]
algorithm = "paced"
permits = {permits}
per = "1s"
[channel.steady]
endpoint = "http://{bank}/steady/refunds"
limits = ["steady"]
max_in_flight = 32
timeout = "2s"
connect_timeout = "1s"
breaker = "off"
"#;

/// The servers, the doors and the nodes.
pub struct Rig {
    pub stage: Stage,
    pub redis: RedisPair,
    store: Store,
    /// The doors of each node.
    postgres: [Forward; 2],
    /// One door for both nodes, a door for each, or none.
    bank: Vec<Forward>,
    sentinels: Option<Sentinels>,
    nodes: Vec<NodeProcess>,
    permits: u32,
}

/// The totals of a run, from the bank's ledger and the rows.
#[derive(Debug, Default, Clone, Copy)]
pub struct Verdict {
    pub arrivals: usize,
    pub lost: i64,
    pub repeated: usize,
    /// Judged spans of the rigs without a door before the bank.
    pub spans: usize,
    pub above: usize,
    pub shown: i64,
}

impl Verdict {
    pub fn add(&mut self, other: Verdict) {
        self.arrivals += other.arrivals;
        self.lost += other.lost;
        self.repeated += other.repeated;
        self.spans += other.spans;
        self.above += other.above;
        self.shown += other.shown;
    }
}

/// How many requests were repeated although the bank's answer had not proved that it executed nothing.
fn sent_again(ledger: &Ledger) -> usize {
    let mut last: HashMap<&str, Option<u16>> = HashMap::new();
    let mut again = 0;
    for arrival in ledger.all() {
        if let Some(before) = last.insert(&*arrival.refund_ref, arrival.answered) {
            again += usize::from(before != Some(401));
        }
    }
    again
}

impl Rig {
    const PATIENCE: Duration = Duration::from_mins(1);

    /// Starts everything with this many waiting refunds, and waits until they arrive at full pace.
    pub async fn start(cell: &Cell, permits: u32, refunds: u32) -> anyhow::Result<Rig> {
        let stage = Stage::set(PathBuf::from(env!("CARGO_BIN_EXE_refundd")), ANY).await?;
        let store = Store::open(&stage.database_url(), None, 10)?;
        let redis = RedisPair::start(&RedisOptions::default(), NODES.len()).await?;
        let sentinels = if cell.fault == Fault::FailOver {
            redis.attach().await?;
            Some(Sentinels::watch(redis.primary()).await?)
        } else {
            None
        };
        let to_postgres = || Forward::to(Target::Unix(stage.postgres.socket()));
        let postgres = [to_postgres()?, to_postgres()?];
        // Nodes that reach the bank at two ports have files that differ, so only the cells that need it have two.
        let bank: Vec<Forward> = (0..cell.bank_doors())
            .map(|_| Forward::to(Target::Tcp(stage.bank.address())))
            .collect::<Result<_, _>>()?;
        let file = FILE.replace("{permits}", &permits.to_string());
        let mut nodes = Vec::new();
        for (nth, name) in NODES.into_iter().enumerate() {
            let mut at = stage.addresses();
            at.postgres = stage.database_through(postgres[nth].address());
            at.redis = sentinels.as_ref().map_or_else(|| redis.url(nth), Sentinels::url);
            if let Some(door) = bank.get(nth).or(bank.last()) {
                at.bank = door.address();
            }
            nodes.push(stage.node_at(name, ANY, &file, &at).await?);
        }
        let rig = Rig { stage, redis, store, postgres, bank, sentinels, nodes, permits };
        let mut connection = PgConnection::connect(&rig.stage.database_url()).await?;
        save_in(&mut connection, CHANNEL, 1..=refunds).await?;
        connection.close().await?;
        let began_us = now_us();
        rig.until_full_pace(began_us).await.context("the load does not begin")?;
        rig.until_next_of_first(began_us).await?.context("the first node sends nothing")?;
        Ok(rig)
    }

    /// The doors to a server: those of all nodes, or of the first node alone.
    pub fn doors(&self, server: Server, alone: bool) -> Vec<&Forward> {
        let nodes = if alone { 1 } else { NODES.len() };
        match server {
            Server::Postgres => self.postgres.iter().take(nodes).collect(),
            Server::Redis => (0..nodes).map(|door| self.redis.door(door)).collect(),
            Server::Bank => self.bank.iter().take(nodes).collect(),
        }
    }

    /// Whether the sentinels name the second server.
    pub async fn has_failed_over(&self) -> bool {
        match &self.sentinels {
            Some(sentinels) => sentinels.name(self.redis.second()).await,
            None => false,
        }
    }

    /// The permits that the limit opens in this time. It spaces them evenly over `per` and the `lateness` of 20 ms.
    pub fn opened_in(&self, micros: i64) -> f64 {
        f64::from(self.permits) * micros as f64 / 1_020_000.0
    }

    /// How many requests reached the bank between these times.
    pub fn arrived(&self, from_us: i64, until_us: i64) -> usize {
        self.stage.bank.look(|ledger| {
            ledger.all().iter().filter(|arrival| (from_us..until_us).contains(&arrival.at_us)).count()
        })
    }

    /// How long after `after_us` the next request reached the bank; `None` if it takes too long.
    pub async fn until_next(&self, after_us: i64) -> Option<Duration> {
        self.until(after_us, |times| times.first().map(|at| at - after_us)).await
    }

    /// How long after `after_us` a stretch began in which nine tenths of the permits were used. The stretch is a
    /// second, or long enough for ten permits. `None` if it takes too long.
    pub async fn until_full_pace(&self, after_us: i64) -> Option<Duration> {
        let seconds = 10_u32.div_ceil(self.permits);
        let full = (self.permits * seconds) as usize * 9 / 10;
        let whole = |times: &[i64]| {
            let whole = times
                .windows(full)
                .find(|stretch| stretch[full - 1] - stretch[0] < i64::from(seconds) * 1_000_000);
            whole.map(|stretch| stretch[0] - after_us)
        };
        self.until(after_us, whole).await
    }

    /// Looks at the times of the arrivals after `after_us` until `look` finds something.
    async fn until(&self, after_us: i64, look: impl Fn(&[i64]) -> Option<i64>) -> Option<Duration> {
        let began = Instant::now();
        while began.elapsed() < Self::PATIENCE {
            let mut times: Vec<i64> = self.stage.bank.look(|ledger| {
                let newest = ledger.all().iter().rev().take(5_000).map(|arrival| arrival.at_us);
                newest.filter(|at| *at > after_us).collect()
            });
            times.sort_unstable();
            if let Some(micros) = look(&times) {
                return Some(Duration::from_micros(micros.unsigned_abs()));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        None
    }

    /// How long after `after_us` the next request of the first node reached the bank; `None` if it takes too long.
    /// The journal says which node sent, and the bank's ledger when.
    pub async fn until_next_of_first(&self, after_us: i64) -> anyhow::Result<Option<Duration>> {
        let mut connection = PgConnection::connect(&self.stage.database_url()).await?;
        let began = Instant::now();
        let mut next = None;
        // The outcomes of the first requests may be written in another order, so the second look counts.
        while began.elapsed() < Self::PATIENCE {
            let sent: Vec<String> = sqlx::query_scalar(
                "select r.refund_ref from refundd.attempts a join refundd.refunds r on r.id = a.refund_id
                  where a.kind = 'send' and split_part(a.node, '#', 1) = $1
                    and a.finished_at > to_timestamp($2::float8 / 1000000)",
            )
            .bind(NODES[0])
            .bind(after_us as f64)
            .fetch_all(&mut connection)
            .await?;
            let sent: HashSet<&str> = sent.iter().map(String::as_str).collect();
            let first = self.stage.bank.look(|ledger| {
                let newest = ledger.all().iter().rev().take(5_000);
                let own = newest.filter(|a| a.at_us > after_us && sent.contains(&*a.refund_ref));
                own.map(|arrival| arrival.at_us - after_us).min()
            });
            if next.is_some() {
                next = first.or(next);
                break;
            }
            next = first;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        connection.close().await?;
        Ok(next.map(|micros| Duration::from_micros(micros.unsigned_abs())))
    }

    /// Resumes the channel, as a person does when the bank accepts the credentials again.
    pub async fn resume(&self) -> anyhow::Result<()> {
        let began = Instant::now();
        // A request that is under way may pause the channel once more.
        while began.elapsed() < Duration::from_secs(1) {
            self.store.release(CHANNEL, SuspendedBy::Credentials, "bench", None).await?;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    /// The logs of all nodes.
    pub fn logs(&self) -> String {
        let logs = self.nodes.iter().map(|node| format!("node {}\n{}\n", node.name, node.log().join("\n")));
        logs.collect()
    }

    /// Stops everything and compares the rows with the bank's ledger.
    pub async fn finish(self) -> anyhow::Result<Verdict> {
        NodeProcess::stop_all(self.nodes).await?;
        let mut connection = PgConnection::connect(&self.stage.database_url()).await?;
        let rows: Vec<(String, String)> = sqlx::query_as("select refund_ref, state from refundd.refunds")
            .fetch_all(&mut connection)
            .await?;
        connection.close().await?;
        let ledger = self.stage.bank.ledger();
        let paid: HashSet<&str> = ledger.all().iter().filter(|a| a.paid).map(|a| &*a.refund_ref).collect();
        let times: Vec<i64> = ledger.all().iter().map(|arrival| arrival.at_us).collect();
        let promise =
            LimitPromise { span: JudgedSpan::Any, permits: self.permits, per: Duration::from_secs(1) };
        // A door on a busy machine delays requests, so spans are counted only where none is before the bank.
        let is_judged = self.bank.is_empty();
        let spans = if is_judged { judge(&times, &JudgedPeriod::always(promise)) } else { Vec::new() };
        let mut verdict = Verdict {
            arrivals: times.len(),
            repeated: sent_again(&ledger),
            spans: spans.len(),
            above: spans.iter().filter(|span| span.is_above()).count(),
            ..Verdict::default()
        };
        for (name, state) in &rows {
            let was_paid = paid.contains(name.as_str());
            match state.as_str() {
                // A paid refund that is still to be sent would be paid twice. An unpaid refund that succeeded is
                // lost.
                "ready" | "failed" | "cancelled" => verdict.lost += i64::from(was_paid),
                "succeeded" => verdict.lost += i64::from(!was_paid),
                _ => verdict.shown += 1,
            }
        }
        if let Some(sentinels) = self.sentinels {
            sentinels.stop().await?;
        }
        self.redis.stop().await?;
        self.stage.strike().await?;
        Ok(verdict)
    }
}
