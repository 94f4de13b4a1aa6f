//! Opens one connection in the background, so that a worker waits for the first connection only.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Shared;
use crate::bank::connect::Connection;
use crate::bank::dial_error::DialError;

/// One connection that is being opened. It counts in `State::dialling` until this value is dropped.
pub(super) struct Dialling(Option<Arc<Shared>>);

impl Dialling {
    /// How often a connection on trial is looked at. An answer on another connection ends the trial.
    const LOOK_EVERY: Duration = Duration::from_millis(5);

    pub fn of(pool: Arc<Shared>) -> Self {
        Dialling(Some(pool))
    }

    pub async fn run(self) {
        let Some(pool) = self.0.clone() else { return };
        let began = Instant::now();
        let dialled = match pool.dialer.dial().await {
            Ok(connection) => Self::tried(&pool, connection).await,
            Err(error) => Err(error),
        };
        let mut state = pool.state();
        match dialled {
            Ok(connection) => {
                state.tries.opened();
                state.measured.opened(&connection);
                pool.put_idle(&mut state, connection, Instant::now());
            }
            Err(error) => state.tries.failed(&error, began),
        }
    }

    /// The connection, once it has stayed open for as long as new ones must.
    async fn tried(pool: &Shared, connection: Connection) -> Result<Connection, DialError> {
        loop {
            let trial = pool.state().tries.trial();
            if !trial.is_zero() && connection.sender.is_closed() {
                pool.state().tries.ended_unanswered(connection.opened, connection.lived());
                return Err(pool.dialer.closed(&connection));
            }
            let rest = trial.saturating_sub(connection.lived());
            if rest.is_zero() {
                return Ok(connection);
            }
            tokio::time::sleep(rest.min(Self::LOOK_EVERY)).await;
        }
    }
}

impl Drop for Dialling {
    fn drop(&mut self) {
        if let Some(pool) = self.0.take() {
            pool.state().dialling -= 1;
            pool.came.notify_waiters();
        }
    }
}
