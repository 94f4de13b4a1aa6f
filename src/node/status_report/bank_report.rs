//! What a node sees of one channel's bank: whether it can be reached, how far it is, and what blocks the channel.

use std::time::{Duration, Instant};

use super::super::meter::MeterReading;
use crate::bank::AddressTimes;
use crate::store::BankStatus;

/// A channel is reported as blocked for so long after a failure.
const BLOCKED_FOR: Duration = Duration::from_secs(30);
/// Distances that were measured longer ago than this are not reported.
const LATELY: Duration = Duration::from_mins(1);

/// What this node sees of one channel's bank.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BankReport {
    /// Why no connection for sends can be opened; `None` while one can.
    pub unreachable: Option<String>,
    /// Why no connection for inquiries can be opened; `None` while one can.
    pub unreachable_to_ask: Option<String>,
    /// The distance of the bank, as last measured.
    pub reading: AddressTimes,
    measured: Option<Instant>,
    /// Why a limit's `lateness` is too small for the way to the bank; `None` if it is not.
    pub lateness: Option<String>,
    /// Why permits lapse one after the other; `None` while they do not.
    pub lapses: Option<String>,
    blocked: Option<Blocked>,
}

/// No refund can be taken or claimed: Redis or Postgres fails, or their clocks disagree.
#[derive(Debug, Clone, PartialEq)]
pub struct Blocked {
    /// `redis`, `postgres` or `clocks`.
    pub by: &'static str,
    pub why: String,
    at: Instant,
}

impl BankReport {
    /// What blocks the channel; `None` while nothing does.
    ///
    /// A failure is reported for a while. It may have emptied the bucket, and then no claim shows that its cause is gone. While
    /// the cause stays, recovery fills the bucket again and the next claim fails.
    pub fn blocked(&self) -> Option<&Blocked> {
        self.blocked.as_ref().filter(|blocked| blocked.at.elapsed() < BLOCKED_FOR)
    }

    /// Notes by what the channel is blocked, and why; `None` when nothing blocks it.
    pub(super) fn note_blocked(&mut self, blocked: Option<(&'static str, String)>) {
        self.blocked = blocked.map(|(by, why)| Blocked { by, why, at: Instant::now() });
    }

    /// Notes the distance of the bank just measured, and why a `lateness` is too small for it.
    pub(super) fn note_distance(&mut self, reading: AddressTimes, lateness: Option<String>) {
        (self.reading, self.measured, self.lateness) = (reading, Some(Instant::now()), lateness);
    }

    /// Removes a distance that was measured too long ago.
    pub(super) fn forget_old_distance(&mut self, now: Instant) {
        if self.measured.is_none_or(|at| now.saturating_duration_since(at) >= LATELY) {
            self.reading = AddressTimes::default();
        }
    }

    /// As people see it, with what the channel's meter shows.
    pub fn status(self, meter: &MeterReading) -> BankStatus {
        BankStatus {
            blocked: self.blocked().map(|blocked| blocked.why.clone()),
            unreachable: self.unreachable,
            unreachable_to_ask: self.unreachable_to_ask,
            set_up_ms: self.reading.set_up.map(exact_millis),
            round_trip_ms: self.reading.round_trip.map(exact_millis),
            round_trip_variation_ms: self.reading.round_trip_variation.map(exact_millis),
            bank_p50_ms: meter.bank_p50.map(exact_millis),
            bank_p95_ms: meter.bank_p95.map(exact_millis),
            request_ms: meter.request.map(exact_millis),
            lateness_too_small: self.lateness,
            permits_lapse: self.lapses,
        }
    }
}

/// Milliseconds, with three digits behind the point.
fn exact_millis(span: Duration) -> f64 {
    span.as_micros() as f64 / 1000.0
}
