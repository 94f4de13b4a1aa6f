//! The connections to one address: those that lie idle, those in somebody's hand, and those being set up.
//!
//! All of them together are never more than `max_in_flight`. A connection is reserved before a permit is asked
//! for; dropped unused it lies idle again, as old as it was. Setting up goes on in the background, and nobody
//! waits for more than the first.
//!
//! While the address cannot be reached, one connection is tried at a time, at growing distances. A connection
//! that its other end closes before it was used counts as one that could not be made: else a proxy that takes
//! every connection and closes it would have us dial as fast as we can.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::connect::{Connection, DialError, Dialer};
use super::kernel::{self, RoundTrip};
use crate::estimate::Estimate;
use crate::lock::Lock;
use crate::refund::Code;

/// Why there is no connection just now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreachable {
    pub code: Code,
    /// A fragment, such as `connect to 10.0.0.1: Connection refused`.
    pub message: String,
    /// Until it is tried again.
    pub retry_in: Duration,
}

/// How many connections are wanted, and when they will be used.
#[derive(Debug, Clone, Copy)]
pub struct Want {
    /// Take no more than these, if they lie there.
    pub most: usize,
    /// Set up what is missing to these.
    pub need: usize,
    /// They must not have lain idle for too long by then.
    pub until: Instant,
}

/// What was measured of an address.
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
    /// A connection lies idle, or somebody's dialling ended.
    came: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The one that was used last is at the end.
    idle: Vec<Idle>,
    /// Reserved, or under a request.
    out: usize,
    dialling: usize,
    /// A task looks after idle ones that nobody will use any more.
    is_swept: bool,
    trouble: Option<Trouble>,
    failures: BTreeMap<Code, u64>,
    /// A request was answered since the last trouble.
    proven: bool,
    /// Connections in a row that were closed right after an answer.
    short_lived: u32,
    set_up: Estimate,
    /// Of the first packets of connections.
    knock: Estimate,
    /// As the kernel measured it on a connection that was used several times, and when.
    told: Option<(RoundTrip, Instant)>,
    asked_kernel: Option<Instant>,
}

#[derive(Debug)]
struct Idle {
    connection: Connection,
    since: Instant,
}

/// The last connection could not be made.
#[derive(Debug)]
struct Trouble {
    code: Code,
    message: String,
    failures: u32,
    retry_at: Instant,
}

impl Pool {
    /// Some servers close idle connections after 5 s; before that we do, because a request that meets
    /// the closing may be lost, and then nobody knows.
    pub const IDLE_FOR: Duration = Duration::from_secs(4);
    /// A new connection to an address of which nothing good is known must stay open for so long.
    const PROBATION: Duration = Duration::from_millis(5);
    /// Closed this soon: nobody waited for an idle one to be used.
    const AT_ONCE: Duration = Duration::from_millis(500);
    const FIRST_RETRY: Duration = Duration::from_millis(200);
    const LAST_RETRY: Duration = Duration::from_secs(3);
    /// Before anything was measured.
    const SET_UP_UNSEEN: Duration = Duration::from_millis(100);
    /// What nodes and timers may be late by.
    const MARGIN: Duration = Duration::from_millis(5);
    /// Connections that were closed right after an answer, until none is kept any more.
    const SHORT_LIVED: u32 = 2;
    /// Set up earlier, a connection would have lain idle for too long when it is used.
    const LONGEST_LEAD: Duration = Duration::from_secs(3);
    const ASK_KERNEL_EVERY: Duration = Duration::from_secs(1);
    /// Requests after which the kernel's measure of a connection says something.
    const MEASURED: u32 = 8;

    pub fn new(dialer: Dialer, most: usize) -> Self {
        Pool(Arc::new(Shared { dialer, most, state: Mutex::default(), came: Notify::new() }))
    }

    /// Takes connections that lie idle and sets up what is missing; returns as soon as there is one, or when
    /// none can be had just now.
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

    /// Takes up to so many more that lie idle by now.
    pub fn reserve_more(&self, most: usize, until: Instant) -> Vec<Reserved> {
        self.0.take_idle(&mut self.0.state(), most, until)
    }

    /// One connection in place of one that turned out dead: an idle one, or a new one if it is made by `closes`.
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
                message: "the connection was lost before the first byte, and the permit's span was over before another was open".to_owned(),
                retry_in: Duration::ZERO,
            }),
        }
    }

    /// How long before `at` one should reserve, so that `need` connections are open then.
    pub fn lead(&self, at: Instant, need: usize) -> Duration {
        let state = self.0.state();
        let fresh = state.idle.iter().filter(|idle| idle.is_usable(at)).count();
        if fresh >= need {
            return Duration::ZERO;
        }
        let set_up = state.set_up.expected().unwrap_or(Self::SET_UP_UNSEEN);
        set_up.min(self.0.dialer.limit()).min(Self::LONGEST_LEAD) + Self::MARGIN
    }

    /// How long setting up a connection takes, at the most as a rule.
    pub fn set_up(&self) -> Duration {
        self.0.state().set_up.expected().unwrap_or(Self::SET_UP_UNSEEN)
    }

    pub fn reading(&self) -> Reading {
        let state = self.0.state();
        let told = state.told.filter(|(_, at)| at.elapsed() < Duration::from_mins(1)).map(|(told, _)| told);
        Reading {
            set_up: state.set_up.mean(),
            round_trip: told.map(|told| told.mean).or_else(|| state.knock.mean()),
            round_trip_variation: told.map(|told| told.variation).or_else(|| state.knock.deviation()),
        }
    }

    /// Connections that could not be made, by code, since this was last asked.
    pub fn take_failures(&self) -> BTreeMap<Code, u64> {
        std::mem::take(&mut self.0.state().failures)
    }
}

impl Idle {
    fn is_usable(&self, at: Instant) -> bool {
        !self.connection.sender.is_closed() && at.saturating_duration_since(self.since) < Pool::IDLE_FOR
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
            // Others have all connections in hand.
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
            // Of several that were tried at one time.
            Some(trouble) if now < trouble.retry_at => trouble.failures,
            Some(trouble) => trouble.failures.saturating_add(1),
            None => 1,
        };
        let wait = (Pool::FIRST_RETRY * 2u32.saturating_pow((failures - 1).min(8))).min(Pool::LAST_RETRY);
        let wait = wait.mul_f64(0.75 + fastrand::f64() * 0.5);
        // What the try took was part of the wait.
        let retry_at = (began + wait).max(now + Pool::FIRST_RETRY / 2);
        self.trouble = Some(Trouble { code: error.code(), message: error.to_string(), failures, retry_at });
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
            if idle.is_usable(until) {
                let Idle { connection, since } = idle;
                state.out += 1;
                got.push(Reserved { connection: Some(connection), since, pool: Arc::clone(self) });
            } else {
                self.bury(state, &idle.connection, idle.since);
            }
        }
        got
    }

    /// Notes how a connection ended that was not used when it did.
    fn bury(&self, state: &mut State, connection: &Connection, since: Instant) {
        if !connection.sender.is_closed() {
            return;
        }
        let ended = connection.ended.get().copied().unwrap_or_else(Instant::now);
        if ended.saturating_duration_since(since) > Pool::AT_ONCE {
            return;
        }
        if connection.answered == 0 {
            state.fail(&self.dialer.closed(), since);
        } else {
            state.short_lived = state.short_lived.saturating_add(1);
        }
    }

    /// Starts to set up what is missing to `need`, less what is being set up.
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

    fn lay_idle(self: &Arc<Self>, state: &mut State, connection: Connection, since: Instant) {
        if connection.sender.is_closed() {
            return self.bury(state, &connection, since);
        }
        if since.elapsed() < Pool::IDLE_FOR && state.idle.len() < self.most {
            state.idle.push(Idle { connection, since });
            self.came.notify_waiters();
            if !std::mem::replace(&mut state.is_swept, true) {
                tokio::spawn(sweep(Arc::clone(self)));
            }
        }
    }
}

/// One connection that is being set up; it is counted until this is dropped.
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
                state.knock.learn(connection.knock);
                pool.lay_idle(&mut state, connection, Instant::now());
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

/// A connection in somebody's hand. Dropped, it lies idle again, unless it was closed.
#[derive(Debug)]
pub struct Reserved {
    connection: Option<Connection>,
    since: Instant,
    pool: Arc<Shared>,
}

impl Reserved {
    /// Whether it could be used, as far as this end knows.
    pub fn is_open(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| !connection.sender.is_closed())
    }

    pub(super) fn connection(&mut self) -> Option<&mut Connection> {
        self.connection.as_mut()
    }

    /// A request was answered on it; `closes` says that it will not take another.
    pub(super) fn answered(&mut self, closes: bool) {
        let Some(connection) = &mut self.connection else { return };
        connection.answered += 1;
        let (again, measured) = (connection.answered > 1, connection.answered >= Pool::MEASURED);
        let mut state = self.pool.state();
        state.proven = true;
        if again {
            state.short_lived = 0;
        }
        let asks = measured && state.asked_kernel.is_none_or(|at| at.elapsed() >= Pool::ASK_KERNEL_EVERY);
        if asks {
            state.asked_kernel = Some(Instant::now());
        }
        // A bank that closes after each answer without saying so: one in some is kept, to see whether it still does.
        let kept = !closes && (state.short_lived < Pool::SHORT_LIVED || fastrand::u8(..) < 8);
        drop(state);
        if asks && let Some(told) = connection.ends.and_then(kernel::round_trip) {
            self.pool.state().told = Some((told, Instant::now()));
        }
        self.since = Instant::now();
        if !kept {
            self.connection = None;
        }
    }

    /// It cannot be used any more: nothing of a request was written on it, and it is dead.
    pub(super) fn died(mut self) {
        if let Some(connection) = self.connection.take() {
            self.pool.bury(&mut self.pool.state(), &connection, self.since);
        }
    }

    /// It is not used any more.
    pub(super) fn close(mut self) {
        self.connection = None;
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let mut state = self.pool.state();
        state.out -= 1;
        if let Some(connection) = self.connection.take() {
            self.pool.lay_idle(&mut state, connection, self.since);
        }
    }
}

/// Closes what lay idle for too long, until nothing lies there: a channel that sends now and then on each of many
/// nodes would else keep a connection open on all of them.
async fn sweep(pool: Arc<Shared>) {
    loop {
        tokio::time::sleep(Pool::IDLE_FOR).await;
        let mut state = pool.state();
        state.idle.retain(|idle| idle.is_usable(Instant::now()));
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
        /// Idle, out, and being set up.
        fn counts(&self) -> (usize, usize, usize) {
            let state = self.0.state();
            (state.idle.len(), state.out, state.dialling)
        }
    }

    fn pool(address: &str, most: usize) -> Pool {
        let uri = format!("http://{address}/").parse().unwrap();
        Pool::new(Dialer::new(&uri, None, Duration::from_secs(2)).unwrap(), most)
    }

    fn want(need: usize) -> Want {
        Want { most: need, need, until: Instant::now() }
    }

    /// Keeps what it accepts, or hangs up at once; answers how many came.
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
        let late = Instant::now() + Pool::IDLE_FOR;
        assert!(pool.lead(late, 1) >= Pool::MARGIN);
        assert!(pool.reserve_more(1, late).is_empty());
        assert_eq!(pool.counts(), (0, 0, 0));
        pool.reserve(want(1)).await.unwrap();
        assert_eq!(came.lock().unwrap().len(), 2);
    }

    #[tokio::test]
    async fn a_closed_port_is_told_with_its_reason_and_tried_less_and_less_often() {
        let pool = pool("127.0.0.1:1", 8);
        let (began, mut tries) = (Instant::now(), 0);
        while began.elapsed() < Duration::from_millis(1200) {
            let refused = pool.reserve(want(8)).await.unwrap_err();
            assert_eq!(refused.code, Code::ConnectFailed);
            assert!(refused.message.contains("refused"), "{}", refused.message);
            tries += pool.take_failures().values().sum::<u64>();
            tokio::time::sleep(refused.retry_in).await;
        }
        // Eight at once at first, then one after 0.2, 0.4 and 0.8 s or so.
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
