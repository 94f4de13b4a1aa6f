//! A monotonic clock that no time service makes faster or slower. Other clocks are compared with it.
//!
//! `Instant` follows the corrections of this machine's time service. While chrony corrects this machine, every other
//! clock would seem to step.

use std::time::{Duration, Instant};

/// How far the steady clock is ahead of that of `Instant`, in us. Only the difference of two such values says something.
#[cfg(target_os = "linux")]
pub fn ahead_us() -> i64 {
    use rustix::time::{ClockId, clock_gettime};

    let us = |clock| {
        let read = clock_gettime(clock);
        read.tv_sec * 1_000_000 + read.tv_nsec / 1000
    };
    // A thread that waits for a processor between two readings would make them differ. So the one is read before and after the
    // other, and the closest of some tries counts.
    let tries = (0..8).map(|_| {
        let (before, steady, after) =
            (us(ClockId::Monotonic), us(ClockId::MonotonicRaw), us(ClockId::Monotonic));
        (after - before, steady - before)
    });
    let mut closest = (i64::MAX, 0);
    for read in tries {
        closest = closest.min(read);
        if closest.0 <= 50 {
            break;
        }
    }
    closest.1
}

/// The same on systems whose monotonic clock no time service corrects, such as macOS.
#[cfg(not(target_os = "linux"))]
pub fn ahead_us() -> i64 {
    0
}

/// The present time by the steady clock. Compare it with other times by that clock alone.
pub fn now() -> Instant {
    shifted(Instant::now(), ahead_us())
}

/// A moment as a clock shows it that is ahead of `Instant`'s by so much.
pub fn shifted(moment: Instant, us: i64) -> Instant {
    let by = Duration::from_micros(us.unsigned_abs());
    let shifted = if us >= 0 { moment.checked_add(by) } else { moment.checked_sub(by) };
    shifted.unwrap_or(moment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_by_the_steady_clock_as_by_that_of_instant() {
        let (began, first) = (Instant::now(), ahead_us());
        while began.elapsed() < Duration::from_millis(20) {}
        let corrected = ahead_us() - first;
        assert!(corrected.abs() < 2_000, "{corrected} us of 20 ms");
    }
}
