//! Breaks Redis, its clock and the configuration hundreds of times under full load, and judges the limits by the
//! bank's ledger.
//!
//! `cargo bench --bench faults` takes about ten minutes. Its three parts run on separate stages: Redis loses its data
//! in every way, its clock is stepped, and the nodes' files are changed. Arguments choose parts and algorithms
//! (`-- losses sliding_log`). `SECONDS=30` ends each part by then, `SEED=7` repeats a run's choices, and
//! `FAULTS_KEEP=folder` keeps the evidence. A whole run writes docs/faults.json. It exits with 1 if a promise is
//! broken.

mod clocks;
mod load;
mod losses;
mod plan;
mod reloads;
mod report;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use plan::Plan;
use playground::record;
use report::Part;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let plan = Arc::new(Plan::read(std::env::args().skip(1))?);
    println!(
        "seed {}: {} at the same time, each with servers and nodes of its own",
        plan.seed,
        plan.parts.join(", ")
    );
    let mut running: JoinSet<anyhow::Result<Part>> = JoinSet::new();
    for &name in &plan.parts {
        let (plan, runtime) = (Arc::clone(&plan), Handle::current());
        running.spawn_blocking(move || match name {
            "losses" => runtime.block_on(losses::run(&plan)),
            "clocks" => runtime.block_on(clocks::run(&plan)),
            _ => runtime.block_on(reloads::run(&plan)),
        });
    }
    let mut parts: Vec<Part> = Vec::new();
    while let Some(part) = running.join_next().await {
        let part = part??;
        part.print();
        parts.push(part);
    }
    parts.sort_by_key(|part| plan.parts.iter().position(|name| *name == part.name));
    if plan.is_whole() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/faults.json");
        record::write(Path::new(file), &report::json(&plan, &parts))?;
        println!("written to {file}");
    } else {
        println!("not the whole run: docs/faults.json stays as it is");
    }
    let broken = parts.iter().any(Part::broke_a_promise);
    Ok(if broken { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
