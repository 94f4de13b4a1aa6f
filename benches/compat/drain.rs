//! Lets two real nodes send refunds, and judges what arrived by the bank's own ledger.

use std::collections::HashMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use playground::judge::{JudgedPeriod, JudgedSpan, LimitPromise, judge};
use playground::load::save_in;
use playground::stage::{ANY, Addresses, NodeProcess, Stage};
use playground::{PostgresOptions, PretendBank, PrivatePostgres, PrivateRedis};
use sqlx::{Connection, PgConnection};

/// The program that every row runs.
pub fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_refundd"))
}

/// Each refund with its state, and the codes of its requests.
const ROWS: &str = "
    select refund_ref, state,
           (select string_agg(distinct code, ' ') from refundd.attempts where refund_id = refunds.id)
      from refundd.refunds";

/// A channel with a limit of its own, and its refunds.
#[derive(Debug, Clone)]
pub struct Channel {
    pub name: String,
    pub refunds: u32,
    pub permits: u32,
    pub per: Duration,
    /// How late a request may come. A busy server in front of the bank delays requests.
    pub lateness: Duration,
    /// Further keys of the channel, and its tables.
    pub keys: String,
}

impl Channel {
    /// A channel with 60 refunds under a limit of 20 a second.
    pub fn usual() -> Channel {
        Channel {
            name: "acme".to_owned(),
            refunds: 60,
            permits: 20,
            per: Duration::from_secs(1),
            lateness: Duration::from_millis(20),
            keys: String::new(),
        }
    }

    fn section(&self, base: &str) -> String {
        let Channel { name, permits, keys, .. } = self;
        let mut text = String::new();
        let _ = write!(
            text,
            "[limit.{name}]\nalgorithm = \"paced\"\npermits = {permits}\nper = \"{}ms\"\nlateness = \"{}ms\"\n\
             [channel.{name}]\nendpoint = \"{base}/{name}/refunds\"\nlimits = [\"{name}\"]\nmax_in_flight = 8\n{keys}\n",
            self.per.as_millis(),
            self.lateness.as_millis()
        );
        text
    }
}

/// The configuration of these channels. `base` is the bank's address as the nodes see it, such as `http://{bank}`.
pub fn sections(channels: &[Channel], base: &str) -> String {
    channels.iter().map(|channel| channel.section(base)).collect()
}

/// A stage on this machine's own Postgres and Redis.
pub async fn stage() -> anyhow::Result<Stage> {
    stage_on(&PostgresOptions::default(), PrivateRedis::start().await?).await
}

/// A stage on these servers, with a bank on a free port.
pub async fn stage_on(postgres: &PostgresOptions, redis: PrivateRedis) -> anyhow::Result<Stage> {
    let postgres = PrivatePostgres::start_with(postgres).await?;
    Stage::set_of(program(), PretendBank::start(ANY)?, postgres, redis).await
}

/// Starts the nodes `a` and `b`.
pub async fn nodes(stage: &Stage, channels: &str, at: &Addresses) -> anyhow::Result<[NodeProcess; 2]> {
    Ok([stage.node_at("a", ANY, channels, at).await?, stage.node_at("b", ANY, channels, at).await?])
}

/// Saves all refunds of these channels through this database.
pub async fn save(database: &str, channels: &[Channel]) -> anyhow::Result<()> {
    let mut connection = PgConnection::connect(database).await?;
    for channel in channels {
        save_in(&mut connection, &channel.name, 1..=channel.refunds).await?;
    }
    Ok(connection.close().await?)
}

/// Waits until no refund is ready or being sent.
async fn settled(database: &str, patience: Duration) -> anyhow::Result<()> {
    let began = Instant::now();
    let mut connection = PgConnection::connect(database).await?;
    let open = "select count(*) from refundd.refunds where state in ('ready', 'sending')";
    loop {
        let count: i64 = sqlx::query_scalar(open).fetch_one(&mut connection).await?;
        if count == 0 {
            return Ok(connection.close().await?);
        }
        ensure!(began.elapsed() < patience, "{count} refunds are not over after {patience:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Runs two nodes on these addresses until all refunds are over, and judges. Returns the result in words.
pub async fn drain(
    stage: &Stage,
    channels: &[Channel],
    base: &str,
    at: &Addresses,
) -> anyhow::Result<String> {
    let nodes = nodes(stage, &sections(channels, base), at).await?;
    save(&stage.database_url(), channels).await?;
    let ended = finish(stage, channels, nodes, &stage.database_url()).await?;
    Ok(ended)
}

/// Waits until all refunds are over, stops the nodes, and judges.
pub async fn finish(
    stage: &Stage,
    channels: &[Channel],
    nodes: impl IntoIterator<Item = NodeProcess>,
    database: &str,
) -> anyhow::Result<String> {
    let needed = channels.iter().map(|c| c.per * c.refunds.div_ceil(c.permits)).max().unwrap_or_default();
    let waited = settled(database, needed * 3 + Duration::from_mins(1)).await;
    let mut log = String::new();
    for node in nodes {
        let (name, lines) = (node.name.clone(), node.log());
        log.push_str(&lines[lines.len().saturating_sub(8)..].join("\n"));
        ensure!(node.stop().await?, "node {name} did not end well");
    }
    waited.with_context(|| format!("the nodes' logs end with:\n{log}"))?;
    verdict(stage, channels, database).await
}

/// Compares the rows with the bank's ledger: each refund was paid once, is shown as succeeded, and kept its limit.
pub async fn verdict(stage: &Stage, channels: &[Channel], database: &str) -> anyhow::Result<String> {
    let mut connection = PgConnection::connect(database).await?;
    let rows: Vec<(String, String, Option<String>)> = sqlx::query_as(ROWS).fetch_all(&mut connection).await?;
    connection.close().await?;
    let ledger = stage.bank.ledger();
    let mut paid: HashMap<&str, u32> = HashMap::new();
    for arrival in ledger.all().iter().filter(|arrival| arrival.paid) {
        *paid.entry(&arrival.refund_ref).or_default() += 1;
    }
    let wanted: u32 = channels.iter().map(|channel| channel.refunds).sum();
    ensure!(rows.len() == wanted as usize, "{} rows instead of {wanted}", rows.len());
    let mut wrong: HashMap<String, u32> = HashMap::new();
    for (name, state, code) in &rows {
        let payments = paid.get(&**name).copied().unwrap_or_default();
        if (state.as_str(), payments) != ("succeeded", 1) {
            let kind = format!("{state} ({}), paid {payments} times", code.as_deref().unwrap_or("no code"));
            *wrong.entry(kind).or_default() += 1;
        }
    }
    if !wrong.is_empty() {
        bail!("of {wanted} refunds these did not succeed once: {wrong:?}");
    }
    for channel in channels {
        let of_it = ledger.all().iter().filter(|arrival| *arrival.channel == *channel.name);
        let times: Vec<i64> = of_it.map(|arrival| arrival.at_us).collect();
        let promise = LimitPromise { span: JudgedSpan::Any, permits: channel.permits, per: channel.per };
        let above =
            judge(&times, &JudgedPeriod::always(promise)).iter().filter(|span| span.is_above()).count();
        ensure!(above == 0, "channel {}: {above} spans above the limit", channel.name);
    }
    Ok(format!("{wanted} refunds, each paid once, limit kept"))
}
