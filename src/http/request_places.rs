//! Places for requests that keep Postgres busy for long: few for all callers together, and one for each.
//!
//! Such a request may take seconds, and the channel workers need the connections. A caller whose requests take long, also one
//! that does so on purpose, waits for itself and leaves the other places to others. Without callers nobody knows who
//! asks, so only the bound of all counts. A caller that hangs up frees its place only when the work is over, because Postgres
//! does not notice that nobody waits any more.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tracing::Instrument;

use super::per_caller::PerCaller;
use super::{Problem, Who};

/// The places for one kind of work. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct RequestPlaces {
    of_all: Arc<Semaphore>,
    own: PerCaller,
}

/// A place for one request; free again when this is dropped.
#[derive(Debug)]
pub(super) struct RequestPlace {
    _own: Option<OwnedSemaphorePermit>,
    of_all: Option<OwnedSemaphorePermit>,
}

impl RequestPlaces {
    /// So many places for all callers together.
    pub(super) fn new(at_once: usize) -> Self {
        RequestPlaces { of_all: Arc::new(Semaphore::new(at_once)), own: PerCaller::new(1) }
    }

    /// Waits for a place.
    pub(super) async fn place(&self, who: &Who) -> RequestPlace {
        // The own place first: a caller takes one place of the queue for all, however many requests it sends. The semaphores
        // are never closed, so nothing fails.
        let own = match self.own.of(who.name()) {
            Some(own) => own.acquire_owned().await.ok(),
            None => None,
        };
        RequestPlace { _own: own, of_all: Arc::clone(&self.of_all).acquire_owned().await.ok() }
    }

    /// Waits for a place for a moment.
    ///
    /// # Errors
    /// When there is none in time; `busy` tells the caller why.
    pub(super) async fn place_within(
        &self,
        who: &Who,
        wait: Duration,
        busy: &str,
    ) -> Result<RequestPlace, Problem> {
        timeout(wait, self.place(who)).await.map_err(|_| Problem::busy(busy))
    }
}

impl RequestPlace {
    /// Leaves the place to other callers, and stays in the caller's own.
    pub(super) fn leave_to_others(&mut self) {
        drop(self.of_all.take());
    }

    /// Works in this place, to the end, also when the caller hangs up.
    ///
    /// # Errors
    /// When the work fails.
    pub(super) async fn run<T: Send + 'static>(
        self,
        work: impl Future<Output = Result<T, Problem>> + Send + 'static,
    ) -> Result<T, Problem> {
        let task = async move {
            let _place = self;
            work.await
        };
        tokio::spawn(task.in_current_span()).await.unwrap_or_else(|_| Err(Problem::internal()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn without_callers_only_the_places_of_all_count_and_one_that_is_not_free_in_time_is_refused() {
        let places = RequestPlaces::new(2);
        let (mut first, _second) = (places.place(&Who::Anyone).await, places.place(&Who::Anyone).await);
        let wait = Duration::from_millis(10);
        let refused = places.place_within(&Who::Anyone, wait, "two run").await.unwrap_err();
        assert_eq!((refused.detail.as_str(), refused.retry_after_s), ("two run", Some(5)));
        first.leave_to_others();
        assert!(places.place_within(&Who::Anyone, wait, "two run").await.is_ok());
    }
}
