//! One connection that a worker reserved: what happened on it decides whether it becomes idle again.

use std::sync::Arc;
use std::time::Instant;

use super::{Pool, Shared, State, Want, idle};
use crate::bank::connect::Connection;
use crate::bank::kernel;
use crate::refund::Code;

/// A reserved connection. When it is dropped, the connection becomes idle again, unless it was closed or is no longer trusted.
#[derive(Debug)]
pub struct Reserved {
    connection: Option<Connection>,
    pub(super) since: Instant,
    /// When the pool last gave up its connections before this one was reserved.
    distrusted_at: Option<Instant>,
    pool: Arc<Shared>,
}

impl Reserved {
    pub(super) fn new(
        connection: Connection,
        since: Instant,
        distrusted_at: Option<Instant>,
        pool: Arc<Shared>,
    ) -> Self {
        Reserved { connection: Some(connection), since, distrusted_at, pool }
    }

    /// Whether the connection is open, as far as this end knows, and still trusted.
    pub fn is_open(&self) -> bool {
        let is_open = self.connection.as_ref().is_some_and(|connection| !connection.sender.is_closed());
        is_open && self.is_trusted(&self.pool.state())
    }

    /// Whether the connection must not be used any more: it has been idle for too long, or is no longer trusted. Its age does not
    /// count: it may have its permit already, and another might not be open in time.
    pub(in crate::bank) fn is_outdated(&self) -> bool {
        !self.is_usable(Instant::now())
    }

    fn is_usable(&self, at: Instant) -> bool {
        let Some(connection) = &self.connection else { return false };
        let state = self.pool.state();
        let idle = at.saturating_duration_since(self.since);
        self.is_trusted(&state) && idle < state.idle_bound.of(connection.answered)
    }

    /// Whether the pool was not told to distrust its connections since this one was reserved.
    fn is_trusted(&self, state: &State) -> bool {
        self.distrusted_at == state.distrusted_at
    }

    /// Waits until `at` with this connection. If it will be too old by then, or idle for too long, or is no longer trusted, another
    /// takes its place, which is opened shortly before; `None` if that one is not open at `at`.
    pub async fn until(self, at: Instant) -> Option<Reserved> {
        let lives = self.connection.as_ref().is_some_and(|connection| at < connection.renew_at);
        // A connection that is only too old is better than none.
        let is_soon = || Instant::now() + Pool(Arc::clone(&self.pool)).set_up() + Pool::MARGIN > at;
        let keeps = self.is_usable(at) && (lives || is_soon());
        let reserved = if keeps { Some(self) } else { Box::pin(self.another(at)).await };
        tokio::time::sleep_until(at.into()).await;
        reserved
    }

    async fn another(self, at: Instant) -> Option<Reserved> {
        let pool = Pool(Arc::clone(&self.pool));
        drop(self);
        let lead = pool.lead(at, 1);
        if !lead.is_zero() {
            tokio::time::sleep_until(at.checked_sub(lead).unwrap_or(at).into()).await;
        }
        let reserving = pool.reserve(Want { most: 1, need: 1, until: at });
        tokio::time::timeout_at(at.into(), reserving).await.ok()?.ok()?.pop()
    }

    pub(in crate::bank) fn connection(&mut self) -> Option<&mut Connection> {
        self.connection.as_mut()
    }

    /// Notes that a request was answered on the connection. `closes` says that it must not be used again after this answer.
    pub(in crate::bank) fn answered(&mut self, closes: bool, keep_alive: Option<&str>) {
        let Some(connection) = &mut self.connection else { return };
        connection.answered += 1;
        let again = connection.answered > 1;
        let mut state = self.pool.state();
        state.tries.answered();
        if let Some(kept) = keep_alive.and_then(idle::announced) {
            state.idle_bound.announced(kept);
        }
        if again {
            state.short_lived = 0;
        }
        let queries = state.measured.begin_query(connection);
        // Some banks close after each answer and do not announce it. Then one connection in 32 is still kept, to
        // notice when the bank stops doing so.
        let kept = !closes && (state.short_lived < Pool::SHORT_LIVED || fastrand::u8(..) < 8);
        drop(state);
        if queries && let Some(round_trip) = connection.ends.and_then(kernel::round_trip) {
            self.pool.state().measured.end_query(round_trip);
        }
        self.since = Instant::now();
        if !kept {
            self.connection = None;
        }
    }

    /// The connection is dead, and no byte of the current request was written on it.
    pub(in crate::bank) fn died(mut self) {
        if let Some(connection) = self.connection.take() {
            self.pool.note_end(&mut self.pool.state(), &connection, self.since);
        }
    }

    /// A request that began at `first_byte` got no whole answer, for the reason `why`; the connection is not used again. The next
    /// dials try another address first if this one did not answer in time, or never did on this connection.
    pub(in crate::bank) fn unanswered(mut self, why: Code, first_byte: Instant) {
        let Some(connection) = self.connection.take() else { return };
        if why == Code::Timeout || connection.answered == 0 {
            self.pool.dialer.avoid(&connection);
        }
        let idle = first_byte.saturating_duration_since(self.since);
        // If it had been idle before it was lost, the bank probably closed it for that.
        if why == Code::AnswerLost && connection.answered > 0 && idle > Pool::AT_ONCE {
            self.pool.state().idle_bound.closed_after(idle, connection.answered);
        }
    }

    /// Closes the connection: it must not be used again.
    pub(in crate::bank) fn close(mut self) {
        self.connection = None;
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let mut state = self.pool.state();
        state.out -= 1;
        if self.is_trusted(&state)
            && let Some(connection) = self.connection.take()
        {
            self.pool.put_idle(&mut state, connection, self.since);
        }
    }
}
