//! The census cache: counts the refunds of all channels, and keeps the result for a while. What suspends channels is read
//! for each answer, and put into the last count.
//!
//! Counting reads an entry for each refund that waits, and scrapers and dashboards ask every node often. So a node
//! counts once at a time. Then it waits ten times as long as the count took, times the number of living nodes.
//! So all nodes together keep one connection busy for a tenth of the time, however many callers there are. A count that
//! fails because it takes too long costs as much as one that works, so the node waits after it, too. Meanwhile the last good count
//! stands in. While there is none, the node waits for two minutes at most.

use std::sync::{Arc, Mutex as StdMutex};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use super::log_throttle::LogThrottle;
use super::shared_read::SharedRead;
use super::{Api, Problem};
use crate::desk::{self, forecasts::Measured, fresh::with_suspensions};
use crate::lock::Lock;
use crate::logs::chain;
use crate::node::Node;
use crate::refund::text::counted;
use crate::store::{ChannelCensus, Suspended};

/// The shortest and the longest time for which a count is kept.
const LEAST: Duration = Duration::from_secs(2);
const MOST: Duration = Duration::from_mins(5);
/// The longest wait while no count has succeeded: a node without counts shows nobody its channels.
const MOST_WITHOUT_COUNT: Duration = Duration::from_mins(2);
/// While counting fails, callers get no count that is older. A metrics page says how old its count is, and may show any.
const TOO_OLD: Duration = Duration::from_mins(10);

/// The last count.
#[derive(Debug, Default)]
pub(super) struct CensusCache {
    /// How the last count ended.
    tried: Arc<SharedRead<Result<(), CountFailure>>>,
    good: Arc<StdMutex<Option<GoodCount>>>,
    suspended: Mutex<Option<LastSuspended>>,
    failures: Arc<LogThrottle>,
}

#[derive(Debug)]
struct CountFailure {
    problem: Problem,
    /// Postgres takes no statement at all.
    is_away: bool,
    /// The count cost Postgres nothing: it is away, or the count only waited for a lock.
    is_free: bool,
}

/// A count that succeeded.
#[derive(Debug, Clone)]
pub(super) struct GoodCount {
    census: Arc<Vec<ChannelCensus>>,
    began: Instant,
}

impl GoodCount {
    pub(super) fn age(&self) -> Duration {
        self.began.elapsed()
    }

    /// The census with what suspends and slows channels now.
    pub(super) fn with(self, suspended: &Suspended) -> Arc<Vec<ChannelCensus>> {
        with_suspensions(&self.census, suspended).map_or(self.census, Arc::new)
    }

    /// How many nodes run the same channels. Each of them counts for itself.
    fn nodes(&self) -> usize {
        self.census.iter().map(|channel| channel.run_by.len()).max().unwrap_or(1)
    }
}

/// The last read of what suspends channels.
#[derive(Debug)]
struct LastSuspended {
    began: Instant,
    value: Result<Arc<Suspended>, Problem>,
}

impl CensusCache {
    /// The census, counted now or a moment ago. If counting takes longer than `patience`, or fails while Postgres answers, the
    /// last count.
    ///
    /// # Errors
    /// When Postgres is away, when there is no count that is young enough, or when the first count takes longer than `patience`.
    pub(super) async fn read(
        &self,
        node: &Node,
        patience: Duration,
    ) -> Result<Arc<Vec<ChannelCensus>>, Problem> {
        let tried = self.count(node, patience).await?;
        match (&*tried, self.last_good()) {
            (Ok(()), Some(good)) => Ok(good.census),
            (Err(failure), Some(good)) if !failure.is_away && good.age() < TOO_OLD => Ok(good.census),
            (Err(failure), _) => Err(failure.problem.clone()),
            (Ok(()), None) => Err(Problem::internal()),
        }
    }

    /// The last count that succeeded: now, a moment ago, or long ago if counting takes long or fails.
    pub(super) async fn counted(&self, node: &Node, patience: Duration) -> Option<GoodCount> {
        let _ = self.count(node, patience).await;
        self.last_good()
    }

    fn last_good(&self) -> Option<GoodCount> {
        self.good.locked().clone()
    }

    /// Counts, unless the last try was a moment ago.
    async fn count(&self, node: &Node, patience: Duration) -> Result<Arc<Result<(), CountFailure>>, Problem> {
        let (node, good, last) = (node.clone(), Arc::clone(&self.good), Arc::clone(&self.good));
        let failures = Arc::clone(&self.failures);
        let count = || async move {
            let began = Instant::now();
            let measured = Measured::of_reports([&node.status_report.report(None)]);
            Ok(match desk::census(&node.store, &measured).await {
                Ok(census) => {
                    *good.locked() = Some(GoodCount { census: Arc::new(census), began });
                    Ok(())
                }
                Err(error) => {
                    // Pages do without counts, so no answer with a 503 is logged.
                    if let Some(failures) = failures.count() {
                        tracing::warn!(
                            failures,
                            error = %chain(&error),
                            "Failed to count refunds: {} since the last such line",
                            counted(failures, "failure")
                        );
                    }
                    let is_away = error.is_away();
                    let is_free = is_away || error.is_a_lock();
                    Err(CountFailure { is_away, is_free, problem: Problem::from(error) })
                }
            })
        };
        let rest = move |tried: &Result<(), CountFailure>, took| {
            rest_after_try(tried, took, last.locked().as_ref().map(GoodCount::nodes))
        };
        self.tried.read(count, rest, patience).await
    }

    /// The census with what suspends and slows channels at this moment.
    ///
    /// # Errors
    /// As [`CensusCache::read`].
    pub(super) async fn now(
        &self,
        api: &Api,
        patience: Duration,
    ) -> Result<Arc<Vec<ChannelCensus>>, Problem> {
        let census = self.read(&api.node, patience).await?;
        let suspended = self.suspended(&api.whole_node).await?;
        Ok(with_suspensions(&census, &suspended).map_or(census, Arc::new))
    }

    /// What suspends channels, by a read that began after this call. Callers of one moment share it, and so do scrapes. So the read
    /// must not wait for a place among callers' requests.
    pub(super) async fn suspended(&self, node: &Node) -> Result<Arc<Suspended>, Problem> {
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
        self.last_good().is_some()
    }
}

/// That there are no counts, and why, for people.
pub(super) fn uncounted(problem: &Problem) -> String {
    // The detail of a problem speaks of a request that may have written.
    let why = match problem.kind() {
        "too-slow" => "counting took too long",
        "still-counting" => "they are being counted",
        _ => "Postgres did not count them",
    };
    format!("the counts are not known: {why}")
}

/// How long to rest after a count that took `took` and ended like this. `nodes` counted at the last good count, if there was one.
fn rest_after_try(tried: &Result<(), CountFailure>, took: Duration, nodes: Option<usize>) -> Duration {
    match (tried, nodes) {
        (Err(CountFailure { is_free: true, .. }), _) => LEAST,
        (_, Some(nodes)) => rest_after(took, nodes),
        (_, None) => rest_after(took, 1).min(MOST_WITHOUT_COUNT),
    }
}

/// How long to keep a count that took `took`, when `nodes` nodes count.
fn rest_after(took: Duration, nodes: usize) -> Duration {
    let nodes = u32::try_from(nodes).unwrap_or(u32::MAX).max(1);
    (took * 10).saturating_mul(nodes).clamp(LEAST, MOST)
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;

    use super::*;

    #[test]
    fn twenty_nodes_that_count_cost_together_what_one_does() {
        let took = Duration::from_millis(500);
        assert_eq!(rest_after(took, 1), Duration::from_secs(5));
        assert_eq!(rest_after(took, 20), Duration::from_secs(100));
        assert_eq!(rest_after(Duration::ZERO, 20), LEAST);
        assert_eq!(rest_after(took, 10_000), MOST);
    }

    #[test]
    fn that_there_are_no_counts_is_said_without_words_about_a_request_that_writes() {
        for (kind, why) in [
            ("too-slow", "counting took too long"),
            ("still-counting", "they are being counted"),
            ("postgres-away", "Postgres did not count them"),
            ("internal", "Postgres did not count them"),
        ] {
            let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, kind, "", "nothing was acknowledged");
            assert_eq!(uncounted(&problem), format!("the counts are not known: {why}"), "{kind}");
        }
    }

    #[test]
    fn a_failed_count_that_cost_nothing_or_that_is_the_first_is_repeated_soon() {
        let [free, dear] = [true, false].map(|is_free| CountFailure {
            problem: Problem::internal(),
            is_away: false,
            is_free,
        });
        let (free, dear) = (Err(free), Err(dear));
        let took = Duration::from_secs(30);
        assert_eq!(rest_after_try(&free, took, Some(20)), LEAST);
        assert_eq!(rest_after_try(&free, took, None), LEAST);
        assert_eq!(rest_after_try(&dear, took, Some(20)), MOST);
        assert_eq!(rest_after_try(&dear, took, None), MOST_WITHOUT_COUNT);
        assert_eq!(rest_after_try(&Ok(()), took, Some(1)), MOST);
    }
}
