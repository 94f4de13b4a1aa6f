//! The one clock of a run: microseconds since it began. Nothing else in a run knows what time it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

/// What Postgres and Redis show when a run begins.
pub const BEGAN_US: i64 = 1_790_000_000_000_000;

#[derive(Debug, Clone)]
pub struct Clock {
    us: Arc<AtomicI64>,
    /// The nodes' monotonic clocks begin here; far ahead, so that no real time is ever later.
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

    /// As a node sees it.
    pub fn instant(&self) -> Instant {
        self.began + Duration::from_micros(self.now().unsigned_abs())
    }

    /// When a node's clock shows that; 0 for what lies before the run.
    pub fn at(&self, instant: Instant) -> i64 {
        micros(instant.saturating_duration_since(self.began))
    }
}

pub fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX / 4)
}
