//! Asks whether Postgres can be reached, and whether it takes writes.

use sqlx::Row;

use super::connections::Ask;
use super::{Doing, Store, StoreError, refusal};

const PING: &str = "select pg_is_in_recovery() as is_standby, current_setting('transaction_read_only') = 'on' as is_read_only";

pub(super) const STATEMENTS: &[(&str, &str)] = &[("ping", PING)];

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
