//! Measures what waiting channels cost: channels with a backlog that wait for permits, and idle channels.

use std::fmt::Write;
use std::time::Duration;

use anyhow::Context;
use playground::load::{ANY, end};
use playground::stage::Stage;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::figure::{Better, Notes};
use crate::{meter, program};

const PER: Duration = Duration::from_secs(1);

/// Channels of one permit a second each.
#[derive(Debug, Clone, Copy)]
struct Case {
    channels: usize,
    nodes: usize,
    /// Refunds that wait in each channel.
    backlog: u32,
    /// The time until all nodes have their connections and their reservations.
    warm: Duration,
    length: Duration,
    /// Whether the specification sets bounds for this case.
    is_promised: bool,
}

const fn idle(channels: usize, nodes: usize, is_promised: bool) -> Case {
    let (warm, length) = (Duration::from_secs(15), Duration::from_secs(25));
    Case { channels, nodes, backlog: 0, warm, length, is_promised }
}

const fn busy(channels: usize, nodes: usize, backlog: u32, is_promised: bool) -> Case {
    let (warm, length) = (Duration::from_secs(32), Duration::from_secs(25));
    Case { channels, nodes, backlog, warm, length, is_promised }
}

/// The others are points of the cost model, docs/scale.md.
const CASES: [Case; 6] = [
    idle(10_000, 1, true),
    idle(10_000, 2, false),
    busy(300, 20, 1_200, false),
    busy(1_000, 20, 1_200, true),
    busy(1_000, 20, 200, true),
    busy(1_000, 5, 1_200, false),
];

impl Case {
    fn name(self) -> String {
        let Case { channels, nodes, backlog, .. } = self;
        let nodes = if nodes == 1 { "1 node".to_owned() } else { format!("{nodes} nodes") };
        match backlog {
            0 => format!("{channels} idle channels on {nodes}"),
            _ => format!("{channels} channels of 1 a second on {nodes}, {backlog} waiting in each"),
        }
    }

    fn file(self) -> String {
        (0..self.channels).fold(String::new(), |mut file, n| {
            let _ = write!(
                file,
                "[limit.c{n}]\npermits = 1\nper = \"1s\"\n[channel.c{n}]\nendpoint = \"http://{{bank}}/c{n}/refunds\"\n\
                 limits = [\"c{n}\"]\nmax_in_flight = 4\ntimeout = \"5s\"\n",
            );
            file
        })
    }
}

pub async fn round(notes: &mut Notes) -> anyhow::Result<()> {
    let wanted = std::env::var("CASE").unwrap_or_default();
    // A node's memory may grow with time, so `WARM` can lengthen the warm-up.
    let warm = playground::variable::number("WARM")?;
    for case in CASES.into_iter().filter(|case| case.name().contains(&wanted)) {
        let case = Case { warm: warm.map_or(case.warm, Duration::from_secs), ..case };
        measure(case, notes).await.with_context(|| format!("failed to measure {}", case.name()))?;
    }
    Ok(())
}

async fn measure(case: Case, notes: &mut Notes) -> anyhow::Result<()> {
    let stage = Stage::set_with(program(), ANY, &meter::postgres()).await?;
    let file = case.file();
    let mut nodes = vec![stage.node("n1", ANY, &file).await?];
    if case.backlog > 0 {
        fill(&stage, case).await?;
    }
    for n in 2..=case.nodes {
        nodes.push(stage.node(&format!("n{n}"), ANY, &file).await?);
    }
    tokio::time::sleep(case.warm).await;
    let sent = stage.bank.look(|l| l.all().len());
    let measured = meter::measure(&stage, &nodes, case.length).await?;
    let sent = (stage.bank.look(|l| l.all().len()) - sent) as f64 / case.length.as_secs_f64();

    let name = case.name();
    let permitted = case.channels as f64 / PER.as_secs_f64();
    let each = measured.cores.get("nodes").copied().unwrap_or(0.0) / case.nodes as f64 * 100.0;
    let mut note = |what: &str, unit: &str, value: f64, reach: Option<f64>| {
        let figure = notes.add(format!("{name}: {what}"), unit, Better::Less, value);
        if let (Some(reach), true) = (reach, case.is_promised) {
            figure.at_most(reach);
        }
    };
    note("a node", "% of a core", each, Some(if case.backlog == 0 { 2.0 } else { 5.0 }));
    // With ten thousand channels only the core time has a bound.
    let most = (case.backlog > 0).then_some(64.0);
    note("resident memory of the largest node (VmRSS)", "MiB", meter::largest(&nodes), most);
    note("open files of the node with most", "files", meter::most_open(&nodes), None);
    for server in ["Postgres", "Redis"] {
        note(server, "% of a core", measured.cores.get(server).copied().unwrap_or(0.0) * 100.0, None);
    }
    note("scripts run by Redis", "a second", measured.scripts, None);
    note("lines looked at in Redis", "a second", measured.looks, None);
    note("statements", "a second", measured.statements, None);
    note("write-ahead log", "bytes a second", measured.log, None);
    note("connections to Postgres", "connections", measured.connections, None);
    if case.backlog > 0 {
        let calls = (measured.scripts + measured.looks) / sent;
        note("scripts and lines looked at", "a refund sent", calls, None);
        let share = sent / permitted * 100.0;
        notes.add(format!("{name}: share of the permits used"), "%", Better::More, share);
    }
    end(stage, nodes).await
}

/// Saves the backlogs, all channels side by side in the order of the table.
async fn fill(stage: &Stage, case: Case) -> anyhow::Result<()> {
    let mut database = PgConnection::connect(&stage.database_url()).await?;
    // This switches off the foreign key. Each of these channels exists.
    sqlx::query("set session_replication_role = replica").execute(&mut database).await?;
    let save = format!(
        "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency)
         select 'R-' || c || '-' || n, 'c' || c, 'P-' || n, n, 'EUR'
           from generate_series(1, {}) n, generate_series(0, {}) c",
        case.backlog,
        case.channels - 1,
    );
    sqlx::query(AssertSqlSafe(save)).execute(&mut database).await.context("failed to save the backlogs")?;
    sqlx::query("vacuum analyze refundd.refunds").execute(&mut database).await?;
    sqlx::query("checkpoint").execute(&mut database).await?;
    Ok(database.close().await?)
}
