//! Waiting for a condition, for a limit's next window, and for a try that a busy machine does not spoil.

use std::time::{Duration, Instant};

/// Waits until `look` says so; panics with `what` after a minute.
pub async fn until(what: &str, look: impl AsyncFnMut() -> bool) -> Duration {
    within(Duration::from_mins(1), what, look).await
}

/// Waits until `look` says so; panics with `what` after `limit`. Answers how long it took.
pub async fn within(limit: Duration, what: &str, mut look: impl AsyncFnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !look().await {
        assert!(began.elapsed() < limit, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    began.elapsed()
}

/// Waits for the next window of `per` seconds if it begins within `least` seconds, because its counts begin anew there.
pub async fn window_lasts(per: i64, least: i64) {
    let left = per - jiff::Timestamp::now().as_second().rem_euclid(per);
    if left < least {
        tokio::time::sleep(Duration::from_secs(left.unsigned_abs() + 1)).await;
    }
}

/// Plays a scene until one try succeeds; panics with what each try says. A busy machine costs a try, and no number of tries
/// helps a node that is wrong.
pub async fn one_try_succeeds(tries: usize, mut scene: impl AsyncFnMut() -> Result<(), String>) {
    let mut failed = Vec::new();
    for _ in 0..tries {
        match scene().await {
            Ok(()) => return,
            Err(why) => failed.push(why),
        }
    }
    panic!("{failed:#?}");
}
