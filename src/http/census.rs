//! The census, kept for a moment.
//!
//! Counting reads every row, and scrapers and dashboards ask often: one count at a time, and none
//! sooner than ten times as long as the last one took, so that looking costs a tenth of one
//! connection at most.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use super::Problem;
use crate::store::{ChannelCensus, Store};

const LEAST: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_mins(1);

type Counted = Result<Arc<Vec<ChannelCensus>>, Problem>;

/// The last census and until when it is good enough. A failure is kept for a second, too: those who
/// waited for it need not fail one after the other.
#[derive(Debug, Default)]
pub(super) struct CensusCache {
    kept: Mutex<Option<(Instant, Counted)>>,
}

impl CensusCache {
    pub(super) async fn read(&self, store: &Store) -> Counted {
        self.read_from(|| async { store.census().await.map_err(|error| Problem::store(&error)) }).await
    }

    async fn read_from<F: Future<Output = Result<Vec<ChannelCensus>, Problem>>>(
        &self,
        count: impl FnOnce() -> F,
    ) -> Counted {
        let mut kept = self.kept.lock().await;
        if let Some((good_until, counted)) = &*kept
            && Instant::now() < *good_until
        {
            return counted.clone();
        }
        let began = Instant::now();
        let counted = count().await.map(Arc::new);
        let rest = if counted.is_ok() { (began.elapsed() * 10).clamp(LEAST, MOST) } else { LEAST };
        *kept = Some((Instant::now() + rest, counted.clone()));
        counted
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn those_who_ask_at_once_share_one_count_even_a_failed_one() {
        for outcome in [Ok(Vec::new()), Err(Problem::outage())] {
            let cache = CensusCache::default();
            let counts = Cell::new(0);
            for _ in 0..3 {
                let outcome = outcome.clone();
                let counted = cache.read_from(|| async {
                    counts.set(counts.get() + 1);
                    outcome
                });
                let _ = counted.await;
            }
            assert_eq!(counts.get(), 1);
        }
    }
}
