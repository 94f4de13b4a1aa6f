//! Asks whether Postgres can be reached, whether it takes writes, and how far a standby has come.

use std::fmt;

use sqlx::Row;

use super::connections::Ask;
use super::{Doing, Store, StoreError, refusal};
use crate::prove::time;

const PING: &str = "select pg_is_in_recovery() as is_standby, current_setting('transaction_read_only') = 'on' as is_read_only";

// A standby that was promoted keeps the time of its last replay. A commit that is not replayed was written after this one, so its
// claim sent nothing before this time.
const REPLAYED: &str = "
    select (extract(epoch from coalesce(pg_last_xact_replay_timestamp(), timestamptz 'epoch')) * 1000000)::bigint as until_us
     where pg_is_in_recovery()";

pub(super) const STATEMENTS: &[(&str, &str)] = &[("ping", PING), ("replayed", REPLAYED)];

/// How far a standby has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replayed {
    /// The time of the last commit that it has, by the primary's clock, in microseconds since 1970; 0 if it has replayed none since
    /// it started.
    pub until_us: i64,
}

impl Replayed {
    /// The time of the last commit that it has replayed since it started, if it has replayed one.
    #[must_use]
    pub fn until(self) -> Option<i64> {
        (self.until_us != 0).then_some(self.until_us)
    }
}

impl fmt::Display for Replayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.until() {
            None => f.write_str("this Postgres is a standby that has replayed no commit since it started"),
            Some(until) => {
                write!(f, "this Postgres is a standby that has replayed commits until {}", time(until))
            }
        }
    }
}

impl Store {
    /// Opens one connection, checks its session and closes it; the error names the cause of a failure.
    /// A statement that gets no connection reports only how long it waited.
    pub async fn reach(&self) -> Result<(), StoreError> {
        let options = self.db.options();
        let server = match options.get_socket() {
            Some(socket) => socket.display().to_string(),
            None => format!("{}:{}", options.get_host(), options.get_port()),
        };
        let unreachable = |source| StoreError::Unreachable { server, source: refusal::readable(source) };
        self.db.try_one().await.map_err(unreachable)
    }

    /// Fails unless Postgres answers and takes writes.
    pub async fn ping(&self) -> Result<(), StoreError> {
        match self.takes_no_writes().await? {
            None => Ok(()),
            Some(why) => Err(StoreError::Statement {
                doing: "ping Postgres",
                source: sqlx::Error::Protocol(why.to_owned()),
            }),
        }
    }

    /// How far a standby has come; `None` on a primary, which has everything.
    pub async fn replayed(&self) -> Result<Option<Replayed>, StoreError> {
        let row = sqlx::query(REPLAYED).maybe(&self.db).await.doing("ask how far the standby has come")?;
        Ok(row.map(|row| Replayed { until_us: row.get("until_us") }))
    }

    /// Why Postgres answers and takes no writes; `None` when it takes writes.
    pub async fn takes_no_writes(&self) -> Result<Option<&'static str>, StoreError> {
        let row = sqlx::query(PING).one(&self.db).await.doing("ping Postgres")?;
        Ok(match (row.get("is_standby"), row.get("is_read_only")) {
            (true, _) => Some("this Postgres is a standby: it takes no writes"),
            (false, true) => Some("this Postgres takes no writes: `default_transaction_read_only` is on"),
            (false, false) => None,
        })
    }
}
