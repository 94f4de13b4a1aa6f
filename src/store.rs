//! The store: refunds, their journal, the ledger of permits and what holds channels back, in Postgres.
//!
//! Every state change is one statement, conditional on the state it leaves; a method is one such
//! statement and what it means. Nothing here decides when to call it.
//!
//! Times are Postgres's own. Where a caller hands in a time it is a span to add to `now()`, never a
//! point on some node's clock; the windows of permits are Redis's and are checked against ours.

mod census;
mod channels;
mod claim;
mod connections;
mod copy;
mod deadlines;
mod due;
mod inquire;
mod journal;
mod ledger;
mod look;
mod migrations;
mod nodes;
mod proof;
mod recover;
mod review;
mod rights;
mod rules;
mod save;
mod session;
mod settle;
mod shares;
mod witness;
mod zone_days;

use std::str::FromStr;
use std::time::Duration;

use sqlx::Row;
use sqlx::postgres::{PgConnectOptions, PgRow};

use connections::{Ask, Connections};

pub use census::ChannelCensus;
pub use channels::{Held, LeftBehind, Published, Refusal};
pub use claim::{Asked, Claimed};
pub use deadlines::Forecast;
pub use inquire::Inquired;
pub use journal::{Evidence, Turned};
pub use ledger::Spent;
pub use look::{Cancelled, Filter};
pub use migrations::SchemaStatus;
pub use nodes::{Beat, Company};
pub use proof::{Offence, Provable, Question, Witness};
pub use recover::Lapsed;
pub use review::{Decided, Decision};
pub use save::Saved;
pub use settle::Settled;
pub use witness::{ClockStep, ClockWitness, RedisTime};

/// What went wrong between us and Postgres.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The url cannot be understood.
    #[error("read the Postgres url")]
    Url(#[source] sqlx::Error),
    /// No connection could be made.
    #[error("reach Postgres at {server}, as the [postgres] url says")]
    Unreachable { server: String, source: sqlx::Error },
    /// A statement failed, or Postgres could not be reached.
    #[error("{doing}")]
    Statement { doing: &'static str, source: sqlx::Error },
    /// Another role owns the schema, and this one may not become it.
    #[error(
        "migrate the schema: role `{role}` does not own its tables; run `refundd migrate` as `{owner}` or as a member of it"
    )]
    NotOwner { role: String, owner: String },
    /// The schema could not be brought up to date.
    #[error("migrate the schema")]
    Migrate(#[source] sqlx::migrate::MigrateError),
    /// A row holds what we never write.
    #[error("understand row {id} of {table}: column `{column}` holds `{found}`")]
    Row { table: &'static str, id: i64, column: &'static str, found: String },
}

impl StoreError {
    /// Whether the values of a row are at fault, so that trying again can never help.
    pub fn is_about_the_row(&self) -> bool {
        let StoreError::Statement { source: sqlx::Error::Database(error), .. } = self else { return false };
        error.code().is_some_and(|code| ["22", "23", "RD"].iter().any(|class| code.starts_with(class)))
    }

    /// Whether another refund of the channel has this reference of the bank's.
    pub fn is_taken_reference(&self) -> bool {
        let StoreError::Statement { source: sqlx::Error::Database(error), .. } = self else { return false };
        error.constraint() == Some("refunds_bank_ref_belongs_to_one_refund")
    }

    /// Whether somebody else held a row or a table for longer than we wait for it, or waited for us in turn.
    pub fn is_a_lock(&self) -> bool {
        let StoreError::Statement { source: sqlx::Error::Database(error), .. } = self else { return false };
        error.code().is_some_and(|code| code == "55P03" || code == "40P01")
    }

    /// Whether the session that Postgres, or a pooler before it, gives us breaks a promise until somebody
    /// changes a setting.
    pub fn is_unfit(&self) -> bool {
        let (StoreError::Statement { source, .. } | StoreError::Unreachable { source, .. }) = self else {
            return false;
        };
        let sqlx::Error::Configuration(cause) = source else { return false };
        cause.downcast_ref::<session::Unfit>().is_some_and(|unfit| !unfit.may_pass())
    }

    /// Whether Postgres is away (down, starting, out of connections, demoted), so that trying later helps.
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
            // Its session is not as it must be: a setting of a role, a database or a pooler, which people change.
            | sqlx::Error::Configuration(_)
            | sqlx::Error::WorkerCrashed => true,
            // 08 connection, 25006 read-only, 53 resources, 55P03 and 57014 our own time-outs, 57P0x shut down, 40 try again
            sqlx::Error::Database(error) => error.code().is_some_and(|code| {
                ["08", "53", "57", "40"].iter().any(|class| code.starts_with(class))
                    || code == "25006"
                    || code == "55P03"
            }),
            _ => false,
        }
    }
}

/// Names the step for the error of a statement.
trait Doing<T> {
    fn doing(self, doing: &'static str) -> Result<T, StoreError>;
}

impl<T> Doing<T> for Result<T, sqlx::Error> {
    fn doing(self, doing: &'static str) -> Result<T, StoreError> {
        self.map_err(|source| StoreError::Statement { doing, source })
    }
}

/// The database, through a few connections. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    db: Connections,
    /// Watches Postgres's clock for a node.
    witness: Option<ClockWitness>,
}

impl Store {
    /// Prepares for at most `connections`; the first is made when first needed.
    /// `password` overrides the url's.
    pub fn open(url: &str, password: Option<&str>, connections: u32) -> Result<Self, StoreError> {
        let mut options =
            PgConnectOptions::from_str(url).map_err(StoreError::Url)?.application_name("refundd");
        if let Some(password) = password {
            options = options.password(password);
        }
        Ok(Store { db: Connections::new(options, connections), witness: None })
    }

    /// Makes one connection, and says what stands in the way; waiting for one only says how long it took.
    pub async fn reach(&self) -> Result<(), StoreError> {
        let options = self.db.options();
        let server = match options.get_socket() {
            Some(socket) => socket.display().to_string(),
            None => format!("{}:{}", options.get_host(), options.get_port()),
        };
        self.db.try_one().await.map_err(|source| StoreError::Unreachable { server, source })
    }

    /// Whether Postgres answers and takes writes; a demoted primary still answers pings.
    pub async fn ping(&self) -> Result<(), StoreError> {
        let row = sqlx::query("select pg_is_in_recovery() as demoted")
            .one(&self.db)
            .await
            .doing("ping Postgres")?;
        if row.get::<bool, _>("demoted") {
            let source = sqlx::Error::Protocol("this Postgres is a standby: it takes no writes".to_owned());
            return Err(StoreError::Statement { doing: "ping Postgres", source });
        }
        Ok(())
    }

    /// Closes the connections that rest; those that work are closed when they are done.
    pub async fn close(&self) {
        self.db.close().await;
    }
}

/// A span as the microseconds that statements take.
fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX / 4)
}

/// Reads a column of microseconds since 1970.
fn timestamp(row: &PgRow, column: &'static str) -> Option<jiff::Timestamp> {
    row.get::<Option<i64>, _>(column).and_then(|us| jiff::Timestamp::from_microsecond(us).ok())
}

/// Every statement, for the test that prepares each on a migrated database.
#[must_use]
pub fn statements() -> Vec<(&'static str, &'static str)> {
    [
        save::STATEMENTS,
        copy::STATEMENTS,
        look::STATEMENTS,
        claim::STATEMENTS,
        settle::STATEMENTS,
        deadlines::STATEMENTS,
        due::STATEMENTS,
        inquire::STATEMENTS,
        journal::STATEMENTS,
        ledger::STATEMENTS,
        recover::STATEMENTS,
        review::STATEMENTS,
        channels::STATEMENTS,
        nodes::STATEMENTS,
        census::STATEMENTS,
        shares::STATEMENTS,
        witness::STATEMENTS,
        rights::STATEMENTS,
        rules::STATEMENTS,
        zone_days::STATEMENTS,
        proof::STATEMENTS,
    ]
    .concat()
}
