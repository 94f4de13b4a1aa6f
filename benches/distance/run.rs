//! Measures cells of one number of nodes on one stage: a bank and a link for each way, real nodes, and a backlog that
//! never ends.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bytes::Bytes;
use futures_util::future::try_join_all;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use playground::bank::Step;
use playground::judge::{Judged, judge};
use playground::load::save_in;
use playground::stage::{ANY, NodeProcess, Stage};
use playground::{Authority, Forward, PretendBank, Target};
use serde::Serialize;
use sqlx::{Connection, PgConnection};
use tokio::sync::Barrier;

use crate::cell::{Cell, WAYS};

/// The time after the first arrivals in which full token buckets empty and connections are opened.
const WARM: Duration = Duration::from_secs(5);

/// The results of one cell.
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    pub algorithm: &'static str,
    pub rate: &'static str,
    pub nodes: u32,
    pub way: &'static str,
    pub sends: usize,
    /// Seconds over which the share was measured.
    pub seconds: f64,
    /// Sends divided by the permits that came due.
    pub share: f64,
    /// The share divided by the near bank's share.
    pub to_near: f64,
    /// The fullest span or window divided by the most that was promised.
    pub worst: f64,
    /// Permits under which nothing was sent.
    pub lapsed: u64,
    pub repeated: usize,
    #[serde(skip)]
    pub cell: Cell,
    #[serde(skip)]
    pub evidence: Vec<String>,
}

impl Measured {
    /// What is wrong with the cell, in words; empty if nothing is.
    pub fn broken(&self) -> Vec<String> {
        let mut broken = Vec::new();
        if self.to_near < 0.95 {
            broken.push(format!("{:.1} % of the near bank's share", self.to_near * 100.0));
        }
        if self.cell.way == WAYS[0] && self.share < 0.95 * self.cell.expected() {
            let (share, expected) = (self.share * 100.0, self.cell.expected() * 100.0);
            broken
                .push(format!("the near bank got {share:.1} % where {expected:.1} % are its limit's share"));
        }
        if self.worst > 1.0 {
            broken.push(format!("worst span {:.3} of what was promised", self.worst));
        }
        if self.repeated > 0 {
            broken.push(format!("{} refunds sent twice", self.repeated));
        }
        broken
    }
}

struct Place {
    bank: PretendBank,
    link: Forward,
}

/// Measures for `length` from the moment that all stages are `ready`, so that no stage starts its nodes while another
/// one is measured.
pub async fn run(cells: &[Cell], length: Duration, ready: &Barrier) -> anyhow::Result<Vec<Measured>> {
    let authority = Authority::new()?;
    let mut places = BTreeMap::new();
    for way in WAYS.iter().filter(|way| cells.iter().any(|cell| cell.way == **way)) {
        let bank = PretendBank::start_secure(ANY, authority.identity()?)?;
        let link = Forward::to(Target::Tcp(bank.address()))?;
        link.set_distance(way.distance);
        places.insert(way.name, Place { bank, link });
    }
    let mut channels = String::new();
    for cell in cells {
        let name = cell.name();
        let place = &places[cell.way.name];
        if cell.way.hangs_up {
            place.bank.then(&name, Step::pays().and_hangs_up());
        }
        let endpoint = format!("https://{}/{name}/refunds", place.link.address());
        channels += &cell.section(&endpoint, &authority.file());
    }

    let stage = Stage::set(PathBuf::from(env!("CARGO_BIN_EXE_refundd")), ANY).await?;
    // The banks date what arrives, and on full processors a request would be dated late, whatever its node did.
    playground::priority::go_first(&["pretend-bank", "forward"]);
    let names: Vec<String> = (1..=cells[0].pace.nodes).map(|n| format!("n{n}")).collect();
    let nodes = try_join_all(names.iter().map(|name| stage.node(name, ANY, &channels))).await?;
    let mut database = PgConnection::connect(&stage.database_url()).await?;
    for cell in cells {
        save_in(&mut database, &cell.name(), 1..=cell.backlog(length)).await?;
        tokio::time::sleep(cell.apart(cells.len())).await;
    }
    let began = Instant::now();
    let silent = |cell: &&Cell| {
        let name = cell.name();
        places[cell.way.name].bank.look(|ledger| ledger.arrivals(&name).next().is_none())
    };
    // A channel without any arrival is measured too.
    while cells.iter().any(|cell| silent(&cell)) && began.elapsed() < Duration::from_secs(20) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    ready.wait().await;
    tokio::time::sleep(WARM).await;
    let from_us = jiff::Timestamp::now().as_microsecond();
    tokio::time::sleep(length).await;
    let to_us = jiff::Timestamp::now().as_microsecond();
    let lapsed = lapsed(&nodes).await?;
    NodeProcess::stop_all(nodes).await?;

    let mut measured = Vec::new();
    for cell in cells {
        let ledger = places[cell.way.name].bank.ledger();
        let waiting: i64 =
            sqlx::query_scalar("select count(*) from refundd.refunds where channel = $1 and state = 'ready'")
                .bind(cell.name())
                .fetch_one(&mut database)
                .await?;
        if waiting == 0 {
            bail!("the backlog of {} came to its end before the measurement did", cell.name());
        }
        let mut one = of(*cell, &ledger, from_us, to_us);
        one.lapsed = lapsed.get(&cell.name()).copied().unwrap_or(0);
        measured.push(one);
    }
    for nth in 0..measured.len() {
        let one = &measured[nth];
        let near = measured.iter().find(|other| {
            (other.algorithm, other.rate, other.way) == (one.algorithm, one.rate, WAYS[0].name)
        });
        // A burst at the start may have given the near bank more than its limit lets through in the long run.
        let to_near = near.map_or(0.0, |near| one.share / near.share.min(near.cell.expected()));
        measured[nth].to_near = to_near;
    }
    database.close().await?;
    stage.strike().await?;
    Ok(measured)
}

/// Measures one cell by its bank's ledger.
fn of(cell: Cell, ledger: &playground::bank::Ledger, from_us: i64, to_us: i64) -> Measured {
    let (name, pace) = (cell.name(), cell.pace);
    let mut times: Vec<i64> = ledger.arrivals(&name).map(|arrival| arrival.at_us).collect();
    times.sort_unstable();
    let (seconds, share) = match ledger.stretch(&name, from_us, to_us, cell.search()) {
        Some(stretch) if stretch.to_us > stretch.from_us => {
            ((stretch.to_us - stretch.from_us) as f64 / 1e6, stretch.share(pace.permits, pace.per))
        }
        // Too few arrivals for a stretch.
        _ => {
            let count = times.iter().filter(|at| (from_us..to_us).contains(*at)).count();
            let seconds = (to_us - from_us) as f64 / 1e6;
            (seconds, count as f64 / (seconds / pace.per.as_secs_f64() * f64::from(pace.permits)))
        }
    };
    let shifted: Vec<i64> = times.iter().map(|at| at - cell.shift_us()).collect();
    let judged = judge(&shifted, &cell.periods());
    let worst = judged.iter().max_by(|a, b| a.share().total_cmp(&b.share()));
    let evidence = judged.iter().filter(|span| span.is_above()).take(3).map(|span| {
        let inside = shifted.iter().filter(|at| (span.start_us..span.end_us()).contains(*at));
        let ms: Vec<String> =
            inside.map(|at| format!("{:.1}", (at - span.start_us) as f64 / 1000.0)).collect();
        format!("{} of {} from {}: ms {}", span.count, span.most, span.start_us, ms.join(" "))
    });
    let repeated = ledger
        .repeated()
        .iter()
        .filter(|(refund_ref, _)| refund_ref.starts_with(&format!("{name}-")))
        .count();
    Measured {
        algorithm: cell.algorithm.name(),
        rate: pace.name,
        nodes: pace.nodes,
        way: cell.way.name,
        sends: times.len(),
        seconds,
        share,
        to_near: 0.0,
        worst: worst.map_or(0.0, Judged::share),
        lapsed: 0,
        repeated,
        cell,
        evidence: evidence.collect(),
    }
}

/// Permits under which nothing was sent, by channel, as the nodes counted them.
async fn lapsed(nodes: &[NodeProcess]) -> anyhow::Result<BTreeMap<String, u64>> {
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let mut lapsed = BTreeMap::new();
    for node in nodes {
        let answer = client.get(format!("http://{}/metrics", node.address).parse()?).await?;
        let page = answer.into_body().collect().await.context("failed to read a node's metrics")?.to_bytes();
        let page = String::from_utf8_lossy(&page);
        for line in page.lines().filter(|line| line.starts_with("refundd_permits_unused_total{")) {
            let channel = line.split_once("channel=\"").and_then(|(_, rest)| rest.split_once('"'));
            let count = line.rsplit_once(' ').and_then(|(_, count)| count.parse::<u64>().ok());
            if let (Some((channel, _)), Some(count)) = (channel, count) {
                *lapsed.entry(channel.to_owned()).or_default() += count;
            }
        }
    }
    Ok(lapsed)
}
