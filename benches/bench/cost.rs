//! Measures what one refund costs the servers from saved to settled: row versions, log, indexes and Redis calls.

use anyhow::Context;
use sqlx::{Connection, PgConnection};

use crate::drain::{Case, Rig};
use crate::figure::{Better, Notes};

/// Counts of all tables since the database was made, with the nodes' own rows. Partitions by day or month are added
/// up.
const WRITTEN: &str = "
    select regexp_replace(relname, '_until_[0-9]{8}$', '') as name, sum(n_tup_ins)::bigint, sum(n_tup_upd)::bigint,
           sum(n_tup_del)::bigint, sum(n_tup_hot_upd)::bigint
      from pg_stat_user_tables where schemaname = 'refundd' group by name order by name";

const SIZES: &str = "
    select sum(pg_indexes_size(oid))::float8, sum(pg_table_size(oid))::float8
      from pg_class where relnamespace = 'refundd'::regnamespace and relkind = 'r'";

const COUNT: &str = "select count(*) from refundd.refunds";
const LOG: &str = "select (pg_current_wal_lsn() - '0/0')::float8";

pub async fn round(notes: &mut Notes) -> anyhow::Result<()> {
    let mut rig = Rig::set(Case::of(1, 64, 20_000)).await?;
    let mut database = PgConnection::connect(&rig.stage.database_url()).await?;
    // Each round begins right after a checkpoint, so that none runs in the middle.
    sqlx::query("checkpoint").execute(&mut database).await.context("failed to make a checkpoint")?;
    let log: f64 = sqlx::query_scalar(LOG).fetch_one(&mut database).await?;
    let drained = rig.drain().await?;
    let log_after: f64 = sqlx::query_scalar(LOG).fetch_one(&mut database).await?;
    // A connection reports its writes when it ends.
    rig.stop_nodes().await?;
    rig.store.close().await;
    let (index, table): (f64, f64) = sqlx::query_as(SIZES).fetch_one(&mut database).await?;
    let all: i64 = sqlx::query_scalar(COUNT).fetch_one(&mut database).await?;
    let written = settled(&mut database).await?;
    let each = |count: f64| count / all as f64;

    let versions: i64 =
        written.iter().map(|(_, inserted, updated, deleted, _)| inserted + updated + deleted).sum();
    notes
        .add("row versions written, all tables", "a refund", Better::Less, each(versions as f64))
        .at_most(5.0);
    for (name, inserted, updated, deleted, _) in &written {
        let versions = inserted + updated + deleted;
        if versions * 100 > all {
            let what = format!("row versions written, `{name}`");
            notes.add(what, "a refund", Better::Less, each(versions as f64));
        }
    }
    let (updated, hot) = written.iter().fold((0, 0), |sum, row| (sum.0 + row.2, sum.1 + row.4));
    notes.add("updates that touched no index", "%", Better::More, hot as f64 / updated.max(1) as f64 * 100.0);
    let log = (log_after - log) / f64::from(drained.refunds);
    notes.add("write-ahead log", "bytes a refund", Better::Less, log);
    notes.add("indexes of all tables, afterwards", "bytes a refund", Better::Less, each(index));
    notes.add("tables without their indexes, afterwards", "bytes a refund", Better::Less, each(table));
    let calls = drained.redis_calls as f64 / f64::from(drained.refunds);
    notes.add("Redis calls, draining", "a refund", Better::Less, calls).at_most(0.1);
    database.close().await?;
    rig.strike().await
}

pub type Written = Vec<(String, i64, i64, i64, i64)>;

/// Waits until the counts stop growing, and returns them.
pub async fn settled(database: &mut PgConnection) -> anyhow::Result<Written> {
    let mut before: Written = Vec::new();
    for _ in 0..20 {
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        let now: Written = sqlx::query_as(WRITTEN).fetch_all(&mut *database).await?;
        if now == before {
            return Ok(now);
        }
        before = now;
    }
    anyhow::bail!("the counts of the tables do not settle")
}
