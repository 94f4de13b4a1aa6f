//! The connections to Postgres. Each statement borrows one connection and gives it back.
//!
//! A connection that does not answer in time is closed and not used again: a server may vanish silently, and only the
//! client can notice. A connection whose statement was abandoned is closed, too. Nothing here tries a statement
//! twice; the caller decides what a failure means.
//!
//! When one connection is lost, the others may be lost with it. So the idle ones without an answer since then are
//! closed too: pinging a lost one would take a second each time.
//!
//! Requests of callers together use a part of the connections. The others stay free for the node's own work: while every
//! statement of callers is slow, the node still claims, settles and sends heartbeats.
//!
//! The server cancels a statement half a second before the client stops waiting. So a statement that reached the
//! server does not run after the client has given up. A wait for a locked row ends earlier, with an error of its own.

mod ask;
mod patience;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{Connection, Error};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::session;
use crate::lock::Lock;
pub(super) use ask::{Ask, Run};
use patience::Patience;

/// A bounded number of connections, opened when needed. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Connections {
    shared: Arc<Shared>,
    patience: Patience,
    /// Whether the statements are those of callers' requests.
    is_for_callers: bool,
}

struct Shared {
    options: Mutex<PgConnectOptions>,
    search_path: &'static str,
    slots: Arc<Semaphore>,
    /// The slots that callers' requests may have at the same time.
    of_callers: Arc<Semaphore>,
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
    /// The place among callers' requests, if it is one.
    _place: Option<OwnedSemaphorePermit>,
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
    /// How many connections stay free for the node's own work, if there are nine or more. Of fewer, less than half stay free, and of
    /// two, one.
    const OF_THE_NODE: u32 = 4;
    /// The greatest age of a connection, because the server behind an address may change.
    const OLDEST: Duration = Duration::from_mins(30);

    pub fn new(options: PgConnectOptions, most: u32, search_path: &'static str) -> Self {
        let of_the_node = Self::of_the_node(most);
        let semaphore = |places: u32| Arc::new(Semaphore::new(places as usize));
        let (slots, of_callers) = (semaphore(most), semaphore(most - of_the_node));
        let (options, idle) = (Mutex::new(options), Mutex::default());
        let shared = Shared { options, search_path, slots, of_callers, idle };
        Connections { shared: Arc::new(shared), patience: Patience::Short, is_for_callers: false }
    }

    /// How many of `most` connections callers' requests leave free. A single one is for all.
    fn of_the_node(most: u32) -> u32 {
        (most.saturating_sub(1) / 2).max(u32::from(most > 1)).min(Self::OF_THE_NODE)
    }

    /// The same connections, for requests of callers. All requests together leave some of them to the node's own work.
    pub fn for_callers(&self) -> Self {
        Connections { is_for_callers: true, ..self.clone() }
    }

    /// The same connections, for a statement over thousands of rows or with optional conditions.
    pub fn patient(&self) -> Self {
        Connections { patience: Patience::Long, ..self.clone() }
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
        self.shared.of_callers.close();
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
        let (place, slot) = timeout(Self::WAIT, self.place_and_slot())
            .await
            .map_err(|_| Error::PoolTimedOut)?
            .map_err(|_| Error::PoolClosed)?;
        let (connection, made) = if let Some(idle) = self.rested().await {
            (idle.connection, idle.made)
        } else {
            (self.open(&self.options(), Patience::Short.profile()).await?, Instant::now())
        };
        let (since, home) = (Instant::now(), self.clone());
        let mut lent = Lent { connection, made, since, home, _slot: slot, _place: place };
        if self.patience != Patience::Short {
            let longer = sqlx::query(self.patience.command()).execute(&mut lent.connection);
            in_time(Self::PING, longer).await?;
        }
        Ok(lent)
    }

    /// The place comes first, so that a request that waits for it keeps no slot from others.
    async fn place_and_slot(
        &self,
    ) -> Result<(Option<OwnedSemaphorePermit>, OwnedSemaphorePermit), AcquireError> {
        let place = if self.is_for_callers {
            Some(Arc::clone(&self.shared.of_callers).acquire_owned().await?)
        } else {
            None
        };
        Ok((place, Arc::clone(&self.shared.slots).acquire_owned().await?))
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
            let Lent { connection, made, home, since: _, _slot, _place } = self;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_leave_at_least_one_of_several_connections_to_the_node() {
        let left = [1, 2, 3, 8, 9, 1000].map(Connections::of_the_node);
        assert_eq!(left, [0, 1, 1, 3, 4, 4]);
    }
}
