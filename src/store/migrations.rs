//! The migrations of the schema, embedded in the program, and the version of a database's schema.

mod alone;
mod concurrent;
mod list;
mod locks;

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection, Row, SqlSafeStr};

use self::list::MIGRATIONS;
use super::connections::Ask;
use super::{Doing, Store, StoreError};

/// The migrations whose statements run one by one, outside of a transaction: they build indexes concurrently.
const CONCURRENT: &[i64] = &[39];

/// The table of the applied migrations.
const TABLE: &str = "refundd.migrations";

/// The version of a database's schema, and the version that this program knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchemaStatus {
    /// The newest applied migration; 0 if there is none.
    pub applied: i64,
    /// The newest migration of this program.
    pub known: i64,
    /// The first migration of this program that is not applied. It may be older than the newest applied one, where two
    /// versions of the program each migrated the schema.
    pub missing: Option<i64>,
}

impl SchemaStatus {
    /// Whether the schema has all that this program needs. More is fine: migrations remove nothing that older nodes need.
    pub fn is_enough(self) -> bool {
        self.missing.is_none()
    }
}

/// The connection's role; the owner of the schema's tables, or of a database without them; whether the role is a member of the
/// owner, and whether it may create a schema. The statement reads the catalogs, because a role without rights may not name the
/// table.
const OWNER: &str = "
    select current_user::text as role, t.relowner is not null as has_tables, o.rolname::text as owner, quote_ident(o.rolname) as quoted,
           pg_has_role(o.oid, 'member') as is_member, has_database_privilege(d.oid, 'create') as may_create, d.datname::text as database
      from pg_catalog.pg_database d
      left join (select c.relowner from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
                  where n.nspname = 'refundd' and c.relname = 'migrations') t on true
      join pg_catalog.pg_roles o on o.oid = coalesce(t.relowner, d.datdba)
     where d.datname = current_database()";

const IS_THERE: &str = "select to_regclass('refundd.migrations') is not null";
const LOOK_FOR_SCHEMA: &str = "look for the schema";

const APPLIED: &str = "select coalesce(array_agg(version), '{}') from refundd.migrations where success";
const LOOK_AT_VERSION: &str = "look at the schema's version";

/// One migration that is about to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MigrationStep {
    pub version: i64,
    pub name: &'static str,
    /// Its place among those that run now, from 1.
    pub nth: usize,
    pub count: usize,
}

impl fmt::Display for MigrationStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MigrationStep { version, name, nth, count } = self;
        write!(f, "migration {version} ({name}), {nth} of {count}")
    }
}

/// What a migration does now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MigrationProgress {
    /// Another session has the lock of migrations; its name for people.
    WaitsFor(String),
    Runs(MigrationStep),
}

impl fmt::Display for MigrationProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MigrationProgress::WaitsFor(holder) => {
                write!(f, "waits for {holder}, which has the lock of migrations")
            }
            MigrationProgress::Runs(step) => step.fmt(f),
        }
    }
}

fn migration(&(version, name, sql): &(i64, &'static str, &'static str)) -> Migration {
    Migration::new(version, Cow::Borrowed(name), MigrationType::Simple, sql.into_sql_str(), false)
}

/// A migrator for these migrations.
fn migrator(migrations: &[(i64, &'static str, &'static str)]) -> Migrator {
    let mut migrator = Migrator::with_migrations(migrations.iter().map(migration).collect());
    migrator.set_ignore_missing(true); // a newer program may have applied later migrations
    migrator.dangerous_set_table_name(TABLE);
    migrator
}

impl Store {
    /// How long a migration waits for another one. Most end within minutes. After this time a deployment gets an error that names
    /// the session, and not the end of its own patience, which names nothing.
    pub const MIGRATION_PATIENCE: Duration = Duration::from_mins(10);

    /// Brings the schema up to date; does nothing if it is. Creates objects as the owner of the schema's tables,
    /// because functions that run with their owner's rights call each other. Waits while another program migrates. Fails with
    /// [`StoreError::NotOwner`] if this role is not a member of the owner.
    pub async fn migrate(&self) -> Result<SchemaStatus, StoreError> {
        self.migrate_telling(Self::MIGRATION_PATIENCE, |_| ()).await
    }

    /// Does what [`Store::migrate`] does, and calls `tell` while it waits, and before each migration. Fails with
    /// [`StoreError::MigrationIsLocked`] if another program has the lock for longer than `patience`, and with
    /// [`StoreError::MigrationGotNoLock`] if a lock on a table is not free in time.
    pub async fn migrate_telling(
        &self,
        patience: Duration,
        mut tell: impl FnMut(MigrationProgress),
    ) -> Result<SchemaStatus, StoreError> {
        if let Ok(applied) = self.applied().await
            && status(&applied).is_enough()
        {
            return Ok(status(&applied));
        }
        let mut connection = self.db.make().await.doing("reach Postgres")?;
        // When this program is gone, its statement ends and frees its locks. Postgres refuses this setting where it cannot notice that.
        let _ = sqlx::raw_sql("set client_connection_check_interval = '1s'").execute(&mut connection).await;
        alone::wait(&mut connection, patience, |holder| tell(MigrationProgress::WaitsFor(holder))).await?;
        Self::become_owner(&mut connection).await?;
        // The other one may have applied some. This role may have no rights before it has become the owner.
        let applied = Self::applied_seen_by(&mut connection).await?;
        let pending: Vec<usize> =
            (0..MIGRATIONS.len()).filter(|&place| !applied.contains(&MIGRATIONS[place].0)).collect();
        let count = pending.len();
        for (nth, &place) in (1..).zip(&pending) {
            let one = &MIGRATIONS[place];
            tell(MigrationProgress::Runs(MigrationStep { version: one.0, name: one.1, nth, count }));
            if CONCURRENT.contains(&one.0) {
                concurrent::build(&mut connection, &migration(one)).await.doing("build indexes")?;
            } else {
                let mut migrator = migrator(&MIGRATIONS[..=place]);
                if applied.is_empty() {
                    // Never where the schema is: Postgres asks for the right on the database before it looks for the schema.
                    migrator.create_schema("refundd");
                }
                if let Err(error) = migrator.run(&mut connection).await {
                    return Err(locks::explained(&mut connection, error).await);
                }
            }
        }
        let applied = Self::applied_seen_by(&mut connection).await?;
        connection.close().await.doing("close a connection")?;
        Ok(status(&applied))
    }

    /// Becomes the owner of the schema's tables, if there are any. The error names who can migrate, and how.
    async fn become_owner(connection: &mut PgConnection) -> Result<(), StoreError> {
        let row = sqlx::query(OWNER).fetch_one(&mut *connection).await;
        let row = row.doing("ask who owns the schema's tables")?;
        let (role, owner): (String, String) = (row.get("role"), row.get("owner"));
        if !row.get::<bool, _>("has_tables") {
            return if row.get("may_create") {
                Ok(())
            } else {
                Err(StoreError::MayNotCreate { role, database: row.get("database"), owner })
            };
        }
        if !row.get::<bool, _>("is_member") {
            return Err(StoreError::NotOwner { role, owner });
        }
        if role != owner {
            let become_it = format!("set role {}", row.get::<String, _>("quoted"));
            let become_it = sqlx::raw_sql(AssertSqlSafe(become_it)).execute(connection).await;
            become_it.doing("become the owner of the schema's tables")?;
        }
        Ok(())
    }

    /// Reads the version of the schema and changes nothing.
    pub async fn schema(&self) -> Result<SchemaStatus, StoreError> {
        Ok(status(&self.applied().await?))
    }

    /// The versions of the applied migrations.
    async fn applied(&self) -> Result<HashSet<i64>, StoreError> {
        let is_there: bool = sqlx::query_scalar(IS_THERE).one(&self.db).await.doing(LOOK_FOR_SCHEMA)?;
        if !is_there {
            return Ok(HashSet::new());
        }
        let versions: Vec<i64> = sqlx::query_scalar(APPLIED).one(&self.db).await.doing(LOOK_AT_VERSION)?;
        Ok(versions.into_iter().collect())
    }

    /// The same, with the role that this connection has now.
    async fn applied_seen_by(connection: &mut PgConnection) -> Result<HashSet<i64>, StoreError> {
        let is_there = sqlx::query_scalar(IS_THERE).fetch_one(&mut *connection).await;
        let is_there: bool = is_there.doing(LOOK_FOR_SCHEMA)?;
        if !is_there {
            return Ok(HashSet::new());
        }
        let versions = sqlx::query_scalar(APPLIED).fetch_one(connection).await;
        let versions: Vec<i64> = versions.doing(LOOK_AT_VERSION)?;
        Ok(versions.into_iter().collect())
    }
}

fn status(applied: &HashSet<i64>) -> SchemaStatus {
    let versions = MIGRATIONS.iter().map(|one| one.0);
    SchemaStatus {
        applied: applied.iter().copied().max().unwrap_or(0),
        known: versions.clone().max().unwrap_or(0),
        missing: versions.filter(|version| !applied.contains(version)).min(),
    }
}
