//! Whether the loops move: what the watchdog asks before it tells systemd that all is well.
//!
//! A loop that waits for work is fine for ever; one that has been inside a single pass for too long
//! is stuck.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::lock::Lock;

/// The loops of a node and since when each is busy.
#[derive(Debug, Clone, Default)]
pub struct Progress(Arc<Mutex<HashMap<String, Instant>>>);

/// A pass under way; it is over when this is dropped.
#[derive(Debug)]
pub struct Pass {
    progress: Progress,
    name: String,
}

impl Progress {
    /// A pass of the loop called `name` begins.
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
