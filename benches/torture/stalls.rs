//! Times at which this process itself stood still, with the banks and the ways to them in it.
//!
//! A request that is on its way then reaches the bank late, whatever its node did. The judge does not forgive such
//! requests. The stalls are evidence for a reader who asks whether a node or the test was late.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::world::now_us;

/// From and until, in microseconds since 1970.
pub type Stall = (i64, i64);

/// Looks at the clock every ten milliseconds, and notes each time that it could not.
#[derive(Debug, Clone, Default)]
pub struct Stalls(Arc<Mutex<Vec<Stall>>>);

impl Stalls {
    const TICK: Duration = Duration::from_millis(10);
    /// Half of the lateness of the tested limits.
    const LONG: Duration = Duration::from_millis(50);

    /// Notes stalls until the runtime ends.
    pub async fn watch(self) {
        loop {
            let began = Instant::now();
            tokio::time::sleep(Self::TICK).await;
            let took = began.elapsed();
            if took > Self::LONG {
                let until = now_us();
                let from = until - i64::try_from(took.as_micros()).unwrap_or(0);
                self.0.lock().unwrap_or_else(PoisonError::into_inner).push((from, until));
            }
        }
    }

    /// All stalls so far, in order.
    pub fn all(&self) -> Vec<Stall> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
