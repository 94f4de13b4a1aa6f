//! The census cache: counts the refunds of all channels, and keeps the result for a while.
//!
//! Counting reads an entry for each refund that waits, and scrapers and dashboards ask every node often. So a node
//! counts once at a time. Then it waits ten times as long as the count took, times the number of living nodes.
//! So all nodes together keep one connection busy for a tenth of the time, however many callers there are.
//!
//! A count goes on when its callers have left. Otherwise a count that outlasts a scraper's patience would begin again
//! and again, and no caller would ever see a result.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use tokio::time::timeout;

use super::Problem;
use crate::desk::{self, forecasts::Measured};
use crate::lock::Lock;
use crate::node::Node;
use crate::store::ChannelCensus;

/// The shortest and the longest time for which a count is kept.
const LEAST: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_mins(5);

type Counted = Result<Arc<Vec<ChannelCensus>>, Problem>;

/// The last count. A failure is kept too, for a second, so that all waiting callers get it at once, not one after the
/// other.
#[derive(Debug, Default)]
pub(super) struct CensusCache {
    kept: Mutex<Option<Kept>>,
    one_at_a_time: tokio::sync::Mutex<()>,
}

#[derive(Debug, Clone)]
struct Kept {
    counted: Counted,
    good_until: Instant,
}

impl CensusCache {
    /// The census, counted now or a moment ago. If counting takes longer than `patience`, the last count.
    ///
    /// # Errors
    /// When Postgres fails, or when the first count takes longer than `patience`.
    pub(super) async fn read(self: &Arc<Self>, node: &Node, patience: Duration) -> Counted {
        let node = node.clone();
        let count = || async move {
            let measured = Measured::of_reports([&node.status_report.to_json(None)]);
            desk::census(&node.store, &measured).await.map_err(|error| Problem::store(&error))
        };
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
            let _guard = cache.one_at_a_time.lock().await;
            if let Some(counted_meanwhile) = cache.fresh() {
                return counted_meanwhile;
            }
            let began = Instant::now();
            let counted = count().await.map(Arc::new);
            let rest = counted.as_ref().map_or(LEAST, |counted| {
                // The living nodes that run the same channels. Each of them counts for itself.
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

/// How long to keep a count that took `took`, when `nodes` nodes count.
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
    async fn concurrent_callers_share_one_count_even_a_failed_one() {
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
