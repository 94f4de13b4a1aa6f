//! What the pool does after connections ended without an answer: new ones are tried before use.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A server that closes each connection this long after it accepted it. Also returns how many it accepted.
async fn closing_after(open: Duration) -> (String, Arc<Mutex<usize>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let came: Arc<Mutex<usize>> = Arc::default();
    let count = Arc::clone(&came);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            *count.lock().unwrap() += 1;
            tokio::spawn(async move {
                tokio::time::sleep(open).await;
                drop(stream);
            });
        }
    });
    (address, came)
}

/// stunnel does so while it cannot reach the bank behind it.
#[tokio::test]
async fn after_a_connection_ended_unanswered_others_are_used_only_if_they_outlive_it_until_one_is_answered() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let pool = pool(&listener.local_addr().unwrap().to_string(), 1);
    let is_well = Arc::new(AtomicBool::new(false));
    let keeps = Arc::clone(&is_well);
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            if keeps.load(Ordering::Relaxed) {
                kept.push(stream);
            } else {
                tokio::time::sleep(Duration::from_millis(150)).await;
            }
        }
    });
    let first = pool.reserve(want(1)).await.unwrap();
    while first[0].is_open() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(first);
    for _ in 0..3 {
        let refused = pool.reserve(want(1)).await.unwrap_err();
        assert_eq!(refused.code, Code::ConnectClosed);
        tokio::time::sleep(refused.retry_in).await;
    }
    is_well.store(true, Ordering::Relaxed);
    let mut well = pool.reserve(want(1)).await.unwrap().remove(0);
    assert!(well.connection().unwrap().lived() >= Duration::from_millis(150));
    well.answered(true, None);
    assert_eq!(pool.0.state().tries.trial(), Duration::ZERO, "the next one is used at once");
}

#[tokio::test]
async fn a_connection_for_a_grant_is_opened_early_enough_for_its_trial() {
    let (address, _came) = server(true).await;
    let pool = pool(&address, 1);
    pool.0.state().tries.ended_unanswered(Instant::now(), ms(100));
    assert!(pool.lead(Instant::now() + ms(10_000), 1) >= ms(205));
}

#[tokio::test]
async fn a_connection_that_replaces_an_old_one_is_opened_early_enough_for_its_trial() {
    let (address, _came) = server(true).await;
    let uri = format!("http://{address}/").parse().unwrap();
    let pool = Pool::new(Dialer::plain(&uri, ms(2_000)), 1, ms(200));
    pool.0.state().tries.ended_unanswered(Instant::now(), ms(50));
    // On a busy machine the new connection may be open a moment too late.
    for _ in 0..5 {
        let old = pool.reserve(want(1)).await.unwrap().remove(0);
        let opened = old.since;
        if let Some(fresh) = old.until(Instant::now() + ms(500)).await {
            assert!(fresh.is_open() && fresh.since > opened);
            return;
        }
    }
    panic!("no connection was open in time");
}

#[tokio::test]
async fn a_bank_that_closes_unused_connections_early_is_used_again_by_a_probe_and_not_by_a_trial() {
    let (address, _came) = closing_after(ms(300)).await;
    let pool = pool(&address, 2);
    let first = pool.reserve(want(1)).await.unwrap();
    while first[0].is_open() {
        tokio::time::sleep(ms(1)).await;
    }
    drop(first);
    let refused = pool.reserve(want(1)).await.unwrap_err();
    assert_eq!(refused.code, Code::ConnectClosed);
    tokio::time::sleep(refused.retry_in).await;
    let refused = pool.reserve(want(1)).await.unwrap_err();
    assert_eq!(refused.code, Code::ConnectClosed, "no trial is outlived");
    tokio::time::sleep(refused.retry_in).await;
    pool.0.state().tries.a_minute_passes();
    let unused = pool.reserve(want(1)).await.unwrap();
    assert!(pool.reserve(want(1)).await.is_err(), "one connection at a time");
    drop(unused);
    let soon = Instant::now() + ms(1);
    assert!(pool.lead(soon, 1) > Duration::ZERO, "the idle one may end before its use");
    while pool.0.state().idle.iter().any(|idle| !idle.connection.sender.is_closed()) {
        tokio::time::sleep(ms(5)).await;
    }
    // No request showed yet whether the bank answers.
    let mut probe = pool.reserve(want(1)).await.unwrap().remove(0);
    probe.answered(true, None);
    assert_eq!(pool.0.state().tries.trial(), Duration::ZERO);
}

#[tokio::test]
async fn a_connection_that_is_lost_says_nothing_about_an_address_that_answered_meanwhile() {
    let (address, _came) = server(true).await;
    let pool = pool(&address, 2);
    let lost = pool.reserve(want(1)).await.unwrap().remove(0);
    let mut answered = pool.reserve(want(1)).await.unwrap().remove(0);
    answered.answered(false, None);
    lost.lost(Instant::now());
    assert_eq!(pool.0.state().tries.trial(), Duration::ZERO);
}

#[tokio::test]
async fn a_connection_that_ends_long_before_its_permit_is_not_replaced_again_and_again() {
    let (address, came) = closing_after(ms(800)).await;
    let pool = pool(&address, 1);
    let waiting = pool.reserve(want(1)).await.unwrap().remove(0);
    waiting.until(Instant::now() + ms(3_500)).await;
    // The first one, one shortly before the permit and, on a busy machine, one more.
    let came = *came.lock().unwrap();
    assert!((2..=3).contains(&came), "{came} connections");
}
