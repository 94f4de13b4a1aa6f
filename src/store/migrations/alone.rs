//! Lets one program at a time migrate a database.
//!
//! The second one asks for the lock again and again. A statement that waited for it would end after the `lock_timeout` of the
//! session. And the first one's concurrent builds would wait for that statement, so that each program would wait for the other.

use std::time::{Duration, Instant};

use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{Error, Row};

use crate::store::{Doing, StoreError};

/// The advisory lock of a migration. Programs before 0.1.0 take it while they build indexes, and sqlx's own lock otherwise.
const LOCK: i64 = 0x7265_6675_6e64_0039;
const TRY_AGAIN: Duration = Duration::from_millis(100);
const TELL_AGAIN: Duration = Duration::from_secs(10);

/// The session that has the lock; a prepared transaction has no pid. Every role may read these columns.
const HOLDER: &str = "
    select l.pid, coalesce(a.usename::text, '') as role, coalesce(a.application_name, '') as program
      from pg_catalog.pg_locks l
      left join pg_catalog.pg_stat_activity a on a.pid = l.pid
     where l.locktype = 'advisory' and l.granted and l.objsubid = 1
       and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
       and ((l.classid::bigint << 32) | l.objid::bigint) = $1";

/// Waits until no other program migrates this database, and fails after `patience`. Names to `tell` the session that has the lock,
/// at the start and every ten seconds. The lock ends with the connection.
pub(super) async fn wait(
    connection: &mut PgConnection,
    patience: Duration,
    mut tell: impl FnMut(String),
) -> Result<(), StoreError> {
    let began = Instant::now();
    let mut named_at: Option<Instant> = None;
    loop {
        let lock = sqlx::query_scalar("select pg_try_advisory_lock($1)").bind(LOCK);
        let is_mine: bool = lock.fetch_one(&mut *connection).await.doing("ask for the lock of migrations")?;
        if is_mine {
            return Ok(());
        }
        let is_over = began.elapsed() >= patience;
        // Without a holder the lock has just become free, and the next try may get it.
        if (is_over || named_at.is_none_or(|at| at.elapsed() >= TELL_AGAIN))
            && let Some(holder) = holder(connection).await.doing("ask who has the lock of migrations")?
        {
            if is_over {
                return Err(StoreError::MigrationIsLocked { holder, seconds: patience.as_secs() });
            }
            tell(holder);
            named_at = Some(Instant::now());
        }
        tokio::time::sleep(TRY_AGAIN).await;
    }
}

/// Names the session that has the lock; `None` if none has it any more.
async fn holder(connection: &mut PgConnection) -> Result<Option<String>, Error> {
    let row = sqlx::query(HOLDER).bind(LOCK).fetch_optional(connection).await?;
    Ok(row.as_ref().map(name))
}

/// The name of a session that has a lock, from its `pid`, `role` and `program`.
pub(super) fn name(row: &PgRow) -> String {
    let (pid, role, program): (Option<i32>, String, String) =
        (row.get("pid"), row.get("role"), row.get("program"));
    match pid {
        Some(pid) => format!("the session with pid {pid} of role `{role}`, application `{program}`"),
        None => "a prepared transaction (pg_prepared_xacts)".to_owned(),
    }
}
