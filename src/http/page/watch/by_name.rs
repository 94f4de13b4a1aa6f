//! Shared reads of channels and refunds by their names: as many as people look at, and no more than fit.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::super::super::shared_read::SharedRead;
use super::MOST_OVERDUE;
use crate::lock::Lock;

/// The most channels whose last minutes are kept at the same time, and the most refunds.
const MOST_KEPT: usize = 32;
/// What nobody looked at for so long is not watched any more.
const WATCHED: Duration = Duration::from_mins(1);

/// Shared reads of one kind by name. The one that was used longest ago makes room for a new one.
#[derive(Debug)]
pub(super) struct ReadsByName<T>(Mutex<HashMap<String, Watched<T>>>);

#[derive(Debug)]
struct Watched<T> {
    read: Arc<SharedRead<T>>,
    used: Instant,
}

impl<T> Default for ReadsByName<T> {
    fn default() -> Self {
        ReadsByName(Mutex::default())
    }
}

impl<T> ReadsByName<T> {
    pub(super) fn named(&self, name: &str) -> Arc<SharedRead<T>> {
        let mut all = self.0.locked();
        if !all.contains_key(name) && all.len() >= MOST_KEPT {
            let oldest = all.iter().min_by_key(|(_, watched)| watched.used);
            if let Some(name) = oldest.map(|(name, _)| name.clone()) {
                all.remove(&name);
            }
        }
        let new =
            || Watched { read: Arc::new(SharedRead::overdue_at_most(MOST_OVERDUE)), used: Instant::now() };
        let watched = all.entry(name.to_owned()).or_insert_with(new);
        watched.used = Instant::now();
        Arc::clone(&watched.read)
    }

    /// How many of them somebody looked at lately.
    pub(super) fn watched(&self) -> usize {
        self.0.locked().values().filter(|one| one.used.elapsed() < WATCHED).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_channel_that_was_watched_longest_ago_makes_room() {
        let reads = ReadsByName::<()>::default();
        let first = reads.named("first");
        for nth in 0..MOST_KEPT {
            reads.named(&format!("c{nth}"));
        }
        assert_eq!(reads.watched(), MOST_KEPT);
        assert!(!Arc::ptr_eq(&first, &reads.named("first")), "the first channel was kept");
    }
}
