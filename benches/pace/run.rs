//! Measures one case on its own stage: servers, bank and nodes, and a backlog that never ends.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use futures_util::future::try_join_all;
use playground::bank::now_us;
use playground::load::{redis_calls, save_in};
use playground::stage::{ANY, NodeProcess, Stage};
use sqlx::{Connection, PgConnection};

use super::case::Case;
use super::judge::{Inside, Measured};
use super::nodes::{self, CHANNEL};
use super::witness::Witness;

pub async fn run(case: Case) -> anyhow::Result<Measured> {
    let stage = Stage::set(PathBuf::from(env!("CARGO_BIN_EXE_refundd")), ANY).await?;
    let witness = Witness::of(&stage.bank).await?;
    let names: Vec<String> = (1..=case.nodes).map(|n| format!("n{n}")).collect();
    let channels = case.channels();
    let nodes = try_join_all(names.iter().map(|name| stage.node(name, ANY, &channels))).await?;
    let mut database = PgConnection::connect(&stage.database_url()).await?;
    save_in(&mut database, CHANNEL, 1..=case.backlog()).await?;
    if !stage.bank.until(Duration::from_secs(20), |l| l.arrivals(CHANNEL).next().is_some()).await {
        bail!("nothing arrived within 20 s; the first node's log says:\n{}", nodes[0].log().join("\n"));
    }
    tokio::time::sleep(Case::WARM).await;
    let (from_us, calls, arrived) = reading(&stage).await?;
    tokio::time::sleep(case.length()).await;
    let (to_us, calls_then, arrived_then) = reading(&stage).await?;
    let mut inside = Inside {
        redis_calls_a_refund: (calls_then - calls) as f64 / (arrived_then - arrived).max(1) as f64,
        ..Inside::default()
    };
    nodes::counted(&nodes, &mut inside).await?;
    NodeProcess::stop_all(nodes).await?;
    drop(witness);
    let ledger = stage.bank.ledger();
    let mut measured = Measured::of(case, &ledger, CHANNEL, from_us, to_us)?;
    nodes::rows(&mut database, &ledger, &mut inside).await?;
    if inside.waiting == 0 {
        bail!("the backlog came to its end before the measurement did");
    }
    measured.inside = Some(inside);
    if !measured.is_sound() {
        measured.evidence = nodes::evidence(&mut database, &ledger, measured.worst_from_us).await?;
    }
    database.close().await?;
    stage.strike().await?;
    Ok(measured)
}

/// The time in microseconds since 1970, the commands to Redis so far, and the arrivals so far.
async fn reading(stage: &Stage) -> anyhow::Result<(i64, u64, usize)> {
    let calls = redis_calls(&stage.redis.url()).await?;
    let arrived = stage.bank.look(|l| l.arrivals(CHANNEL).count());
    Ok((now_us(), calls, arrived))
}
