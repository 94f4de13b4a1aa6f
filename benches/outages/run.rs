//! Runs the cells: rigs side by side, each with servers of its own.
//!
//! Short outages run under full load, a few rigs at a time. Long outages are mostly waiting, so each of them has a rig
//! with little load, and all long ones run at the same time beside the short ones.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Semaphore;

use crate::cell::Cell;
use crate::rig::{Rig, Verdict, now_us};
use crate::stalls::Stalls;

/// An outage of at least this length has a rig with little load.
pub const LONG: Duration = Duration::from_mins(5);
/// Permits a second of a rig for short outages, and of one for a long outage.
pub const PERMITS: [u32; 2] = [50, 5];
/// How many rigs with full load run at one time.
const LANES: usize = 5;
/// How many rigs start at one time. Starting servers takes whole cores.
const STARTS: usize = 2;

/// One outage and the way back.
#[derive(Debug, Clone, Copy)]
pub struct Round {
    /// How long the fault lasted; `None` for a fault of a moment.
    pub length: Option<Duration>,
    /// From the end of the fault to the next request at the bank: for a node that was cut off alone, to its own.
    pub next: Option<Duration>,
    /// From the end of the fault to the begin of full pace.
    pub full: Option<Duration>,
    /// The share of the permits that the other node used while one node was cut off alone.
    pub share: Option<f64>,
    /// The longest time for which the machine gave no core, or the disk took no write, in the round.
    pub stall: Duration,
}

impl Round {
    /// Whether this took longer than promised.
    pub fn is_late(&self) -> bool {
        self.next.is_none_or(|next| next > crate::PROMISED)
    }
}

/// The outages that one rig goes through.
struct Job {
    cell: Cell,
    lengths: Vec<Duration>,
    permits: u32,
}

/// The rounds of all cells, and what the bank's ledgers say.
pub struct Results {
    pub rows: Vec<(Cell, Vec<Round>)>,
    pub verdict: Verdict,
    /// Rigs that could not finish.
    pub failed: usize,
}

fn jobs(cells: &[Cell], lengths: &[Duration]) -> Vec<Job> {
    let mut jobs = Vec::new();
    let (long, short): (Vec<_>, Vec<_>) = lengths.iter().copied().partition(|length| *length >= LONG);
    for cell in cells {
        let full = |lengths| Job { cell: *cell, lengths, permits: PERMITS[0] };
        if cell.lasts() {
            jobs.extend(long.iter().map(|length| Job {
                cell: *cell,
                lengths: vec![*length],
                permits: PERMITS[1],
            }));
            jobs.extend((!short.is_empty()).then(|| full(short.clone())));
        } else if cell.uses_up() {
            jobs.extend(lengths.iter().map(|_| full(vec![Duration::ZERO])));
        } else {
            jobs.push(full(vec![Duration::ZERO; lengths.len()]));
        }
    }
    // The rigs with little load wait longest, so they start first.
    jobs.sort_by_key(|job| job.permits);
    jobs
}

/// Runs every cell with every length.
pub async fn run(cells: &[Cell], lengths: &[Duration], stalls: &Stalls) -> Results {
    let mut results = Results {
        rows: cells.iter().map(|cell| (*cell, Vec::new())).collect(),
        verdict: Verdict::default(),
        failed: 0,
    };
    let (lanes, starts) = (Semaphore::new(LANES), Semaphore::new(STARTS));
    let mut running: FuturesUnordered<_> = jobs(cells, lengths)
        .into_iter()
        .map(async |job| {
            let _lane = if job.permits == PERMITS[0] { Some(lanes.acquire().await) } else { None };
            let mut rounds = Vec::new();
            let verdict = one(&job, &starts, stalls, &mut rounds).await;
            (job.cell, rounds, verdict)
        })
        .collect();
    while let Some((cell, rounds, verdict)) = running.next().await {
        match verdict {
            Ok(verdict) => results.verdict.add(verdict),
            Err(error) => {
                println!("{}, {}: {error:#}", cell.server(), cell.fault());
                results.failed += 1;
            }
        }
        if let Some((_, all)) = results.rows.iter_mut().find(|(known, _)| *known == cell) {
            all.extend(rounds);
        }
    }
    results
}

/// Starts a rig, goes through its outages, and judges it.
async fn one(
    job: &Job,
    starts: &Semaphore,
    stalls: &Stalls,
    rounds: &mut Vec<Round>,
) -> anyhow::Result<Verdict> {
    let seconds = job.lengths.iter().map(|length| length.as_secs() + 25).sum::<u64>() + 60;
    let rig = {
        let _start = starts.acquire().await;
        Rig::start(&job.cell, job.permits, u32::try_from(seconds)? * job.permits).await?
    };
    for length in &job.lengths {
        let round = strike(&rig, &job.cell, *length, stalls).await?;
        println!("{:<18} {:<28} {}", job.cell.server(), job.cell.fault(), line(&round));
        if round.is_late() {
            let name = format!("{}-{}-{}", job.cell.server(), job.cell.fault(), length.as_secs_f64());
            let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name.replace([' ', ','], "-") + ".log");
            std::fs::write(&file, rig.logs()).context("failed to write the logs of a late round")?;
            println!("late; the nodes' logs are in {}", file.display());
        }
        rounds.push(round);
        if round.full.is_none() {
            bail!("not back");
        }
    }
    let verdict = rig.finish().await?;
    if verdict.above > 0 {
        println!("{}, {}: {verdict:?}", job.cell.server(), job.cell.fault());
    }
    if verdict.arrivals == 0 {
        bail!("nothing was sent");
    }
    Ok(verdict)
}

async fn strike(rig: &Rig, cell: &Cell, length: Duration, stalls: &Stalls) -> anyhow::Result<Round> {
    let outage = cell.strike(rig, length).await?;
    let next = if cell.alone {
        rig.until_next_of_first(outage.healed_us).await?
    } else {
        rig.until_next(outage.healed_us).await
    };
    let full = rig.until_full_pace(outage.healed_us).await;
    // Each share of a cut depends on the machine as well, so the whole round counts.
    let stall = stalls.longest(outage.began_us, now_us());
    let share = cell.alone.then(|| {
        let opened = rig.opened_in(outage.healed_us - outage.began_us);
        rig.arrived(outage.began_us, outage.healed_us) as f64 / opened
    });
    if share.is_some_and(|share| share < 0.95) {
        println!(
            "few refunds in the cut; pauses (begin, length): {:?}",
            pauses(rig, outage.began_us, outage.healed_us)
        );
    }
    Ok(Round { length: cell.lasts().then_some(length), next, full, share, stall })
}

/// The longest pauses between requests in this time, longest first: when each began, and how long it lasted.
fn pauses(rig: &Rig, from_us: i64, until_us: i64) -> Vec<(Duration, Duration)> {
    let mut times: Vec<i64> = rig.stage.bank.look(|ledger| {
        let newest = ledger.all().iter().map(|arrival| arrival.at_us);
        newest.filter(|at| (from_us..until_us).contains(at)).collect()
    });
    times.extend([from_us, until_us]);
    times.sort_unstable();
    let micros = |us: i64| Duration::from_micros(us.unsigned_abs());
    let mut pauses: Vec<_> =
        times.windows(2).map(|pair| (micros(pair[0] - from_us), micros(pair[1] - pair[0]))).collect();
    pauses.sort_by_key(|(_, lasted)| std::cmp::Reverse(*lasted));
    pauses.truncate(5);
    pauses
}

fn line(round: &Round) -> String {
    let seconds =
        |time: Option<Duration>| time.map_or("–".to_owned(), |time| format!("{:.2} s", time.as_secs_f64()));
    format!(
        "{:>8}   next {:>7}   full pace {:>7}   share {:>5}   stall {} ms",
        seconds(round.length),
        seconds(round.next),
        seconds(round.full),
        round.share.map_or("–".to_owned(), |share| format!("{share:.3}")),
        round.stall.as_millis()
    )
}
