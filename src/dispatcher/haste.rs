//! How long it takes from a grant to the first byte, as last seen: a permit that is over by then is of
//! no use, so none is asked for.
//!
//! The estimate is the one TCP uses for its time-outs (RFC 6298): the smoothed mean plus four times the
//! smoothed deviation.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// What was seen, in seconds.
#[derive(Debug)]
pub(super) struct Haste(Mutex<(f64, f64)>);

impl Default for Haste {
    fn default() -> Self {
        Haste(Mutex::new((0.005, 0.002_5)))
    }
}

impl Haste {
    pub fn learn(&self, took: Duration) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (mean, deviation) = *seen;
        let off = took.as_secs_f64() - mean;
        *seen = (mean + off / 8.0, deviation + (off.abs() - deviation) / 4.0);
    }

    pub fn expected(&self) -> Duration {
        let (mean, deviation) = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Duration::from_secs_f64((mean + 4.0 * deviation).clamp(0.000_5, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_claim_makes_it_longer_and_quick_ones_shorter_again() {
        let haste = Haste::default();
        let at_rest = haste.expected();
        haste.learn(Duration::from_millis(50));
        let after = haste.expected();
        assert!(after > at_rest * 3, "{after:?}");
        for _ in 0..100 {
            haste.learn(Duration::from_millis(1));
        }
        assert!(haste.expected() < Duration::from_millis(2), "{:?}", haste.expected());
    }
}
