//! Measures the rate from saved to settled on a channel without a limit. The requests in progress, the servers and
//! the bank decide the rate.

use std::time::{Duration, Instant};

use anyhow::bail;
use playground::bank::Step;
use playground::load::{ANY, CHANNEL, arrived, end, redis_calls, save, unlimited};
use playground::stage::{NodeProcess, Stage};
use refundd::refund::State;
use refundd::store::{Pause, Store};

use crate::cpu::{Spent, Watch};
use crate::figure::{Better, Notes};

/// Refunds that are settled before the measurement, so that connections, statements and caches are warm.
const WARM: u32 = 1_000;
const PATIENCE: Duration = Duration::from_mins(4);

/// One setting of a drain.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub nodes: usize,
    pub in_flight: u32,
    pub refunds: u32,
    /// How long the bank takes to answer.
    pub bank_takes: Duration,
}

impl Case {
    pub const fn of(nodes: usize, in_flight: u32, refunds: u32) -> Case {
        Case { nodes, in_flight, refunds, bank_takes: Duration::ZERO }
    }

    fn name(&self) -> String {
        let nodes = if self.nodes == 1 { "1 node".to_owned() } else { format!("{} nodes", self.nodes) };
        let bank = if self.bank_takes.is_zero() {
            String::new()
        } else {
            format!(", a bank that takes {} ms", self.bank_takes.as_millis())
        };
        format!("{nodes}, {} in flight{bank}", self.in_flight)
    }
}

/// Cases with few requests in progress are slow, so they have fewer refunds.
const CASES: [Case; 7] = [
    Case::of(1, 1, 1_000),
    Case::of(1, 8, 5_000),
    Case::of(1, 64, 20_000),
    Case::of(1, 256, 20_000),
    Case::of(2, 64, 20_000),
    Case::of(4, 64, 20_000),
    Case { nodes: 1, in_flight: 64, refunds: 10_000, bank_takes: Duration::from_millis(50) },
];

pub async fn round(notes: &mut Notes) -> anyhow::Result<()> {
    let wanted = std::env::var("CASE").unwrap_or_default();
    for case in CASES.into_iter().filter(|case| case.name().contains(&wanted)) {
        let rig = Rig::set(case).await?;
        let drained = rig.drain().await?;
        rig.strike().await?;
        let name = case.name();
        notes.add(format!("{name}: {} refunds", case.refunds), "refunds/s", Better::More, drained.rate());
        if case.in_flight >= 64 {
            note_cpu(notes, &name, &drained);
        }
    }
    Ok(())
}

/// Notes the core time for one refund, by process.
pub fn note_cpu(notes: &mut Notes, name: &str, drained: &Drained) {
    for (who, seconds) in &drained.spent {
        let each = seconds * 1_000_000.0 / f64::from(drained.refunds);
        notes.add(format!("{name}: core time of {who}"), "µs a refund", Better::Less, each);
    }
}

/// The result of one drain.
#[derive(Debug)]
pub struct Drained {
    pub refunds: u32,
    pub took: Duration,
    pub spent: Spent,
    pub redis_calls: u64,
}

impl Drained {
    pub fn rate(&self) -> f64 {
        f64::from(self.refunds) / self.took.as_secs_f64()
    }
}

/// A stage with warm nodes.
pub struct Rig {
    pub stage: Stage,
    pub store: Store,
    nodes: Vec<NodeProcess>,
    case: Case,
}

impl Rig {
    pub async fn set(case: Case) -> anyhow::Result<Rig> {
        Self::set_with(case, "").await
    }

    /// Like [`Rig::set`], with further lines in the file of each node.
    pub async fn set_with(case: Case, lines: &str) -> anyhow::Result<Rig> {
        let stage = Stage::set(crate::program(), ANY).await?;
        let store = Store::open(&stage.database_url(), None, 10)?;
        let mut nodes = Vec::new();
        for n in 1..=case.nodes {
            let file = format!("{}{lines}", unlimited(case.in_flight));
            nodes.push(stage.node(&format!("n{n}"), ANY, &file).await?);
        }
        save(&stage, "warm-", WARM).await?;
        let rig = Rig { stage, store, nodes, case };
        rig.settled(WARM).await?;
        rig.stage.bank.then(CHANNEL, Step::pays().after(case.bank_takes));
        Ok(rig)
    }

    /// Saves refunds while the channel is paused, and then resumes it. Measures from the first request at the bank
    /// until the last row is settled. Fails if a refund was sent twice.
    pub async fn drain(&self) -> anyhow::Result<Drained> {
        self.store
            .pause(CHANNEL, &Pause { reason: "until all are saved", who: "bench", lasts: None })
            .await?;
        // By then every node knows that the channel is paused.
        tokio::time::sleep(Duration::from_millis(1_100)).await;
        save(&self.stage, "R-", self.case.refunds).await?;
        let watch = Watch::stage(&self.stage, &self.nodes);
        let (spent, calls) = (watch.read(), redis_calls(&self.stage.redis.url()).await?);
        self.store.resume(CHANNEL, "bench", None).await?;
        arrived(&self.stage, WARM as usize + 1, PATIENCE).await?;
        let began = Instant::now();
        arrived(&self.stage, (WARM + self.case.refunds) as usize, PATIENCE).await?;
        self.settled(WARM + self.case.refunds).await?;
        let took = began.elapsed();
        let spent = watch.since(&spent);
        let redis_calls = redis_calls(&self.stage.redis.url()).await? - calls;
        let repeated = self.stage.bank.look(|l| l.repeated().len());
        if repeated > 0 {
            bail!("{repeated} refunds were sent twice");
        }
        Ok(Drained { refunds: self.case.refunds, took, spent, redis_calls })
    }

    async fn settled(&self, count_of_all: u32) -> anyhow::Result<()> {
        let began = Instant::now();
        while self.succeeded().await? < u64::from(count_of_all) {
            if began.elapsed() > PATIENCE {
                bail!("not all were settled within {PATIENCE:?}");
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    async fn succeeded(&self) -> anyhow::Result<u64> {
        let census = self.store.census().await?;
        Ok(census.iter().filter_map(|channel| channel.counts.get(&State::Succeeded)).sum())
    }

    pub fn nodes(&self) -> &[NodeProcess] {
        &self.nodes
    }

    /// Stops the nodes. The servers keep running, and their counts are complete then.
    pub async fn stop_nodes(&mut self) -> anyhow::Result<()> {
        for node in self.nodes.drain(..) {
            node.stop().await?;
        }
        Ok(())
    }

    pub async fn strike(self) -> anyhow::Result<()> {
        end(self.stage, self.nodes).await
    }
}
