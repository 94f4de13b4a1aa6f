//! Progress: which loops are inside a pass, and since when. The watchdog looks here before it reports to systemd that
//! the node is well, and so does `GET /health/live`.
//!
//! A loop may wait for work for any time. A loop that stays inside one pass for too long is stuck.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::lock::Lock;

/// The passes under way. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Progress(Arc<Mutex<Passes>>);

#[derive(Debug, Default)]
struct Passes {
    /// How many passes have begun; the number of a pass.
    begun: u64,
    /// The loop of each pass, and since when. A loop may have several: the settler has two commits under way.
    under_way: HashMap<u64, (String, Instant)>,
}

/// A pass under way. The pass is over when this value is dropped.
#[derive(Debug)]
pub struct Pass {
    progress: Progress,
    number: u64,
}

impl Progress {
    /// How long a loop may be inside one pass. A node with a loop that takes longer needs a restart.
    pub const PATIENCE: Duration = Duration::from_mins(1);

    /// Begins a pass of the loop called `name`.
    pub fn pass(&self, name: impl Into<String>) -> Pass {
        let mut passes = self.0.locked();
        passes.begun += 1;
        let number = passes.begun;
        passes.under_way.insert(number, (name.into(), Instant::now()));
        Pass { progress: self.clone(), number }
    }

    /// The loops that have been inside one pass for longer than `limit`.
    pub fn stuck(&self, limit: Duration) -> Vec<String> {
        let passes = self.0.locked();
        let stuck = passes.under_way.values().filter(|(_, since)| since.elapsed() > limit);
        stuck.map(|(name, _)| name.clone()).collect()
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.progress.0.locked().under_way.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_that_ends_hides_no_other_pass_of_its_loop() {
        let progress = Progress::default();
        let first = progress.pass("settler");
        drop(progress.pass("settler"));
        assert_eq!(progress.stuck(Duration::ZERO), ["settler"]);
        drop(first);
        assert!(progress.stuck(Duration::ZERO).is_empty());
    }
}
