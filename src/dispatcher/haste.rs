//! How long it takes from a grant to the first byte, as last seen: a permit that is over by then is of
//! no use, so none is asked for.
//!
//! The estimate is the one TCP uses for its time-outs (RFC 6298): the smoothed mean plus four times the
//! smoothed deviation. Before anything was seen it is a guess on the long side: a node's first claim
//! meets a cold connection, and every permit of it would lapse.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// What was seen, in seconds.
#[derive(Debug, Default)]
pub(super) struct Haste(Mutex<Option<(f64, f64)>>);

impl Haste {
    const UNSEEN: Duration = Duration::from_millis(40);

    pub fn learn(&self, took: Duration) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let took = took.as_secs_f64();
        *seen = Some(seen.map_or((took, took / 2.0), |(mean, deviation)| {
            let off = took - mean;
            (mean + off / 8.0, deviation + (off.abs() - deviation) / 4.0)
        }));
    }

    pub fn expected(&self) -> Duration {
        let seen = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.map_or(Self::UNSEEN, |(mean, deviation)| {
            Duration::from_secs_f64((mean + 4.0 * deviation).clamp(0.000_5, 1.0))
        })
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
