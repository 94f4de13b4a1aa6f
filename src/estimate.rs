//! Estimates how long a repeated step takes, from its last durations. An estimate has a smoothed mean. Where lateness
//! is costly, it adds four times the smoothed deviation, as TCP does for its time-outs (RFC 6298). Pure.

use std::time::Duration;

/// The estimate for one repeated step.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Estimate {
    /// In seconds.
    smoothed: Option<Smoothed>,
    samples: u32,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Smoothed {
    mean: f64,
    deviation: f64,
}

impl Estimate {
    /// Adds one measured duration.
    pub fn learn(&mut self, took: Duration) {
        let took = took.as_secs_f64();
        self.samples = self.samples.saturating_add(1);
        self.smoothed =
            Some(self.smoothed.map_or(Smoothed { mean: took, deviation: took / 2.0 }, |smoothed| {
                let off = took - smoothed.mean;
                Smoothed {
                    mean: smoothed.mean + off / 8.0,
                    deviation: smoothed.deviation + (off.abs() - smoothed.deviation) / 4.0,
                }
            }));
    }

    /// The duration to plan with; the step seldom takes longer. `None` before the first measurement.
    pub fn expected(&self) -> Option<Duration> {
        self.smoothed
            .map(|smoothed| Duration::from_secs_f64(4.0f64.mul_add(smoothed.deviation, smoothed.mean)))
    }

    /// The smoothed mean; `None` before the first measurement.
    pub fn mean(&self) -> Option<Duration> {
        self.smoothed.map(|smoothed| Duration::from_secs_f64(smoothed.mean))
    }

    /// The smoothed deviation; `None` before the eighth measurement. It starts at half of the first duration, and the
    /// first few values still show that start.
    pub fn deviation(&self) -> Option<Duration> {
        const ENOUGH: u32 = 8;
        self.smoothed
            .filter(|_| self.samples >= ENOUGH)
            .map(|smoothed| Duration::from_secs_f64(smoothed.deviation.max(0.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_long_sample_raises_what_is_expected_and_short_ones_lower_it_again() {
        let mut estimate = Estimate::default();
        assert_eq!(estimate.expected(), None);
        estimate.learn(Duration::from_millis(50));
        assert_eq!(estimate.expected(), Some(Duration::from_millis(150)));
        for _ in 0..100 {
            estimate.learn(Duration::from_millis(1));
        }
        assert!(estimate.expected().unwrap() < Duration::from_millis(2), "{estimate:?}");
    }

    #[test]
    fn the_deviation_is_known_only_after_some_samples() {
        let mut estimate = Estimate::default();
        for _ in 0..7 {
            estimate.learn(Duration::from_millis(200));
        }
        assert_eq!(estimate.deviation(), None);
        for _ in 0..20 {
            estimate.learn(Duration::from_millis(200));
        }
        assert!(estimate.deviation().unwrap() < Duration::from_millis(1), "{estimate:?}");
    }
}
