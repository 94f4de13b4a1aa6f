//! Limits and permits: the rule, the numbers it hands to its script, and what the script grants.
//!
//! Counting is done by the scripts in `limiter/lua`, on Redis's clock; nothing here counts.

use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::refund::id::LimitName;

/// A limit: an algorithm and its numbers. Channels that name the same limit share it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    pub name: LimitName,
    pub algorithm: Algorithm,
    /// How late a first byte may reach the bank and still count where it was meant.
    pub lateness: Duration,
    /// How long before its window opens a permit may be granted, so that the claim is written and
    /// the connection stands ready when it does.
    pub ahead: Duration,
}

impl Limit {
    /// The rule in words, such as `20 in each 1s`.
    #[must_use]
    pub fn describe(&self) -> String {
        match self.algorithm {
            Algorithm::FixedWindow { permits, per } => format!("{permits} in each {per:?}"),
        }
    }
}

/// How a limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// At most `permits` first bytes in each aligned window of `per`, by Redis's clock.
    FixedWindow { permits: u32, per: Duration },
}

impl Algorithm {
    /// The rate in refunds a second, for people.
    #[must_use]
    pub fn per_second(self) -> f64 {
        match self {
            Algorithm::FixedWindow { permits, per } => f64::from(permits) / per.as_secs_f64(),
        }
    }
}

/// The number of a permit: spent once, because Postgres keeps it as a key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PermitNumber {
    pub limit: LimitName,
    /// The window, named by its first microsecond on Redis's clock.
    pub window_start_us: i64,
    /// Which permit of that window, from 1.
    pub ordinal: i32,
}

impl PermitNumber {
    /// As the journal writes it.
    #[must_use]
    pub fn describe(&self) -> String {
        let start = Timestamp::from_microsecond(self.window_start_us)
            .map_or_else(|_| self.window_start_us.to_string(), |t| t.to_string());
        format!("{}@{start}#{}", self.limit, self.ordinal)
    }
}

/// Leave to make one call to the bank inside a span of Redis's time.
#[derive(Debug, Clone)]
pub struct Permit {
    /// One number for each limit that granted; none for an unlimited channel.
    pub numbers: Vec<PermitNumber>,
    /// The span in Redis's time; `None` for an unlimited channel.
    pub span: Option<Span>,
}

/// When a permit's first byte may leave: `[opens_us, closes_us)` in Redis's time, and the same on
/// this node's monotonic clock, made smaller at both ends by the round trip to Redis.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    pub opens_us: i64,
    pub closes_us: i64,
    /// Surely not before `opens_us`.
    pub opens: Instant,
    /// Surely before `closes_us`.
    pub closes: Instant,
}

impl Span {
    /// Translates a span of Redis's time to this node's monotonic clock.
    ///
    /// Redis read `redis_now_us` somewhere between `asked` and `answered`. If it read it as late as
    /// possible, its clock shows the least now: that decides when the span surely is open. If it
    /// read it as early as possible, its clock shows the most: that decides when it may be over.
    #[must_use]
    pub fn translate(
        opens_us: i64,
        closes_us: i64,
        redis_now_us: i64,
        asked: Instant,
        answered: Instant,
    ) -> Self {
        Span {
            opens_us,
            closes_us,
            opens: shifted(answered, opens_us - redis_now_us),
            closes: shifted(asked, closes_us - redis_now_us),
        }
    }
}

fn shifted(at: Instant, by_us: i64) -> Instant {
    let by = Duration::from_micros(by_us.unsigned_abs());
    if by_us >= 0 { at + by } else { at.checked_sub(by).unwrap_or(at) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_shrinks_by_the_round_trip_at_both_ends() {
        let asked = Instant::now() + Duration::from_secs(1);
        let answered = asked + Duration::from_millis(3);
        let span = Span::translate(1_000_000, 2_000_000, 900_000, asked, answered);
        assert_eq!(span.opens, answered + Duration::from_millis(100));
        assert_eq!(span.closes, asked + Duration::from_millis(1100));
    }
}
