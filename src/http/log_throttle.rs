//! Log lines that strangers can cause are written once a minute, so that nobody fills a disk with them.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::lock::Lock;

const PAUSE: Duration = Duration::from_mins(1);

/// Decides whether an event is logged now, or only counted.
#[derive(Debug, Default)]
pub(super) struct LogThrottle(Mutex<Counted>);

#[derive(Debug, Default)]
struct Counted {
    logged: Option<Instant>,
    since: u64,
}

impl LogThrottle {
    /// Counts an event. `Some` says that it is logged, with the number of events since the last log line.
    pub(super) fn count(&self) -> Option<u64> {
        let mut counted = self.0.locked();
        counted.since += 1;
        if counted.logged.is_some_and(|logged| logged.elapsed() < PAUSE) {
            return None;
        }
        counted.logged = Some(Instant::now());
        Some(std::mem::take(&mut counted.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_events_the_first_is_logged_and_the_others_are_counted() {
        let throttle = LogThrottle::default();
        assert_eq!([throttle.count(), throttle.count(), throttle.count()], [Some(1), None, None]);
        throttle.0.locked().logged = None;
        assert_eq!(throttle.count(), Some(3));
    }
}
