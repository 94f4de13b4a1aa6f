//! Reads what keeps Postgres from cleaning up, and what stands in no table of a day or a month.
//!
//! Nothing here judges: `refundd doctor` does.
//! Every role may read which snapshot a session of another role holds, but not since when it holds it.

use std::time::Duration;

use sqlx::Row;

use super::connections::Ask;
use super::{Doing, Store, StoreError};

/// What may hold a snapshot or a transaction open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HolderKind {
    Session,
    Slot,
    Prepared,
}

/// A snapshot or an open transaction, and who holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotHolder {
    pub kind: HolderKind,
    /// The pid, the name of the slot, or the name of the prepared transaction.
    pub name: String,
    /// The role and the program, or whether a slot is in use.
    pub whose: String,
    /// The time since the transaction began; `None` if Postgres keeps no time of it, or hides it.
    pub age: Option<Duration>,
    /// How many transactions were begun since.
    pub transactions: i64,
    /// Whether this role may not see since when.
    pub is_hidden: bool,
}

/// Rows that stand in no table of a day or a month. Each count ends a little above 10,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtherSpans {
    pub permits: i64,
    pub attempts: i64,
}

// An open transaction gives later snapshots its own id, so of equals the one with that id comes first. A session without both ids
// holds nothing yet. Postgres cleans up beside a vacuum, and beside sessions of other databases. A standby
// belongs to none.
const HOLDERS: &str = "
    select h.kind, h.name, h.whose, (extract(epoch from h.age) * 1000000)::bigint as age_us, h.transactions, h.is_hidden
      from (select 'session' as kind, a.pid::text as name,
                   concat_ws(', ', a.usename::text, nullif(a.application_name, '')) as whose,
                   clock_timestamp() - a.xact_start as age,
                   greatest(age(a.backend_xid), age(a.backend_xmin))::bigint as transactions, a.backend_start is null as is_hidden,
                   age(a.backend_xid) as own
              from pg_stat_activity a
             where a.pid <> pg_backend_pid() and a.usesysid is not null
               and (a.datname is null or a.datname = current_database())
               and (a.backend_xid is not null or a.backend_xmin is not null)
               and not exists (select from pg_stat_progress_vacuum v where v.pid = a.pid)
            union all
            select 'slot', s.slot_name::text, case when s.active then 'in use' else 'not in use' end, null,
                   greatest(age(s.xmin), age(s.catalog_xmin))::bigint, false, null
              from pg_replication_slots s
             where (s.xmin is not null or s.catalog_xmin is not null)
               and (s.database is null or s.database = current_database())
            union all
            select 'prepared', p.gid, p.owner::text, clock_timestamp() - p.prepared, age(p.transaction)::bigint, false,
                   age(p.transaction)
              from pg_prepared_xacts p where p.database = current_database()) h
     order by h.age desc nulls last, h.transactions desc, h.own desc nulls last";

// Every role sees these ids, so this needs no more rights. A slot's `catalog_xmin` keeps rows of the catalog alone.
const OLDEST: &str = "
    select h.xid::text as xid
      from (select unnest(array[a.backend_xid, a.backend_xmin]) as xid
              from pg_stat_activity a
             where a.pid <> pg_backend_pid() and a.usesysid is not null
               and (a.datname is null or a.datname = current_database())
               and not exists (select from pg_stat_progress_vacuum v where v.pid = a.pid)
            union all
            select s.xmin from pg_replication_slots s
            union all
            select p.transaction from pg_prepared_xacts p where p.database = current_database()) h
     where h.xid is not null
     order by age(h.xid) desc limit 1";

const OTHER_SPANS: &str = "
    select (select count(*) from (select from refundd.permits_of_other_days limit 10001) p) as permits,
           (select count(*) from (select from refundd.attempts_of_other_months limit 10001) a) as attempts";

pub(super) const STATEMENTS: &[(&str, &str)] =
    &[("snapshot_holders", HOLDERS), ("oldest_snapshot", OLDEST), ("other_spans", OTHER_SPANS)];

impl Store {
    /// The snapshots and open transactions of this database, the oldest first.
    pub async fn snapshot_holders(&self) -> Result<Vec<SnapshotHolder>, StoreError> {
        let rows = sqlx::query(HOLDERS).all(&self.db.patient()).await.doing("look for old snapshots")?;
        let holder = |row: &sqlx::postgres::PgRow| SnapshotHolder {
            kind: match row.get::<&str, _>("kind") {
                "slot" => HolderKind::Slot,
                "prepared" => HolderKind::Prepared,
                _ => HolderKind::Session,
            },
            name: row.get("name"),
            whose: row.get("whose"),
            age: row
                .get::<Option<i64>, _>("age_us")
                .map(|us| Duration::from_micros(u64::try_from(us).unwrap_or_default())),
            transactions: row.get("transactions"),
            is_hidden: row.get("is_hidden"),
        };
        Ok(rows.iter().map(holder).collect())
    }

    /// The oldest transaction that a snapshot or an open transaction still needs; `None` if there is no such. While it stays the
    /// same, Postgres cleans up nothing newer.
    pub async fn oldest_snapshot(&self) -> Result<Option<String>, StoreError> {
        let row =
            sqlx::query(OLDEST).maybe(&self.db.patient()).await.doing("look for the oldest snapshot")?;
        Ok(row.map(|row| row.get("xid")))
    }

    /// How many permits and attempts stand in no table of a day or a month.
    pub async fn other_spans(&self) -> Result<OtherSpans, StoreError> {
        const DOING: &str = "look for rows without a table of their day or month";
        let row = sqlx::query(OTHER_SPANS).one(&self.db.patient()).await.doing(DOING)?;
        Ok(OtherSpans { permits: row.get("permits"), attempts: row.get("attempts") })
    }
}
