//! Sets up the session of a new connection: sets the settings that refundd relies on, and refuses a session that does
//! not keep them.
//!
//! refundd uses no start-up parameters, because a pooler drops them. It sets everything after connecting, which also
//! overrides the defaults of a role or a database. A pooler in transaction mode would lose these settings, or give
//! them to other clients. So each session gets a mark: a new session must have no mark, and must still have its own
//! mark in the next transaction.
//!
//! The check costs two round trips for each new connection and nothing afterwards.

use std::io;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection, PgRow};
use sqlx::{AssertSqlSafe, Connection, Error, Executor, Row};

/// A session with a wrong setting: the setting, its value, the needed value, and how to correct it.
#[derive(Debug, thiserror::Error)]
#[error("Postgres's `{setting}` is `{found}` for this connection and must be `{needed}`: {way_out}")]
pub struct Unfit {
    setting: String,
    found: String,
    needed: String,
    way_out: &'static str,
}

impl Unfit {
    /// Whether the session may become fit by itself: a server that is being drained takes no writes for a while.
    pub fn may_pass(&self) -> bool {
        self.setting == READ_ONLY
    }
}

const READ_ONLY: &str = "default_transaction_read_only";

/// The settings of every session, with the values as Postgres shows them.
const ALWAYS: &[(&str, &str)] = &[
    // refundd makes promises about every row that it writes, so Postgres must not acknowledge a row from memory.
    ("synchronous_commit", "on"),
    // After a wait for a row, statements must see the row as another transaction committed it.
    ("default_transaction_isolation", "read committed"),
    ("default_transaction_deferrable", "off"),
    ("lock_timeout", "3s"),
    ("idle_in_transaction_session_timeout", "30s"),
    // With `enable_seqscan = off` a plan without an index looks so expensive that Postgres would compile it.
    ("jit", "off"),
    ("client_encoding", "UTF8"),
    ("standard_conforming_strings", "on"),
];

/// Where statements look up operators, and types and functions without a schema. On Postgres 14 every role may create
/// objects in the schema `public`. An operator there that fits better than Postgres's own would run with a node's rights.
pub(super) const SEARCH_PATH: &str = "pg_catalog, pg_temp";

/// Servers before Postgres 17 do not know this setting. A role's value would end statements that have more time.
const TRANSACTION_TIMEOUT: &str = "transaction_timeout";

/// During a `copy`, no statement time-out helps against a host that is gone. These settings are not checked, because
/// Postgres shows 0 for them over a Unix socket.
const KEEPALIVES: &[(&str, &str)] =
    &[("tcp_keepalives_idle", "10"), ("tcp_keepalives_interval", "5"), ("tcp_keepalives_count", "3")];

const MARK: &str = "refundd.session";
const SESSION_POOLING: &str = "connect directly, or use a pooler that keeps one server connection for each client; in PgBouncer \
     `pool_mode = session` with `server_reset_query = DISCARD ALL`";
const HEALED_BY_NOBODY: &str = "refundd has set it itself and Postgres kept another value; look for what changes it, such as a login trigger";
const TAKES_WRITES: &str = "`alter role … reset default_transaction_read_only` and the same for the database or the server; \
     if the server is being drained, wait or change the [postgres] url";
const UTF8: &str = "make the database anew: `create database … encoding 'UTF8' template template0`, and restore the dump into it";
/// Postgres 14, as `server_version_num` counts.
const OLDEST: u32 = 140_000;
const UPGRADE: &str =
    "upgrade the server, or change the [postgres] url; refundd is tested with Postgres 14 to 18";
const ORIGIN: &str =
    "`alter role … reset session_replication_role`; otherwise the triggers that protect refunds sleep";
const RAISED: &str =
    "set `ignore_startup_parameters = extra_float_digits,options` in PgBouncer, with `pool_mode = session`";

/// Opens a connection and sets its session to `search_path`, `profile` and `ALWAYS`; fails with [`Unfit`] if the session
/// does not keep the settings.
pub(super) async fn connect(
    options: &PgConnectOptions,
    search_path: &str,
    profile: &[(&str, &str)],
) -> Result<PgConnection, Error> {
    let profile = [&[("search_path", search_path)][..], profile].concat();
    let profile = profile.as_slice();
    let mut connection = super::reach::connect(options).await.map_err(explained)?;
    let mark = format!("{:016x}", fastrand::u64(..));
    let row = one(&mut connection, &prepare(&mark, profile)).await?;
    let (pid, found): (i32, Option<String>) = (row.get("pid"), row.get("found"));
    // The session has a mark already: another client of refundd uses this server connection, too, or used it.
    if let Some(found) = found.filter(|found| !found.is_empty()) {
        return Err(shared(format!("the mark {found} of another client")));
    }
    let row = one(&mut connection, &look(profile)).await?;
    let (pid_now, mark_now): (i32, Option<String>) = (row.get("pid"), row.get("found"));
    if pid_now != pid || mark_now.as_deref() != Some(&*mark) {
        return Err(shared("another in each transaction".to_owned()));
    }
    judge(&row, profile)?;
    Ok(connection)
}

/// Fails if a transaction of another client can use this session, or if the server does not answer. A pooler in transaction mode gives the other client
/// the server connection that `session` used last.
pub(super) async fn is_apart(session: &mut PgConnection, options: &PgConnectOptions) -> Result<(), Error> {
    // The other session keeps the search path of its role or database, so names have their schema.
    let look = format!(
        "select pg_catalog.pg_backend_pid() as pid, pg_catalog.current_setting('{MARK}', true) as found"
    );
    let before: i32 = one(session, &look).await?.get("pid");
    let mut other = super::reach::connect(options).await?;
    // So that the time-outs of its role do not end the other session during this check.
    other.execute("begin; set local idle_in_transaction_session_timeout = '30s'; set local statement_timeout = '4s'").await?;
    let row = one(&mut other, &look).await?;
    if row.get::<Option<String>, _>("found").is_some_and(|found| !found.is_empty())
        || row.get::<i32, _>("pid") == before
    {
        return Err(shared("shared with other clients".to_owned()));
    }
    // The other session keeps its server connection meanwhile, so the pooler must choose another one for `session`.
    // A server that is slow proves nothing: whoever asks may try again.
    let after = tokio::time::timeout(Duration::from_secs(3), one(session, &look)).await;
    let after =
        after.map_err(|_| Error::Io(io::Error::new(io::ErrorKind::TimedOut, "no answer within 3 s")))??;
    if after.get::<i32, _>("pid") != before {
        return Err(shared("another in each transaction".to_owned()));
    }
    other.execute("rollback").await?;
    other.close().await
}

/// Uses the simple protocol, so that it prepares nothing on a server connection that may belong to another client.
async fn one(connection: &mut PgConnection, statement: &str) -> Result<PgRow, Error> {
    sqlx::raw_sql(AssertSqlSafe(statement)).fetch_one(connection).await
}

/// One statement that reads the present mark as `found`, and then sets the new mark and all settings. Its names have their
/// schema, because it runs under the search path of the role or the database.
fn prepare(mark: &str, profile: &[(&str, &str)]) -> String {
    let settings = ALWAYS.iter().chain(KEEPALIVES).chain(profile);
    let set: Vec<String> =
        settings.map(|(name, value)| format!("pg_catalog.set_config('{name}', '{value}', false)")).collect();
    format!(
        // First and alone, so that a role's time-out of a few milliseconds does not cancel the longer statement.
        "set statement_timeout = '4s';
         with before as materialized (select pg_catalog.current_setting('{MARK}', true) as found)
         select pg_catalog.pg_backend_pid() as pid, before.found, pg_catalog.set_config('{MARK}', '{mark}', false), {},
                case when pg_catalog.current_setting('{TRANSACTION_TIMEOUT}', true) is not null
                     then pg_catalog.set_config('{TRANSACTION_TIMEOUT}', '0', false) end
           from before",
        set.join(", ")
    )
}

fn look(profile: &[(&str, &str)]) -> String {
    let settings: Vec<String> = ALWAYS
        .iter()
        .chain(profile)
        .map(|(name, _)| format!("current_setting('{name}') as {name}"))
        .collect();
    format!(
        "select pg_backend_pid() as pid, current_setting('{MARK}', true) as found, {},
                current_setting('server_version_num') as server_version_num,
                current_setting('server_version') as server_version,
                current_setting('server_encoding') as server_encoding,
                current_setting('session_replication_role') as session_replication_role,
                current_setting('default_transaction_read_only') as default_transaction_read_only,
                coalesce(current_setting('{TRANSACTION_TIMEOUT}', true), '0') as transaction_timeout,
                pg_is_in_recovery() as is_standby",
        settings.join(", ")
    )
}

fn judge(row: &PgRow, profile: &[(&str, &str)]) -> Result<(), Error> {
    for (name, needed) in ALWAYS.iter().chain(profile) {
        must_be(row, name, needed, HEALED_BY_NOBODY)?;
    }
    must_be(row, TRANSACTION_TIMEOUT, "0", HEALED_BY_NOBODY)?;
    recent(row.get("server_version_num"), row.get("server_version"))?;
    must_be(row, "server_encoding", "UTF8", UTF8)?;
    must_be(row, "session_replication_role", "origin", ORIGIN)?;
    // refundd does not override this setting, because operators use it to fence a server off. A standby needs no
    // check: each statement that writes fails there and says why.
    if !row.get::<bool, _>("is_standby") {
        must_be(row, READ_ONLY, "off", TAKES_WRITES)?;
    }
    Ok(())
}

/// Fails if the server is older than the oldest version that refundd is tested with: migrations would fail halfway.
fn recent(number: &str, version: &str) -> Result<(), Error> {
    match number.parse::<u32>() {
        Ok(number) if number < OLDEST => {
            Err(unfit("server_version", version.to_owned(), "14 or later", UPGRADE))
        }
        _ => Ok(()),
    }
}

fn must_be(row: &PgRow, setting: &str, needed: &str, way_out: &'static str) -> Result<(), Error> {
    let found: String = row.get(setting);
    if found == needed {
        return Ok(());
    }
    Err(unfit(setting, found, needed, way_out))
}

fn unfit(setting: &str, found: String, needed: &str, way_out: &'static str) -> Error {
    Error::Configuration(Box::new(Unfit {
        setting: setting.to_owned(),
        found,
        needed: needed.to_owned(),
        way_out,
    }))
}

fn shared(found: String) -> Error {
    unfit("server connection", found, "this client's alone", SESSION_POOLING)
}

/// Explains the error of a pooler that refuses unknown start-up parameters.
fn explained(error: Error) -> Error {
    match &error {
        Error::Database(refused) if refused.message().contains("unsupported startup parameter") => {
            unfit("start-up parameters", refused.message().to_owned(), "accepted or ignored", RAISED)
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_too_old_is_refused_with_its_version_and_the_way_out() {
        let refused = recent("130014", "13.14 (Debian 13.14-0+deb11u1)").unwrap_err().to_string();
        for part in ["server_version", "13.14", "14 or later", "upgrade the server"] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
        for version in ["140000", "150018", "170001"] {
            assert!(recent(version, "").is_ok(), "{version}");
        }
    }
}
