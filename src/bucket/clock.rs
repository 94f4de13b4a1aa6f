//! Watches Redis's clock by this node's monotonic one: a clock that was set is noticed with the first
//! answer after it, before any permit of that answer is used.
//!
//! Only how much time went by is compared, never what the clocks show.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::lock::Lock;

/// One answer: what Redis's clock showed somewhere between asking and being answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading {
    pub redis_us: i64,
    pub asked: Instant,
    pub answered: Instant,
}

/// Redis's clock was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    pub by_us: i64,
    /// When it last went right, by itself before the step.
    pub right_us: i64,
}

#[derive(Debug, Default)]
struct State {
    last: Option<Reading>,
    /// A step that Redis itself has not been told of yet.
    untold: Option<Step>,
    /// What was asked for up to then is not to be used.
    doubted_until: Option<Instant>,
}

#[derive(Debug, Default)]
pub(super) struct Clock(Mutex<State>);

impl Clock {
    /// Differences below this are the network's and the scheduler's.
    const SLACK: Duration = Duration::from_millis(5);

    /// Takes a reading; answers whether what came with it may be used.
    pub fn is_right(&self, reading: Reading) -> bool {
        let mut state = self.state();
        if let Some(last) = state.last {
            if let Some(step) = step_between(last, reading) {
                state.last = Some(reading);
                state.untold = Some(step);
                return false;
            }
            if reading.answered <= last.answered {
                return state.untold.is_none()
                    && state.doubted_until.is_none_or(|until| reading.asked > until);
            }
        }
        state.last = Some(reading);
        state.untold.is_none() && state.doubted_until.is_none_or(|until| reading.asked > until)
    }

    /// Whether this node has read it, so that a step from then on is noticed.
    pub fn was_read(&self) -> bool {
        self.state().last.is_some()
    }

    /// A step that Redis must be told of before anything is asked.
    pub fn untold(&self) -> Option<Step> {
        self.state().untold
    }

    /// Redis was told: what is asked for from now on can be used.
    pub fn told(&self, step: Step, now: Instant) {
        let mut state = self.state();
        if state.untold == Some(step) {
            state.untold = None;
            state.doubted_until = Some(now);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.locked()
    }
}

fn step_between(last: Reading, this: Reading) -> Option<Step> {
    // The least and the most that can have gone by between the two moments at which Redis looked.
    let least = signed(this.asked, last.answered);
    let most = signed(this.answered, last.asked);
    let went = this.redis_us - last.redis_us;
    // A time service may slew a clock by 500 millionths.
    let slack = micros(Clock::SLACK) + most.abs() / 1000;
    if (least - slack..=most + slack).contains(&went) {
        return None;
    }
    // Of a step forward the most it can have been: what was counted must not look older than it is.
    let by_us = went - least;
    Some(Step { by_us, right_us: last.redis_us })
}

fn signed(later: Instant, earlier: Instant) -> i64 {
    if later >= earlier { micros(later - earlier) } else { -micros(earlier - later) }
}

fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(start: Instant, redis_ms: i64, asked_ms: u64, answered_ms: u64) -> Reading {
        let at = |ms| start + Duration::from_millis(ms);
        Reading { redis_us: redis_ms * 1000, asked: at(asked_ms), answered: at(answered_ms) }
    }

    #[test]
    fn a_slow_answer_is_no_step() {
        let (clock, start) = (Clock::default(), Instant::now());
        assert!(clock.is_right(reading(start, 1_000, 0, 1)));
        assert!(clock.is_right(reading(start, 1_400, 10, 410)), "400 ms under way, either way");
        assert!(clock.is_right(reading(start, 1_420, 411, 811)));
    }

    #[test]
    fn a_step_is_noticed_with_the_first_answer_and_doubted_until_redis_is_told() {
        for by in [100, -100] {
            let (clock, start) = (Clock::default(), Instant::now());
            assert!(clock.is_right(reading(start, 1_000, 0, 1)));
            assert!(clock.is_right(reading(start, 1_500, 500, 501)));
            assert!(!clock.is_right(reading(start, 2_000 + by, 1_000, 1_001)));
            let step = clock.untold().unwrap();
            assert!((step.by_us - by * 1000).abs() <= 2000, "{step:?}");
            assert_eq!(step.right_us, 1_500_000);
            assert!(!clock.is_right(reading(start, 2_010 + by, 1_010, 1_011)), "not told yet");
            clock.told(step, Instant::now());
            assert!(!clock.is_right(reading(start, 2_020 + by, 0, 1_021)), "asked before it was told");
            let later = Instant::now() + Duration::from_millis(2);
            let after = Reading {
                redis_us: (2_000 + by) * 1000 + signed(later, start + Duration::from_secs(1)),
                asked: later,
                answered: later,
            };
            assert!(clock.is_right(after));
        }
    }
}
