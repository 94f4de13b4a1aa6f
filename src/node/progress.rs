//! Progress: which loops are inside a pass, and since when. The watchdog looks here before it reports to systemd that
//! the node is well.
//!
//! A loop may wait for work for any time. A loop that stays inside one pass for too long is stuck.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::lock::Lock;

/// The loops that are inside a pass, and since when. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Progress(Arc<Mutex<HashMap<String, Instant>>>);

/// A pass under way. The pass is over when this value is dropped.
#[derive(Debug)]
pub struct Pass {
    progress: Progress,
    name: String,
}

impl Progress {
    /// Begins a pass of the loop called `name`.
    pub fn pass(&self, name: impl Into<String>) -> Pass {
        let name = name.into();
        self.busy().insert(name.clone(), Instant::now());
        Pass { progress: self.clone(), name }
    }

    /// The loops that have been inside one pass for longer than `limit`.
    pub fn stuck(&self, limit: Duration) -> Vec<String> {
        self.busy()
            .iter()
            .filter(|(_, since)| since.elapsed() > limit)
            .map(|(name, _)| name.clone())
            .collect()
    }

    fn busy(&self) -> std::sync::MutexGuard<'_, HashMap<String, Instant>> {
        self.0.locked()
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.progress.busy().remove(&self.name);
    }
}
