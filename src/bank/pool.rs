//! The connections to one address: the idle ones, the reserved ones, and those being opened.
//!
//! Together they are never more than `max_in_flight`. A worker reserves a connection before it asks for a permit. If
//! the worker drops the connection unused, it becomes idle again and keeps its age. Background tasks open
//! connections, and a worker waits for the first one only.
//!
//! While the address cannot be reached, the pool tries one connection at a time, with growing pauses. A connection
//! that the other end closes before its first use counts as a failed try. Otherwise a proxy that accepts and closes
//! every connection would make the pool dial without a pause.

mod dialling;
mod idle;
mod measured;
mod missing;
mod reserved;
mod tries;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::connect::{Connection, Dialer};
use crate::lock::Lock;
use crate::refund::Code;
use dialling::Dialling;
use idle::{Idle, IdleBound};
use measured::AddressEstimates;
pub use measured::AddressTimes;
use missing::Missing;
pub use reserved::Reserved;
use tries::Tries;
pub use tries::Unreachable;

/// How many connections a worker wants, and when it will use them.
#[derive(Debug, Clone, Copy)]
pub struct Want {
    /// Take at most this many idle connections.
    pub most: usize,
    /// Open connections until there are this many.
    pub need: usize,
    /// The moment of use: a connection that will have been idle for too long by then is not taken.
    pub until: Instant,
}

/// The connections to one address. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Pool(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    dialer: Dialer,
    most: usize,
    state: Mutex<State>,
    /// Signals that a connection became idle, or that a try to open one ended.
    came: Notify,
}

#[derive(Debug)]
struct State {
    idle_bound: IdleBound,
    /// The connection that was used last is at the end.
    idle: Vec<Idle>,
    /// How many connections are reserved or carry a request.
    out: usize,
    /// How many connections are being opened.
    dialling: usize,
    /// How many connections those miss who reserve now: each opens its own.
    missing: usize,
    /// A task is running that closes old idle connections.
    is_swept: bool,
    /// How many connections in a row the other end closed right after an answer.
    short_lived: u32,
    measured: AddressEstimates,
    tries: Tries,
    /// When [`Pool::distrust`] last gave up the connections of before.
    distrusted_at: Option<Instant>,
}

impl Pool {
    /// A connection that the other end closes within this time was not closed because it was idle.
    const AT_ONCE: Duration = Duration::from_millis(500);
    /// How late nodes and timers may be.
    const MARGIN: Duration = Duration::from_millis(5);
    /// After this many connections in a row closed right after an answer, connections are no longer kept.
    const SHORT_LIVED: u32 = 2;
    /// The longest time by which a connection is opened early. One opened still earlier would be idle for too long.
    const LONGEST_LEAD: Duration = Duration::from_secs(3);

    /// At most `most` connections, none of which is used after it was idle for `idle_timeout`.
    pub fn new(dialer: Dialer, most: usize, idle_timeout: Duration) -> Self {
        let state = State {
            idle_bound: IdleBound::new(idle_timeout),
            idle: Vec::new(),
            out: 0,
            dialling: 0,
            missing: 0,
            is_swept: false,
            short_lived: 0,
            measured: AddressEstimates::default(),
            tries: Tries::default(),
            distrusted_at: None,
        };
        Pool(Arc::new(Shared { dialer, most, state: Mutex::new(state), came: Notify::new() }))
    }

    /// Reserves idle connections and starts to open the missing ones. Returns as soon as there is at least one.
    ///
    /// # Errors
    /// When no connection can be had now.
    pub async fn reserve(&self, want: Want) -> Result<Vec<Reserved>, Unreachable> {
        let mut missing = Missing::new(&self.0);
        loop {
            let came = self.0.came.notified();
            tokio::pin!(came);
            came.as_mut().enable();
            {
                let mut state = self.0.state();
                // A new connection is always young enough: otherwise each would be thrown away for the next.
                let young = state.idle_bound.of(0).min(Connection::LEAST_LIFE) * 7 / 8;
                let until = want.until.min(Instant::now() + young);
                let got = self.0.take_idle(&mut state, want.most, until);
                let needed = missing.of_all(&mut state, want.need.saturating_sub(got.len()));
                self.0.dial_missing(&mut state, needed);
                if !got.is_empty() {
                    return Ok(got);
                }
                if state.dialling == 0 {
                    return Err(state.tries.unreachable());
                }
            }
            came.await;
        }
    }

    /// Reserves up to `most` further connections that are idle now. Opens none.
    pub fn reserve_more(&self, most: usize, until: Instant) -> Vec<Reserved> {
        self.0.take_idle(&mut self.0.state(), most, until)
    }

    /// One connection in place of a dead one: an idle one, or a new one if it opens before `closes`.
    pub async fn replace(&self, closes: Instant) -> Result<Reserved, Unreachable> {
        let until = Instant::now() + Self::MARGIN;
        if let Some(other) = self.reserve_more(1, until).pop() {
            return Ok(other);
        }
        let want = Want { most: 1, need: 1, until };
        match tokio::time::timeout_at(closes.into(), self.reserve(want)).await {
            Ok(Ok(mut got)) => got.pop().ok_or_else(|| self.0.state().tries.unreachable()),
            Ok(Err(unreachable)) => Err(unreachable),
            Err(_) => Err(Unreachable {
                code: Code::ConnectionLost,
                message: "the connection was lost or given up before the first byte, and the permit's span was over \
                          before another was open"
                    .to_owned(),
                retry_in: Duration::ZERO,
            }),
        }
    }

    /// Adds an idle connection over a stream that has no socket. For [`crate::fuzzing`].
    ///
    /// # Errors
    /// When the stream takes no HTTP connection.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) async fn adopt<S>(&self, stream: S) -> Result<(), super::dial_error::DialError>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let connection = self.0.dialer.speak_over(stream).await?;
        self.0.put_idle(&mut self.0.state(), connection, Instant::now());
        Ok(())
    }

    /// Never uses a connection again that was opened before: the answer to a request that began at `began` was about another refund, so
    /// the later answers there may be, too. A connection that is in use is closed after its answer. Such an answer on a connection that
    /// is given up already says nothing about those opened since.
    pub fn distrust(&self, began: Instant) {
        let mut state = self.0.state();
        if state.distrusted_at.is_none_or(|at| at <= began) {
            state.distrusted_at = Some(Instant::now());
            state.idle.clear();
        }
    }

    /// How long before `at` a worker must reserve, so that `need` connections are open at `at`.
    pub fn lead(&self, at: Instant, need: usize) -> Duration {
        let state = self.0.state();
        let fresh = state.idle.iter().filter(|idle| idle.is_usable(at, &state.idle_bound)).count();
        if fresh >= need {
            return Duration::ZERO;
        }
        let unused = state.idle_bound.of(0);
        let planned = state.measured.set_up_with_rest(unused * 3 / 4);
        planned.min(self.0.dialer.limit()).min(Self::LONGEST_LEAD) + Self::MARGIN
    }

    /// How long opening a connection takes; it seldom takes longer.
    pub fn set_up(&self) -> Duration {
        self.0.state().measured.set_up()
    }

    /// The measured times.
    pub fn reading(&self) -> AddressTimes {
        self.0.state().measured.reading()
    }

    /// How many connections could not be opened since the last call, by code.
    pub fn take_failures(&self) -> BTreeMap<Code, u64> {
        self.0.state().tries.take_failures()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.locked()
    }

    fn take_idle(self: &Arc<Self>, state: &mut State, most: usize, until: Instant) -> Vec<Reserved> {
        let mut got = Vec::with_capacity(most.min(state.idle.len()));
        while got.len() < most {
            let Some(idle) = state.idle.pop() else { break };
            if idle.is_usable(until, &state.idle_bound) {
                let Idle { connection, since } = idle;
                state.out += 1;
                got.push(Reserved::new(connection, since, state.distrusted_at, Arc::clone(self)));
            } else {
                self.note_end(state, &idle.connection, idle.since);
            }
        }
        got
    }

    /// Notes the end of a connection that carried no request at that moment. Does nothing for an open connection.
    fn note_end(&self, state: &mut State, connection: &Connection, since: Instant) {
        if !connection.sender.is_closed() {
            return;
        }
        let ended = connection.ended.get().copied().unwrap_or_else(Instant::now);
        let idle = ended.saturating_duration_since(since);
        if idle > Pool::AT_ONCE {
            state.idle_bound.closed_after(idle, connection.answered);
            return;
        }
        if connection.answered == 0 {
            state.tries.failed(&self.dialer.closed(connection), since);
        } else {
            state.short_lived = state.short_lived.saturating_add(1);
        }
    }

    /// Starts to open connections, until `need` are being opened.
    fn dial_missing(self: &Arc<Self>, state: &mut State, need: usize) {
        let room = self.most.saturating_sub(state.idle.len() + state.out + state.dialling);
        for _ in 0..state.tries.allowed(need).saturating_sub(state.dialling).min(room) {
            state.dialling += 1;
            tokio::spawn(Dialling::of(Arc::clone(self)).run());
        }
    }

    fn put_idle(self: &Arc<Self>, state: &mut State, connection: Connection, since: Instant) {
        if connection.sender.is_closed() {
            return self.note_end(state, &connection, since);
        }
        let idle = Idle { connection, since };
        if idle.is_usable(Instant::now(), &state.idle_bound) && state.idle.len() < self.most {
            state.idle.push(idle);
            self.came.notify_waiters();
            if !std::mem::replace(&mut state.is_swept, true) {
                tokio::spawn(sweep(Arc::clone(self)));
            }
        }
    }
}

/// Closes connections that were idle for too long, until none is idle. Otherwise a channel that seldom sends would
/// keep connections open on many nodes.
async fn sweep(pool: Arc<Shared>) {
    loop {
        let pause = pool.state().idle_bound.shortest();
        tokio::time::sleep(pause).await;
        let mut state = pool.state();
        let now = Instant::now();
        let idle = std::mem::take(&mut state.idle);
        let (kept, old): (Vec<Idle>, Vec<Idle>) =
            idle.into_iter().partition(|idle| idle.is_usable(now, &state.idle_bound));
        state.idle = kept;
        for idle in old {
            pool.note_end(&mut state, &idle.connection, idle.since);
        }
        if state.idle.is_empty() {
            state.is_swept = false;
            return;
        }
    }
}

#[cfg(test)]
mod tests;
