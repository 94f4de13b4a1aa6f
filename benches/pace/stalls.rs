//! Runs ten channels at 30 a second on a machine with other work, and shows whose delay overfills a second.
//!
//! Each arrival has three dates: when its node wrote the first byte, when the bank's kernel received it, and when the
//! bank's application began to handle it. If only the application sees an overfull second, the bank caused the delay.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use futures_util::future::try_join_all;
use playground::bank::Ledger;
use playground::load::save_in;
use playground::stage::{ANY, NodeProcess, Stage};
use playground::variable::number;
use sqlx::{Connection, PgConnection};

use super::nodes::{self, Counter};

const PERMITS: u32 = 30;
const KINDS: [&str; 2] = ["paced", "sliding_log"];
const OF_EACH: usize = 5;
const NODES: [&str; 3] = ["a", "b", "c"];
const SECOND_US: i64 = 1_000_000;
const LEFT: &str = "
    select r.request_id::text, (extract(epoch from a.started_at) * 1000000)::bigint
      from refundd.attempts a join refundd.refunds r on r.id = a.refund_id
     where a.kind = 'send' and a.channel = $1 and a.started_at is not null";

/// One channel's sends by one of the three dates.
#[derive(Debug, Default)]
struct Seen {
    worst: usize,
    /// Rolling seconds that begin with an arrival and contain more than the limit.
    above: usize,
}

/// Runs for `SECONDS`, or for 300 s. Returns whether every promise was kept by the dates of the bank's kernel.
pub async fn run() -> anyhow::Result<bool> {
    let seconds = number("SECONDS")?.unwrap_or(300);
    let names: Vec<String> =
        KINDS.iter().flat_map(|kind| (1..=OF_EACH).map(move |nth| format!("{kind}-{nth}"))).collect();
    let stage = Stage::set(PathBuf::from(env!("CARGO_BIN_EXE_refundd")), ANY).await?;
    let channels: String = names.iter().map(|name| section(name)).collect();
    let nodes = try_join_all(NODES.iter().map(|name| stage.node(name, ANY, &channels))).await?;
    let mut database = PgConnection::connect(&stage.database_url()).await?;
    let backlog = u32::try_from((seconds + 30) * u64::from(PERMITS))?;
    for name in &names {
        save_in(&mut database, name, 1..=backlog).await?;
    }
    let mut loads = Vec::new();
    for _ in 0..seconds.div_ceil(10) {
        tokio::time::sleep(Duration::from_secs(10)).await;
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        loads.extend(load.split(' ').next().and_then(|load| load.parse::<f64>().ok()));
    }
    let late =
        nodes::sums(&nodes, &Counter { metric: "refundd_first_bytes_late_total{", label: "channel=\"" })
            .await?;
    let unused =
        nodes::sums(&nodes, &Counter { metric: "refundd_permits_unused_total{", label: "reason=\"" }).await?;
    NodeProcess::stop_all(nodes).await?;
    let ledger = stage.bank.ledger();
    println!("ten channels at {PERMITS} a second for {seconds} s, load average {}", range(&loads));
    let mut is_kept = true;
    for name in &names {
        let left: Vec<(String, i64)> = sqlx::query_as(LEFT).bind(name).fetch_all(&mut database).await?;
        is_kept &= judge(name, &ledger, left, late.get(name).copied().unwrap_or(0));
    }
    println!("permits unused: {unused:?}");
    database.close().await?;
    stage.strike().await?;
    if ledger.all().is_empty() {
        bail!("nothing arrived");
    }
    Ok(is_kept)
}

fn section(name: &str) -> String {
    let algorithm = name.rsplit_once('-').map_or(name, |(kind, _)| kind);
    format!(
        "[limit.{name}]\nalgorithm = \"{algorithm}\"\npermits = {PERMITS}\nper = \"1s\"\n[channel.{name}]\n\
         endpoint = \"http://{{bank}}/{name}/refunds\"\nlimits = [\"{name}\"]\nmax_in_flight = {PERMITS}\n"
    )
}

/// Prints one channel by all three dates. Returns whether its promise was kept by the kernel's dates.
fn judge(name: &str, ledger: &Ledger, left: Vec<(String, i64)>, late: u64) -> bool {
    let by_kernel = seen(ledger.arrivals(name).map(|arrival| arrival.at_us).collect());
    let by_application = seen(ledger.arrivals(name).map(|arrival| arrival.handled_us).collect());
    let by_node = seen(left.iter().map(|(_, left_us)| *left_us).collect());
    let taken_up = ledger.arrivals(name).map(|arrival| arrival.handled_us - arrival.at_us).max().unwrap_or(0);
    let left: std::collections::HashMap<String, i64> = left.into_iter().collect();
    let mut on_the_way: Vec<i64> =
        ledger.arrivals(name).filter_map(|arrival| Some(arrival.at_us - left.get(&*arrival.key)?)).collect();
    on_the_way.sort_unstable();
    let ms = |us: i64| us as f64 / 1000.0;
    println!(
        "{name:<14} {:>6} sends; worst second (seconds above): kernel {} ({}), application {} ({}), node {} ({}); \
         longest from write to kernel {:.1} ms, from kernel to application {:.1} ms; {late} first bytes late",
        ledger.arrivals(name).count(),
        by_kernel.worst,
        by_kernel.above,
        by_application.worst,
        by_application.above,
        by_node.worst,
        by_node.above,
        ms(on_the_way.last().copied().unwrap_or(0)),
        ms(taken_up),
    );
    by_kernel.worst <= PERMITS as usize
}

fn seen(mut times_us: Vec<i64>) -> Seen {
    times_us.sort_unstable();
    let mut seen = Seen::default();
    for (nth, from_us) in times_us.iter().enumerate() {
        let count = times_us.partition_point(|at| *at < from_us + SECOND_US) - nth;
        seen.worst = seen.worst.max(count);
        seen.above += usize::from(count > PERMITS as usize);
    }
    seen
}

fn range(loads: &[f64]) -> String {
    let (least, most) =
        loads.iter().fold((f64::MAX, 0.0_f64), |(least, most), load| (least.min(*load), most.max(*load)));
    format!("{least:.1} to {most:.1}")
}
