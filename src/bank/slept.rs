//! How long this machine has slept since it was started. [`Instant`](std::time::Instant) stands still meanwhile, so a lease, a
//! deadline, a permit's span or a token's life that a node measures with it would seem to last longer.
//!
//! A virtual machine that its host stopped does not know it: there both clocks stand still.

use rustix::time::{ClockId, clock_gettime};

/// The sum of this machine's sleep at one moment, in microseconds: what the kernel's clock that goes on during sleep is ahead of the
/// one that stands still (`clock_gettime(2)`, `CLOCK_BOOTTIME` and `CLOCK_MONOTONIC`).
#[derive(Debug, Clone, Copy)]
pub struct Slept(i64);

impl Slept {
    /// A shorter sleep cannot be told from the time between the two readings.
    const LEAST_US: i64 = 100_000;

    pub fn now() -> Slept {
        let us = |clock| {
            let read = clock_gettime(clock);
            read.tv_sec * 1_000_000 + read.tv_nsec / 1000
        };
        Slept(us(ClockId::Boottime) - us(ClockId::Monotonic))
    }

    /// Whether the machine slept after this moment.
    pub fn has_slept_since(self) -> bool {
        Slept::now().0 - self.0 >= Self::LEAST_US
    }

    /// As if the machine had slept for a second since then.
    #[cfg(test)]
    pub fn a_second_ago() -> Slept {
        Slept(Slept::now().0 - 1_000_000)
    }
}
