//! Measures how long after the end of an outage the next refund reaches the bank, without help by a person.
//!
//! `cargo bench --bench outages` runs under steady load. It breaks Postgres, Redis and the bank several times for
//! some seconds: each is down, slow, half-open or in the wrong role, and is healed again. Then it measures what one
//! hanging bank costs nine healthy ones. `ROUNDS=3` sets the rounds of each fault, and `SEED=7` the lengths.
//! Arguments choose (`-- Redis half-open`). A whole run writes docs/outages.json. It exits with 1 if a promise is
//! broken.
//!
//! A hanging bank keeps each request until the channel's `timeout`, which is 2 s here. No request is cut short, so
//! the next refund waits up to 2 s when every slot hangs.

mod cell;
mod neighbours;
mod rig;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use cell::Cell;
use rig::{Rig, Verdict};
use serde_json::json;

const PROMISED: Duration = Duration::from_secs(5);

/// The times of one fault in all rounds.
struct Row {
    cell: Cell,
    next: Vec<Duration>,
    full: Vec<Duration>,
}

fn number(variable: &str, otherwise: u64) -> anyhow::Result<u64> {
    let Ok(text) = std::env::var(variable) else { return Ok(otherwise) };
    text.parse().with_context(|| format!("{variable}={text} is not a number"))
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let wanted = |cell: &Cell| {
        arguments.is_empty()
            || arguments.iter().any(|argument| cell.0 == argument || cell.1.starts_with(argument.as_str()))
    };
    let (rounds, seed) = (number("ROUNDS", 6)?, number("SEED", 1)?);
    println!("seed {seed}, {rounds} rounds of each; 2 nodes, one channel of 50 a second, time-out 2 s");
    let (mut rows, mut verdict) = (Vec::new(), Verdict::default());
    let groups: [&[Cell]; 4] = [&cell::POSTGRES, &cell::REDIS, &cell::BANK, &cell::SENTINEL];
    for (nth, group) in groups.into_iter().enumerate() {
        let cells: Vec<Cell> = group.iter().copied().filter(wanted).collect();
        // A fail-over uses up the replica, so each fail-over needs a new rig.
        let runs = if nth == 3 { rounds } else { 1 };
        for run in 0..if cells.is_empty() { 0 } else { runs } {
            let each = if nth == 3 { 1 } else { rounds };
            let mut dice = fastrand::Rng::with_seed(seed + run + 100 * nth as u64);
            let (new_rows, said) = measure(&cells, each, nth == 3, &mut dice).await?;
            for row in new_rows {
                match rows.iter_mut().find(|known: &&mut Row| known.cell == row.cell) {
                    Some(known) => {
                        known.next.extend(row.next);
                        known.full.extend(row.full);
                    }
                    None => rows.push(row),
                }
            }
            verdict.arrivals += said.arrivals;
            verdict.lost += said.lost;
            verdict.repeated += said.repeated;
            verdict.spans += said.spans;
            verdict.above += said.above;
            verdict.shown += said.shown;
        }
    }
    let loss = if arguments.is_empty() || arguments.iter().any(|argument| argument == "neighbours") {
        Some(neighbours::run().await?)
    } else {
        None
    };
    for row in &mut rows {
        row.next.sort_unstable();
        row.full.sort_unstable();
    }
    print(&rows, &verdict, loss.as_ref());
    if arguments.is_empty() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/outages.json");
        std::fs::write(file, format!("{:#}\n", page(seed, &rows, &verdict, loss.as_ref())))?;
        println!("written to {file}");
    }
    let late = rows.iter().any(|row| row.next.last().is_some_and(|worst| *worst > PROMISED));
    let broken = late || verdict.lost > 0 || verdict.repeated > 0 || verdict.above > 0;
    Ok(if broken { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn measure(
    cells: &[Cell],
    rounds: u64,
    sentinels: bool,
    dice: &mut fastrand::Rng,
) -> anyhow::Result<(Vec<Row>, Verdict)> {
    let seconds = cells.len() as u64 * rounds * 20 + 60;
    let rig = Rig::start(u32::try_from(seconds * 50)?, sentinels).await?;
    let mut rows = Vec::new();
    for cell in cells {
        let mut row = Row { cell: *cell, next: Vec::new(), full: Vec::new() };
        for _ in 0..rounds {
            let duration = Duration::from_millis(dice.u64(2_000..5_000));
            let healed_us = cell::strike(&rig, *cell, duration).await?;
            let name = || format!("{}, {}: not back after 40 s", cell.0, cell.1);
            row.next.push(rig.until_next(healed_us).await.with_context(name)?);
            row.full.push(rig.until_full_pace(healed_us).await.with_context(name)?);
        }
        println!("{:<10} {:<28} {:?}", cell.0, cell.1, row.next);
        rows.push(row);
    }
    let verdict = rig.finish().await?;
    if verdict.arrivals == 0 {
        bail!("nothing was sent");
    }
    Ok((rows, verdict))
}

fn p50(sorted: &[Duration]) -> f64 {
    sorted.get(sorted.len() / 2).copied().unwrap_or_default().as_secs_f64()
}

fn worst(sorted: &[Duration]) -> f64 {
    sorted.last().copied().unwrap_or_default().as_secs_f64()
}

fn print(rows: &[Row], verdict: &Verdict, loss: Option<&neighbours::Loss>) {
    println!("\n{:<10} {:<28} {:>6}   {:^15}   {:^15}", "", "", "", "next refund, s", "full pace, s");
    println!(
        "{:<10} {:<28} {:>6}   {:>7} {:>7}   {:>7} {:>7}",
        "", "", "rounds", "p50", "worst", "p50", "worst"
    );
    for Row { cell, next, full } in rows {
        println!(
            "{:<10} {:<28} {:>6}   {:>7.2} {:>7.2}   {:>7.2} {:>7.2}",
            cell.0,
            cell.1,
            next.len(),
            p50(next),
            worst(next),
            p50(full),
            worst(full)
        );
    }
    println!(
        "\n{} arrivals; lost {}, repeated {}, {} spans of which above the limit {}, shown to a person {}",
        verdict.arrivals, verdict.lost, verdict.repeated, verdict.spans, verdict.above, verdict.shown
    );
    if let Some(loss) = loss {
        println!(
            "nine channels, all well: {:.1}/s; beside a tenth that hangs: {:.1}/s; they lose {:.2} %",
            loss.well,
            loss.beside,
            loss.percent()
        );
    }
}

fn page(seed: u64, rows: &[Row], verdict: &Verdict, loss: Option<&neighbours::Loss>) -> serde_json::Value {
    let rows: Vec<_> = rows
        .iter()
        .map(|row| {
            json!({
                "server": row.cell.0, "fault": row.cell.1, "rounds": row.next.len(),
                "next_refund_s": { "p50": p50(&row.next), "worst": worst(&row.next) },
                "full_pace_s": { "p50": p50(&row.full), "worst": worst(&row.full) },
            })
        })
        .collect();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    json!({
        "command": "cargo bench --bench outages", "seed": seed, "cores": cores, "nodes": 2, "rows": rows,
        "arrivals": verdict.arrivals, "lost": verdict.lost, "repeated": verdict.repeated,
        "spans": verdict.spans, "above": verdict.above, "shown_to_a_person": verdict.shown,
        "neighbours": loss.map(|l| json!({ "well_per_s": l.well, "beside_one_that_hangs_per_s": l.beside, "lost_percent": l.percent() })),
    })
}
