//! The census, kept for a while.
//!
//! Counting reads an entry for each refund that waits, and scrapers and dashboards ask often, of every node:
//! one count at a time, and none sooner than ten times as long as the last one took, times the nodes that live,
//! so that looking costs a tenth of one connection, whoever looks.
//!
//! A count goes on when those who asked have left. Otherwise a table so large that counting outlasts
//! a scraper's patience would be counted all day and the result never seen.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use tokio::time::timeout;

use super::Problem;
use crate::lock::Lock;
use crate::store::{ChannelCensus, Store};

const LEAST: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_mins(5);

type Counted = Result<Arc<Vec<ChannelCensus>>, Problem>;

/// What was counted last. A failure is kept for a second, too: those who waited for it need not fail
/// one after the other.
#[derive(Debug, Default)]
pub(super) struct CensusCache {
    kept: Mutex<Option<Kept>>,
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, Clone)]
struct Kept {
    counted: Counted,
    good_until: Instant,
}

impl CensusCache {
    /// The census, counted now or a moment ago. Where counting outlasts `patience`, the last one.
    pub(super) async fn read(self: &Arc<Self>, store: &Store, patience: Duration) -> Counted {
        let store = store.clone();
        let count = || async move { store.census().await.map_err(|error| Problem::store(&error)) };
        self.read_from(count, patience).await
    }

    async fn read_from<F>(
        self: &Arc<Self>,
        count: impl FnOnce() -> F + Send + 'static,
        patience: Duration,
    ) -> Counted
    where
        F: Future<Output = Result<Vec<ChannelCensus>, Problem>> + Send,
    {
        if let Some(kept) = self.fresh() {
            return kept;
        }
        let cache = Arc::clone(self);
        let counting = tokio::spawn(async move {
            let _turn = cache.turn.lock().await;
            if let Some(counted_meanwhile) = cache.fresh() {
                return counted_meanwhile;
            }
            let began = Instant::now();
            let counted = count().await.map(Arc::new);
            let rest = counted.as_ref().map_or(LEAST, |counted| {
                // The living nodes, as far as they run the same channels; each counts for itself.
                let nodes = counted.iter().map(|channel| channel.run_by.len()).max().unwrap_or(1);
                rest_after(began.elapsed(), nodes)
            });
            cache.keep(Kept { counted: counted.clone(), good_until: Instant::now() + rest });
            counted
        });
        match timeout(patience, counting).await {
            Ok(counted) => counted.map_err(|_| Problem::internal())?,
            Err(_) => self.kept().map_or_else(|| Err(still_counting()), |kept| kept.counted),
        }
    }

    fn kept(&self) -> Option<Kept> {
        self.kept.locked().clone()
    }

    fn fresh(&self) -> Option<Counted> {
        self.kept().filter(|kept| Instant::now() < kept.good_until).map(|kept| kept.counted)
    }

    fn keep(&self, kept: Kept) {
        *self.kept.locked() = Some(kept);
    }
}

/// How long a count is good that took so long, where so many nodes count.
fn rest_after(took: Duration, nodes: usize) -> Duration {
    let nodes = u32::try_from(nodes).unwrap_or(u32::MAX).max(1);
    (took * 10).saturating_mul(nodes).clamp(LEAST, MOST)
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

    #[tokio::test]
    async fn those_who_ask_at_once_share_one_count_even_a_failed_one() {
        for outcome in [Ok(Vec::new()), Err(Problem::outage())] {
            let cache = Arc::new(CensusCache::default());
            let counts = Arc::new(AtomicUsize::new(0));
            let ask = || {
                let (counts, outcome) = (Arc::clone(&counts), outcome.clone());
                let count = || async move {
                    counts.fetch_add(1, Ordering::Relaxed);
                    outcome
                };
                cache.read_from(count, MOST)
            };
            let (first, second) = tokio::join!(ask(), ask());
            assert_eq!((first.is_ok(), second.is_ok()), (outcome.is_ok(), outcome.is_ok()));
            assert_eq!(counts.load(Ordering::Relaxed), 1);
        }
    }

    #[test]
    fn twenty_nodes_that_count_cost_together_what_one_does() {
        let took = Duration::from_millis(500);
        assert_eq!(rest_after(took, 1), Duration::from_secs(5));
        assert_eq!(rest_after(took, 20), Duration::from_secs(100));
        assert_eq!(rest_after(Duration::ZERO, 20), LEAST);
        assert_eq!(rest_after(took, 10_000), MOST);
    }

    #[tokio::test]
    async fn a_count_goes_on_when_patience_ends() {
        let cache = Arc::new(CensusCache::default());
        let go_on = Arc::new(Notify::new());
        let wait = Arc::clone(&go_on);
        let slow = || async move {
            wait.notified().await;
            Ok(Vec::new())
        };
        let impatient = cache.read_from(slow, Duration::from_millis(1)).await;
        assert_eq!(impatient.unwrap_err().status(), StatusCode::SERVICE_UNAVAILABLE);
        go_on.notify_one();
        let patient = cache.read_from(|| async { Err(Problem::internal()) }, MOST).await;
        assert!(patient.is_ok(), "the slow count was thrown away");
    }
}
