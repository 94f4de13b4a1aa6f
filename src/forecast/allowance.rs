//! What one limit allows as time goes by: a level that requests lower, and that rises again by the limit's rule.

use std::collections::VecDeque;
use std::time::Duration;

use jiff::Timestamp;

use super::climb::{Climb, Seconds};
use crate::limiter::{Algorithm, Rule};

/// Permits of a limit that are spent, and the latest moment at which one of them opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpentPermits {
    pub at_us: i64,
    pub count: u64,
}

/// What one limit allows.
#[derive(Debug, Clone)]
pub struct Allowance {
    /// The requests that it allows at once.
    level: f64,
    /// The level rises no further.
    most: f64,
    /// How much the level rises in a second.
    rate: f64,
    pattern: Pattern,
}

/// What raises the level beside the rate.
#[derive(Debug, Clone)]
enum Pattern {
    Nothing,
    /// At the end of each window the level is full again. `edges` are the ends of the next windows where they differ in
    /// length.
    Windows {
        per: Seconds,
        ends: Seconds,
        edges: VecDeque<Seconds>,
    },
    /// Each permit comes back when it is `span` old: the moments, and how many.
    Span {
        span: Seconds,
        back: VecDeque<(Seconds, f64)>,
    },
    /// The rate changes at these moments; without a rate the limit is gone.
    Climbs {
        rates: VecDeque<(Seconds, Option<f64>)>,
    },
}

fn seconds(us: i64) -> Seconds {
    us as f64 / 1e6
}

impl Allowance {
    const MOMENT: Seconds = 1e-6;
    /// After so many windows the windows no longer matter: the forecast is exact to a part in so many.
    const MANY_WINDOWS: f64 = 200.0;
    const MANY_SPANS: f64 = 50.0;
    const LONGEST_FILLING: Duration = Duration::from_hours(24);
    /// Permits that are spent within this part of a span come back together.
    const CHUNK: f64 = 0.02;

    /// A limit with this rule, of which these permits are spent; `now_us` is the time of the forecast.
    #[must_use]
    pub fn of(rule: &Rule, spent: &[SpentPermits], now_us: i64) -> Self {
        let permits = f64::from(rule.permits);
        let spacing = rule.spacing_us().max(1);
        let rate = 1e6 / spacing as f64;
        match &rule.algorithm {
            Algorithm::FixedWindow { .. } => {
                let (start_us, mut edges) = windows(rule, now_us);
                let used: u64 = spent.iter().filter(|s| s.at_us >= start_us).map(|s| s.count).sum();
                let per = rule.per.as_secs_f64();
                let ends = edges.pop_front().unwrap_or(per);
                let level = (permits - used as f64).max(0.0);
                Allowance { level, most: permits, rate: 0.0, pattern: Pattern::Windows { per, ends, edges } }
            }
            Algorithm::Paced | Algorithm::PacedStrict => {
                // The part of a slot that has passed: the next slot opens when it is whole.
                let past = now_us.rem_euclid(i64::try_from(spacing).unwrap_or(i64::MAX));
                let level = past as f64 / spacing as f64;
                Allowance { level, most: 1.0, rate, pattern: Pattern::Nothing }
            }
            Algorithm::SlidingLog | Algorithm::SlidingWindow { .. } => {
                let span = rule.memory().as_secs_f64();
                let mut back: Vec<(Seconds, f64)> = spent
                    .iter()
                    .map(|s| (seconds(s.at_us - now_us) + span, s.count as f64))
                    .filter(|(at, _)| *at > 0.0)
                    .collect();
                back.sort_by(|a, b| a.0.total_cmp(&b.0));
                let level = (permits - back.iter().map(|(_, count)| count).sum::<f64>()).max(0.0);
                let pattern = Pattern::Span { span, back: back.into() };
                Allowance { level, most: permits, rate: 0.0, pattern }
            }
            Algorithm::TokenBucket { burst } => {
                let burst = f64::from(*burst);
                let mut spent = spent.to_vec();
                spent.sort_by_key(|s| s.at_us);
                // Nobody knows how full the bucket was. In this time it can fill, so the guess that it was empty hardly
                // matters; and a bucket that a backlog empties all the time stays empty.
                let (mut level, mut at) = (0.0_f64, -Self::memory(rule).as_secs_f64());
                for s in &spent {
                    let then = seconds(s.at_us - now_us);
                    level = ((level + (then - at) * rate).min(burst) - s.count as f64).max(0.0);
                    at = then;
                }
                let level = (level - at * rate).min(burst);
                Allowance { level, most: burst, rate, pattern: Pattern::Nothing }
            }
        }
    }

    /// The first microsecond of the window of a rule with windows.
    #[must_use]
    pub fn window_at(rule: &Rule, now_us: i64) -> i64 {
        windows(rule, now_us).0
    }

    /// How far back spent permits of this rule matter to a forecast.
    #[must_use]
    pub fn memory(rule: &Rule) -> Duration {
        let burst = rule.algorithm.burst().unwrap_or(0);
        let fills_in = Duration::from_micros(rule.spacing_us()).saturating_mul(burst);
        rule.memory().saturating_add(fills_in.min(Self::LONGEST_FILLING))
    }

    /// The slots of a channel: at most so many requests in progress, each of which takes this long.
    #[must_use]
    pub fn slots(count: u32, request: Seconds) -> Self {
        let count = f64::from(count.max(1));
        Allowance { level: count, most: count, rate: count / request.max(1e-4), pattern: Pattern::Nothing }
    }

    /// The extra limit of a slowed channel whose full rate is `per_second`.
    #[must_use]
    pub fn slowed(per_second: f64, climb: &Climb) -> Self {
        let rate = |share: Option<u32>| share.map(|share| per_second * f64::from(share) / 100.0);
        let rates = climb.shares().into_iter().map(|(at, share)| (at, rate(share))).collect();
        let mut slowed = Allowance { level: 1.0, most: 1.0, rate: 0.0, pattern: Pattern::Climbs { rates } };
        slowed.change(0.0);
        slowed
    }

    pub(super) fn level(&self) -> f64 {
        self.level
    }

    /// How many requests a second it allows while its level is zero.
    pub(super) fn rate(&self) -> f64 {
        self.rate
    }

    /// How many requests a second it allows in the long run.
    pub(super) fn mean_rate(&self) -> f64 {
        match &self.pattern {
            Pattern::Nothing => self.rate,
            Pattern::Windows { per, .. } => self.most / per,
            Pattern::Span { span, .. } => self.most / span,
            Pattern::Climbs { rates } => rates.iter().filter_map(|(_, rate)| *rate).fold(self.rate, f64::max),
        }
    }

    /// Spends permits at one moment.
    pub(super) fn take(&mut self, count: f64, at: Seconds) {
        self.level -= count;
        if let Pattern::Span { span, back } = &mut self.pattern
            && count > 0.0
        {
            back.push_back((at + *span, count));
        }
    }

    /// Time passes, in which `spent` permits are spent.
    pub(super) fn pass(&mut self, from: Seconds, to: Seconds, spent: f64) {
        self.level += self.rate * (to - from);
        self.take(spent, to);
        self.level = self.level.min(self.most);
        self.change(to);
    }

    /// The next moment at which its level or its rate changes by itself, or its level reaches zero while `pace` permits a
    /// second are spent.
    pub(super) fn next_change(&self, now: Seconds, pace: f64) -> Seconds {
        let rises = self.rate - pace;
        let by_level =
            if (self.level > Self::MOMENT && rises < 0.0) || (self.level < -Self::MOMENT && rises > 0.0) {
                now - self.level / rises
            } else {
                f64::INFINITY
            };
        let by_pattern = match &self.pattern {
            Pattern::Nothing => f64::INFINITY,
            Pattern::Windows { ends, .. } => *ends,
            Pattern::Span { span, back } => {
                let chunk = if pace > 0.0 { now + span * Self::CHUNK } else { f64::INFINITY };
                back.front().map_or(chunk, |(at, _)| at.min(chunk))
            }
            Pattern::Climbs { rates } => rates.front().map_or(f64::INFINITY, |(at, _)| *at),
        };
        by_level.min(by_pattern)
    }

    /// Makes the changes of this moment.
    fn change(&mut self, now: Seconds) {
        let is_now = |at: Seconds| at <= now + Self::MOMENT;
        match &mut self.pattern {
            Pattern::Nothing => {}
            // A step may pass over any number of windows: a refund may be due in thousands of years.
            Pattern::Windows { per, ends, .. } if now > Self::MANY_WINDOWS * *per => {
                if is_now(*ends) {
                    self.level = self.most;
                }
                self.rate = self.most / *per;
                self.pattern = Pattern::Nothing;
            }
            Pattern::Windows { per, ends, edges } => {
                while is_now(*ends) {
                    self.level = self.most;
                    *ends = edges.pop_front().unwrap_or(*ends + *per);
                }
            }
            Pattern::Span { span, back } => {
                while let Some((_, count)) = back.pop_front_if(|(at, _)| is_now(*at)) {
                    self.level += count;
                }
                if now > Self::MANY_SPANS * *span {
                    self.rate = self.most / *span;
                    self.pattern = Pattern::Nothing;
                }
            }
            Pattern::Climbs { rates } => {
                while let Some((_, rate)) = rates.pop_front_if(|(at, _)| is_now(*at)) {
                    if let Some(rate) = rate {
                        self.rate = rate;
                    } else {
                        (self.level, self.most, self.rate) = (f64::INFINITY, f64::INFINITY, 0.0);
                    }
                }
            }
        }
    }
}

/// The first microsecond of the running window, and the ends of this window and of the next ones as far as they are
/// known. Later windows last `per`.
pub(super) fn windows(rule: &Rule, now_us: i64) -> (i64, VecDeque<Seconds>) {
    let days: Vec<i64> = match Timestamp::from_microsecond(now_us) {
        Ok(now) => rule.days(now).into_iter().map(|(_, begins_us)| begins_us).collect(),
        Err(_) => Vec::new(),
    };
    if let Some(start_us) = days.iter().rev().find(|day| **day <= now_us) {
        let edges = days.iter().filter(|day| **day > now_us).map(|day| seconds(day - now_us)).collect();
        return (*start_us, edges);
    }
    let per_us = i64::try_from(rule.per.as_micros()).unwrap_or(i64::MAX).max(1);
    let past = now_us.rem_euclid(per_us);
    (now_us - past, VecDeque::from([seconds(per_us - past)]))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::limiter::Algorithm;

    #[test]
    fn thousands_of_years_pass_without_their_windows_one_by_one() {
        let rule = Rule {
            algorithm: Algorithm::FixedWindow { zone: None },
            permits: 3,
            per: Duration::from_millis(1),
            lateness: Duration::ZERO,
        };
        let mut window = Allowance::of(&rule, &[], 0);
        let (began, far) = (Instant::now(), 8_000.0 * 365.0 * 86_400.0);
        window.take(3.0, 0.0);
        window.pass(0.0, far, 0.0);
        assert!((window.level() - 3.0).abs() < 1e-9 && (window.rate() - 3_000.0).abs() < 1e-9);
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    }
}
