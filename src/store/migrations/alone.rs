//! Lets one program at a time migrate a database.
//!
//! The second one asks for the lock again and again. A statement that waited for it would end after the `lock_timeout` of the
//! session. And the first one's concurrent builds would wait for that statement, so that each program would wait for the other.

use std::time::Duration;

use sqlx::Error;
use sqlx::postgres::PgConnection;

/// The advisory lock of a migration. Programs before 0.1.0 take it while they build indexes, and sqlx's own lock otherwise.
const LOCK: i64 = 0x7265_6675_6e64_0039;
const TRY_AGAIN: Duration = Duration::from_millis(100);

/// Waits until no other program migrates this database. The lock ends with the connection.
pub(super) async fn wait(connection: &mut PgConnection) -> Result<(), Error> {
    loop {
        let lock = sqlx::query_scalar("select pg_try_advisory_lock($1)").bind(LOCK);
        let is_mine: bool = lock.fetch_one(&mut *connection).await?;
        if is_mine {
            return Ok(());
        }
        tokio::time::sleep(TRY_AGAIN).await;
    }
}
