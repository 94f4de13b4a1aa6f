//! Measures how long after the end of an outage the next refund reaches the bank, without help by a person.
//!
//! `make outages` runs under steady load. It breaks Postgres, Redis and the bank for 0.5 s to 10 minutes: each is
//! down, slow, half-open or in the wrong role, and is healed again. It also cuts off one of two nodes alone, and
//! measures whether the other node keeps the pace. Then it measures what one hanging bank costs nine healthy ones.
//! `LENGTHS="0.5 8"` sets the lengths in seconds. `ONLY="Redis half-open"` chooses servers and faults by the beginning
//! of their names. A whole run writes docs/outages.json and a table into docs/promises.md. It exits with 1 if a promise
//! is broken.
//!
//! A hanging bank keeps each request until the channel's `timeout`, which is 2 s here. No request is cut short, so
//! the next refund waits up to 2 s when every slot hangs.

mod cell;
mod neighbours;
mod rig;
mod run;
mod stalls;
mod strike;
mod table;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use cell::{CELLS, Cell};
use playground::{record, section};

const PROMISED: Duration = Duration::from_secs(5);
const LENGTHS: &str = "0.5 2 8 30 120 600";
/// Chosen like a fault.
const NEIGHBOURS: &str = "neighbours";

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let chosen = |name: &str, argument: &String| name.starts_with(argument.as_str());
    let is_cell =
        |cell: &Cell, argument: &String| chosen(cell.server(), argument) || chosen(cell.fault(), argument);
    for argument in &arguments {
        if !chosen(NEIGHBOURS, argument) && !CELLS.iter().any(|cell| is_cell(cell, argument)) {
            bail!("`{argument}` is no server and no fault");
        }
    }
    let servers: Vec<_> = arguments
        .iter()
        .filter(|argument| CELLS.iter().any(|cell| chosen(cell.server(), argument)))
        .collect();
    let faults: Vec<_> =
        arguments.iter().filter(|argument| CELLS.iter().any(|cell| chosen(cell.fault(), argument))).collect();
    let any = |name: &str, of: &[&String]| of.is_empty() || of.iter().any(|argument| chosen(name, argument));
    let has_cells = arguments.is_empty() || !servers.is_empty() || !faults.is_empty();
    let wanted = |cell: &&Cell| has_cells && any(cell.server(), &servers) && any(cell.fault(), &faults);
    let cells: Vec<Cell> = CELLS.iter().filter(wanted).copied().collect();
    let text = std::env::var("LENGTHS").ok();
    let lengths: Vec<Duration> = text
        .as_deref()
        .unwrap_or(LENGTHS)
        .split_whitespace()
        .map(|word| word.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()))
        .collect::<Option<_>>()
        .context("LENGTHS must be seconds, as in LENGTHS=\"0.5 8\"")?;

    println!(
        "lengths {lengths:?}; 2 nodes, a channel of 50 a second, 5 a second from {:?} on, time-out 2 s",
        run::LONG
    );
    let results = run::run(&cells, &lengths, &stalls::Stalls::watch()?).await;
    let measures_neighbours =
        arguments.is_empty() || arguments.iter().any(|argument| chosen(NEIGHBOURS, argument));
    let loss = if measures_neighbours { Some(neighbours::run().await?) } else { None };

    let table = table::markdown(&results.rows);
    let verdict = &results.verdict;
    println!("\n{table}");
    println!(
        "{} arrivals; lost {}, repeated {}, {} spans of which above the limit {}, shown to a person {}",
        verdict.arrivals, verdict.lost, verdict.repeated, verdict.spans, verdict.above, verdict.shown
    );
    if let Some(loss) = &loss {
        println!(
            "nine channels, all well: {:.1}/s; beside a tenth that hangs: {:.1}/s; they lose {:.2} %",
            loss.well,
            loss.beside,
            loss.percent()
        );
    }
    if arguments.is_empty() && text.is_none() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
        record::write(&docs.join("outages.json"), &table::page(&results, loss.as_ref()))?;
        section::replace(&docs.join("promises.md"), "outages", &table)?;
        println!("written to docs/outages.json and docs/promises.md");
    }
    let late = results.rows.iter().flat_map(|(_, rounds)| rounds).any(run::Round::is_late);
    let broken = late || results.failed > 0 || verdict.lost > 0 || verdict.repeated > 0 || verdict.above > 0;
    Ok(if broken { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
