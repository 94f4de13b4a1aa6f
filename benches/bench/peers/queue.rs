//! The peers: how each queue is installed, started and run.

use std::fmt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use playground::PretendBank;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::Choice;
use super::books::{Books, PATIENCE};
use crate::drain::Drained;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    Apalis,
    GraphileWorker,
    PgBoss,
    Bullmq,
}

/// The result of one run of a peer.
pub struct Ran {
    pub drained: Drained,
    /// Rows a second, saved with the peer's own bulk call.
    pub enqueued: f64,
}

impl Queue {
    pub const ALL: [Queue; 4] = [Queue::Apalis, Queue::GraphileWorker, Queue::PgBoss, Queue::Bullmq];

    pub fn name(self) -> &'static str {
        match self {
            Queue::Apalis => "apalis-postgres",
            Queue::GraphileWorker => "graphile-worker",
            Queue::PgBoss => "pg-boss",
            Queue::Bullmq => "BullMQ",
        }
    }

    /// Whether a finished job is on the disk before the peer reports it.
    pub fn is_durable(self) -> bool {
        self != Queue::Bullmq
    }

    fn folder(self) -> PathBuf {
        let peers = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tools/peers");
        peers.join(if self == Queue::Apalis { "apalis" } else { "queues" })
    }

    /// Builds the peer, or fetches its packages, unless that is done already.
    pub async fn install(self) -> anyhow::Result<()> {
        let mut command = match self {
            Queue::Apalis => {
                let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
                cargo.args(["build", "--release", "--locked", "--target-dir"]).arg(built());
                cargo
            }
            _ if self.folder().join("node_modules/.bin/node").exists() => return Ok(()),
            _ => {
                let mut npm = Command::new("npm");
                npm.args(["ci", "--no-audit", "--no-fund"]);
                npm
            }
        };
        let output =
            command.current_dir(self.folder()).output().await.context("failed to start its installer")?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr).trim_end());
        }
        Ok(())
    }

    /// Starts an empty store for its jobs.
    async fn books(self) -> anyhow::Result<Books> {
        match self {
            Queue::Apalis => Books::postgres("select count(*) from apalis.jobs where status = 'Done'").await,
            // Graphile Worker deletes finished jobs.
            Queue::GraphileWorker => {
                Books::postgres("select $1 - count(*) from graphile_worker._private_jobs").await
            }
            Queue::PgBoss => {
                Books::postgres("select count(*) from pgboss.job where state = 'completed'").await
            }
            Queue::Bullmq => Books::redis().await,
        }
    }

    /// Saves the jobs, and then starts the workers. Fails if a job was sent twice.
    pub async fn run(self, choice: Choice, jobs: u32) -> anyhow::Result<Ran> {
        let books = self.books().await?;
        let bank = PretendBank::start_here()?;
        let mut workers = Vec::new();
        let mut enqueued = 0.0;
        // The first process makes the schema and saves the jobs. All workers of apalis are in one process.
        let processes = if self == Queue::Apalis { 1 } else { choice.workers };
        for nth in 0..processes {
            let save = if nth == 0 { jobs } else { 0 };
            let mut worker = Worker::start(self, &books, &bank, choice, processes, save)?;
            let saved = worker.saved().await?;
            if nth == 0 {
                enqueued = f64::from(jobs) / saved.as_secs_f64();
            }
            workers.push(worker);
        }
        let watch =
            workers.iter().fold(books.watch(), |watch, worker| watch.process("workers", worker.pid()));
        let spent = watch.read();
        for worker in &mut workers {
            worker.go().await?;
        }
        if !bank.until(PATIENCE, |l| !l.all().is_empty()).await {
            bail!("nothing arrived within {PATIENCE:?}");
        }
        let began = Instant::now();
        if !bank.until(PATIENCE, |l| l.all().len() >= jobs as usize).await {
            bail!("{} of {jobs} arrived within {PATIENCE:?}", bank.look(|l| l.all().len()));
        }
        books.until_done(jobs).await?;
        let took = began.elapsed();
        let spent = watch.since(&spent);
        for worker in workers {
            worker.end().await?;
        }
        let repeated = bank.close().repeated().len();
        if repeated > 0 {
            bail!("{repeated} jobs were sent twice");
        }
        books.close().await?;
        Ok(Ran { drained: Drained { refunds: jobs, took, spent, redis_calls: 0 }, enqueued })
    }
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The folder of the crate's build. It is next to ours, so that it is kept.
fn built() -> PathBuf {
    let ours = crate::program();
    ours.parent().and_then(std::path::Path::parent).unwrap_or(&ours).join("peers")
}

/// One process of a peer. It ends with this process, because its standard input closes then.
struct Worker {
    child: Child,
    asks: ChildStdin,
    says: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    fn start(
        queue: Queue,
        books: &Books,
        bank: &PretendBank,
        choice: Choice,
        processes: u32,
        save: u32,
    ) -> anyhow::Result<Worker> {
        let folder = queue.folder();
        let in_flight = (choice.in_flight / processes).to_string();
        let node = |script: &str| {
            let mut node = Command::new(folder.join("node_modules/.bin/node"));
            node.arg(script);
            node
        };
        let mut command = match queue {
            Queue::Apalis => Command::new(built().join("release/refundd-peer-apalis")),
            Queue::GraphileWorker => node("graphile-worker.js"),
            Queue::PgBoss => node("pg-boss.js"),
            Queue::Bullmq => node("bullmq.js"),
        };
        command.args([&books.address()?, &bank.endpoint("acme"), &in_flight, &save.to_string()]);
        if queue == Queue::Apalis {
            command.args([choice.workers.to_string(), in_flight]);
        }
        let mut child = command
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("failed to start {queue}"))?;
        let asks = child.stdin.take().context("a worker without an input")?;
        let says = BufReader::new(child.stdout.take().context("a worker without an output")?).lines();
        Ok(Worker { child, asks, says })
    }

    fn pid(&self) -> u32 {
        self.child.id().unwrap_or_default()
    }

    /// Waits until the process has saved its jobs, and returns the time that it reports.
    async fn saved(&mut self) -> anyhow::Result<Duration> {
        let line = timeout(PATIENCE, self.says.next_line()).await.context("it does not come up")??;
        let line = line.context("it ended at once")?;
        let ms: f64 = line.strip_prefix("saved ").with_context(|| format!("it said `{line}`"))?.parse()?;
        Ok(Duration::from_secs_f64(ms.max(0.001) / 1000.0))
    }

    async fn go(&mut self) -> anyhow::Result<()> {
        Ok(self.asks.write_all(b"go\n").await?)
    }

    async fn end(mut self) -> anyhow::Result<()> {
        drop(self.asks);
        if timeout(Duration::from_secs(10), self.child.wait()).await.is_err() {
            self.child.kill().await?;
        }
        Ok(())
    }
}
