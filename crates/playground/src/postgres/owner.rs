//! Statements of the owner, at a server that may recover from a crash meanwhile.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, Connection, Executor};
use tokio::time::sleep;

use super::PrivatePostgres;
use crate::PlaygroundError;

/// The SQLSTATEs of a server that ends a connection because another process of it crashed, and of one that recovers.
const CRASH_SHUTDOWN: &str = "57P02";
const CANNOT_CONNECT_NOW: &str = "57P03";
/// How long a statement waits for a server that recovers.
const PATIENCE: Duration = Duration::from_mins(1);

impl PrivatePostgres {
    /// Runs one statement as the owner. When one of its processes crashes, a server ends all others and recovers by itself: the
    /// statement is tried until it answers again.
    pub async fn say(&self, database: &str, statement: &str) -> Result<(), PlaygroundError> {
        let began = Instant::now();
        loop {
            match self.try_to_say(database, statement).await {
                Err(error) if recovers(&error) && began.elapsed() < PATIENCE => {
                    sleep(Duration::from_millis(20)).await;
                }
                said => {
                    return said.map_err(|source| PlaygroundError::Statement {
                        statement: statement.to_owned(),
                        source: Box::new(source),
                    });
                }
            }
        }
    }

    async fn try_to_say(&self, database: &str, statement: &str) -> Result<(), sqlx::Error> {
        let mut connection = self.connect(database).await?;
        // The read-only setting is for the nodes. This connection must still be able to write.
        connection.execute("set default_transaction_read_only = off").await?;
        connection.execute(AssertSqlSafe(statement)).await?;
        connection.close().await
    }
}

/// Whether the server ends its connections after a crash, or recovers from it.
fn recovers(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(error) => {
            error.code().is_some_and(|code| [CRASH_SHUTDOWN, CANNOT_CONNECT_NOW].contains(&&*code))
        }
        sqlx::Error::Io(error) => !matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound),
        _ => false,
    }
}
