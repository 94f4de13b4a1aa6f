//! A caller's own rate: how many requests one node takes of it.
//!
//! The count is a node's own and is lost when the node stops. It keeps one caller from using up a node; it is no limit of a
//! bank. Bank limits are in [`crate::limiter`].

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::lock::Lock;

/// At most `requests` at once, refilled evenly over `per`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    pub requests: u32,
    pub per: Duration,
}

/// Counts the requests of one caller.
#[derive(Debug)]
pub struct RateMeter {
    pub rate: Rate,
    /// When all requests that were taken are paid off, at one for each `per / requests`.
    paid_off: Mutex<Option<Instant>>,
}

impl RateMeter {
    #[must_use]
    pub fn new(rate: Rate) -> Self {
        RateMeter { rate, paid_off: Mutex::default() }
    }

    /// Takes one request.
    ///
    /// # Errors
    /// With the time until the next request is taken, if `rate` has no room now.
    pub fn take(&self, now: Instant) -> Result<(), Duration> {
        let Rate { requests, per } = self.rate;
        let mut paid_off = self.paid_off.locked();
        let next = paid_off.map_or(now, |at| at.max(now)) + per / requests.max(1);
        match next.duration_since(now).checked_sub(per) {
            Some(wait) if !wait.is_zero() => Err(wait),
            _ => {
                *paid_off = Some(next);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_meter_takes_the_rate_at_once_and_then_one_at_a_time() {
        let meter = RateMeter::new(Rate { requests: 4, per: Duration::from_secs(1) });
        let start = Instant::now();
        assert_eq!((0..10).filter(|_| meter.take(start).is_ok()).count(), 4);
        assert_eq!(meter.take(start), Err(Duration::from_millis(250)));
        let later = start + Duration::from_millis(250);
        assert_eq!((0..10).filter(|_| meter.take(later).is_ok()).count(), 1);
        let much_later = start + Duration::from_mins(1);
        assert_eq!((0..10).filter(|_| meter.take(much_later).is_ok()).count(), 4);
    }
}
