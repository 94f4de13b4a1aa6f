//! The one clock of a run, in microseconds since the run began. Nothing else in a run knows the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

/// What the clocks of Postgres and Redis show when a run begins, in us since 1970.
pub const BEGAN_US: i64 = 1_790_000_000_000_000;

#[derive(Debug, Clone)]
pub struct Clock {
    us: Arc<AtomicI64>,
    /// Where the nodes' monotonic clocks begin: so far ahead that no real time is ever later.
    began: Instant,
}

impl Clock {
    pub fn new() -> Self {
        Clock { us: Arc::default(), began: Instant::now() + Duration::from_hours(24 * 365) }
    }

    pub fn now(&self) -> i64 {
        self.us.load(Ordering::Relaxed)
    }

    pub fn set(&self, us: i64) {
        self.us.store(us, Ordering::Relaxed);
    }

    pub fn pass(&self, us: i64) {
        self.us.fetch_add(us, Ordering::Relaxed);
    }

    /// The current time as a node's monotonic clock shows it.
    pub fn instant(&self) -> Instant {
        self.began + Duration::from_micros(self.now().unsigned_abs())
    }

    /// When a node's clock shows `instant`, in us; 0 for an instant before the run.
    pub fn at(&self, instant: Instant) -> i64 {
        micros(instant.saturating_duration_since(self.began))
    }
}

pub fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX / 4)
}
