//! A shared read: the result of a costly read, which all callers share for a while.
//!
//! One read is under way at a time. It goes on when its callers have left: otherwise a read that outlasts a caller's
//! patience would begin again and again, and no caller would ever see a result. A failure is kept too, so that all
//! waiting callers get it at once, not one after the other.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use tokio::time::timeout;

use super::Problem;
use crate::lock::Lock;

/// How long a failure is kept.
const FAILURE: Duration = Duration::from_secs(1);

type Value<T> = Result<Arc<T>, Problem>;

/// The last value of one kind.
#[derive(Debug)]
pub(super) struct SharedRead<T> {
    last: Mutex<Option<Last<T>>>,
    /// Values that share this lock are read one after the other.
    one_at_a_time: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug)]
struct Last<T> {
    value: Value<T>,
    good_until: Instant,
}

impl<T> Default for SharedRead<T> {
    fn default() -> Self {
        SharedRead::beside(Arc::default())
    }
}

impl<T> SharedRead<T> {
    /// A value that is read while no other value of this lock is.
    pub(super) fn beside(one_at_a_time: Arc<tokio::sync::Mutex<()>>) -> Self {
        SharedRead { last: Mutex::default(), one_at_a_time }
    }

    /// Whether an earlier read succeeded.
    pub(super) fn has_value(&self) -> bool {
        self.last.locked().as_ref().is_some_and(|last| last.value.is_ok())
    }

    fn last(&self) -> Option<Value<T>> {
        self.last.locked().as_ref().map(|last| last.value.clone())
    }

    fn fresh(&self) -> Option<Value<T>> {
        let last = self.last.locked();
        last.as_ref().filter(|last| Instant::now() < last.good_until).map(|last| last.value.clone())
    }
}

impl<T: Send + Sync + 'static> SharedRead<T> {
    /// The value, read now or a moment ago. If the read takes longer than `patience`, the last value. `rest` says how long
    /// to keep a value whose read took a time.
    ///
    /// # Errors
    /// When the read fails, or when the first one takes longer than `patience`.
    pub(super) async fn read<F>(
        self: &Arc<Self>,
        read: impl FnOnce() -> F + Send + 'static,
        rest: impl FnOnce(&T, Duration) -> Duration + Send + 'static,
        patience: Duration,
    ) -> Value<T>
    where
        F: Future<Output = Result<T, Problem>> + Send,
    {
        if let Some(value) = self.fresh() {
            return value;
        }
        let shared = Arc::clone(self);
        let reading = tokio::spawn(async move {
            let _guard = shared.one_at_a_time.lock().await;
            if let Some(read_meanwhile) = shared.fresh() {
                return read_meanwhile;
            }
            let began = Instant::now();
            let value = read().await.map(Arc::new);
            let rest = value.as_ref().map_or(FAILURE, |value| rest(value, began.elapsed()));
            *shared.last.locked() = Some(Last { value: value.clone(), good_until: Instant::now() + rest });
            value
        });
        match timeout(patience, reading).await {
            Ok(value) => value.map_err(|_| Problem::internal())?,
            Err(_) => self.last().unwrap_or_else(|| Err(still_counting())),
        }
    }
}

fn still_counting() -> Problem {
    let detail = "the refunds are still being counted; ask again";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "still-counting", "Still counting", detail).retry_after(5)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Notify;

    use super::*;

    const LONG: Duration = Duration::from_mins(5);

    #[tokio::test]
    async fn concurrent_callers_share_one_read_even_a_failed_one() {
        for outcome in [Ok(7), Err(Problem::outage())] {
            let shared = Arc::new(SharedRead::default());
            let reads = Arc::new(AtomicUsize::new(0));
            let ask = || {
                let (reads, outcome) = (Arc::clone(&reads), outcome.clone());
                let read = || async move {
                    reads.fetch_add(1, Ordering::Relaxed);
                    outcome
                };
                shared.read(read, |_, _| LONG, LONG)
            };
            let (first, second) = tokio::join!(ask(), ask());
            assert_eq!((first.is_ok(), second.is_ok()), (outcome.is_ok(), outcome.is_ok()));
            assert_eq!(reads.load(Ordering::Relaxed), 1);
        }
    }

    #[tokio::test]
    async fn a_read_goes_on_when_patience_ends() {
        let shared = Arc::new(SharedRead::default());
        let go_on = Arc::new(Notify::new());
        let wait = Arc::clone(&go_on);
        let slow = || async move {
            wait.notified().await;
            Ok(7)
        };
        let impatient = shared.read(slow, |_, _| LONG, Duration::from_millis(1)).await;
        assert_eq!(impatient.unwrap_err().status(), StatusCode::SERVICE_UNAVAILABLE);
        go_on.notify_one();
        let patient = shared.read(|| async { Err(Problem::internal()) }, |_, _| LONG, LONG).await;
        assert_eq!(patient, Ok(Arc::new(7)), "the slow read was thrown away");
    }
}
