//! Counts what nodes cost over a time: core time, memory, and their calls to the servers.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Context;
use playground::PostgresOptions;
use playground::stage::{NodeProcess, Stage};
use sqlx::{Connection, PgConnection};

use crate::cpu::{Spent, Watch};

const KIB: f64 = 1024.0;

const COUNTS: &str = "
    select (select (xact_commit + xact_rollback)::float8 from pg_stat_database where datname = current_database()) as statements,
           (pg_current_wal_lsn() - '0/0')::float8 as log,
           (select count(*) from pg_stat_activity where application_name = 'refundd')::float8 as connections";

const STATEMENTS: &str = "
    select calls::float8, total_exec_time::float8, left(regexp_replace(query, '\\s+', ' ', 'g'), 110) as query
      from pg_stat_statements order by total_exec_time desc limit 16";

/// The settings of Postgres. With `STATEMENTS` in the environment it lists its statements, and is a little slower.
pub fn postgres() -> PostgresOptions {
    let mut options = PostgresOptions { max_connections: 500, ..PostgresOptions::default() };
    if lists_statements() {
        options.settings.push(("shared_preload_libraries".to_owned(), "pg_stat_statements".to_owned()));
    }
    options
}

fn lists_statements() -> bool {
    std::env::var_os("STATEMENTS").is_some()
}

/// The cost of one second, of all nodes together.
#[derive(Debug)]
pub struct Measured {
    /// Seconds of core time in a second, by process.
    pub cores: Spent,
    /// Scripts that Redis ran in a second.
    pub scripts: f64,
    /// Buckets that nodes looked at in a second.
    pub looks: f64,
    /// Transactions of Postgres in a second. Nodes make each statement a transaction.
    pub statements: f64,
    /// Bytes of write-ahead log in a second.
    pub log: f64,
    /// Connections of the nodes to Postgres at the end.
    pub connections: f64,
}

/// Measures for `length`.
pub async fn measure(stage: &Stage, nodes: &[NodeProcess], length: Duration) -> anyhow::Result<Measured> {
    let mut database = PgConnection::connect(&stage.database_url()).await?;
    if lists_statements() {
        sqlx::query("create extension if not exists pg_stat_statements").execute(&mut database).await?;
        sqlx::query("select pg_stat_statements_reset()").execute(&mut database).await?;
    }
    let watch = Watch::stage(stage, nodes);
    let (spent, commands) = (watch.read(), commands(&stage.redis.url()).await?);
    let before: (f64, f64, f64) = sqlx::query_as(COUNTS).fetch_one(&mut database).await?;
    let began = Instant::now();
    tokio::time::sleep(length).await;
    let seconds = began.elapsed().as_secs_f64();
    let mut cores = watch.since(&spent);
    for spent in cores.values_mut() {
        *spent /= seconds;
    }
    let after: (f64, f64, f64) = sqlx::query_as(COUNTS).fetch_one(&mut database).await?;
    let now = self::commands(&stage.redis.url()).await?;
    let of = |name: &str| {
        let grown = now.get(name).unwrap_or(&0).saturating_sub(*commands.get(name).unwrap_or(&0));
        grown as f64 / seconds
    };
    if lists_statements() {
        let statements: Vec<(f64, f64, String)> = sqlx::query_as(STATEMENTS).fetch_all(&mut database).await?;
        for (calls, ms, query) in statements {
            println!("      {:9.2} a second, {:8.3} ms each: {query}", calls / seconds, ms / calls);
        }
        println!("      Redis, a second: {:?}", now.keys().map(|k| (k, of(k))).collect::<Vec<_>>());
    }
    database.close().await?;
    Ok(Measured {
        cores,
        scripts: of("evalsha") + of("eval"),
        // Scripts never call `lindex`.
        looks: of("lindex"),
        statements: (after.0 - before.0) / seconds,
        log: (after.1 - before.1) / seconds,
        connections: after.2,
    })
}

/// How often Redis got each command.
async fn commands(url: &str) -> anyhow::Result<BTreeMap<String, u64>> {
    let stats = info(url, "commandstats").await?;
    let of = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(':')?;
        Some((name.to_owned(), rest.strip_prefix("calls=")?.split(',').next()?.parse().ok()?))
    };
    Ok(stats.lines().filter_map(of).collect())
}

/// The memory that Redis uses, in bytes (`used_memory`).
pub async fn redis_memory(url: &str) -> anyhow::Result<f64> {
    let said = info(url, "memory").await?;
    let line = said.lines().find_map(|line| line.strip_prefix("used_memory:"));
    line.and_then(|bytes| bytes.trim().parse().ok()).context("Redis does not say how much memory it uses")
}

async fn info(url: &str, section: &str) -> anyhow::Result<String> {
    let client = redis::Client::open(url)?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    Ok(redis::cmd("INFO").arg(section).query_async(&mut connection).await?)
}

/// The resident memory of the largest node in MiB, with shared memory (`VmRSS`).
pub fn largest(nodes: &[NodeProcess]) -> f64 {
    nodes.iter().filter_map(|node| resident(node.pid())).fold(0.0, f64::max) / KIB
}

fn resident(pid: u32) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse().ok())
}

/// The most open files of one node. Nearly all are connections.
pub fn most_open(nodes: &[NodeProcess]) -> f64 {
    let open =
        |node: &NodeProcess| std::fs::read_dir(format!("/proc/{}/fd", node.pid())).map_or(0, Iterator::count);
    nodes.iter().map(open).max().unwrap_or(0) as f64
}
