//! Each caller's own part of what all callers share, such as places or bytes.
//!
//! Take the caller's own places first, and those of all after them. Then a caller that takes much waits for itself and leaves
//! the rest to others. Without callers nobody knows who asks, so only the bound of all counts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::sync::Semaphore;

use crate::lock::Lock;
use crate::refund::CallerName;

/// A semaphore of its own for each caller. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct PerCaller {
    /// The places of each caller.
    places: usize,
    own: Arc<Mutex<BTreeMap<CallerName, Arc<Semaphore>>>>,
}

impl PerCaller {
    pub(super) fn new(places: usize) -> Self {
        PerCaller { places, own: Arc::default() }
    }

    /// The caller's own semaphore, which is never closed; `None` where no caller is known.
    pub(super) fn of(&self, caller: Option<&CallerName>) -> Option<Arc<Semaphore>> {
        let name = caller?;
        let mut own = self.own.locked();
        let semaphore = own.entry(name.clone()).or_insert_with(|| Arc::new(Semaphore::new(self.places)));
        Some(Arc::clone(semaphore))
    }
}
