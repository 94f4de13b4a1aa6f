//! Reads and writes `docs/bench.json`: all figures, the machine, and the versions of the servers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::Group;
use crate::figure::Figure;

const FILE: &str = "docs/bench.json";

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Record {
    pub groups: BTreeMap<String, Measured>,
}

/// The figures of one group. Groups may be measured on different days and machines.
#[derive(Debug, Serialize, Deserialize)]
pub struct Measured {
    pub machine: String,
    pub rounds: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remark: Option<String>,
    pub figures: Vec<Figure>,
}

impl Record {
    /// The record on disk, with the earlier figures of other groups. Empty if there is none.
    pub fn on_disk() -> Record {
        let text = std::fs::read_to_string(root().join(FILE)).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// The record of the last commit; `None` without one, or without git.
    pub fn committed() -> Option<Record> {
        let show = ["show", &format!("HEAD:./{FILE}")].map(str::to_owned);
        let shown = Command::new("git").current_dir(root()).args(show).output().ok()?;
        shown.status.success().then(|| serde_json::from_slice(&shown.stdout).ok())?
    }

    pub fn replace(&mut self, group: Group, rounds: usize, figures: Vec<Figure>, remark: Option<String>) {
        let measured = Measured { machine: machine(), rounds, remark, figures };
        self.groups.insert(group.name().to_owned(), measured);
    }

    pub fn of(&self, group: Group) -> Option<&Measured> {
        self.groups.get(group.name())
    }

    pub fn write(&self) -> anyhow::Result<()> {
        playground::record::write(&root().join(FILE), self)
    }
}

impl Measured {
    pub fn figure(&self, what: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.what == what)
    }
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

/// The machine in general terms, and the versions that the servers report.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kilobytes: f64 = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok())
        .unwrap_or(0.0);
    let servers =
        [playground::find::postgres().ok().map(|bin| bin.join("postgres")), playground::find::redis().ok()];
    let servers = servers.into_iter().flatten().filter_map(|program| version(&program)).collect::<Vec<_>>();
    format!(
        "{cores} {} cores, {:.0} GiB of memory, {}; {}",
        std::env::consts::ARCH,
        kilobytes / 1024.0 / 1024.0,
        std::env::consts::OS,
        servers.join(", "),
    )
}

/// `PostgreSQL 15.3`, `Redis 7.0.15`.
fn version(program: &Path) -> Option<String> {
    let said = Command::new(program).arg("--version").output().ok()?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let number = said
        .split_whitespace()
        .map(|part| part.trim_start_matches("v="))
        .find(|part| part.starts_with(|first: char| first.is_ascii_digit()) && part.contains('.'))?;
    let name = if said.contains("PostgreSQL") { "Postgres" } else { "Redis" };
    Some(format!("{name} {number}"))
}
