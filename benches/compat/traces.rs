//! A collector of OpenTelemetry that nobody here wrote: Rotel, which prints each span that it read.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use playground::{Front, place};

use crate::cache;
use crate::drain::{Channel, finish, nodes, save, sections, stage};
use crate::found::Found;

/// One Python package carries the program.
const VERSION: &str = "0.0.1a15";

/// Each send must come to the collector as one span of its own.
pub async fn run() -> anyhow::Result<Found> {
    let program = cache::wheel("rotel", VERSION, "rotel-agent")?;
    let collector = Front::start(|_, port| {
        let mut command = Command::new(program.first().context("no program")?);
        command.args(["start", "--exporter", "blackhole", "--disable-batching", "--debug-log", "traces"]);
        command.args(["--debug-log-verbosity", "detailed"]);
        command.arg("--otlp-http-endpoint").arg(format!("127.0.0.1:{port}"));
        command.arg("--otlp-grpc-endpoint").arg(format!("127.0.0.1:{}", place::free_port()?));
        Ok(command)
    })
    .await?;
    let (stage, channels) = (stage().await?, [Channel::usual()]);
    let text = format!(
        "[telemetry]\notlp = \"http://{}\"\n{}",
        collector.address,
        sections(&channels, "http://{bank}")
    );
    let nodes = nodes(&stage, &text, &stage.addresses()).await?;
    save(&stage.database_url(), &channels).await?;
    let outcome = finish(&stage, &channels, nodes, &stage.database_url()).await?;
    let sent = stage.bank.ledger().all().len();
    let began = Instant::now();
    let mut spans = successes(&collector.log());
    while spans.len() < sent && began.elapsed() < Duration::from_secs(10) {
        tokio::time::sleep(Duration::from_millis(100)).await;
        spans = successes(&collector.log());
    }
    ensure!(spans.len() == sent, "the collector read {} spans of {sent} sends", spans.len());
    stage.strike().await?;
    Ok(Found {
        version: format!("Rotel {VERSION}"),
        outcome: format!("{outcome}; it read one span for each send that was executed"),
    })
}

/// The numbers of the spans of sends that the bank executed, as the collector prints them. A send whose permit lapsed
/// has a span, too.
fn successes(log: &str) -> BTreeSet<String> {
    let mut spans = BTreeSet::new();
    let mut id = "";
    for line in log.lines().map(str::trim) {
        if let Some((_, found)) = line.split_once(": ").filter(|(name, _)| name.trim() == "ID") {
            id = found;
        }
        if line == "-> refundd.outcome: Str(succeeded)" {
            spans.insert(id.to_owned());
        }
    }
    spans
}
