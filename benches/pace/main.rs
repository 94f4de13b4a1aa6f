//! Measures the pace of every algorithm at the bank, on real nodes and by the bank's own ledger.
//!
//! `cargo bench --bench pace` saturates every algorithm at 1, 50 and 1,000 a second with 3 and with 20 nodes, and
//! also `BullMQ`'s limiter. It takes about a quarter of an hour and writes `docs/pace.svg` and `docs/pace.json`. It
//! fails if a promise was broken. Arguments choose cases: `cargo bench --bench pace -- paced 50 3`, or `-- bullmq`.
//! With arguments it only prints.
//!
//! `SECONDS=300 cargo bench --bench pace -- stalls` runs ten channels at 30 a second on a machine with other work. It
//! shows whose delay puts more requests into a second than the limit allows.

mod case;
mod draw;
mod judge;
mod nodes;
mod peer;
mod run;
mod stalls;
mod table;
mod witness;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use futures_util::future::join_all;
use playground::record;
use serde::Serialize;

use case::{Case, Choice};
use judge::Measured;

/// The content of `docs/pace.json`.
#[derive(Serialize)]
struct Report<'a> {
    cores: usize,
    sends: usize,
    runs: &'a [Measured],
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let arguments = std::env::args().skip(1).filter(|arg| !arg.starts_with("--"));
    let arguments: Vec<String> = arguments.collect();
    if arguments == ["stalls"] {
        return Ok(if stalls::run().await? { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let choice = Choice::of(arguments.into_iter())?;
    let mut measured = Vec::new();
    let mut failed = false;
    for group in choice.groups() {
        for (case, result) in join_all(group.into_iter().map(measure)).await {
            match result {
                Ok(Some(one)) => {
                    println!("{}", table::line(&one));
                    measured.push(one);
                }
                Ok(None) => {}
                Err(error) => {
                    failed = true;
                    println!("{case}: could not be measured: {error:#}");
                }
            }
        }
    }
    measured.sort_by_key(|one| one.case);
    println!("\n{}", table::markdown(&measured));
    let broken: Vec<&Measured> = measured.iter().filter(|one| !one.is_sound()).collect();
    for one in &broken {
        println!("BROKEN: {}", table::line(one));
    }
    if choice.is_everything() && !failed {
        write(&measured)?;
    }
    Ok(if failed || !broken.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn measure(case: Case) -> (Case, anyhow::Result<Option<Measured>>) {
    let measured = match case.kind.algorithm() {
        Some(_) => run::run(case).await.map(Some),
        None => peer::run(case).await,
    };
    (case, measured)
}

fn write(measured: &[Measured]) -> anyhow::Result<()> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let sends = measured.iter().filter(|one| one.case.kind.algorithm().is_some()).map(|one| one.sends).sum();
    let report = Report { cores, sends, runs: measured };
    record::write(&docs.join("pace.json"), &report)?;
    std::fs::write(docs.join("pace.svg"), draw::picture(measured)).context("failed to write docs/pace.svg")
}
