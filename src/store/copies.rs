//! Reads what a copy of the database may lack: commits that no standby has confirmed, indexes in the order of this
//! host's C library, and sequences that go on after the newest row.
//!
//! Nothing here judges: `refundd doctor` does.

use sqlx::Row;

use super::connections::Ask;
use super::{Doing, Store, StoreError};

/// The standbys of this server, and what commits wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replication {
    /// The setting `synchronous_standby_names`.
    pub names: String,
    /// The connected standbys that no commit waits for, by name. Backups and logical copies are left out, because nobody
    /// promotes them.
    pub asynchronous: Vec<String>,
    /// How many connected standbys the setting names.
    pub synchronous: i64,
    /// Connections that replicate, and of which this role sees nothing more.
    pub hidden: i64,
}

/// The version of the rules by which the database sorts texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollationVersion {
    pub database: String,
    pub collation: String,
    /// The version when the database was made, or when somebody refreshed it. Postgres 14 records none, and later
    /// versions record none for some collations.
    pub recorded: Option<String>,
    /// The version on this host; `None` if there is none, or nothing is recorded.
    pub actual: Option<String>,
}

/// A sequence that gives ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdSequence {
    pub name: String,
    /// The id that it gave last, 0 before the first one; `None` if this role may not read it.
    pub last: Option<i64>,
    /// The highest id in its table, 0 in an empty one.
    pub highest: i64,
}

// `pg_basebackup` and `pg_receivewal` never become a primary, so no commit needs to wait for them.
const REPLICATION: &str = "
    select current_setting('synchronous_standby_names') as names,
           array(select coalesce(nullif(r.application_name, ''), host(r.client_addr), 'pid ' || r.pid)
                   from pg_stat_replication r
                  where r.sync_state = 'async' and r.state <> 'backup'
                    and r.application_name not in ('pg_basebackup', 'pg_receivewal')
                    and not exists (select from pg_replication_slots s where s.active_pid = r.pid and s.slot_type = 'logical')
                  order by 1) as asynchronous,
           (select count(*) from pg_stat_replication r where r.sync_state in ('sync', 'quorum', 'potential')) as synchronous,
           (select count(*) from pg_stat_replication r where r.sync_state is null) as hidden";

// The columns differ between versions of Postgres, so the statement reads them by their names in JSON.
const RECORDED: &str = "
    select d.datname::text as database,
           coalesce(to_jsonb(d) ->> 'datlocale', to_jsonb(d) ->> 'daticulocale', d.datcollate::text) as collation,
           to_jsonb(d) ->> 'datcollversion' as recorded
      from pg_database d where d.datname = current_database()";

/// Postgres 14 does not know this function, so the statement is no part of [`STATEMENTS`].
const ACTUAL: &str = "select pg_database_collation_actual_version(d.oid) from pg_database d where d.datname = current_database()";

// Postgres reads a sequence after it took the snapshot for the tables. So a row that is saved meanwhile never makes the
// sequence look too low. A sequence that gave no id yet has no last value.
const SEQUENCES: &str = "
    select t.sequence as name, t.highest,
           case when has_sequence_privilege(t.sequence::regclass::oid, 'select')
                then coalesce(pg_sequence_last_value(t.sequence::regclass), 0) end as last
      from (values
            (pg_get_serial_sequence('refundd.refunds', 'id'), (select max(id) from refundd.refunds)),
            (pg_get_serial_sequence('refundd.attempts', 'id'), (select max(id) from refundd.attempts)),
            (pg_get_serial_sequence('refundd.events', 'event_id'), (select max(event_id) from refundd.events)),
            (pg_get_serial_sequence('refundd.proposals', 'id'), (select max(id) from refundd.proposals)),
            (pg_get_serial_sequence('refundd.second_person', 'id'), (select max(id) from refundd.second_person)),
            (pg_get_serial_sequence('refundd.addresses', 'address'), (select max(address)::bigint from refundd.addresses)))
           t (sequence, highest)";

pub(super) const STATEMENTS: &[(&str, &str)] =
    &[("replication", REPLICATION), ("recorded_collation", RECORDED), ("id_sequences", SEQUENCES)];

impl Store {
    /// The standbys of this server, and what commits wait for.
    pub async fn replication(&self) -> Result<Replication, StoreError> {
        let row = sqlx::query(REPLICATION).one(&self.db.patient()).await.doing("look at the standbys")?;
        Ok(Replication {
            names: row.get("names"),
            asynchronous: row.get("asynchronous"),
            synchronous: row.get("synchronous"),
            hidden: row.get("hidden"),
        })
    }

    /// The version of the rules by which the database sorts texts.
    pub async fn collation_version(&self) -> Result<CollationVersion, StoreError> {
        const DOING: &str = "look at the version of the collation";
        let db = self.db.patient();
        let row = sqlx::query(RECORDED).one(&db).await.doing(DOING)?;
        let recorded: Option<String> = row.get("recorded");
        let actual = if recorded.is_some() {
            sqlx::query_scalar::<_, Option<String>>(ACTUAL).one(&db).await.doing(DOING)?
        } else {
            None
        };
        Ok(CollationVersion {
            database: row.get("database"),
            collation: row.get("collation"),
            recorded,
            actual,
        })
    }

    /// The sequences that give ids, each with the highest id of its table.
    pub async fn id_sequences(&self) -> Result<Vec<IdSequence>, StoreError> {
        let rows = sqlx::query(SEQUENCES).all(&self.db.patient()).await.doing("look at the sequences")?;
        let sequence = |row: &sqlx::postgres::PgRow| IdSequence {
            name: row.get("name"),
            last: row.get("last"),
            highest: row.get::<Option<i64>, _>("highest").unwrap_or(0),
        };
        Ok(rows.iter().map(sequence).collect())
    }
}
