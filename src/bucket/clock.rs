//! Compares Redis's clock with this node's steady monotonic clock, and finds the moment when Redis's clock was set.
//!
//! The first reply after the step shows it, before a permit of that reply is used. Only the lengths of time between
//! two replies are compared, never the times that the clocks show.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::limiter::timing::micros;
use crate::lock::Lock;

/// One reading of Redis's clock. Redis read its clock at some moment between `started` and `answered`.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClockReading {
    pub redis_us: i64,
    pub started: Instant,
    pub answered: Instant,
    /// How far the [steady](crate::steady) clock was ahead of `answered`'s, in us.
    pub steady_ahead_us: i64,
    /// How long before `answered` a reading showed the last step; `None` if no reading of this node showed one.
    pub without_step: Option<Duration>,
}

/// A step: Redis's clock was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RedisClockStep {
    /// By how much, in us; negative when the clock was set back.
    pub by_us: i64,
    /// The last reading before the step, in us since 1970 by Redis's clock.
    pub right_us: i64,
}

#[derive(Debug, Default)]
struct State {
    last: Option<ClockReading>,
    /// An older reading. Between two readings of a busy node a clock under fast correction moves by less than the slack; since
    /// this one it does not.
    anchor: Option<ClockReading>,
    /// A step that this node has not reported to Redis yet.
    unreported: Option<RedisClockStep>,
    /// When the last reading arrived that showed a step.
    stepped: Option<Instant>,
    /// Replies to calls that started before this moment may not be used.
    doubted_until: Option<Instant>,
}

#[derive(Debug, Default)]
pub(super) struct Clock(Mutex<State>);

impl Clock {
    /// The network and the scheduler can cause differences up to this one.
    const SLACK: Duration = Duration::from_millis(5);
    /// A slew of more than 500 millionths beyond the tolerated part shows within this time.
    const ANCHOR: Duration = Duration::from_secs(10);

    /// Notes a reading. Returns whether the permits of the same reply may be used.
    pub fn is_right(&self, reading: ClockReading) -> bool {
        let mut state = self.state();
        if let Some(last) = state.last {
            let since_anchor = || state.anchor.and_then(|anchor| step_between(anchor, reading));
            if let Some(step) = step_between(last, reading).or_else(since_anchor) {
                state.last = Some(reading);
                state.anchor = Some(reading);
                state.unreported = Some(step);
                state.stepped = Some(reading.answered);
                return false;
            }
            if reading.answered <= last.answered {
                return state.unreported.is_none()
                    && state.doubted_until.is_none_or(|until| reading.started > until);
            }
        }
        state.last = Some(reading);
        if state.anchor.is_none_or(|anchor| reading.answered > anchor.answered + Self::ANCHOR) {
            state.anchor = Some(reading);
        }
        state.unreported.is_none() && state.doubted_until.is_none_or(|until| reading.started > until)
    }

    /// How long the clock has run without a step until `now`, as far as this node saw; `None` for always.
    pub fn without_step(&self, now: Instant) -> Option<Duration> {
        self.state().stepped.map(|stepped| now.saturating_duration_since(stepped))
    }

    /// Whether this node has read the clock before. A step shows only after the first reading.
    pub fn was_read(&self) -> bool {
        self.state().last.is_some()
    }

    /// The step that this node must report to Redis before its next call.
    pub fn unreported(&self) -> Option<RedisClockStep> {
        self.state().unreported
    }

    /// Notes that the step is reported. Replies to calls that start after `now` may be used.
    pub fn reported(&self, step: RedisClockStep, now: Instant) {
        let mut state = self.state();
        if state.unreported == Some(step) {
            state.unreported = None;
            state.doubted_until = Some(now);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.locked()
    }
}

fn step_between(last: ClockReading, this: ClockReading) -> Option<RedisClockStep> {
    // The least and the most time that can lie between the two moments at which Redis read its clock.
    let corrected = this.steady_ahead_us - last.steady_ahead_us;
    let least = signed(this.started, last.answered) + corrected;
    let most = signed(this.answered, last.started) + corrected;
    // A server may say anything, also times from both ends of time.
    let went = this.redis_us.saturating_sub(last.redis_us);
    // Two clocks that are right differ by less, also while a time service corrects one by 500 millionths of the time. A faster
    // correction counts as steps.
    let slack = micros(Clock::SLACK) + most.abs() / 1000;
    if (least - slack..=most + slack).contains(&went) {
        return None;
    }
    // Of a step forward, the most that it can have been. A larger step makes counted permits look younger, never
    // older.
    let by_us = went.saturating_sub(least);
    Some(RedisClockStep { by_us, right_us: last.redis_us })
}

fn signed(later: Instant, earlier: Instant) -> i64 {
    if later >= earlier { micros(later - earlier) } else { -micros(earlier - later) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(start: Instant, redis_ms: i64, started_ms: u64, answered_ms: u64) -> ClockReading {
        let at = |ms| start + Duration::from_millis(ms);
        ClockReading {
            redis_us: redis_ms * 1000,
            started: at(started_ms),
            answered: at(answered_ms),
            steady_ahead_us: 0,
            without_step: None,
        }
    }

    #[test]
    fn a_slow_answer_is_no_step() {
        let (clock, start) = (Clock::default(), Instant::now());
        assert!(clock.is_right(reading(start, 1_000, 0, 1)));
        assert!(clock.is_right(reading(start, 1_400, 10, 410)), "the call took 400 ms, one way or the other");
        assert!(clock.is_right(reading(start, 1_420, 411, 811)));
    }

    /// chrony slews by up to a twelfth of the time.
    #[test]
    fn a_fast_slew_shows_however_often_the_clock_is_read() {
        for by in [1.0 / 12.0, -1.0 / 12.0, 0.005] {
            let (clock, start) = (Clock::default(), Instant::now());
            let mut counted_us = 0;
            for ms in (0..6_000_u32).step_by(10) {
                let (started, redis_us) =
                    (start + Duration::from_millis(ms.into()), f64::from(ms) * 1000.0 * (1.0 + by));
                #[expect(clippy::cast_possible_truncation, reason = "a whole number of us is near enough")]
                let reading =
                    ClockReading { redis_us: redis_us as i64, ..reading(start, 0, ms.into(), ms.into()) };
                if !clock.is_right(reading) {
                    let step = clock.unreported().unwrap();
                    counted_us += step.by_us;
                    clock.reported(step, started);
                }
            }
            let slewed_us = 5_990_000.0 * by;
            let missed = slewed_us - f64::from(i32::try_from(counted_us).unwrap());
            assert!(missed.abs() <= 11_000.0, "{counted_us} of {slewed_us} us were counted");
        }
    }

    /// The machine of the node is slewed: `Instant` goes with it, and Redis's clock is right.
    #[test]
    fn a_correction_of_this_machines_clock_is_no_step_of_redis() {
        let start = Instant::now();
        for every_ms in [10, 1_200] {
            let shows_none = |steady: i64| {
                let clock = Clock::default();
                (0..20_000).step_by(every_ms).all(|ms: i64| {
                    let slewed_us = ms * 1000 / 12;
                    let at = start + Duration::from_micros((ms * 1000 + slewed_us).unsigned_abs());
                    let read = ClockReading { started: at, answered: at, ..reading(start, ms, 0, 0) };
                    clock.is_right(ClockReading { steady_ahead_us: -steady * slewed_us, ..read })
                })
            };
            assert!(shows_none(1), "every {every_ms} ms");
            assert!(!shows_none(0), "by the clock that is corrected");
        }
    }

    #[test]
    fn a_step_shows_in_the_first_answer_and_is_doubted_until_it_is_reported() {
        for by in [100, -100] {
            let (clock, start) = (Clock::default(), Instant::now());
            assert!(clock.is_right(reading(start, 1_000, 0, 1)));
            assert!(clock.is_right(reading(start, 1_500, 500, 501)));
            assert!(!clock.is_right(reading(start, 2_000 + by, 1_000, 1_001)));
            let step = clock.unreported().unwrap();
            assert!((step.by_us - by * 1000).abs() <= 2000, "{step:?}");
            assert_eq!(step.right_us, 1_500_000);
            assert!(!clock.is_right(reading(start, 2_010 + by, 1_010, 1_011)), "not reported yet");
            clock.reported(step, Instant::now());
            assert!(!clock.is_right(reading(start, 2_020 + by, 0, 1_021)), "it started before the report");
            let later = Instant::now() + Duration::from_millis(2);
            let after = ClockReading {
                redis_us: (2_000 + by) * 1000 + signed(later, start + Duration::from_secs(1)),
                started: later,
                answered: later,
                steady_ahead_us: 0,
                without_step: None,
            };
            assert!(clock.is_right(after));
        }
    }
}
