//! Measures what distance costs: every algorithm over real TLS to banks whose connections take long to set up, whose
//! answers come late and unevenly, or that close every connection after one answer.
//!
//! `cargo bench --bench distance` measures all cells, and writes `docs/distance.json` and a table into
//! `docs/figures.md`. `ONLY="paced 1/s 60ms"` chooses cells, a bare number in it chooses the number of nodes, and
//! `SECONDS=30` shortens all. With either variable it only prints. It fails when a cell gets less than 95 % of the
//! near bank's share, when a span contains more than promised, or when a refund was sent twice. The banks' own ledgers
//! are the judge, by the kernel's dates.

mod cell;
mod choice;
mod run;
mod table;

use std::path::Path;
use std::process::ExitCode;

use choice::Choice;
use futures_util::future::try_join_all;
use playground::{record, section};
use serde::Serialize;
use tokio::sync::Barrier;

/// The content of `docs/distance.json`.
#[derive(Serialize)]
struct Report<'a> {
    cores: usize,
    sends: usize,
    lateness: &'static str,
    cells: &'a [run::Measured],
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let choice = Choice::read()?;
    let mut measured = Vec::new();
    for group in choice.groups() {
        let length = choice.length(&group);
        let (fitting, short): (Vec<_>, Vec<_>) =
            group.into_iter().partition(|cell| length >= 2 * cell.search() + cell.pace.per / 2);
        if !short.is_empty() {
            println!("{} cells need more than {} s and are left out", short.len(), length.as_secs());
        }
        if fitting.is_empty() {
            continue;
        }
        let stages = cell::stages(fitting);
        for cells in &stages {
            println!("{} cells, nodes: {}, for {} s", cells.len(), cells[0].pace.nodes, length.as_secs());
        }
        let ready = Barrier::new(stages.len());
        let runs = stages.iter().map(|cells| run::run(cells, length, &ready));
        for one in try_join_all(runs).await?.into_iter().flatten() {
            println!("{}", table::line(&one));
            measured.push(one);
        }
    }
    println!("\n{}", table::markdown(&measured));
    let broken: Vec<_> = measured.iter().filter(|one| !one.broken().is_empty()).collect();
    for one in &broken {
        println!("BROKEN: {}, nodes: {}: {}", one.cell.name(), one.nodes, one.broken().join("; "));
        for evidence in &one.evidence {
            println!("  {evidence}");
        }
    }
    if choice.is_everything() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let sends = measured.iter().map(|one| one.sends).sum();
        let report = Report { cores, sends, lateness: cell::LATENESS, cells: &measured };
        record::write(&docs.join("distance.json"), &report)?;
        section::replace(&docs.join("figures.md"), "distance", &table::markdown(&measured))?;
    }
    println!("{} cells, {} of them broken", measured.len(), broken.len());
    Ok(if broken.is_empty() && !measured.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
