//! The census cache: counts the refunds of all channels, and keeps the result for a while. What suspends channels is read
//! for each answer, and put into the last count.
//!
//! Counting reads an entry for each refund that waits, and scrapers and dashboards ask every node often. So a node
//! counts once at a time. Then it waits ten times as long as the count took, times the number of living nodes.
//! So all nodes together keep one connection busy for a tenth of the time, however many callers there are.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use super::Problem;
use super::kept::Kept;
use crate::desk::{self, forecasts::Measured, fresh::with_suspensions};
use crate::node::Node;
use crate::store::{ChannelCensus, Suspended};

/// The shortest and the longest time for which a count is kept.
const LEAST: Duration = Duration::from_secs(2);
const MOST: Duration = Duration::from_mins(5);

/// The last count.
#[derive(Debug, Default)]
pub(super) struct CensusCache {
    counted: Arc<Kept<Vec<ChannelCensus>>>,
    suspended: Mutex<Option<LastSuspended>>,
}

/// The last read of what suspends channels.
#[derive(Debug)]
struct LastSuspended {
    began: Instant,
    value: Result<Arc<Suspended>, Problem>,
}

impl CensusCache {
    /// The census, counted now or a moment ago. If counting takes longer than `patience`, the last count.
    ///
    /// # Errors
    /// When Postgres fails, or when the first count takes longer than `patience`.
    pub(super) async fn read(
        &self,
        node: &Node,
        patience: Duration,
    ) -> Result<Arc<Vec<ChannelCensus>>, Problem> {
        let node = node.clone();
        let count = || async move {
            let measured = Measured::of_reports([&node.status_report.report(None)]);
            Ok(desk::census(&node.store, &measured).await?)
        };
        let rest = |counted: &Vec<ChannelCensus>, took| {
            // The living nodes that run the same channels. Each of them counts for itself.
            rest_after(took, counted.iter().map(|channel| channel.run_by.len()).max().unwrap_or(1))
        };
        self.counted.read(count, rest, patience).await
    }

    /// The census with what suspends and slows channels at this moment.
    ///
    /// # Errors
    /// As [`CensusCache::read`].
    pub(super) async fn now(
        &self,
        node: &Node,
        patience: Duration,
    ) -> Result<Arc<Vec<ChannelCensus>>, Problem> {
        let census = self.read(node, patience).await?;
        self.renewed(node, census).await
    }

    /// This census with what suspends and slows channels at this moment.
    ///
    /// # Errors
    /// When Postgres fails.
    pub(super) async fn renewed(
        &self,
        node: &Node,
        census: Arc<Vec<ChannelCensus>>,
    ) -> Result<Arc<Vec<ChannelCensus>>, Problem> {
        let suspended = self.suspended(node).await?;
        Ok(with_suspensions(&census, &suspended).map_or(census, Arc::new))
    }

    /// What suspends channels, by a read that began after this call. Callers of one moment share it.
    async fn suspended(&self, node: &Node) -> Result<Arc<Suspended>, Problem> {
        let asked = Instant::now();
        let mut last = self.suspended.lock().await;
        if let Some(last) = last.as_ref().filter(|last| last.began >= asked) {
            return last.value.clone();
        }
        let began = Instant::now();
        let value = node.store.suspensions().await.map(Arc::new).map_err(Problem::from);
        *last = Some(LastSuspended { began, value: value.clone() });
        value
    }

    /// Whether a count is there already.
    pub(super) fn has_value(&self) -> bool {
        self.counted.has_value()
    }
}

/// How long to keep a count that took `took`, when `nodes` nodes count.
fn rest_after(took: Duration, nodes: usize) -> Duration {
    let nodes = u32::try_from(nodes).unwrap_or(u32::MAX).max(1);
    (took * 10).saturating_mul(nodes).clamp(LEAST, MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_nodes_that_count_cost_together_what_one_does() {
        let took = Duration::from_millis(500);
        assert_eq!(rest_after(took, 1), Duration::from_secs(5));
        assert_eq!(rest_after(took, 20), Duration::from_secs(100));
        assert_eq!(rest_after(Duration::ZERO, 20), LEAST);
        assert_eq!(rest_after(took, 10_000), MOST);
    }
}
