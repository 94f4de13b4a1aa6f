//! The session behind a new connection: sets what refundd relies on, and refuses a session that does not keep it.
//!
//! Start-up parameters are not used: a pooler drops them. Everything is set after connecting, which also
//! overrides the defaults of a role or a database. A pooler that lends its server connections per transaction
//! would lose these settings, or give them to others; so each session gets a mark, and a new session must not
//! have one, and must still have its own in the next transaction.
//!
//! This costs two round trips for each new connection and nothing afterwards.

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection, PgRow};
use sqlx::{AssertSqlSafe, Connection, Error, Executor, Row};

/// A session that would break a promise: the setting, its value, the value it needs, and the way out.
#[derive(Debug, thiserror::Error)]
#[error("Postgres's `{setting}` is `{found}` for this connection and must be `{needed}`: {way_out}")]
pub struct Unfit {
    setting: String,
    found: String,
    needed: String,
    way_out: &'static str,
}

impl Unfit {
    /// Whether it may pass without anybody's work on refundd: a server that is being drained takes no writes.
    pub fn may_pass(&self) -> bool {
        self.setting == READ_ONLY
    }
}

const READ_ONLY: &str = "default_transaction_read_only";

/// What every session has, whatever it is used for: the setting and its value as Postgres shows it.
const ALWAYS: &[(&str, &str)] = &[
    // Every row we write stands behind a promise; never acknowledge it from memory.
    ("synchronous_commit", "on"),
    // Statements count on seeing what others committed while they waited for a row.
    ("default_transaction_isolation", "read committed"),
    ("default_transaction_deferrable", "off"),
    ("lock_timeout", "3s"),
    ("idle_in_transaction_session_timeout", "30s"),
    // What cannot go by an index must not look so dear that it is compiled.
    ("jit", "off"),
    ("client_encoding", "UTF8"),
    ("standard_conforming_strings", "on"),
];

/// In the middle of a `copy` no time-out of a statement helps against a host that is gone. Over a Unix socket
/// Postgres shows 0, so these are set and not looked at.
const KEEPALIVES: &[(&str, &str)] =
    &[("tcp_keepalives_idle", "10"), ("tcp_keepalives_interval", "5"), ("tcp_keepalives_count", "3")];

const MARK: &str = "refundd.session";
const SESSION_POOLING: &str = "connect directly, or use a pooler that keeps one server connection for each client; in PgBouncer \
     `pool_mode = session` with `server_reset_query = DISCARD ALL`";
const HEALED_BY_NOBODY: &str = "refundd has set it itself and Postgres kept another value; look for what changes it, such as a login trigger";
const TAKES_WRITES: &str = "`alter role … reset default_transaction_read_only` and the same for the database or the server; \
     if the server is being drained, wait or change the [postgres] url";
const UTF8: &str = "make the database anew: `create database … encoding 'UTF8' template template0`, and restore the dump into it";
const ORIGIN: &str =
    "`alter role … reset session_replication_role`; otherwise the triggers that protect refunds sleep";
const RAISED: &str =
    "set `ignore_startup_parameters = extra_float_digits,options` in PgBouncer, with `pool_mode = session`";

/// Makes a connection whose session keeps `profile` and everything refundd always relies on.
pub(super) async fn connect(
    options: &PgConnectOptions,
    profile: &[(&str, &str)],
) -> Result<PgConnection, Error> {
    let mut connection = PgConnection::connect_with(options).await.map_err(explained)?;
    let mark = format!("{:016x}", fastrand::u64(..));
    let row = one(&mut connection, &prepare(&mark, profile)).await?;
    let (pid, found): (i32, Option<String>) = (row.get("pid"), row.get("found"));
    // A mark that is there already: another client of refundd has this server connection, too, or had it.
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

/// Whether a transaction of another client is kept apart from this session. With a pooler that lends server
/// connections per transaction, the other client gets the one that `session` used last.
pub(super) async fn is_apart(session: &mut PgConnection, options: &PgConnectOptions) -> Result<(), Error> {
    let look = format!("select pg_backend_pid() as pid, current_setting('{MARK}', true) as found");
    let before: i32 = one(session, &look).await?.get("pid");
    let mut other = PgConnection::connect_with(options).await?;
    // Whatever its role's time-outs are, it lives through this.
    other.execute("begin; set local idle_in_transaction_session_timeout = '30s'; set local statement_timeout = '4s'").await?;
    let row = one(&mut other, &look).await?;
    if row.get::<Option<String>, _>("found").is_some_and(|found| !found.is_empty())
        || row.get::<i32, _>("pid") == before
    {
        return Err(shared("shared with other clients".to_owned()));
    }
    // The other one keeps its server connection meanwhile, so a pooler has to choose anew.
    let after = tokio::time::timeout(Duration::from_secs(3), one(session, &look)).await;
    let is_same = matches!(after, Ok(Ok(row)) if row.get::<i32, _>("pid") == before);
    if !is_same {
        return Err(shared("another in each transaction".to_owned()));
    }
    other.execute("rollback").await?;
    other.close().await
}

/// By the simple protocol: nothing is prepared on a server connection that may be somebody else's.
async fn one(connection: &mut PgConnection, statement: &str) -> Result<PgRow, Error> {
    sqlx::raw_sql(AssertSqlSafe(statement)).fetch_one(connection).await
}

/// One statement that notes the mark that is there and sets everything. `found` is read before the mark is set.
fn prepare(mark: &str, profile: &[(&str, &str)]) -> String {
    let settings = ALWAYS.iter().chain(KEEPALIVES).chain(profile);
    let set: Vec<String> =
        settings.map(|(name, value)| format!("set_config('{name}', '{value}', false)")).collect();
    format!(
        // First and alone, so that a role's time-out of a few milliseconds does not meet the longer one.
        "set statement_timeout = '4s';
         with before as materialized (select current_setting('{MARK}', true) as found)
         select pg_backend_pid() as pid, before.found, set_config('{MARK}', '{mark}', false), {} from before",
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
                current_setting('server_encoding') as server_encoding,
                current_setting('session_replication_role') as session_replication_role,
                current_setting('default_transaction_read_only') as default_transaction_read_only,
                pg_is_in_recovery() as is_standby",
        settings.join(", ")
    )
}

fn judge(row: &PgRow, profile: &[(&str, &str)]) -> Result<(), Error> {
    for (name, needed) in ALWAYS.iter().chain(profile) {
        must_be(row, name, needed, HEALED_BY_NOBODY)?;
    }
    must_be(row, "server_encoding", "UTF8", UTF8)?;
    must_be(row, "session_replication_role", "origin", ORIGIN)?;
    // Not overridden: an operator fences a server off by it. A standby says so itself, statement by statement.
    if !row.get::<bool, _>("is_standby") {
        must_be(row, READ_ONLY, "off", TAKES_WRITES)?;
    }
    Ok(())
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

/// A pooler refuses start-up parameters that it does not know.
fn explained(error: Error) -> Error {
    match &error {
        Error::Database(refused) if refused.message().contains("unsupported startup parameter") => {
            unfit("start-up parameters", refused.message().to_owned(), "accepted or ignored", RAISED)
        }
        _ => error,
    }
}
