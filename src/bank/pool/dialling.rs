//! Opens one connection in the background, so that a worker waits for the first connection only.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Shared;

/// One connection that is being opened. It counts in `State::dialling` until this value is dropped.
pub(super) struct Dialling(Option<Arc<Shared>>);

impl Dialling {
    /// How long a new connection must stay open before use, while no request was answered since the last failure.
    const PROBATION: Duration = Duration::from_millis(5);

    pub fn of(pool: Arc<Shared>) -> Self {
        Dialling(Some(pool))
    }

    pub async fn run(self) {
        let Some(pool) = self.0.clone() else { return };
        let began = Instant::now();
        let mut dialled = pool.dialer.dial().await;
        if let Ok(connection) = &dialled
            && !pool.state().tries.is_proven()
        {
            tokio::time::sleep(Self::PROBATION).await;
            if connection.sender.is_closed() {
                dialled = Err(pool.dialer.closed(connection));
            }
        }
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
}

impl Drop for Dialling {
    fn drop(&mut self) {
        if let Some(pool) = self.0.take() {
            pool.state().dialling -= 1;
            pool.came.notify_waiters();
        }
    }
}
