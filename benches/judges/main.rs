//! Tests every algorithm in front of independent limiters, at exactly their limit: nginx's `limit_req` with and
//! without burst, and `HAProxy`'s `http_req_rate`. These limiters are the judges.
//!
//! `cargo bench --bench judges` runs three nodes with all settings at each judge in turn, and writes a table into
//! `docs/figures.md`. `SECONDS=60` shortens each judge, and `ONLY="nginx paced-20"` chooses judges and settings. With
//! either it only prints. Refusals are counted in the judges' own logs. It needs `tools/install-servers judges`.

mod cell;
mod judge;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::bail;
use cell::{RATE, SETTINGS, Setting};
use futures_util::future::try_join_all;
use judge::{Judge, Kind};
use playground::load::save_in;
use playground::section;
use playground::stage::{ANY, NodeProcess, Stage};
use sqlx::{Connection, PgConnection};

const NODES: [&str; 3] = ["a", "b", "c"];
/// The time before the share is measured. Refusals are counted from the first request on.
const WARM: Duration = Duration::from_secs(5);

/// The result of one setting at one judge.
struct Measured {
    kind: Kind,
    setting: Setting,
    seconds: f64,
    /// Requests in the whole run.
    requests: u64,
    refused: u64,
    /// Requests that the bank executed while the share was measured.
    executed: u64,
}

impl Measured {
    fn executed_a_second(&self) -> f64 {
        self.executed as f64 / self.seconds
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let only = std::env::var("ONLY").unwrap_or_default();
    let arguments: Vec<&str> = only.split([' ', ',']).filter(|argument| !argument.is_empty()).collect();
    let known = |argument: &&str| {
        SETTINGS.iter().any(|setting| setting.name == *argument)
            || Kind::ALL.iter().any(|kind| kind.name() == *argument)
    };
    if let Some(argument) = arguments.iter().find(|argument| !known(argument)) {
        bail!("`{argument}` is no judge and no setting");
    }
    let chosen = |name: &str, of: &[&str]| {
        !arguments.iter().any(|argument| of.contains(argument)) || arguments.contains(&name)
    };
    let (kinds, settings) = (Kind::ALL.map(Kind::name), SETTINGS.iter().map(|s| s.name).collect::<Vec<_>>());
    let seconds = playground::variable::number("SECONDS")?;
    // Twenty-one minutes in all.
    let length = Duration::from_secs(seconds.unwrap_or(420));
    let mut measured = Vec::new();
    for kind in Kind::ALL.into_iter().filter(|kind| chosen(kind.name(), &kinds)) {
        let settings: Vec<Setting> =
            SETTINGS.iter().filter(|setting| chosen(setting.name, &settings)).copied().collect();
        for one in before(kind, &settings, length).await? {
            println!(
                "{:<12} {:<12} {:>6} requests, {:>5} refused, {:>6.2} executed a second, {:.1} % of the limit",
                kind.name(),
                one.setting.name,
                one.requests,
                one.refused,
                one.executed_a_second(),
                one.executed_a_second() / f64::from(RATE) * 100.0
            );
            measured.push(one);
        }
    }
    let table = markdown(&measured);
    println!("\n{table}");
    if seconds.is_none() && arguments.is_empty() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/figures.md");
        section::replace(&page, "judges", &table)?;
    }
    let silent = measured.iter().filter(|one| one.requests == 0).count();
    Ok(if silent == 0 && !measured.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs all settings side by side in front of one judge.
async fn before(kind: Kind, settings: &[Setting], length: Duration) -> anyhow::Result<Vec<Measured>> {
    let stage = Stage::set(PathBuf::from(env!("CARGO_BIN_EXE_refundd")), ANY).await?;
    let judge = Judge::start(kind, stage.bank.address()).await?;
    let channels: String = settings
        .iter()
        .map(|setting| {
            setting.section(setting.name, &format!("http://{}/{}/refunds", judge.front.address, setting.name))
        })
        .collect();
    let nodes = try_join_all(NODES.iter().map(|name| stage.node(name, ANY, &channels))).await?;
    let mut database = PgConnection::connect(&stage.database_url()).await?;
    let backlog = u32::try_from((length + WARM + WARM).as_secs() * u64::from(RATE) * 11 / 10 + 500)?;
    for setting in settings {
        save_in(&mut database, setting.name, 1..=backlog).await?;
    }
    tokio::time::sleep(WARM).await;
    let (from, began) = (judge.counts(), Instant::now());
    tokio::time::sleep(length).await;
    let (to, seconds) = (judge.counts(), began.elapsed().as_secs_f64());
    NodeProcess::stop_all(nodes).await?;
    database.close().await?;
    drop(judge);
    stage.strike().await?;
    let of = |counts: &std::collections::HashMap<String, (u64, u64)>, setting: &Setting| {
        counts.get(setting.name).copied().unwrap_or_default()
    };
    Ok(settings
        .iter()
        .map(|setting| {
            let ((before, refused_before), (after, refused_after)) = (of(&from, setting), of(&to, setting));
            Measured {
                kind,
                setting: *setting,
                seconds,
                requests: after,
                refused: refused_after,
                executed: (after - refused_after) - (before - refused_before),
            }
        })
        .collect())
}

/// A row for each setting, a column for each judge.
fn markdown(all: &[Measured]) -> String {
    let mut table = String::from(
        "| setting | nginx, no burst | nginx, burst 20 | HAProxy, a second |\n| --- | ---: | ---: | ---: |\n",
    );
    for setting in SETTINGS {
        let _ = write!(table, "| {} |", setting.shown);
        for kind in Kind::ALL {
            let _ = match all.iter().find(|one| (one.kind, one.setting) == (kind, *setting)) {
                None => write!(table, " – |"),
                Some(one) => write!(
                    table,
                    " {} of {}, {:.1} % |",
                    one.refused,
                    one.requests,
                    one.executed_a_second() / f64::from(RATE) * 100.0
                ),
            };
        }
        table.push('\n');
    }
    table
}
