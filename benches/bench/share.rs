//! Measures which share of a limit's permits is used while a backlog waits, by the bank's ledger.

use std::time::Duration;

use anyhow::Context;
use playground::load::{ANY, CHANNEL, arrived, end, limited, save};
use playground::stage::Stage;

use crate::figure::{Better, Notes};

const PER: Duration = Duration::from_secs(1);
const WARM: Duration = Duration::from_secs(3);
const LENGTH: Duration = Duration::from_secs(14);
const NODES: usize = 3;

pub async fn round(notes: &mut Notes) -> anyhow::Result<()> {
    for (algorithm, reach) in [("fixed_window", 99.0), ("paced", 97.0)] {
        for permits in [50, 1_000] {
            let share = share(algorithm, permits).await?;
            let what = format!("{algorithm}, {permits} a second on {NODES} nodes: share of the permits used");
            notes.add(what, "%", Better::More, share * 100.0).at_least(reach);
        }
    }
    Ok(())
}

async fn share(algorithm: &str, permits: u32) -> anyhow::Result<f64> {
    let stage = Stage::set(crate::program(), ANY).await?;
    let channels = limited(permits, permits.max(16))
        .replace("[limit.acme]", &format!("[limit.acme]\nalgorithm = \"{algorithm}\""));
    let mut nodes = Vec::new();
    for n in 1..=NODES {
        nodes.push(stage.node(&format!("n{n}"), ANY, &channels).await?);
    }
    let seconds = u32::try_from((WARM + LENGTH).as_secs())? + 5;
    save(&stage, "R-", permits * seconds + 500).await?;
    arrived(&stage, 1, Duration::from_secs(20)).await?;
    tokio::time::sleep(WARM).await;
    let from_us = last_us(&stage).context("nothing arrived")?;
    tokio::time::sleep(LENGTH).await;
    let to_us = last_us(&stage).context("nothing arrived")?;
    let stretch = stage.bank.look(|l| l.stretch(CHANNEL, from_us, to_us, 2 * PER));
    end(stage, nodes).await?;
    Ok(stretch.context("too little arrived to find a beginning and an end")?.share(permits, PER))
}

/// When the last request arrived, in microseconds since 1970 by the bank's clock.
fn last_us(stage: &Stage) -> Option<i64> {
    stage.bank.look(|l| l.all().last().map(|arrival| arrival.at_us))
}
