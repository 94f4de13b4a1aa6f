//! The witness: a client that measures how late the bank's dates are.
//!
//! The kernel dates the arrivals. Dates that are late by different amounts could show bursts that never happened, or
//! hide one. So the witness writes a small request every 10 ms on its own channel, with the time of the write in it.
//! The ledger then shows how much later each was dated. The bank's thread gets real-time priority where that is
//! allowed, so that other work does not delay it.

use std::time::Duration;

use anyhow::Context;
use playground::PretendBank;
use playground::bank::{Ledger, now_us};
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const CHANNEL: &str = "witness";
const EVERY: Duration = Duration::from_millis(10);
/// The name of the bank's thread.
const THREAD: &str = "pretend-bank";

/// How much later the witness's requests were dated than written, in milliseconds.
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

/// A running witness. It stops when this is dropped.
#[derive(Debug)]
pub struct Witness(tokio::task::JoinHandle<()>);

impl Witness {
    pub async fn of(bank: &PretendBank) -> anyhow::Result<Witness> {
        prefer_the_bank();
        let stream = TcpStream::connect(bank.address()).await.context("failed to reach the pretend bank")?;
        stream.set_nodelay(true)?;
        Ok(Witness(tokio::spawn(async move {
            // The witness ends with an error when the bank closes.
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

/// Gives the bank's threads real-time priority, where that is allowed. `Lateness` shows whether it helped.
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
