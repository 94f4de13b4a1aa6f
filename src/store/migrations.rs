//! The migrations of the schema, embedded in the program, and the version of a database's schema.

mod concurrent;

use std::borrow::Cow;
use std::fmt;

use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection, Row, SqlSafeStr};

use super::connections::Ask;
use super::{Doing, Store, StoreError, refusal};

/// The migrations in order. A merged migration is never edited.
const MIGRATIONS: &[(i64, &str, &str)] = &[
    (1, "channels", include_str!("../../migrations/0001_channels.sql")),
    (2, "refunds", include_str!("../../migrations/0002_refunds.sql")),
    (3, "attempts", include_str!("../../migrations/0003_attempts.sql")),
    (4, "permits", include_str!("../../migrations/0004_permits.sql")),
    (5, "nodes", include_str!("../../migrations/0005_nodes.sql")),
    (6, "legal moves", include_str!("../../migrations/0006_legal_moves.sql")),
    (7, "enqueue", include_str!("../../migrations/0007_enqueue.sql")),
    (8, "limits", include_str!("../../migrations/0008_limits.sql")),
    (9, "inquiries", include_str!("../../migrations/0009_inquiries.sql")),
    (10, "deadlines", include_str!("../../migrations/0010_deadlines.sql")),
    (11, "permits_spent_at", include_str!("../../migrations/0011_permits_spent_at.sql")),
    (12, "laws by statement", include_str!("../../migrations/0012_laws_by_statement.sql")),
    (13, "permits by day", include_str!("../../migrations/0013_permits_by_day.sql")),
    (14, "ended_are_counted_once", include_str!("../../migrations/0014_ended_are_counted_once.sql")),
    (15, "attempts_by_month", include_str!("../../migrations/0015_attempts_by_month.sql")),
    (16, "vacuum_refunds_sooner", include_str!("../../migrations/0016_vacuum_refunds_sooner.sql")),
    (
        17,
        "ended_wait_for_who_was_at_it",
        include_str!("../../migrations/0017_ended_wait_for_who_was_at_it.sql"),
    ),
    (
        18,
        "a_decision_names_what_it_saw",
        include_str!("../../migrations/0018_a_decision_names_what_it_saw.sql"),
    ),
    (19, "addresses", include_str!("../../migrations/0019_addresses.sql")),
    (20, "clock_steps", include_str!("../../migrations/0020_clock_steps.sql")),
    (
        21,
        "edges_and_memory_are_shared",
        include_str!("../../migrations/0021_edges_and_memory_are_shared.sql"),
    ),
    (23, "fitting_reaction", include_str!("../../migrations/0023_fitting_reaction.sql")),
    (
        24,
        "one_server_counts_fixed_windows",
        include_str!("../../migrations/0024_one_server_counts_fixed_windows.sql"),
    ),
    (
        25,
        "steps_are_counted_in_their_order",
        include_str!("../../migrations/0025_steps_are_counted_in_their_order.sql"),
    ),
    (26, "rules_are_json", include_str!("../../migrations/0026_rules_are_json.sql")),
    (
        27,
        "owners_decide_what_evidence_stays",
        include_str!("../../migrations/0027_owners_decide_what_evidence_stays.sql"),
    ),
    (28, "sql_takes_what_http_takes", include_str!("../../migrations/0028_sql_takes_what_http_takes.sql")),
    (
        29,
        "producers_keep_to_their_channels",
        include_str!("../../migrations/0029_producers_keep_to_their_channels.sql"),
    ),
    (30, "claims_check_rules", include_str!("../../migrations/0030_claims_check_rules.sql")),
    (31, "the_journal_is_sealed", include_str!("../../migrations/0031_the_journal_is_sealed.sql")),
    (
        32,
        "sql_finds_cards_as_rust_does",
        include_str!("../../migrations/0032_sql_finds_cards_as_rust_does.sql"),
    ),
    (35, "amounts_have_bounds", include_str!("../../migrations/0035_amounts_have_bounds.sql")),
    (36, "two_people_decide", include_str!("../../migrations/0036_two_people_decide.sql")),
    (37, "events_and_suspensions", include_str!("../../migrations/0037_events_and_suspensions.sql")),
    (38, "a_cancellation_is_kept", include_str!("../../migrations/0038_a_cancellation_is_kept.sql")),
    (
        39,
        "refunds_are_found_by_their_names",
        include_str!("../../migrations/0039_refunds_are_found_by_their_names.sql"),
    ),
    (
        40,
        "refunds_move_to_another_channel",
        include_str!("../../migrations/0040_refunds_move_to_another_channel.sql"),
    ),
    (
        41,
        "changes_are_read_from_the_journal",
        include_str!("../../migrations/0041_changes_are_read_from_the_journal.sql"),
    ),
    (42, "refunds_belong_to_traces", include_str!("../../migrations/0042_refunds_belong_to_traces.sql")),
    (
        43,
        "permits_of_another_clock_count_by_postgres_clock",
        include_str!("../../migrations/0043_permits_of_another_clock_count_by_postgres_clock.sql"),
    ),
    (
        44,
        "lower_numbers_bound_what_is_spent_after_them",
        include_str!("../../migrations/0044_lower_numbers_bound_what_is_spent_after_them.sql"),
    ),
    (
        45,
        "proposals_and_reloads_are_events",
        include_str!("../../migrations/0045_proposals_and_reloads_are_events.sql"),
    ),
    (
        46,
        "a_bank_that_refuses_everything_is_an_event",
        include_str!("../../migrations/0046_a_bank_that_refuses_everything_is_an_event.sql"),
    ),
    (
        47,
        "nodes_move_refunds_with_evidence",
        include_str!("../../migrations/0047_nodes_move_refunds_with_evidence.sql"),
    ),
    (
        48,
        "functions_have_a_search_path",
        include_str!("../../migrations/0048_functions_have_a_search_path.sql"),
    ),
    (
        49,
        "doors_refuse_what_slipped_through",
        include_str!("../../migrations/0049_doors_refuse_what_slipped_through.sql"),
    ),
    (50, "names_of_permits_are_near", include_str!("../../migrations/0050_names_of_permits_are_near.sql")),
    (51, "usual_moves_cost_less", include_str!("../../migrations/0051_usual_moves_cost_less.sql")),
    (52, "enqueue_names_what_differs", include_str!("../../migrations/0052_enqueue_names_what_differs.sql")),
    (53, "late_answers_are_believed", include_str!("../../migrations/0053_late_answers_are_believed.sql")),
    (54, "what_the_bank_has_is_shown", include_str!("../../migrations/0054_what_the_bank_has_is_shown.sql")),
];

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
}

impl SchemaStatus {
    /// Whether the schema is new enough. A newer schema is fine: migrations remove nothing that older nodes need.
    pub fn is_enough(self) -> bool {
        self.applied >= self.known
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

fn migration(&(version, name, sql): &(i64, &'static str, &'static str)) -> Migration {
    Migration::new(version, Cow::Borrowed(name), MigrationType::Simple, sql.into_sql_str(), false)
}

fn unmade(error: MigrateError) -> StoreError {
    StoreError::Migrate(refusal::readable_migration(error))
}

/// A migrator for these migrations.
fn migrator(migrations: &[(i64, &'static str, &'static str)]) -> Migrator {
    let mut migrator = Migrator::with_migrations(migrations.iter().map(migration).collect());
    migrator.set_ignore_missing(true); // a newer program may have applied later migrations
    migrator.create_schema("refundd");
    migrator.dangerous_set_table_name(TABLE);
    migrator
}

impl Store {
    /// Brings the schema up to date; does nothing if it is. Creates objects as the owner of the schema's tables,
    /// because functions that run with their owner's rights call each other. Fails with [`StoreError::NotOwner`] if
    /// this role is not a member of the owner.
    pub async fn migrate(&self) -> Result<SchemaStatus, StoreError> {
        self.migrate_telling(|_| ()).await
    }

    /// Does what [`Store::migrate`] does, and calls `tell` before each migration.
    pub async fn migrate_telling(
        &self,
        mut tell: impl FnMut(MigrationStep),
    ) -> Result<SchemaStatus, StoreError> {
        let status = self.schema().await;
        if let Ok(status) = &status
            && status.is_enough()
        {
            return Ok(*status);
        }
        let mut connection = self.db.make().await.doing("reach Postgres")?;
        self.become_owner(&mut connection).await?;
        let status = status?;
        let pending: Vec<usize> =
            (0..MIGRATIONS.len()).filter(|&place| MIGRATIONS[place].0 > status.applied).collect();
        let count = pending.len();
        for (nth, &place) in (1..).zip(&pending) {
            let one = &MIGRATIONS[place];
            tell(MigrationStep { version: one.0, name: one.1, nth, count });
            if CONCURRENT.contains(&one.0) {
                concurrent::build(&mut connection, &migration(one)).await.doing("build indexes")?;
            } else {
                migrator(&MIGRATIONS[..=place]).run(&mut connection).await.map_err(unmade)?;
            }
        }
        connection.close().await.doing("close a connection")?;
        self.schema().await
    }

    /// Becomes the owner of the schema's tables, if there are any. The error names who can migrate, and how.
    async fn become_owner(&self, connection: &mut PgConnection) -> Result<(), StoreError> {
        let row = sqlx::query(OWNER).fetch_one(&mut *connection).await;
        let row = row.doing("ask who owns the schema's tables")?;
        let (role, owner): (String, String) = (row.get("role"), row.get("owner"));
        let database: String = row.get("database");
        let options = self.db.options();
        let socket = options.get_socket().map(|folder| format!("?host={}", folder.display()));
        let url = format!(
            "postgres://{owner}@{}:{}/{database}{}",
            options.get_host(),
            options.get_port(),
            socket.unwrap_or_default()
        );
        if !row.get::<bool, _>("has_tables") {
            return if row.get("may_create") {
                Ok(())
            } else {
                Err(StoreError::MayNotCreate { role, database, owner, url })
            };
        }
        if !row.get::<bool, _>("is_member") {
            return Err(StoreError::NotOwner { role, owner, url });
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
        let known = MIGRATIONS.iter().map(|m| m.0).max().unwrap_or(0);
        let there: bool = sqlx::query_scalar("select to_regclass('refundd.migrations') is not null")
            .one(&self.db)
            .await
            .doing("look for the schema")?;
        let applied = if there {
            sqlx::query_scalar("select coalesce(max(version), 0) from refundd.migrations where success")
                .one(&self.db)
                .await
                .doing("look at the schema's version")?
        } else {
            0
        };
        Ok(SchemaStatus { applied, known })
    }
}
