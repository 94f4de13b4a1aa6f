//! Compares refundd with other queues that do the same work, and with a bare HTTP client, in one run.
//!
//! Each queue has 20,000 saved jobs. Each job is one POST of the same body to the same pretend bank, which answers at
//! once. The time goes from the first request at the bank until the queue's own store says that all jobs are done.
//! For each queue a short first round chooses the fastest number of requests in progress and of workers, from the
//! same few.

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
const IN_FLIGHT: [u32; 3] = [64, 128, 256];
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

/// refundd and the peers that can run here, each with its fastest choice.
pub struct Contest {
    refundd: Choice,
    queues: Vec<(Queue, Choice)>,
}

impl Contest {
    pub async fn prepare() -> anyhow::Result<Contest> {
        let mut chosen = Vec::new();
        for queue in Queue::ALL {
            if let Err(reason) = queue.install().await {
                println!("  {queue}: skipped: {reason:#}");
                continue;
            }
            chosen.push((queue, choose(Some(queue)).await?));
        }
        Ok(Contest { refundd: choose(None).await?, queues: chosen })
    }

    pub async fn round(&self, notes: &mut Notes) -> anyhow::Result<()> {
        let ceiling = ceiling::rate(JOBS).await?;
        let what = format!("bare HTTP client, {} in flight", ceiling::IN_FLIGHT);
        notes.add(what, "requests/s", Better::Neither, ceiling);
        let drained = refundd(self.refundd, JOBS).await?;
        let ours = drained.rate();
        notes.add("refundd: drained", "refunds/s", Better::More, ours);
        note_cpu(notes, "refundd", &drained);
        let mut fastest: f64 = 0.0;
        for (queue, choice) in &self.queues {
            let ran = queue.run(*choice, JOBS).await.with_context(|| format!("{queue}, {choice}"))?;
            notes.add(format!("{queue}: drained"), "jobs/s", Better::Neither, ran.drained.rate());
            notes.add(format!("{queue}: enqueued in bulk"), "rows/s", Better::Neither, ran.enqueued);
            note_cpu(notes, &queue.to_string(), &ran.drained);
            notes.add(format!("refundd ÷ {queue}"), "×", Better::More, ours / ran.drained.rate());
            if queue.is_durable() {
                fastest = fastest.max(ran.drained.rate());
            }
        }
        if fastest > 0.0 {
            notes.add("refundd ÷ the fastest durable peer", "×", Better::More, ours / fastest).at_least(2.0);
        }
        notes.add("refundd ÷ bare HTTP client", "×", Better::More, ours / ceiling).at_least(0.5);
        Ok(())
    }

    /// All choices, for the page.
    pub fn choices(&self) -> String {
        let queues = self.queues.iter().map(|(queue, choice)| format!("{queue}: {choice}"));
        let ours = std::iter::once(format!("refundd: {}", self.refundd).replace("worker", "node"));
        ours.chain(queues).collect::<Vec<_>>().join("; ")
    }
}

async fn choose(queue: Option<Queue>) -> anyhow::Result<Choice> {
    let mut best: Option<(f64, Choice)> = None;
    for in_flight in IN_FLIGHT {
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
