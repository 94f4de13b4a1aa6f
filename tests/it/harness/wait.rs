//! Waiting for a condition, with a generous limit.

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
