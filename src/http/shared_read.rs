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
    one_at_a_time: tokio::sync::Mutex<()>,
    /// How long the last value stands in after its time, while a newer one cannot be read.
    most_overdue: Duration,
}

#[derive(Debug)]
struct Last<T> {
    value: Value<T>,
    good_until: Instant,
}

impl<T> Default for SharedRead<T> {
    fn default() -> Self {
        SharedRead::overdue_at_most(Duration::MAX)
    }
}

impl<T> SharedRead<T> {
    /// A value that stands in for a newer one only so long after its time.
    pub(super) fn overdue_at_most(most_overdue: Duration) -> Self {
        SharedRead { last: Mutex::default(), one_at_a_time: tokio::sync::Mutex::default(), most_overdue }
    }

    /// Whether an earlier read succeeded, and its value may still stand in for a newer one.
    pub(super) fn has_value(&self) -> bool {
        self.last().is_ok()
    }

    /// The last value, for a caller whose patience for a newer one is over.
    ///
    /// # Errors
    /// When the last read failed, when there was none, or when its value is too old.
    pub(super) fn last(&self) -> Value<T> {
        let last = self.last.locked();
        let last = last.as_ref().filter(|last| last.good_until.elapsed() <= self.most_overdue);
        last.map_or_else(|| Err(still_counting()), |last| last.value.clone())
    }

    /// The last value, while it needs no newer one.
    pub(super) fn fresh(&self) -> Option<Value<T>> {
        let last = self.last.locked();
        last.as_ref().filter(|last| Instant::now() < last.good_until).map(|last| last.value.clone())
    }
}

impl<T: Send + Sync + 'static> SharedRead<T> {
    /// The value, read now or a moment ago. If the read takes longer than `patience`, the last value. `rest` says how long
    /// to keep a value whose read took a time.
    ///
    /// # Errors
    /// When the read fails, or when it takes longer than `patience` and there is no last value, or only one that is too old.
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
            Err(_) => self.last(),
        }
    }
}

fn still_counting() -> Problem {
    let detail = "this node still reads the figures from Postgres; ask again";
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

    #[tokio::test]
    async fn a_value_stands_in_for_a_newer_one_until_it_is_too_old() {
        for (most_overdue, stands_in) in [(Duration::ZERO, false), (LONG, true)] {
            let shared = Arc::new(SharedRead::overdue_at_most(most_overdue));
            let first = shared.read(|| async { Ok(7) }, |_, _| Duration::ZERO, LONG).await;
            assert_eq!(first, Ok(Arc::new(7)));
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert_eq!(shared.has_value(), stands_in);
            let endless = || std::future::pending::<Result<i32, Problem>>();
            let stale = shared.read(endless, |_, _| LONG, Duration::from_millis(1)).await;
            assert_eq!(stale.is_ok(), stands_in, "{stale:?}");
        }
    }
}
