//! The connections to Postgres. Each statement borrows one connection and gives it back.
//!
//! A connection that does not answer in time is closed and not used again: a server may vanish silently, and only the
//! client can notice. A connection whose statement was abandoned is closed, too. Nothing here tries a statement
//! twice; the caller decides what a failure means.
//!
//! When one connection is lost, the others may be lost with it. So the idle ones without an answer since then are
//! closed too: pinging a lost one would take a second each time.
//!
//! The server cancels a statement half a second before the client stops waiting. So a statement that reached the
//! server does not run after the client has given up. A wait for a locked row ends earlier, with an error of its own.

mod ask;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{Connection, Error};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::session;
use crate::lock::Lock;
pub(super) use ask::{Ask, Run};

/// A bounded number of connections, opened when needed. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Connections {
    shared: Arc<Shared>,
    patience: Patience,
}

/// How long a statement may take, and how it is planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Patience {
    /// For a statement over a few rows, for which a caller waits. Postgres plans it once for all values, and by an
    /// index even if the table has ten rows: the plan stays when the table has millions. A plan for the actual values
    /// may read the whole table, too, when autovacuum has not updated the statistics.
    Short,
    /// For a statement over thousands of rows, or with optional conditions. Postgres plans it for its actual values.
    Long,
}

impl Patience {
    /// How long the server works on a statement, in ms.
    const fn server_ms(self) -> u64 {
        match self {
            // A statement that waits on a lost connection is the longest part of the way back after an outage.
            Patience::Short => 3_500,
            Patience::Long => 30_000,
        }
    }

    /// How long the client waits for the answer.
    const fn limit(self) -> Duration {
        Duration::from_millis(self.server_ms() + 500)
    }

    /// The settings of a session with this patience.
    const fn profile(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Patience::Short => &[
                ("statement_timeout", "3500ms"),
                ("plan_cache_mode", "force_generic_plan"),
                ("enable_seqscan", "off"),
            ],
            Patience::Long => {
                &[("statement_timeout", "30s"), ("plan_cache_mode", "auto"), ("enable_seqscan", "on")]
            }
        }
    }

    /// The statement that gives a session these settings.
    const fn command(self) -> &'static str {
        match self {
            Patience::Short => {
                "select set_config('statement_timeout', '3500', false), set_config('plan_cache_mode', 'force_generic_plan', false), set_config('enable_seqscan', 'off', false)"
            }
            Patience::Long => {
                "select set_config('statement_timeout', '30000', false), set_config('plan_cache_mode', 'auto', false), set_config('enable_seqscan', 'on', false)"
            }
        }
    }
}

struct Shared {
    options: Mutex<PgConnectOptions>,
    search_path: &'static str,
    slots: Arc<Semaphore>,
    /// The connection that was used last is at the end, and is borrowed first.
    idle: Mutex<Vec<Idle>>,
}

/// Without the options, which have the password.
impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("slots", &self.slots).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Idle {
    connection: PgConnection,
    made: Instant,
    since: Instant,
}

/// A borrowed connection. Dropping it closes the connection.
#[derive(Debug)]
struct Lent {
    connection: PgConnection,
    made: Instant,
    since: Instant,
    home: Connections,
    _slot: OwnedSemaphorePermit,
}

impl Connections {
    /// The longest wait for a free slot, and the longest time of [`Connections::try_one`].
    const WAIT: Duration = Duration::from_secs(5);
    /// The longest time to open a connection and set its session.
    const CONNECT: Duration = Duration::from_secs(3);
    /// A connection that was idle for longer is pinged before use.
    const TRUSTED: Duration = Duration::from_secs(1);
    /// The longest wait for the answer to a ping.
    const PING: Duration = Duration::from_secs(1);
    /// The greatest age of a connection, because the server behind an address may change.
    const OLDEST: Duration = Duration::from_mins(30);

    pub fn new(options: PgConnectOptions, most: u32, search_path: &'static str) -> Self {
        let slots = Arc::new(Semaphore::new(most as usize));
        let shared = Shared { options: Mutex::new(options), search_path, slots, idle: Mutex::default() };
        Connections { shared: Arc::new(shared), patience: Patience::Short }
    }

    /// The same connections, for a statement over thousands of rows or with optional conditions.
    pub fn patient(&self) -> Self {
        Connections { shared: Arc::clone(&self.shared), patience: Patience::Long }
    }

    pub fn options(&self) -> PgConnectOptions {
        self.shared.options.locked().clone()
    }

    /// Logs in with this password, and keeps it for new connections if Postgres lets it in.
    pub async fn take_password(&self, password: &str) -> Result<(), Error> {
        let options = self.options().password(password);
        let trial = self.open(&options, Patience::Short.profile()).await?;
        *self.shared.options.locked() = options;
        let _ = timeout(Self::PING, trial.close()).await;
        Ok(())
    }

    /// Opens a connection for the caller alone, without a time-out for statements.
    pub async fn make(&self) -> Result<PgConnection, Error> {
        let profile = &[("statement_timeout", "0"), ("plan_cache_mode", "auto"), ("enable_seqscan", "on")];
        self.open(&self.options(), profile).await
    }

    async fn open(
        &self,
        options: &PgConnectOptions,
        profile: &[(&str, &str)],
    ) -> Result<PgConnection, Error> {
        in_time(Self::CONNECT, session::connect(options, self.shared.search_path, profile)).await
    }

    /// Opens a connection with the settings of a borrowed one, checks that no other client shares its session, and
    /// closes it.
    pub async fn try_one(&self) -> Result<(), Error> {
        let options = self.options();
        let trial = async {
            let (path, profile) = (self.shared.search_path, Patience::Short.profile());
            let mut connection = session::connect(&options, path, profile).await?;
            session::is_apart(&mut connection, &options).await?;
            connection.close().await
        };
        in_time(Self::WAIT, trial).await
    }

    /// Refuses further statements, and closes the idle connections.
    pub async fn close(&self) {
        self.shared.slots.close();
        let idle = std::mem::take(&mut *self.idle());
        for idle in idle {
            let _ = timeout(Self::PING, idle.connection.close()).await;
        }
    }

    /// Runs a `copy … from stdin` in its own commit; answers how many rows it wrote.
    pub async fn copy(&self, statement: &str, lines: Vec<u8>) -> Result<u64, Error> {
        let mut lent = self.lend().await?;
        let copying = async {
            let mut copy = lent.connection.copy_in_raw(statement).await?;
            copy.send(lines).await?;
            copy.finish().await
        };
        let answer = in_time(self.patience.limit(), copying).await;
        lent.back(answer).await
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.shared.idle.locked()
    }

    async fn lend(&self) -> Result<Lent, Error> {
        let slot = timeout(Self::WAIT, Arc::clone(&self.shared.slots).acquire_owned())
            .await
            .map_err(|_| Error::PoolTimedOut)?
            .map_err(|_| Error::PoolClosed)?;
        let (connection, made) = if let Some(idle) = self.rested().await {
            (idle.connection, idle.made)
        } else {
            (self.open(&self.options(), Patience::Short.profile()).await?, Instant::now())
        };
        let mut lent = Lent { connection, made, since: Instant::now(), home: self.clone(), _slot: slot };
        if self.patience != Patience::Short {
            let longer = sqlx::query(self.patience.command()).execute(&mut lent.connection);
            in_time(Self::PING, longer).await?;
        }
        Ok(lent)
    }

    /// Closes the idle connections that have not answered since `lost`.
    fn distrust(&self, lost: Instant) {
        self.idle().retain(|idle| idle.since > lost);
    }

    /// Takes an idle connection that works; `None` if there is none.
    async fn rested(&self) -> Option<Idle> {
        loop {
            let mut idle = self.idle().pop()?;
            if idle.made.elapsed() >= Self::OLDEST {
                continue;
            }
            let pinged = Instant::now();
            if idle.since.elapsed() < Self::TRUSTED
                || matches!(timeout(Self::PING, idle.connection.ping()).await, Ok(Ok(())))
            {
                return Some(idle);
            }
            self.distrust(pinged);
        }
    }
}

impl Lent {
    /// Gives the connection back if the answer shows that it still works; else closes it.
    async fn back<T>(mut self, answer: Result<T, Error>) -> Result<T, Error> {
        if is_sound(answer.as_ref().err()) {
            if self.home.patience != Patience::Short {
                let shorter = sqlx::query(Patience::Short.command()).execute(&mut self.connection);
                if in_time(Connections::PING, shorter).await.is_err() {
                    return answer;
                }
            }
            let Lent { connection, made, home, since: _, _slot } = self;
            home.idle().push(Idle { connection, made, since: Instant::now() });
        } else if !matches!(answer, Err(Error::Database(_))) {
            self.home.distrust(self.since);
        }
        answer
    }
}

/// Whether a connection may be used again after this result. Postgres itself must have answered, and not with 57014
/// 57P0x or 25P0x (cancelled, shut down, ended for its time). After 25006 the server is a standby, and another one may be the primary now.
fn is_sound(error: Option<&Error>) -> bool {
    match error {
        None | Some(Error::RowNotFound) => true,
        Some(Error::Database(error)) => error.code().is_none_or(|code| {
            !["25006", "25P03", "25P04", "57014"].contains(&code.as_ref()) && !code.starts_with("57P")
        }),
        Some(_) => false,
    }
}

async fn in_time<T>(limit: Duration, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    timeout(limit, work).await.unwrap_or_else(|_| {
        let text = format!("Postgres did not answer within {} s", limit.as_secs_f64());
        Err(Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, text)))
    })
}
