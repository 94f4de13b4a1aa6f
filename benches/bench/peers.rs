//! Compares refundd with other queues that do the same work, and with a bare HTTP client, in one run.
//!
//! Each queue has 20,000 saved jobs. Each job is one POST of the same body to the same pretend bank, which answers at
//! once. The time goes from the first request at the bank until the queue's own store says that all jobs are done.
//! All have the same number of requests in progress, 64 or 256. For each number and queue a short first round chooses
//! whether one worker or two are faster.

mod books;
mod ceiling;
mod queue;

use std::fmt;

use anyhow::Context;

use crate::drain::{Case, Drained, Rig, note_cpu};
use crate::figure::{Better, Notes};
use queue::Queue;

const JOBS: u32 = 20_000;
const JOBS_TO_CHOOSE: u32 = 6_000;
/// The requests in progress, and what refundd is to reach beside the fastest durable peer.
const IN_FLIGHT: [(u32, f64); 2] = [(64, 1.2), (256, 1.5)];
const WORKERS: [u32; 2] = [1, 2];

/// The requests in progress and the workers of one queue.
#[derive(Debug, Clone, Copy)]
pub struct Choice {
    pub in_flight: u32,
    pub workers: u32,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let workers = if self.workers == 1 { "one worker" } else { "two workers" };
        write!(f, "{} in flight, {workers}", self.in_flight)
    }
}

/// refundd and the peers that can run here.
pub struct Contest {
    matches: Vec<Match>,
}

/// All with the same number of requests in progress, each with its faster number of workers.
struct Match {
    in_flight: u32,
    reach: f64,
    refundd: Choice,
    queues: Vec<(Queue, Choice)>,
}

impl Contest {
    pub async fn prepare() -> anyhow::Result<Contest> {
        let mut installed = Vec::new();
        for queue in Queue::ALL {
            match queue.install().await {
                Ok(()) => installed.push(queue),
                Err(reason) => println!("  {queue}: skipped: {reason:#}"),
            }
        }
        let mut matches = Vec::new();
        for (in_flight, reach) in IN_FLIGHT {
            let mut queues = Vec::new();
            for &queue in &installed {
                queues.push((queue, choose(Some(queue), in_flight).await?));
            }
            matches.push(Match { in_flight, reach, refundd: choose(None, in_flight).await?, queues });
        }
        Ok(Contest { matches })
    }

    pub async fn round(&self, notes: &mut Notes) -> anyhow::Result<()> {
        let ceiling = ceiling::rate(JOBS).await?;
        let what = format!("bare HTTP client, {} in flight", ceiling::IN_FLIGHT);
        notes.add(what, "requests/s", Better::Neither, ceiling);
        for one in &self.matches {
            one.round(ceiling, notes).await?;
        }
        Ok(())
    }

    /// All choices, for the page.
    pub fn choices(&self) -> String {
        let choices = self.matches.iter().flat_map(|one| {
            let queues = one.queues.iter().map(|(queue, choice)| format!("{queue}: {choice}"));
            std::iter::once(format!("refundd: {}", one.refundd).replace("worker", "node")).chain(queues)
        });
        choices.collect::<Vec<_>>().join("; ")
    }
}

impl Match {
    async fn round(&self, ceiling: f64, notes: &mut Notes) -> anyhow::Result<()> {
        let at = format!("{} in flight", self.in_flight);
        let drained = refundd(self.refundd, JOBS).await?;
        let ours = drained.rate();
        notes.add(format!("{at}: refundd: drained"), "refunds/s", Better::More, ours);
        note_cpu(notes, &format!("{at}: refundd"), &drained);
        let mut fastest: f64 = 0.0;
        for (queue, choice) in &self.queues {
            let ran = queue.run(*choice, JOBS).await.with_context(|| format!("{queue}, {choice}"))?;
            notes.add(format!("{at}: {queue}: drained"), "jobs/s", Better::Neither, ran.drained.rate());
            notes.add(format!("{at}: {queue}: enqueued in bulk"), "rows/s", Better::Neither, ran.enqueued);
            note_cpu(notes, &format!("{at}: {queue}"), &ran.drained);
            notes.add(format!("{at}: refundd ÷ {queue}"), "×", Better::More, ours / ran.drained.rate());
            if queue.is_durable() {
                fastest = fastest.max(ran.drained.rate());
            }
        }
        if fastest > 0.0 {
            let what = format!("{at}: refundd ÷ the fastest durable peer");
            notes.add(what, "×", Better::More, ours / fastest).at_least(self.reach);
        }
        let what = format!("{at}: refundd ÷ bare HTTP client");
        notes.add(what, "×", Better::More, ours / ceiling);
        Ok(())
    }
}

/// The faster number of workers.
async fn choose(queue: Option<Queue>, in_flight: u32) -> anyhow::Result<Choice> {
    let mut best: Option<(f64, Choice)> = None;
    for workers in WORKERS {
        let choice = Choice { in_flight, workers };
        let rate = match queue {
            Some(queue) => queue.run(choice, JOBS_TO_CHOOSE).await.map(|ran| ran.drained.rate()),
            None => refundd(choice, JOBS_TO_CHOOSE).await.map(|drained| drained.rate()),
        };
        let name = queue.map_or("refundd", Queue::name);
        let rate = rate.with_context(|| format!("{name}, {choice}"))?;
        println!("  to choose: {name}, {choice}: {rate:.0}/s");
        if best.is_none_or(|(best, _)| rate > best) {
            best = Some((rate, choice));
        }
    }
    Ok(best.context("nothing to choose from")?.1)
}

/// Drains with refundd. A worker is a node, and the requests in progress are divided among the nodes.
async fn refundd(choice: Choice, jobs: u32) -> anyhow::Result<Drained> {
    let rig = Rig::set(Case::of(choice.workers as usize, choice.in_flight / choice.workers, jobs)).await?;
    let drained = rig.drain().await?;
    rig.strike().await?;
    Ok(drained)
}
