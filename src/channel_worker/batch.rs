//! How many permits a node can use at one time. Some permits are open for a few milliseconds only; a node that takes
//! more of them than it can use lets the rest lapse.
//!
//! The number adapts as TCP adapts its window (RFC 5681). It grows a little after each batch that left in time, and
//! halves after a batch with lapsed permits.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::lock::Lock;

#[derive(Debug)]
struct Size {
    permits: f64,
    cut: Option<Instant>,
}

/// The size of one worker's batches.
#[derive(Debug)]
pub(super) struct Batch(Mutex<Size>);

impl Default for Batch {
    fn default() -> Self {
        Batch(Mutex::new(Size { permits: 16.0, cut: None }))
    }
}

impl Batch {
    const LEAST: f64 = 2.0;
    const MOST: f64 = 500.0;
    /// The growth after a whole batch in time, in permits.
    const MORE: f64 = 2.0;
    /// Permits that lapse within this time of each other belong to one batch.
    const SAME: Duration = Duration::from_millis(50);

    /// The most permits that are of use now.
    pub fn most(&self) -> u32 {
        let permits = self.0.locked().permits;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 2 and 500")]
        let whole = permits as u32;
        whole
    }

    /// Notes a permit that was used within its span.
    pub fn used(&self) {
        let mut size = self.0.locked();
        size.permits = (size.permits + Self::MORE / size.permits).min(Self::MOST);
    }

    /// Notes a permit that lapsed unused.
    pub fn lapsed(&self, now: Instant) {
        let mut size = self.0.locked();
        if size.cut.is_none_or(|cut| now.saturating_duration_since(cut) > Self::SAME) {
            size.cut = Some(now);
            size.permits = (size.permits / 2.0).max(Self::LEAST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_in_time_makes_the_next_a_little_larger_and_one_too_late_makes_it_half() {
        let (batch, now) = (Batch::default(), Instant::now());
        for _ in 0..16 {
            batch.used();
        }
        assert_eq!(batch.most(), 17);
        for _ in 0..10 {
            batch.lapsed(now);
        }
        assert_eq!(batch.most(), 8, "ten permits of one batch count once");
        for times in 1..10 {
            batch.lapsed(now + Duration::from_millis(60 * times));
        }
        assert_eq!(batch.most(), 2);
    }
}
