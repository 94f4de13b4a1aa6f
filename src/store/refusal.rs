//! Errors of Postgres as people read them.
//!
//! sqlx adds the line in Postgres's own source to each message, which helps nobody. And a missing database, or a login that
//! Postgres refuses, names its cure here.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;

use sqlx::Error;
use sqlx::error::{DatabaseError, ErrorKind};
use sqlx::migrate::MigrateError;
use sqlx::postgres::{PgDatabaseError, PgSeverity};

/// An error that Postgres answered, without the line of its source.
#[derive(Debug)]
struct Refusal(Box<dyn DatabaseError>);

/// The code of a database that does not exist.
const NO_DATABASE: &str = "3D000";
/// The code of a wrong password.
const WRONG_PASSWORD: &str = "28P01";
/// The code of a role that may not log in, and of a connection that `pg_hba.conf` refuses.
const NOT_LET_IN: &str = "28000";

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())?;
        match self.code().as_deref() {
            Some(NO_DATABASE) => f.write_str(
                "; create it with `createdb`, run `refundd migrate`, and give the nodes' role its rights with config/node-role.sql; or correct the \
                 [postgres] url",
            ),
            Some(WRONG_PASSWORD) => f.write_str(
                "; give the role the password that this node has, with `alter role`, or correct the node's: a reload reads \
                 `password_file` again, and for a password elsewhere restart the node",
            ),
            Some(NOT_LET_IN) => f.write_str(
                "; correct pg_hba.conf or the role, or correct the [postgres] url and restart the node",
            ),
            _ => Ok(()),
        }
    }
}

impl StdError for Refusal {}

impl DatabaseError for Refusal {
    fn message(&self) -> &str {
        self.0.message()
    }

    fn code(&self) -> Option<Cow<'_, str>> {
        self.0.code()
    }

    fn constraint(&self) -> Option<&str> {
        self.0.constraint()
    }

    fn table(&self) -> Option<&str> {
        self.0.table()
    }

    fn kind(&self) -> ErrorKind {
        self.0.kind()
    }

    fn is_transient_in_connect_phase(&self) -> bool {
        self.0.is_transient_in_connect_phase()
    }

    fn as_error(&self) -> &(dyn StdError + Send + Sync + 'static) {
        self
    }

    fn as_error_mut(&mut self) -> &mut (dyn StdError + Send + Sync + 'static) {
        self
    }

    fn into_error(self: Box<Self>) -> Box<dyn StdError + Send + Sync + 'static> {
        self
    }
}

/// The same error, readable.
pub(super) fn readable(error: Error) -> Error {
    match error {
        Error::Database(refusal) => Error::Database(Box::new(Refusal(refusal))),
        other => other,
    }
}

/// Whether Postgres ended the transaction alone. An error that ends the session as well may come after the commit.
pub(super) fn is_rolled_back(error: &(dyn DatabaseError + 'static)) -> bool {
    let refusal = error.try_downcast_ref::<Refusal>().and_then(|Refusal(of)| of.try_downcast_ref());
    refusal.is_some_and(|of: &PgDatabaseError| matches!(of.severity(), PgSeverity::Error))
}

/// The same error of a migration, readable.
pub(super) fn readable_migration(error: MigrateError) -> MigrateError {
    match error {
        MigrateError::Execute(error) => MigrateError::Execute(readable(error)),
        MigrateError::ExecuteMigration(error, version) => {
            MigrateError::ExecuteMigration(readable(error), version)
        }
        other => other,
    }
}
