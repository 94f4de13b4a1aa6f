//! How long a bank took to answer lately: counts by length, which fade with time. Its size does not grow with the number of
//! answers.

use std::time::{Duration, Instant};

use super::fading::faded;

/// So many lengths, each a sixth longer than the one before: from half a millisecond to more than a minute.
const LENGTHS: usize = 80;
const SHORTEST: f64 = 0.000_5;
const GROWTH: f64 = 1.16;

#[derive(Debug)]
pub(super) struct Answers {
    counts: [f32; LENGTHS],
    /// The faded number of answers, and the faded sum of the seconds that their requests took.
    count: f64,
    requests: f64,
    at: Instant,
}

impl Answers {
    /// Fewer faded answers than this say nothing any more.
    const FEWEST: f64 = 0.02;

    pub fn new(now: Instant) -> Self {
        Answers { counts: [0.0; LENGTHS], count: 0.0, requests: 0.0, at: now }
    }

    pub fn add(&mut self, bank: Duration, request: Duration, now: Instant) {
        let fade = faded(now.saturating_duration_since(self.at));
        #[expect(clippy::cast_possible_truncation, reason = "between 0 and 1")]
        let fade_of_counts = fade as f32;
        for count in &mut self.counts {
            *count *= fade_of_counts;
        }
        if let Some(count) = self.counts.get_mut(place(bank)) {
            *count += 1.0;
        }
        self.count = self.count * fade + 1.0;
        self.requests = self.requests * fade + request.as_secs_f64();
        self.at = now;
    }

    fn are_recent(&self, now: Instant) -> bool {
        self.count * faded(now.saturating_duration_since(self.at)) > Self::FEWEST
    }

    /// How long a request took in the mean.
    pub fn request(&self, now: Instant) -> Option<Duration> {
        self.are_recent(now).then(|| Duration::from_secs_f64(self.requests / self.count))
    }

    /// The length that this part of the answers did not exceed.
    pub fn at_most(&self, part: f64, now: Instant) -> Option<Duration> {
        if !self.are_recent(now) {
            return None;
        }
        let all: f64 = self.counts.iter().copied().map(f64::from).sum();
        let mut sum = 0.0;
        let nth = self.counts.iter().position(|count| {
            sum += f64::from(*count);
            sum >= all * part
        });
        let exponent = i32::try_from(nth.unwrap_or(LENGTHS - 1)).unwrap_or(i32::MAX);
        // The middle of the answers of that length.
        Some(Duration::from_secs_f64(SHORTEST * GROWTH.powi(exponent) * GROWTH.sqrt()))
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bounded by the number of lengths"
)]
fn place(bank: Duration) -> usize {
    let times = bank.as_secs_f64().max(SHORTEST) / SHORTEST;
    ((times.ln() / GROWTH.ln()) as usize).min(LENGTHS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_and_95_of_a_hundred_answers_are_found_within_a_tenth() {
        let now = Instant::now();
        let mut answers = Answers::new(now);
        assert_eq!((answers.request(now), answers.at_most(0.5, now)), (None, None));
        for millis in 1..=1000 {
            let bank = Duration::from_millis(millis);
            answers.add(bank, bank + Duration::from_millis(5), now);
        }
        let is_about = |found: Option<Duration>, millis: f64| {
            let found = found.unwrap_or_default().as_secs_f64() * 1000.0;
            assert!((found - millis).abs() < millis * 0.1, "{found} ms, expected {millis} ms");
        };
        is_about(answers.at_most(0.5, now), 500.0);
        is_about(answers.at_most(0.95, now), 950.0);
        is_about(answers.request(now), 505.5);
        assert_eq!(answers.request(now + Duration::from_mins(10)), None, "old answers say nothing");
    }
}
