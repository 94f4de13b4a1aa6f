//! How late the bank's dates are: a client of our own that knows when it wrote.
//!
//! The kernel dates what arrives, and a date that is late by different amounts could show bursts that never
//! were, or hide one. So the witness writes a small request every few milliseconds on a channel of its own and
//! says in it when it did; the ledger then tells how much later each was dated. The bank's thread is given the
//! right to run as soon as it can, so that it answers as one with a machine of its own.

use std::time::Duration;

use anyhow::Context;
use playground::PretendBank;
use playground::bank::Ledger;
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const CHANNEL: &str = "witness";
const EVERY: Duration = Duration::from_millis(10);
/// The name of the bank's thread.
const THREAD: &str = "pretend-bank";

/// How much later than they were written the witness's requests were dated, in milliseconds.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Lateness {
    pub p50: f64,
    pub p99: f64,
    pub worst: f64,
}

impl Lateness {
    pub fn of(ledger: &Ledger) -> Lateness {
        let mut late: Vec<f64> = ledger
            .arrivals(CHANNEL)
            .filter_map(|arrival| {
                Some((arrival.at_us - arrival.refund_ref.parse::<i64>().ok()?) as f64 / 1000.0)
            })
            .collect();
        late.sort_unstable_by(f64::total_cmp);
        let at =
            |percent: usize| late.get(late.len().saturating_sub(1) * percent / 100).copied().unwrap_or(0.0);
        Lateness { p50: at(50), p99: at(99), worst: at(100) }
    }
}

/// A witness at work; it stops when this is dropped.
#[derive(Debug)]
pub struct Witness(tokio::task::JoinHandle<()>);

impl Witness {
    pub async fn of(bank: &PretendBank) -> anyhow::Result<Witness> {
        prefer_the_bank();
        let stream = TcpStream::connect(bank.address()).await.context("failed to reach the pretend bank")?;
        stream.set_nodelay(true)?;
        Ok(Witness(tokio::spawn(async move {
            // The bank closes in the end, and that is the end of the witness, too.
            testify(stream).await.ok();
        })))
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn testify(mut stream: TcpStream) -> std::io::Result<()> {
    let mut answer = [0; 1024];
    loop {
        tokio::time::sleep(EVERY).await;
        let body = format!("{{\"refund_ref\":\"{}\"}}", now_us());
        let request = format!(
            "POST /{CHANNEL}/refunds HTTP/1.1\r\nhost: bank\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await?;
        if stream.read(&mut answer).await? == 0 {
            return Ok(());
        }
    }
}

/// Lets the bank's threads run before all others, where we may say so; the witness tells what it was good for.
fn prefer_the_bank() {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return };
    for thread in threads.flatten() {
        let name = std::fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
        if name.trim_end() == THREAD {
            let mut command = std::process::Command::new("chrt");
            command.args(["--fifo", "--pid", "1"]).arg(thread.file_name());
            command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
            command.status().ok();
        }
    }
}

/// The bank's own clock, which is this machine's.
#[expect(
    clippy::disallowed_methods,
    reason = "compared with the pretend bank's dates alone, which come from this clock"
)]
pub fn now_us() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
