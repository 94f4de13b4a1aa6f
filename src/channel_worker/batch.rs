//! How many permits are of use at one time: those that live for some milliseconds only must all be used
//! within them, and a node that takes more than it can send lets the rest lapse.
//!
//! Found out as TCP finds its window (RFC 5681): a little more after each batch that left in time, half as
//! many after one that did not.

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
    /// More after a whole batch in time.
    const MORE: f64 = 2.0;
    /// Permits that lapse this soon after the last are of the same batch.
    const SAME: Duration = Duration::from_millis(50);

    pub fn most(&self) -> u32 {
        let permits = self.0.locked().permits;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 2 and 500")]
        let whole = permits as u32;
        whole
    }

    /// A permit was used within its span.
    pub fn used(&self) {
        let mut size = self.0.locked();
        size.permits = (size.permits + Self::MORE / size.permits).min(Self::MOST);
    }

    /// A permit's span was over before it could be used.
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
