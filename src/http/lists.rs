//! How many lists are read at the same time: few by all callers together, and one by each.
//!
//! A list may take seconds, and the channel workers need the connections. A caller whose lists take long, also one
//! that does so on purpose, waits for itself and leaves the other places to others. Without callers nobody knows who
//! asks, so only the bound of all counts. A caller that hangs up frees its place only when the read is over, because Postgres
//! does not notice that nobody waits any more.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::Instrument;

use super::shares::CallerShares;
use super::{Problem, Who};

/// How many lists all callers together read at the same time.
const AT_ONCE: usize = 2;

/// The places of the readers. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Lists {
    places: Arc<Semaphore>,
    own: CallerShares,
}

impl Default for Lists {
    fn default() -> Self {
        Lists { places: Arc::new(Semaphore::new(AT_ONCE)), own: CallerShares::new(1) }
    }
}

/// A place for one list; free again when this is dropped.
#[derive(Debug)]
pub(super) struct ListPlace {
    _own: Option<OwnedSemaphorePermit>,
    _of_all: Option<OwnedSemaphorePermit>,
}

impl Lists {
    /// Waits for a place.
    pub(super) async fn place(&self, who: &Who) -> ListPlace {
        // The own place first: a caller takes one place of the queue for all, however many lists it asks for. The semaphores
        // are never closed, so nothing fails.
        let own = match self.own.of(who.name()) {
            Some(own) => own.acquire_owned().await.ok(),
            None => None,
        };
        ListPlace { _own: own, _of_all: Arc::clone(&self.places).acquire_owned().await.ok() }
    }
}

impl ListPlace {
    /// Reads in this place, to the end.
    ///
    /// # Errors
    /// When the read fails.
    pub(super) async fn read<T: Send + 'static>(
        self,
        read: impl Future<Output = Result<T, Problem>> + Send + 'static,
    ) -> Result<T, Problem> {
        let task = async move {
            let _place = self;
            read.await
        };
        tokio::spawn(task.in_current_span()).await.unwrap_or_else(|_| Err(Problem::internal()))
    }
}
