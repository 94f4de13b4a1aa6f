//! Tests of the pool against servers that keep connections, close them, or are not there.

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::net::{TcpListener, TcpStream};

use super::*;

impl Pool {
    /// How many connections are idle, reserved, and being opened.
    fn counts(&self) -> (usize, usize, usize) {
        let state = self.0.state();
        (state.idle.len(), state.out, state.dialling)
    }

    /// Whether a request was answered since the last failed try to connect.
    pub(in crate::bank) fn is_proven(&self) -> bool {
        self.0.state().tries.is_proven()
    }

    /// Knows one measurement only: this connection took `set_up` to open.
    fn learns_only(&self, connection: &mut Connection, set_up: Duration) {
        connection.set_up = set_up;
        let mut state = self.0.state();
        state.measured = AddressEstimates::default();
        state.measured.opened(connection);
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
    assert_eq!(pool.0.state().idle_bound.of(0), IDLE);
    while pool.0.state().idle.iter().any(|idle| !idle.connection.sender.is_closed()) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let fresh = pool.reserve(want(1)).await.unwrap().remove(0);
    let bound = pool.0.state().idle_bound.of(0);
    assert!((250..=1_000).contains(&bound.as_millis()), "{bound:?}");
    let opened = fresh.since;
    drop(fresh);
    assert!(pool.reserve_more(1, opened + bound).is_empty(), "it may be closed by then");
}

/// Apache sends `timeout=0` for a bound below a second, and so does Node.
#[tokio::test]
async fn a_bank_that_keeps_connections_for_less_than_a_second_gets_each_request_on_a_new_one() {
    let (address, _came) = server(true).await;
    let pool = pool(&address, 1);
    for _ in 0..5 {
        let reserving = tokio::time::timeout(Duration::from_secs(5), pool.reserve(want(1)));
        let mut reserved = reserving.await.expect("a new connection is used").unwrap().remove(0);
        reserved.answered(false, Some("timeout=0, max=100"));
        drop(reserved);
        let later = Instant::now() + Duration::from_millis(150);
        assert!(pool.reserve_more(1, later).is_empty(), "the bank may have closed it by then");
    }
    // A connection that waits for its permit is not thrown away.
    let fresh = pool.reserve(want(1)).await.unwrap();
    drop(fresh);
    assert_eq!(pool.reserve_more(1, Instant::now() + Duration::from_secs(1)).len(), 1);
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

#[tokio::test]
async fn a_connection_that_will_be_too_old_when_its_permit_opens_is_replaced_before_that() {
    let (address, _came) = server(true).await;
    let uri = format!("http://{address}/").parse().unwrap();
    let pool = Pool::new(Dialer::plain(&uri, Duration::from_secs(2)), 1, Duration::from_millis(200));
    // On a busy machine the new connection may be open a moment too late.
    for _ in 0..20 {
        let mut old = pool.reserve(want(1)).await.unwrap().remove(0);
        pool.learns_only(old.connection().unwrap(), Duration::from_millis(50));
        let opens = Instant::now() + Duration::from_millis(300);
        if let Some(fresh) = old.until(opens).await {
            assert!(Instant::now() >= opens && fresh.is_open());
            assert!(opens - fresh.since < Duration::from_millis(200), "it is another one");
            return;
        }
    }
    panic!("no connection was open when the permit opened");
}

#[tokio::test]
async fn a_new_connection_is_taken_although_its_use_is_further_away_than_it_may_be_idle() {
    let (address, came) = server(true).await;
    let pool = pool(&address, 1);
    let want = Want { until: Instant::now() + IDLE * 2, ..want(1) };
    let reserving = tokio::time::timeout(Duration::from_secs(5), pool.reserve(want));
    assert_eq!(reserving.await.expect("no endless dialling").unwrap().len(), 1);
    assert_eq!(came.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn each_of_those_who_need_a_connection_at_once_opens_one() {
    let (address, _came) = server(true).await;
    let pool = pool(&address, 4);
    let closes = Instant::now() + Duration::from_secs(5);
    let mut replacing: FuturesUnordered<_> = (0..4).map(|_| pool.replace(closes)).collect();
    assert!(futures_util::poll!(replacing.next()).is_pending());
    assert_eq!(pool.0.state().dialling, 4);
    while let Some(replaced) = replacing.next().await {
        replaced.unwrap();
    }
    assert_eq!(pool.0.state().missing, 0);
}

#[tokio::test]
async fn a_connection_at_the_end_of_its_life_carries_the_request_it_is_reserved_for_and_no_other() {
    let (address, _came) = server(true).await;
    let pool = pool(&address, 1);
    let mut reserved = pool.reserve(want(1)).await.unwrap().remove(0);
    let now = Instant::now();
    let life = reserved.connection().unwrap().renew_at - now;
    assert!((Duration::from_mins(3)..=Duration::from_mins(6)).contains(&life), "{life:?}");
    reserved.connection().unwrap().renew_at = now + Duration::from_secs(1);
    drop(reserved);
    assert_eq!(pool.lead(now, 1), Duration::ZERO);
    let late = now + Duration::from_secs(2);
    assert!(pool.lead(late, 1) >= Pool::MARGIN, "it is replaced before the permit is asked for");
    let mut reserved = pool.reserve_more(1, now).remove(0);
    reserved.connection().unwrap().renew_at = now;
    assert!(reserved.is_open() && !reserved.is_outdated(), "its permit is not wasted");
    reserved.answered(false, None);
    drop(reserved);
    assert_eq!(pool.counts(), (0, 0, 0), "it is not kept");
    let mut fresh = pool.reserve(want(1)).await.unwrap().remove(0);
    assert!(fresh.connection().unwrap().renew_at > now + Duration::from_mins(3));
}

/// One of them may be one answer off. Nothing is wrong with the way to the bank.
#[tokio::test]
async fn connections_of_before_a_mixed_up_answer_are_not_used_again_and_none_counts_as_failed() {
    let (address, _came) = server(true).await;
    let (pool, began) = (pool(&address, 3), Instant::now());
    let mut reserved = pool.reserve(want(3)).await.unwrap();
    while pool.counts().2 > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    reserved.extend(pool.reserve_more(3, Instant::now()));
    assert_eq!(pool.counts(), (0, 3, 0));
    drop(reserved.pop());
    reserved[0].answered(false, None);
    let distrusted = Instant::now();
    pool.distrust(began);
    assert_eq!(pool.counts(), (0, 2, 0), "the idle one is closed");
    assert!(reserved.iter().all(|one| !one.is_open() && one.is_outdated()), "those in hand are replaced");
    drop(reserved);
    assert_eq!(pool.counts(), (0, 0, 0), "those in use are closed when they come back");
    let mut fresh = pool.reserve(want(1)).await.unwrap().remove(0);
    assert!(fresh.since >= distrusted && fresh.is_open());
    fresh.answered(false, None);
    drop(fresh);
    pool.distrust(began);
    assert_eq!(pool.counts(), (1, 0, 0), "an answer on one of before says nothing about it");
    pool.distrust(Instant::now());
    assert_eq!(pool.counts(), (0, 0, 0), "an answer on one that was opened since does");
    assert!(pool.take_failures().is_empty());
    assert_eq!(pool.0.state().short_lived, 0);
}

#[tokio::test]
async fn a_new_connection_is_taken_although_it_may_be_idle_for_longer_than_it_lives() {
    let (address, _came) = server(true).await;
    let uri = format!("http://{address}/").parse().unwrap();
    let hour = Duration::from_hours(1);
    let pool = Pool::new(Dialer::plain(&uri, Duration::from_secs(2)), 1, hour);
    let want = Want { until: Instant::now() + hour, ..want(1) };
    let reserving = tokio::time::timeout(Duration::from_secs(5), pool.reserve(want));
    assert_eq!(reserving.await.expect("no endless dialling").unwrap().len(), 1);
}

#[tokio::test]
async fn a_far_bank_that_soon_closes_unused_connections_gets_them_in_time_but_not_long_before() {
    let (address, _came) = server(true).await;
    let pool = pool(&address, 1);
    let mut reserved = pool.reserve(want(1)).await.unwrap().remove(0);
    pool.learns_only(reserved.connection().unwrap(), Duration::from_millis(900));
    let soon_closed = Duration::from_millis(400);
    pool.0.state().idle_bound.closed_after(soon_closed * 2, 0);
    drop(reserved);
    let lead = pool.lead(Instant::now() + IDLE, 1);
    assert!(lead >= Duration::from_millis(900), "it opens in time: {lead:?}");
    assert!(
        lead < Duration::from_millis(900) + soon_closed,
        "and is not closed before its request: {lead:?}"
    );
}
