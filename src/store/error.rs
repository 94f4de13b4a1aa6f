//! What may go wrong with Postgres, and what a caller may conclude from it.

use sqlx::error::DatabaseError;

use super::refusal::{is_rolled_back, readable};
use super::session::Unfit;
use crate::refund::card;

/// The step that claims refunds, without the count of permits that follows its commit.
pub(super) const CLAIMING: &str = "claim refunds";

/// An error of Postgres, or of the way to Postgres.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The url is not valid.
    #[error("read the Postgres url")]
    Url(#[source] sqlx::Error),
    /// No connection could be made.
    #[error("reach Postgres at {server}, as the [postgres] url says")]
    Unreachable { server: String, source: sqlx::Error },
    /// A statement failed, or Postgres could not be reached.
    #[error("{doing}")]
    Statement { doing: &'static str, source: sqlx::Error },
    /// Another role owns the schema, and this role is not a member of the owner.
    #[error(
        "migrate the schema: role `{role}` does not own its tables; run `refundd migrate` as `{owner}` or as a member of it, \
         as \"Migrating as the owner\" in docs/upgrading.md says"
    )]
    NotOwner { role: String, owner: String },
    /// The database has no schema yet, and this role may create none.
    #[error(
        "migrate the schema: role `{role}` may create no schema in database `{database}`; run `refundd migrate` as `{owner}`, its owner, \
         as \"Migrating as the owner\" in docs/upgrading.md says"
    )]
    MayNotCreate { role: String, database: String, owner: String },
    /// Another session has had the lock of migrations for too long.
    #[error(
        "migrate the schema: after {seconds} s {holder}, still has the lock of migrations; if it is another `refundd migrate`, run this one again \
         after its end; otherwise end that session with pg_terminate_backend"
    )]
    MigrationIsLocked { holder: String, seconds: u64 },
    /// A lock that a migration needs was not free in time.
    #[error("migrate the schema: {why}")]
    MigrationGotNoLock { why: String, source: sqlx::migrate::MigrateError },
    /// A commit before the first release applied another text of this migration.
    #[error(
        "migrate the schema: a commit before the first release applied migration {version} with another text, and no upgrade from it is \
         supported; \"Databases of earlier commits\" in docs/upgrading.md says how to go on"
    )]
    MigrationIsAnother { version: i64 },
    /// The schema could not be brought up to date.
    #[error("migrate the schema")]
    Migrate(#[source] sqlx::migrate::MigrateError),
    /// A column of a row holds a value that refundd never writes.
    #[error("understand row {id} of {table}: column `{column}` holds `{found}`")]
    Row { table: &'static str, id: i64, column: &'static str, found: String },
}

impl StoreError {
    /// The answer of Postgres that made a statement fail; `None` if there was none.
    fn answer(&self) -> Option<&(dyn DatabaseError + 'static)> {
        let StoreError::Statement { source, .. } = self else { return None };
        source.as_database_error()
    }

    /// Whether Postgres refused the values of a row. Another try would fail, too. That is not so for a number that another row has:
    /// the next try gets another number, because it comes from a sequence that is behind its table.
    pub fn is_about_the_row(&self) -> bool {
        self.answer().is_some_and(|answer| {
            let is_number = answer.constraint().is_some_and(|name| name.ends_with("_pkey"));
            has_code(answer, &["22", "23", "RD"]) && !is_number
        })
    }

    /// The database's message about the values of a row that it refused, without card numbers; `None` for every other error. See
    /// [`StoreError::is_about_the_row`].
    pub fn refusal(&self) -> Option<String> {
        let answer = self.answer().filter(|_| self.is_about_the_row())?;
        Some(format!("the database refuses it: {}", card::masked(answer.message())))
    }

    /// Whether a claim was surely rolled back. Otherwise it may have been committed although it failed. Poolers answer with errors of
    /// their own in some of these classes.
    pub fn is_refused_claim(&self) -> bool {
        let is_claim = matches!(self, StoreError::Statement { doing, .. } if *doing == CLAIMING);
        is_claim
            && self.answer().is_some_and(|answer| {
                is_rolled_back(answer) && !has_code(answer, &["08", "40003", "57000", "57P", "58", "XX"])
            })
    }

    /// Whether another refund of the channel already has this bank reference.
    pub fn is_taken_reference(&self) -> bool {
        self.answer()
            .is_some_and(|answer| answer.constraint() == Some("refunds_bank_ref_belongs_to_one_refund"))
    }

    /// Whether another transaction kept a lock for longer than the session waits, or was part of a deadlock.
    pub fn is_a_lock(&self) -> bool {
        self.answer().is_some_and(|answer| has_code(answer, &["55P03", "40P01"]))
    }

    /// Whether Postgres gave the transaction up to end a deadlock.
    pub fn is_a_deadlock(&self) -> bool {
        self.answer().is_some_and(|answer| has_code(answer, &["40P01"]))
    }

    /// Whether Postgres gave the statement up because it worked on it for too long. One refund may be slow, or Postgres is.
    pub fn is_too_slow(&self) -> bool {
        self.answer().is_some_and(|answer| has_code(answer, &["57014"]))
    }

    /// Whether Postgres would not take another statement either. A lock, or a statement that is too slow, says nothing
    /// about other statements.
    pub fn is_away(&self) -> bool {
        self.is_outage() && !self.is_too_slow() && !self.is_a_lock()
    }

    /// Whether a session of Postgres or of a pooler has a wrong setting that only a person can correct.
    pub fn is_unfit(&self) -> bool {
        let (StoreError::Statement { source, .. } | StoreError::Unreachable { source, .. }) = self else {
            return false;
        };
        let sqlx::Error::Configuration(cause) = source else { return false };
        cause.downcast_ref::<Unfit>().is_some_and(|unfit| !unfit.may_pass())
    }

    /// Whether Postgres is away: down, starting, out of connections, demoted, or it lets this role in no more. A later try
    /// can succeed.
    pub fn is_outage(&self) -> bool {
        let (StoreError::Statement { source, .. } | StoreError::Unreachable { source, .. }) = self else {
            return false;
        };
        match source {
            sqlx::Error::Io(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
            // The session has a wrong setting. A person can correct it in the role, the database or the pooler.
            | sqlx::Error::Configuration(_)
            | sqlx::Error::WorkerCrashed => true,
            // 08 connection, 25006 read-only, 53 resources, 55P03 and 57014 time-outs that the session sets,
            // 57P0x shutdown, 40 rollback, 28 a changed password or pg_hba.conf, 25P04 a time-out that somebody set: try
            // again.
            sqlx::Error::Database(answer) => {
                has_code(&**answer, &["08", "28", "40", "53", "57", "25006", "25P04", "55P03"])
            }
            _ => false,
        }
    }
}

/// Whether an answer of Postgres has one of these codes, or a code of one of these classes.
fn has_code(answer: &dyn DatabaseError, codes: &[&str]) -> bool {
    answer.code().is_some_and(|code| codes.iter().any(|one| code.starts_with(one)))
}

/// Names the step that failed in the error of a statement.
pub(super) trait Doing<T> {
    fn doing(self, doing: &'static str) -> Result<T, StoreError>;
}

impl<T> Doing<T> for Result<T, sqlx::Error> {
    fn doing(self, doing: &'static str) -> Result<T, StoreError> {
        self.map_err(|source| StoreError::Statement { doing, source: readable(source) })
    }
}
