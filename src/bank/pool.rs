//! The connections to one address: the idle ones, the reserved ones, and those being opened.
//!
//! Together they are never more than `max_in_flight`. A worker reserves a connection before it asks for a permit. If
//! the worker drops the connection unused, it becomes idle again and keeps its age. Background tasks open
//! connections, and a worker waits for the first one only.
//!
//! While the address cannot be reached, the pool tries one connection at a time, with growing pauses. A connection
//! that the other end closes before its first use counts as a failed try. Otherwise a proxy that accepts and closes
//! every connection would make the pool dial without a pause.

mod idle;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::connect::{Connection, DialError, Dialer};
use super::kernel::{self, RoundTrip};
use crate::estimate::Estimate;
use crate::lock::Lock;
use crate::refund::Code;
use idle::IdleBound;

/// Why the pool has no connection now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreachable {
    pub code: Code,
    /// A fragment, such as `connect to 10.0.0.1: Connection refused`.
    pub message: String,
    /// The time until the next try.
    pub retry_in: Duration,
}

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

/// The measured times of one address; `None` before a measurement.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Reading {
    /// DNS, TCP and TLS together.
    pub set_up: Option<Duration>,
    pub round_trip: Option<Duration>,
    pub round_trip_variation: Option<Duration>,
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
    /// A task is running that closes old idle connections.
    is_swept: bool,
    /// The last try failed.
    trouble: Option<Trouble>,
    /// Failed tries since the last `take_failures`.
    failures: BTreeMap<Code, u64>,
    /// A request was answered since the last failed try.
    proven: bool,
    /// How many connections in a row the other end closed right after an answer.
    short_lived: u32,
    set_up: Estimate,
    /// TCP's connect alone: about one round trip.
    tcp_connect: Estimate,
    /// The kernel's last measurement, of a connection that was used several times, and when it was read.
    kernel_measured: Option<(RoundTrip, Instant)>,
    /// When the kernel was last asked.
    kernel_queried: Option<Instant>,
}

#[derive(Debug)]
struct Idle {
    connection: Connection,
    since: Instant,
}

/// The last try to open a connection failed.
#[derive(Debug)]
struct Trouble {
    code: Code,
    message: String,
    failures: u32,
    retry_at: Instant,
}

impl Pool {
    /// How long a new connection must stay open before use, while no request was answered since the last failure.
    const PROBATION: Duration = Duration::from_millis(5);
    /// A connection that the other end closes within this time was not closed because it was idle.
    const AT_ONCE: Duration = Duration::from_millis(500);
    /// The pauses between tries begin at about this length and double.
    const FIRST_RETRY: Duration = Duration::from_millis(200);
    /// The pauses between tries grow to about this length.
    const LAST_RETRY: Duration = Duration::from_secs(3);
    /// The assumed set-up time before a measurement.
    const SET_UP_UNSEEN: Duration = Duration::from_millis(100);
    /// How late nodes and timers may be.
    const MARGIN: Duration = Duration::from_millis(5);
    /// After this many connections in a row closed right after an answer, connections are no longer kept.
    const SHORT_LIVED: u32 = 2;
    /// The longest time by which a connection is opened early. One opened still earlier would be idle for too long.
    const LONGEST_LEAD: Duration = Duration::from_secs(3);
    /// The kernel is asked at most this often.
    const QUERY_KERNEL_EVERY: Duration = Duration::from_secs(1);
    /// After this many answered requests the kernel's measurement of a connection is meaningful.
    const MEASURED: u32 = 8;

    /// At most `most` connections, none of which is used after it was idle for `idle_timeout`.
    pub fn new(dialer: Dialer, most: usize, idle_timeout: Duration) -> Self {
        let state = State {
            idle_bound: IdleBound::new(idle_timeout),
            idle: Vec::new(),
            out: 0,
            dialling: 0,
            is_swept: false,
            trouble: None,
            failures: BTreeMap::new(),
            proven: false,
            short_lived: 0,
            set_up: Estimate::default(),
            tcp_connect: Estimate::default(),
            kernel_measured: None,
            kernel_queried: None,
        };
        Pool(Arc::new(Shared { dialer, most, state: Mutex::new(state), came: Notify::new() }))
    }

    /// Reserves idle connections and starts to open the missing ones. Returns as soon as there is at least one.
    ///
    /// # Errors
    /// When no connection can be had now.
    pub async fn reserve(&self, want: Want) -> Result<Vec<Reserved>, Unreachable> {
        loop {
            let came = self.0.came.notified();
            tokio::pin!(came);
            came.as_mut().enable();
            {
                let mut state = self.0.state();
                let got = self.0.take_idle(&mut state, want.most, want.until);
                self.0.dial_missing(&mut state, want.need.saturating_sub(got.len()));
                if !got.is_empty() {
                    return Ok(got);
                }
                if state.dialling == 0 {
                    return Err(state.unreachable());
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
        let until = Instant::now();
        if let Some(other) = self.reserve_more(1, until).pop() {
            return Ok(other);
        }
        let want = Want { most: 1, need: 1, until };
        match tokio::time::timeout_at(closes.into(), self.reserve(want)).await {
            Ok(Ok(mut got)) => got.pop().ok_or_else(|| self.0.state().unreachable()),
            Ok(Err(unreachable)) => Err(unreachable),
            Err(_) => Err(Unreachable {
                code: Code::ConnectionLost,
                message: "the connection was lost before the first byte, and the permit's span was over \
                          before another was open"
                    .to_owned(),
                retry_in: Duration::ZERO,
            }),
        }
    }

    /// How long before `at` a worker must reserve, so that `need` connections are open at `at`.
    pub fn lead(&self, at: Instant, need: usize) -> Duration {
        let state = self.0.state();
        let bound = state.idle_bound.get();
        let fresh = state.idle.iter().filter(|idle| idle.is_usable(at, bound)).count();
        if fresh >= need {
            return Duration::ZERO;
        }
        let set_up = state.set_up.expected().unwrap_or(Self::SET_UP_UNSEEN);
        set_up.min(self.0.dialer.limit()).min(Self::LONGEST_LEAD).min(bound * 3 / 4) + Self::MARGIN
    }

    /// How long opening a connection takes; it seldom takes longer.
    pub fn set_up(&self) -> Duration {
        self.0.state().set_up.expected().unwrap_or(Self::SET_UP_UNSEEN)
    }

    /// The measured times. The kernel's measurement counts for one minute; before and after, TCP's connect does.
    pub fn reading(&self) -> Reading {
        let state = self.0.state();
        let measured = state.kernel_measured.filter(|(_, at)| at.elapsed() < Duration::from_mins(1));
        let measured = measured.map(|(round_trip, _)| round_trip);
        Reading {
            set_up: state.set_up.mean(),
            round_trip: measured.map(|measured| measured.mean).or_else(|| state.tcp_connect.mean()),
            round_trip_variation: measured
                .map(|measured| measured.variation)
                .or_else(|| state.tcp_connect.deviation()),
        }
    }

    /// How many connections could not be opened since the last call, by code.
    pub fn take_failures(&self) -> BTreeMap<Code, u64> {
        std::mem::take(&mut self.0.state().failures)
    }
}

impl Idle {
    fn is_usable(&self, at: Instant, bound: Duration) -> bool {
        !self.connection.sender.is_closed() && at.saturating_duration_since(self.since) < bound
    }
}

impl State {
    fn unreachable(&self) -> Unreachable {
        match &self.trouble {
            Some(trouble) => Unreachable {
                code: trouble.code,
                message: trouble.message.clone(),
                retry_in: trouble.retry_at.saturating_duration_since(Instant::now()),
            },
            // Other requests use all connections.
            None => Unreachable {
                code: Code::ConnectionsUsedUp,
                message: "open another connection: all that `max_in_flight` allows are in use".to_owned(),
                retry_in: Duration::from_millis(10),
            },
        }
    }

    fn fail(&mut self, error: &DialError, began: Instant) {
        *self.failures.entry(error.code()).or_default() += 1;
        let now = Instant::now();
        self.proven = false;
        let before = self.trouble.take();
        let failures = match &before {
            // Several tries at one time count as one failure.
            Some(trouble) if now < trouble.retry_at => trouble.failures,
            Some(trouble) => trouble.failures.saturating_add(1),
            None => 1,
        };
        let wait = (Pool::FIRST_RETRY * 2u32.saturating_pow((failures - 1).min(8))).min(Pool::LAST_RETRY);
        let wait = wait.mul_f64(0.75 + fastrand::f64() * 0.5);
        // The pause counts from the start of the failed try.
        let retry_at = (began + wait).max(now + Pool::FIRST_RETRY / 2);
        self.trouble = Some(Trouble { code: error.code(), message: error.to_string(), failures, retry_at });
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.locked()
    }

    fn take_idle(self: &Arc<Self>, state: &mut State, most: usize, until: Instant) -> Vec<Reserved> {
        let bound = state.idle_bound.get();
        let mut got = Vec::with_capacity(most.min(state.idle.len()));
        while got.len() < most {
            let Some(idle) = state.idle.pop() else { break };
            if idle.is_usable(until, bound) {
                let Idle { connection, since } = idle;
                state.out += 1;
                got.push(Reserved { connection: Some(connection), since, pool: Arc::clone(self) });
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
            state.idle_bound.closed_after(idle);
            return;
        }
        if connection.answered == 0 {
            state.fail(&self.dialer.closed(), since);
        } else {
            state.short_lived = state.short_lived.saturating_add(1);
        }
    }

    /// Starts to open connections, until `need` are being opened.
    fn dial_missing(self: &Arc<Self>, state: &mut State, need: usize) {
        let now = Instant::now();
        let most = match &state.trouble {
            None => need,
            Some(trouble) if now < trouble.retry_at => 0,
            Some(_) => need.min(1),
        };
        let room = self.most.saturating_sub(state.idle.len() + state.out + state.dialling);
        for _ in 0..most.saturating_sub(state.dialling).min(room) {
            state.dialling += 1;
            tokio::spawn(Dialling(Some(Arc::clone(self))).run());
        }
    }

    fn put_idle(self: &Arc<Self>, state: &mut State, connection: Connection, since: Instant) {
        if connection.sender.is_closed() {
            return self.note_end(state, &connection, since);
        }
        if since.elapsed() < state.idle_bound.get() && state.idle.len() < self.most {
            state.idle.push(Idle { connection, since });
            self.came.notify_waiters();
            if !std::mem::replace(&mut state.is_swept, true) {
                tokio::spawn(sweep(Arc::clone(self)));
            }
        }
    }
}

/// One connection that is being opened. It counts in `State::dialling` until this value is dropped.
struct Dialling(Option<Arc<Shared>>);

impl Dialling {
    async fn run(self) {
        let Some(pool) = self.0.clone() else { return };
        let began = Instant::now();
        let mut dialled = pool.dialer.dial().await;
        if let Ok(connection) = &dialled
            && !pool.state().proven
        {
            tokio::time::sleep(Pool::PROBATION).await;
            if connection.sender.is_closed() {
                dialled = Err(pool.dialer.closed());
            }
        }
        let mut state = pool.state();
        match dialled {
            Ok(connection) => {
                state.trouble = None;
                state.set_up.learn(connection.set_up);
                state.tcp_connect.learn(connection.tcp_connect);
                pool.put_idle(&mut state, connection, Instant::now());
            }
            Err(error) => state.fail(&error, began),
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

/// A reserved connection. When it is dropped, the connection becomes idle again, unless it was closed.
#[derive(Debug)]
pub struct Reserved {
    connection: Option<Connection>,
    since: Instant,
    pool: Arc<Shared>,
}

impl Reserved {
    /// Whether the connection is open, as far as this end knows.
    pub fn is_open(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| !connection.sender.is_closed())
    }

    pub(super) fn connection(&mut self) -> Option<&mut Connection> {
        self.connection.as_mut()
    }

    /// Notes that a request was answered on the connection. `closes` says that the bank closes it after this answer.
    pub(super) fn answered(&mut self, closes: bool, keep_alive: Option<&str>) {
        let Some(connection) = &mut self.connection else { return };
        connection.answered += 1;
        let (again, measured) = (connection.answered > 1, connection.answered >= Pool::MEASURED);
        let mut state = self.pool.state();
        state.proven = true;
        if let Some(kept) = keep_alive.and_then(idle::announced) {
            state.idle_bound.announced(kept);
        }
        if again {
            state.short_lived = 0;
        }
        let is_due = state.kernel_queried.is_none_or(|at| at.elapsed() >= Pool::QUERY_KERNEL_EVERY);
        let queries = measured && is_due;
        if queries {
            state.kernel_queried = Some(Instant::now());
        }
        // Some banks close after each answer and do not announce it. Then one connection in 32 is still kept, to
        // notice when the bank stops doing so.
        let kept = !closes && (state.short_lived < Pool::SHORT_LIVED || fastrand::u8(..) < 8);
        drop(state);
        if queries && let Some(round_trip) = connection.ends.and_then(kernel::round_trip) {
            self.pool.state().kernel_measured = Some((round_trip, Instant::now()));
        }
        self.since = Instant::now();
        if !kept {
            self.connection = None;
        }
    }

    /// The connection is dead, and no byte of the current request was written on it.
    pub(super) fn died(mut self) {
        if let Some(connection) = self.connection.take() {
            self.pool.note_end(&mut self.pool.state(), &connection, self.since);
        }
    }

    /// The connection was lost after the first byte of a request. If it had been idle before, the bank probably closed
    /// it for that.
    pub(super) fn lost(mut self, first_byte: Instant) {
        let Some(connection) = self.connection.take() else { return };
        let idle = first_byte.saturating_duration_since(self.since);
        if connection.answered > 0 && idle > Pool::AT_ONCE {
            self.pool.state().idle_bound.closed_after(idle);
        }
    }

    /// Closes the connection: it must not be used again.
    pub(super) fn close(mut self) {
        self.connection = None;
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let mut state = self.pool.state();
        state.out -= 1;
        if let Some(connection) = self.connection.take() {
            self.pool.put_idle(&mut state, connection, self.since);
        }
    }
}

/// Closes connections that were idle for too long, until none is idle. Otherwise a channel that seldom sends would
/// keep connections open on many nodes.
async fn sweep(pool: Arc<Shared>) {
    loop {
        let bound = pool.state().idle_bound.get();
        tokio::time::sleep(bound).await;
        let mut state = pool.state();
        let now = Instant::now();
        let (kept, old): (Vec<Idle>, Vec<Idle>) =
            std::mem::take(&mut state.idle).into_iter().partition(|idle| idle.is_usable(now, bound));
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
mod tests {
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    impl Pool {
        /// How many connections are idle, reserved, and being opened.
        fn counts(&self) -> (usize, usize, usize) {
            let state = self.0.state();
            (state.idle.len(), state.out, state.dialling)
        }
    }

    const IDLE: Duration = Duration::from_secs(4);

    fn pool(address: &str, most: usize) -> Pool {
        let uri = format!("http://{address}/").parse().unwrap();
        Pool::new(Dialer::plain(&uri, Duration::from_secs(2)), most, IDLE)
    }

    fn want(need: usize) -> Want {
        Want { most: need, need, until: Instant::now() }
    }

    /// A server that keeps the connections it accepts, or closes them at once. Also returns what it accepted.
    async fn server(keeps: bool) -> (String, Arc<Mutex<Vec<Option<TcpStream>>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let came: Arc<Mutex<Vec<Option<TcpStream>>>> = Arc::default();
        let kept = Arc::clone(&came);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                kept.lock().unwrap().push(Some(stream).filter(|_| keeps));
            }
        });
        (address, came)
    }

    #[tokio::test]
    async fn what_is_reserved_and_not_used_lies_idle_again_and_there_are_never_more_than_allowed() {
        let (address, came) = server(true).await;
        let pool = pool(&address, 3);
        let first = pool.reserve(want(8)).await.unwrap();
        while pool.counts().2 > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let rest = pool.reserve_more(8, Instant::now());
        assert_eq!(first.len() + rest.len(), 3);
        let since = first[0].since;
        assert_eq!(pool.reserve(want(1)).await.unwrap_err().code, Code::ConnectionsUsedUp);
        drop((first, rest));
        assert_eq!(pool.counts(), (3, 0, 0));
        let again = pool.reserve(want(3)).await.unwrap();
        assert!(again.iter().any(|reserved| reserved.since == since), "its age is kept");
        assert_eq!(came.lock().unwrap().len(), 3);
    }

    #[tokio::test]
    async fn a_connection_that_will_be_too_old_when_it_is_used_is_replaced() {
        let (address, came) = server(true).await;
        let pool = pool(&address, 2);
        drop(pool.reserve(want(1)).await.unwrap());
        let soon = Instant::now() + Duration::from_secs(1);
        assert_eq!(pool.lead(soon, 1), Duration::ZERO);
        let late = Instant::now() + IDLE;
        assert!(pool.lead(late, 1) >= Pool::MARGIN);
        assert!(pool.reserve_more(1, late).is_empty());
        assert_eq!(pool.counts(), (0, 0, 0));
        pool.reserve(want(1)).await.unwrap();
        assert_eq!(came.lock().unwrap().len(), 2);
    }

    #[tokio::test]
    async fn a_bank_that_closes_idle_connections_gets_requests_on_younger_ones() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(800)).await;
                    drop(stream);
                });
            }
        });
        let pool = pool(&address, 1);
        drop(pool.reserve(want(1)).await.unwrap());
        assert_eq!(pool.0.state().idle_bound.get(), IDLE);
        while pool.0.state().idle.iter().any(|idle| !idle.connection.sender.is_closed()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let fresh = pool.reserve(want(1)).await.unwrap().remove(0);
        let bound = pool.0.state().idle_bound.get();
        assert!((250..=1_000).contains(&bound.as_millis()), "{bound:?}");
        let opened = fresh.since;
        drop(fresh);
        assert!(pool.reserve_more(1, opened + bound).is_empty(), "it may be closed by then");
    }

    #[tokio::test]
    async fn a_closed_port_is_reported_with_its_reason_and_tried_less_and_less_often() {
        let pool = pool("127.0.0.1:1", 8);
        let (began, mut tries) = (Instant::now(), 0);
        while began.elapsed() < Duration::from_millis(1200) {
            let refused = pool.reserve(want(8)).await.unwrap_err();
            assert_eq!(refused.code, Code::ConnectFailed);
            assert!(refused.message.contains("refused"), "{}", refused.message);
            tries += pool.take_failures().values().sum::<u64>();
            tokio::time::sleep(refused.retry_in).await;
        }
        // Eight tries at once, then one after about 0.2, 0.4 and 0.8 s.
        assert!((9..=12).contains(&tries), "{tries}");
    }

    #[tokio::test]
    async fn a_server_that_accepts_and_hangs_up_is_no_open_connection() {
        let (address, came) = server(false).await;
        let pool = pool(&address, 8);
        for _ in 0..3 {
            let refused = pool.reserve(want(1)).await.unwrap_err();
            assert_eq!(refused.code, Code::ConnectClosed);
            tokio::time::sleep(refused.retry_in).await;
        }
        assert!(came.lock().unwrap().len() <= 4, "{}", came.lock().unwrap().len());
    }
}
