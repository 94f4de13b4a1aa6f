//! The peer: `BullMQ` with its own limiter, three worker processes, and the same pretend bank.
//!
//! Its limiter has the same limit as ours: a number of jobs a second over all workers. It promises nothing about
//! rolling spans. So it is measured, but its results never count as a broken promise.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use futures_util::future::try_join_all;
use playground::bank::now_us;
use playground::redis::RedisOptions;
use playground::{PretendBank, PrivateRedis};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::case::Case;
use super::judge::Measured;
use super::witness::Witness;

const CHANNEL: &str = "bullmq";
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());
const PATIENCE: Duration = Duration::from_secs(30);

/// Measures the peer. Prints the reason and returns `None` if the peer cannot run here.
pub async fn run(case: Case) -> anyhow::Result<Option<Measured>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/peers/bullmq");
    if let Err(reason) = install(&folder).await {
        println!("{case}: skipped: {reason:#}");
        return Ok(None);
    }
    let redis =
        PrivateRedis::start_with(&RedisOptions { tcp: true, open: true, ..RedisOptions::default() }).await?;
    let address = redis.tcp_url().context("the private Redis has no port")?;
    let port = address.rsplit(':').next().unwrap_or_default().to_owned();
    let bank = PretendBank::start_here()?;
    let witness = Witness::of(&bank).await?;
    let endpoint = bank.endpoint(CHANNEL);
    let workers = try_join_all((0..case.nodes).map(|_| worker(&folder, &port, &endpoint, case))).await?;
    let filled = Command::new("node")
        .current_dir(&folder)
        .args(["fill.js", &port, &case.backlog().to_string()])
        .stdout(Stdio::null())
        .status()
        .await?;
    if !filled.success() {
        bail!("fill.js ended with {filled}");
    }
    if !bank.until(PATIENCE, |l| l.arrivals(CHANNEL).next().is_some()).await {
        bail!("nothing arrived within {PATIENCE:?}");
    }
    tokio::time::sleep(Case::WARM).await;
    let from_us = now_us();
    tokio::time::sleep(case.length()).await;
    let to_us = now_us();
    for worker in workers {
        end(worker).await?;
    }
    drop(witness);
    let ledger = bank.close();
    redis.stop().await?;
    Measured::of(case, &ledger, CHANNEL, from_us, to_us).map(Some)
}

/// Fetches the peer's packages, unless they are there already.
async fn install(folder: &PathBuf) -> anyhow::Result<()> {
    let node = Command::new("node").arg("--version").stdout(Stdio::null()).status().await;
    if !node.is_ok_and(|status| status.success()) {
        bail!("there is no node on this machine");
    }
    // Two cases may need the packages at the same time.
    let _guard = ONE_AT_A_TIME.lock().await;
    if folder.join("node_modules/bullmq").exists() {
        return Ok(());
    }
    let installed =
        Command::new("npm").arg("ci").current_dir(folder).output().await.context("failed to run npm")?;
    if !installed.status.success() {
        bail!("npm ci failed: {}", String::from_utf8_lossy(&installed.stderr).trim_end());
    }
    Ok(())
}

/// Starts a worker and waits until it is ready. It ends with this process, because its standard input closes then.
async fn worker(folder: &Path, port: &str, endpoint: &str, case: Case) -> anyhow::Result<Child> {
    let mut child = Command::new("node")
        .current_dir(folder)
        .args(["worker.js", port, endpoint, &case.permits.to_string(), &case.in_flight().to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("failed to start a worker of BullMQ")?;
    let said = child.stdout.take().context("a worker without an output")?;
    let ready = timeout(PATIENCE, BufReader::new(said).lines().next_line()).await;
    match ready.context("a worker of BullMQ did not come up")?? {
        Some(line) if line == "ready" => Ok(child),
        other => bail!("a worker of BullMQ said {other:?}"),
    }
}

async fn end(mut worker: Child) -> anyhow::Result<()> {
    drop(worker.stdin.take());
    if timeout(PATIENCE, worker.wait()).await.is_err() {
        worker.kill().await?;
    }
    Ok(())
}
