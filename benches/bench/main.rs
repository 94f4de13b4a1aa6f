//! What refundd costs and how fast it is, each figure beside what the specification asks of it.
//!
//! `cargo bench --bench bench` measures all groups but the peers and writes `docs/bench.json` and `docs/bench.md`;
//! `-- peers` measures refundd beside other queues and writes those. Other names measure one group and print it:
//! `-- drain`, or of the drains those whose name has `CASE` in it: `CASE="1 node, 64"`. `REPEAT` says how many rounds. Everything is compared with the committed `docs/bench.json`.

mod cost;
mod cpu;
mod drain;
mod enqueue;
mod figure;
mod latency;
mod page;
mod peers;
mod record;
mod share;

use std::process::ExitCode;

use anyhow::{Context, bail};

use figure::Notes;
use peers::Contest;
use record::Record;

/// What is measured together, in the order of the page. What is to come: rows that wait (`waiting`) and a backlog of
/// millions (`backlog`), which take too long for every run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    Drain,
    Enqueue,
    Cost,
    Share,
    Latency,
    Peers,
}

impl Group {
    pub const ALL: [Group; 6] =
        [Group::Drain, Group::Enqueue, Group::Cost, Group::Share, Group::Latency, Group::Peers];

    pub fn name(self) -> &'static str {
        match self {
            Group::Drain => "drain",
            Group::Enqueue => "enqueue",
            Group::Cost => "cost",
            Group::Share => "share",
            Group::Latency => "latency",
            Group::Peers => "peers",
        }
    }

    /// What its part of the page is about.
    pub fn title(self) -> &'static str {
        match self {
            Group::Drain => "From saved to settled, unlimited channel",
            Group::Enqueue => "Saving",
            Group::Cost => "What one refund costs the servers, from saved to settled",
            Group::Share => "How much of a limit is used while a backlog waits",
            Group::Latency => "From saved to the first byte at the bank, idle channel",
            Group::Peers => "Beside other queues, and a bare HTTP client",
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let groups = chosen(&words)?;
    let rounds: usize = match std::env::var("REPEAT") {
        Ok(text) => text.parse().with_context(|| format!("REPEAT={text} is no number"))?,
        Err(_) => 3,
    };
    // One group by name is a look; the two commands of the Makefile are for the documents.
    let is_for_the_documents = words.is_empty() || words == ["peers"];
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

fn chosen(words: &[String]) -> anyhow::Result<Vec<Group>> {
    if words.is_empty() {
        return Ok(Group::ALL.into_iter().filter(|group| *group != Group::Peers).collect());
    }
    let mut groups = Vec::new();
    for word in words {
        match Group::ALL.into_iter().find(|group| group.name() == word) {
            Some(group) => groups.push(group),
            None => bail!("`{word}` is none of {}", Group::ALL.map(Group::name).join(", ")),
        }
    }
    Ok(groups)
}

/// Measures a group so many times, and answers what else is to be said of it.
async fn measure(group: Group, rounds: usize) -> anyhow::Result<(Notes, Option<String>)> {
    let mut notes = Notes::default();
    let contest = if group == Group::Peers { Some(Contest::prepare().await?) } else { None };
    for round in 1..=rounds {
        println!("  round {round} of {rounds}");
        match group {
            Group::Drain => drain::round(&mut notes).await,
            Group::Enqueue => enqueue::round(&mut notes).await,
            Group::Cost => cost::round(&mut notes).await,
            Group::Share => share::round(&mut notes).await,
            Group::Latency => latency::round(&mut notes).await,
            Group::Peers => match &contest {
                Some(contest) => contest.round(&mut notes).await,
                None => Ok(()),
            },
        }
        .with_context(|| format!("failed to measure `{}`", group.name()))?;
    }
    Ok((notes, contest.map(|contest| format!("What each chose: {}.", contest.choices()))))
}
