//! How the rate of a slowed channel climbs back: as the SQL function `refundd.slow_share` says. Pure.

/// Time from the moment of the forecast.
pub type Seconds = f64;

/// A channel that sends at a part of its rate, because its bank asked for fewer requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Climb {
    /// The share at which it began, in percent.
    pub percent: i64,
    /// Up to this share it climbs quickly.
    pub ceiling: i64,
    pub step: Seconds,
    /// Since when it climbs; negative if the climb begins later.
    pub since: Seconds,
}

impl Climb {
    /// From which moments on which share of the rate counts, in percent. The last moment has the full rate, `None`.
    #[must_use]
    pub fn shares(&self) -> Vec<(Seconds, Option<u32>)> {
        let first = self.steps_at(0.0);
        let mut shares = vec![(0.0, self.share_of(first))];
        for steps in first + 1..first + Self::MOST_STEPS {
            let Some((_, last)) = shares.last().copied() else { break };
            if last.is_none() {
                break;
            }
            let share = self.share_of(steps);
            if share != last {
                shares.push((steps as f64 * self.step - self.since, share));
            }
        }
        shares
    }

    /// More steps than any climb takes.
    const MOST_STEPS: i64 = 2_000;

    #[expect(clippy::cast_possible_truncation, reason = "steps of 50 ms and more, over years at the most")]
    fn steps_at(&self, time: Seconds) -> i64 {
        ((self.since + time).max(0.0) / self.step.max(1e-6)).floor() as i64
    }

    #[expect(clippy::cast_possible_truncation, reason = "at most 200")]
    fn share_of(&self, steps: i64) -> Option<u32> {
        let top = self.ceiling;
        let reached = if self.percent + steps / 2 < top {
            self.percent + steps / 2
        } else {
            let beyond = (steps - 2 * (top - self.percent).max(0)).clamp(0, 1000) as f64 / 100.0;
            (top as f64 + beyond * beyond).round() as i64
        };
        (reached < 100).then(|| u32::try_from(reached - reached % 5).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::limiter::{Algorithm, Rule};

    #[test]
    fn the_shares_climb_in_notches_to_the_full_rate() {
        let climb = Climb { percent: 50, ceiling: 80, step: 0.1, since: -2.0 };
        let shares = climb.shares();
        assert_eq!(shares.first(), Some(&(0.0, Some(50))));
        assert_eq!(shares.last().map(|(_, share)| *share), Some(None));
        assert!(shares.windows(2).all(|two| two[0].0 < two[1].0), "{shares:?}");
        for (at, share) in shares {
            assert_eq!(climb.share_of(climb.steps_at(at + 0.01)), share, "{at}");
        }
    }

    /// The climbs from each share and to each ceiling that a refusal can set.
    fn climbs(rule: &Rule) -> impl Iterator<Item = Climb> {
        let step = rule.climb_step().as_secs_f64();
        let from = (10..=95).step_by(5);
        from.flat_map(move |percent| {
            (percent..=100).step_by(5).map(move |ceiling| Climb { percent, ceiling, step, since: 0.0 })
        })
    }

    fn rule(algorithm: Algorithm, permits: u32, per: Duration) -> Rule {
        Rule { algorithm, permits, per, lateness: Duration::from_millis(20) }
    }

    const DAY: Duration = Duration::from_hours(24);

    #[test]
    fn no_quota_needs_longer_than_eight_hours_to_its_full_rate() {
        for permits in [2, 20, 100, 5_000, 1_000_000] {
            for algorithm in [Algorithm::FixedWindow { zone: None }, Algorithm::SlidingLog] {
                for climb in climbs(&rule(algorithm, permits, DAY)) {
                    let (at, share) = *climb.shares().last().unwrap();
                    assert!(share.is_none() && at <= 8.0 * 3600.0, "{permits} in a day, {climb:?}: {at} s");
                }
            }
        }
    }

    #[test]
    fn beyond_the_ceiling_a_slow_limit_sends_at_each_share_before_the_next_one() {
        let pace = Algorithm::TokenBucket { burst: 1 };
        for seconds in [1, 30, 60, 600, 3_600, 86_400] {
            for algorithm in [Algorithm::FixedWindow { zone: None }, Algorithm::Paced, pace.clone()] {
                for climb in climbs(&rule(algorithm, 1, Duration::from_secs(seconds))) {
                    let beyond =
                        |share: Option<u32>| share.filter(|share| i64::from(*share) >= climb.ceiling);
                    for two in climb.shares().windows(2) {
                        let Some(share) = beyond(two[0].1) else { continue };
                        let gap = seconds as f64 * 100.0 / f64::from(share);
                        assert!(two[1].0 - two[0].0 >= gap, "{seconds} s, {climb:?}: {two:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_fast_limit_climbs_by_its_own_spacing() {
        let step = |permits| rule(Algorithm::SlidingLog, permits, Duration::from_secs(1)).climb_step();
        assert_eq!(
            [1, 4, 20, 1_000].map(step),
            [1_000, 250, 50, 50].map(Duration::from_millis),
            "50 ms at least"
        );
    }
}
