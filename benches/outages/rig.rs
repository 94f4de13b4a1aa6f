//! Two nodes that reach Postgres, Redis and the bank through forwarders ("doors") that can fail.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use playground::bank::Ledger;
use playground::judge::{JudgedPeriod, JudgedSpan, Law, judge};
use playground::stage::{NodeProcess, Stage};
use playground::{Forward, RedisOptions, RedisPair, Sentinels, Target};
use refundd::store::Store;
use sqlx::{Connection, PgConnection};

const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
pub const CHANNEL: &str = "steady";
const PERMITS: u32 = 50;

/// A `paced` limit: its even spacing shows a pause to the hundredth of a second.
const FILE: &str = r#"
[limit.steady]
algorithm = "paced"
permits = 50
per = "1s"
[channel.steady]
endpoint = "http://{bank}/steady/refunds"
limits = ["steady"]
max_in_flight = 32
timeout = "2s"
connect_timeout = "1s"
"#;

/// The servers, the doors and the nodes.
pub struct Rig {
    pub stage: Stage,
    store: Store,
    pub redis: RedisPair,
    pub postgres: Forward,
    pub bank: Forward,
    sentinels: Option<Sentinels>,
    nodes: Vec<NodeProcess>,
}

/// The totals of a run, from the bank's ledger and the rows.
#[derive(Debug, Default, Clone, Copy)]
pub struct Verdict {
    pub arrivals: usize,
    pub lost: i64,
    pub repeated: usize,
    pub spans: usize,
    pub above: usize,
    pub shown: i64,
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

pub fn now_us() -> i64 {
    jiff::Timestamp::now().as_microsecond()
}

impl Rig {
    /// Starts everything with this many waiting refunds, and waits until they arrive at full pace.
    pub async fn start(refunds: u32, sentinels: bool) -> anyhow::Result<Rig> {
        let stage = Stage::set(PathBuf::from(env!("CARGO_BIN_EXE_refundd")), ANY).await?;
        let store = Store::open(&stage.database_url(), None, 10)?;
        let redis = RedisPair::start(&RedisOptions::default(), 1).await?;
        let sentinels = if sentinels {
            redis.attach().await?;
            Some(Sentinels::watch(redis.primary()).await?)
        } else {
            None
        };
        let postgres = Forward::to(Target::Unix(stage.postgres.socket()))?;
        let bank = Forward::to(Target::Tcp(stage.bank.address()))?;
        let mut at = stage.addresses();
        at.postgres = stage.database_through(postgres.address());
        at.redis = sentinels.as_ref().map_or_else(|| redis.url(0), Sentinels::url);
        at.bank = bank.address();
        let mut nodes = Vec::new();
        for name in ["a", "b"] {
            nodes.push(stage.node_at(name, ANY, FILE, &at).await?);
        }
        let rig = Rig { stage, store, redis, postgres, bank, sentinels, nodes };
        let mut connection = PgConnection::connect(&rig.stage.database_url()).await?;
        sqlx::query(
            "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency)
             select 'R-' || n, 'steady', 'P-' || n, 100, 'EUR' from generate_series(1, $1) n",
        )
        .bind(i32::try_from(refunds)?)
        .execute(&mut connection)
        .await?;
        connection.close().await?;
        rig.until_full_pace(now_us()).await.context("the load does not begin")?;
        Ok(rig)
    }

    /// Whether the sentinels name the second server.
    pub async fn has_failed_over(&self) -> bool {
        match &self.sentinels {
            Some(sentinels) => sentinels.name(self.redis.second()).await,
            None => false,
        }
    }

    /// How long after `after_us` the next request reached the bank; `None` after 40 s.
    pub async fn until_next(&self, after_us: i64) -> Option<Duration> {
        self.until(|times| times.iter().find(|at| **at > after_us).map(|at| at - after_us)).await
    }

    /// How long after `after_us` a second began in which nine tenths of the permits were used; `None` after 40 s.
    pub async fn until_full_pace(&self, after_us: i64) -> Option<Duration> {
        let full = PERMITS as usize * 9 / 10;
        let from = |times: &[i64]| {
            let times = &times[times.partition_point(|at| *at <= after_us)..];
            let whole = times.windows(full).find(|pair| pair[full - 1] - pair[0] < 1_000_000);
            whole.map(|second| second[0] - after_us)
        };
        self.until(from).await
    }

    async fn until(&self, look: impl Fn(&[i64]) -> Option<i64>) -> Option<Duration> {
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(40) {
            let mut times: Vec<i64> = self
                .stage
                .bank
                .look(|ledger| ledger.all().iter().rev().take(5000).map(|arrival| arrival.at_us).collect());
            times.sort_unstable();
            if let Some(micros) = look(&times) {
                return Some(Duration::from_micros(micros.unsigned_abs()));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        None
    }

    /// Resumes the channel, as a person does when the bank accepts the credentials again.
    pub async fn resume(&self) -> anyhow::Result<()> {
        let began = Instant::now();
        // A request that is under way may pause the channel once more.
        while began.elapsed() < Duration::from_secs(1) {
            self.store.resume(CHANNEL).await?;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    /// Stops everything and compares the rows with the bank's ledger.
    pub async fn finish(self) -> anyhow::Result<Verdict> {
        for node in self.nodes {
            let name = node.name.clone();
            if !node.stop().await? {
                bail!("node {name} did not end well");
            }
        }
        let mut connection = PgConnection::connect(&self.stage.database_url()).await?;
        let rows: Vec<(String, String)> = sqlx::query_as("select refund_ref, state from refundd.refunds")
            .fetch_all(&mut connection)
            .await?;
        connection.close().await?;
        let ledger = self.stage.bank.ledger();
        let paid: HashSet<&str> = ledger.all().iter().filter(|a| a.paid).map(|a| &*a.refund_ref).collect();
        let times: Vec<i64> = ledger.all().iter().map(|arrival| arrival.at_us).collect();
        let law = Law { span: JudgedSpan::Any, permits: PERMITS, per: Duration::from_secs(1) };
        let spans = judge(&times, &JudgedPeriod::always(law));
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
