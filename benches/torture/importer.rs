//! A producer that saves refunds by `refundd import`, from CSV and NDJSON files. It is killed in the middle, and it imports a file
//! until the command says that every line is saved. Sometimes it imports a file once more, which must save nothing.

use std::fmt::Write;
use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use playground::place::write_private;
use serde_json::json;
use tempfile::TempDir;
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use crate::channels::Channel;
use crate::producer::{self, Acknowledged, CURRENCY, Offered, payment_ref};
use crate::world::{NODES, World, now_us};

const LINES: usize = 20;
/// How often an import is repeated before its producer gives up.
const ATTEMPTS: usize = 50;

/// Imports files until `enough`, and returns the acknowledged refunds.
pub async fn by_import(
    world: Arc<World>,
    mut dice: fastrand::Rng,
    enough: CancellationToken,
) -> anyhow::Result<Acknowledged> {
    let folder = TempDir::new()?;
    let quick = producer::quick();
    let mut acknowledged = Acknowledged::default();
    for nth in 0_usize.. {
        tokio::select! {
            () = enough.cancelled() => break,
            () = tokio::time::sleep(Duration::from_millis(dice.u64(2_000..5_000))) => {}
        }
        let refunds: Vec<(String, &'static Channel, i64)> = (0..LINES)
            .map(|line| {
                let channel = quick[dice.usize(..quick.len())];
                (format!("I-{nth}-{line}"), channel, dice.i64(1..100_000))
            })
            .collect();
        let (ending, text) = if dice.bool() { ("csv", csv(&refunds)) } else { ("ndjson", ndjson(&refunds)) };
        let file = folder.path().join(format!("{nth}.{ending}"));
        std::fs::write(&file, text)?;
        let mut is_saved = false;
        for _ in 0..ATTEMPTS {
            let patience = (dice.u8(..4) == 0).then(|| Duration::from_millis(dice.u64(..300)));
            let said = import(&world, &mut dice, folder.path(), &file, patience).await?;
            if said.is_some_and(|output| output.status.success()) {
                is_saved = true;
                break;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        if is_saved && dice.u8(..3) == 0 {
            let from_us = now_us();
            let again = import(&world, &mut dice, folder.path(), &file, None).await?;
            if let Some(output) = again.filter(|output| output.status.success()) {
                let said = String::from_utf8_lossy(&output.stdout);
                if !said.starts_with("0 saved") {
                    world.record_fault(format!("VIOLATION a file was imported again: {said}"), from_us);
                }
            }
        }
        std::fs::remove_file(file)?;
        acknowledged.doubtful += if is_saved { 0 } else { LINES };
        for (name, channel, amount_minor) in refunds {
            let offered = Offered { channel, amount_minor, deadline_us: None, is_saved };
            acknowledged.offered.insert(name, offered);
        }
    }
    Ok(acknowledged)
}

fn csv(refunds: &[(String, &Channel, i64)]) -> String {
    let mut text = "refund_ref,channel,payment_ref,amount_minor,currency\n".to_owned();
    for (name, channel, amount_minor) in refunds {
        let _ = writeln!(text, "{name},{},{},{amount_minor},{CURRENCY}", channel.name, payment_ref(name));
    }
    text
}

fn ndjson(refunds: &[(String, &Channel, i64)]) -> String {
    let lines = refunds.iter().map(|(name, channel, amount_minor)| {
        let line = json!({
            "refund_ref": name, "channel": channel.name, "payment_ref": payment_ref(name),
            "amount_minor": amount_minor, "currency": CURRENCY,
        });
        format!("{line}\n")
    });
    lines.collect()
}

/// Runs `refundd import` with the configuration of any node, so through that node's way to Postgres. Kills the command
/// after `patience`, and then returns nothing.
async fn import(
    world: &World,
    dice: &mut fastrand::Rng,
    folder: &Path,
    file: &Path,
    patience: Option<Duration>,
) -> anyhow::Result<Option<Output>> {
    let config = folder.join("import.toml");
    write_private(&config, &world.file_of(dice.usize(..NODES.len())))?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_refundd"));
    command.arg("--config").arg(config).arg("import").arg(file).stdin(Stdio::null()).kill_on_drop(true);
    let output = command.output();
    let Some(patience) = patience else { return Ok(Some(output.await?)) };
    Ok(tokio::time::timeout(patience, output).await.ok().transpose()?)
}
