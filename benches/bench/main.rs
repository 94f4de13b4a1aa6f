//! Measures how fast refundd is and what it costs, and compares each figure with the specification.
//!
//! `cargo bench --bench bench` measures all groups that need no name, and writes `docs/bench.json` and
//! `docs/bench.md`. A name measures one group. `-- peers` (refundd beside other queues), `-- waiting` and
//! `-- backlog` (the cost of waiting refunds) take minutes. They write the documents, unless `CASE` or `PROGRAM` is
//! set. The other groups by name only print: `-- drain`.
//!
//! `CASE="1 node, 64"` chooses the cases of a group whose name contains that text. `REPEAT` is the number of rounds,
//! and `PROGRAM` is another build of refundd to measure. All figures are compared with the committed
//! `docs/bench.json`.

mod backlog;
mod changes;
mod cost;
mod cpu;
mod drain;
mod enqueue;
mod figure;
mod latency;
mod meter;
mod page;
mod peers;
mod receiver;
mod record;
mod share;
mod waiting;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};

use backlog::Backlogs;
use figure::Notes;
use peers::Contest;
use record::Record;

/// Figures that are measured together, in the order of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    Drain,
    Enqueue,
    Cost,
    Share,
    Latency,
    Changes,
    Waiting,
    Backlog,
    Peers,
}

impl Group {
    pub const ALL: [Group; 9] = [
        Group::Drain,
        Group::Enqueue,
        Group::Cost,
        Group::Share,
        Group::Latency,
        Group::Changes,
        Group::Waiting,
        Group::Backlog,
        Group::Peers,
    ];

    /// Whether the group takes too long, or needs too much, for a run without names.
    fn is_by_name_only(self) -> bool {
        matches!(self, Group::Waiting | Group::Backlog | Group::Peers)
    }

    pub fn name(self) -> &'static str {
        match self {
            Group::Drain => "drain",
            Group::Enqueue => "enqueue",
            Group::Cost => "cost",
            Group::Share => "share",
            Group::Latency => "latency",
            Group::Changes => "changes",
            Group::Waiting => "waiting",
            Group::Backlog => "backlog",
            Group::Peers => "peers",
        }
    }

    /// The title of its part of the page.
    pub fn title(self) -> &'static str {
        match self {
            Group::Drain => "From saved to settled, unlimited channel",
            Group::Enqueue => "Saving",
            Group::Cost => "What one refund costs the servers, from saved to settled",
            Group::Share => "How much of a limit is used while a backlog waits",
            Group::Latency => "From saved to the first byte at the bank, idle channel",
            Group::Changes => "What it costs that programs follow refunds",
            Group::Waiting => "What it costs that channels wait",
            Group::Backlog => "What it costs that millions of rows wait, or are done",
            Group::Peers => "Beside other queues, and a bare HTTP client",
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let groups = chosen(&arguments)?;
    let rounds: usize = match std::env::var("REPEAT") {
        Ok(text) => text.parse().with_context(|| format!("REPEAT={text} is no number"))?,
        Err(_) => 3,
    };
    // A group by name is only printed, unless it can be measured by name only.
    let is_whole = std::env::var_os("CASE").is_none() && std::env::var_os("PROGRAM").is_none();
    let is_for_the_documents =
        arguments.is_empty() || is_whole && groups.iter().all(|group| group.is_by_name_only());
    let before = Record::committed();
    let mut record = Record::on_disk();
    for group in groups {
        println!("{}", group.name());
        let (notes, remark) = measure(group, rounds.max(1)).await?;
        record.replace(group, rounds, notes.0, remark);
        println!("\n{}", page::part(group, &record, before.as_ref()));
    }
    if is_for_the_documents {
        record.write()?;
        page::write(&record)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The path of the refundd to measure: this build, or the one in `PROGRAM`.
fn program() -> PathBuf {
    std::env::var_os("PROGRAM").map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_refundd")), PathBuf::from)
}

fn chosen(arguments: &[String]) -> anyhow::Result<Vec<Group>> {
    if arguments.is_empty() {
        return Ok(Group::ALL.into_iter().filter(|group| !group.is_by_name_only()).collect());
    }
    let mut groups = Vec::new();
    for argument in arguments {
        match Group::ALL.into_iter().find(|group| group.name() == argument) {
            Some(group) => groups.push(group),
            None => bail!("`{argument}` is none of {}", Group::ALL.map(Group::name).join(", ")),
        }
    }
    Ok(groups)
}

/// Measures a group for `rounds` rounds. Returns its figures, and a remark for the page if there is one.
async fn measure(group: Group, rounds: usize) -> anyhow::Result<(Notes, Option<String>)> {
    let mut notes = Notes::default();
    let contest = if group == Group::Peers { Some(Contest::prepare().await?) } else { None };
    let mut backlogs = if group == Group::Backlog { Some(Backlogs::prepare().await?) } else { None };
    for round in 1..=rounds {
        println!("  round {round} of {rounds}");
        match group {
            Group::Drain => drain::round(&mut notes).await,
            Group::Enqueue => enqueue::round(&mut notes).await,
            Group::Cost => cost::round(&mut notes).await,
            Group::Share => share::round(&mut notes).await,
            Group::Latency => latency::round(&mut notes).await,
            Group::Changes => changes::round(&mut notes).await,
            Group::Waiting => waiting::round(&mut notes).await,
            Group::Backlog => match &mut backlogs {
                Some(backlogs) => backlogs.round(&mut notes).await,
                None => Ok(()),
            },
            Group::Peers => match &contest {
                Some(contest) => contest.round(&mut notes).await,
                None => Ok(()),
            },
        }
        .with_context(|| format!("failed to measure `{}`", group.name()))?;
    }
    if let Some(backlogs) = backlogs {
        return Ok((notes, Some(backlogs.finish().await?)));
    }
    Ok((notes, contest.map(|contest| format!("What each chose: {}.", contest.choices()))))
}
