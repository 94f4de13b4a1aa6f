//! Compares the arrivals at the bank with the promises of the limits, while the limits change.
//!
//! It uses nothing of the limiter. A [`LimitPromise`] is what a company would promise to its bank. Arrivals are
//! counted by the bank's clock.
//!
//! Around a change the looser of the old and the new promise counts. So zero spans above the promise proves little if most
//! spans lay around a change. [`Judged::plain`] therefore says which spans stood under one promise alone.

mod intervals;
mod longer;

use std::collections::BTreeMap;
use std::time::Duration;

pub use intervals::Intervals;
pub use longer::judge_longer;

/// The promise of a limit to the bank: at most `permits` arrivals in each span of `per`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitPromise {
    pub span: JudgedSpan,
    pub permits: u32,
    pub per: Duration,
}

/// The spans of `per` to which a promise applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JudgedSpan {
    /// Spans that begin at whole multiples of `per` since 1970.
    Aligned,
    /// Every span, wherever it begins.
    Any,
    /// Every span, and this many arrivals more than `permits`.
    AnyAndBurst(u32),
}

impl LimitPromise {
    /// The most arrivals that a stretch of this length can contain while the promise is kept.
    #[must_use]
    pub fn most_in(&self, stretch: Duration) -> usize {
        let whole = usize::try_from(stretch.as_micros().div_ceil(self.per.as_micros().max(1)));
        let (whole, permits) = (whole.unwrap_or(usize::MAX), self.permits as usize);
        match self.span {
            JudgedSpan::Aligned => permits.saturating_mul(whole.saturating_add(1)),
            JudgedSpan::Any => permits.saturating_mul(whole),
            JudgedSpan::AnyAndBurst(burst) => permits.saturating_mul(whole).saturating_add(burst as usize),
        }
    }
}

/// Promises that apply together from a moment on. What they allow is added up. Several promises apply together when two
/// channels are judged together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JudgedPeriod {
    /// When the first node may have applied these promises, in microseconds since 1970.
    pub from_us: i64,
    /// When the last node has stopped to apply the promises before, in microseconds since 1970.
    pub settled_us: i64,
    pub promises: Vec<LimitPromise>,
}

impl JudgedPeriod {
    /// One promise for all time.
    #[must_use]
    pub fn always(promise: LimitPromise) -> Vec<JudgedPeriod> {
        vec![JudgedPeriod { from_us: i64::MIN, settled_us: i64::MIN, promises: vec![promise] }]
    }

    fn most_in(&self, stretch: Duration) -> usize {
        self.promises.iter().map(|promise| promise.most_in(stretch)).sum()
    }

    fn aligned(&self) -> Option<LimitPromise> {
        match *self.promises.as_slice() {
            [promise] if promise.span == JudgedSpan::Aligned => Some(promise),
            _ => None,
        }
    }
}

/// One span of time, its arrivals, and the most that was allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Judged {
    pub start_us: i64,
    pub per: Duration,
    pub count: usize,
    /// How many arrivals were allowed.
    pub most: usize,
    /// Whether only one period applied within the span.
    pub plain: bool,
}

impl Judged {
    /// Whether more arrived than allowed.
    #[must_use]
    pub fn is_above(&self) -> bool {
        self.count > self.most
    }

    /// Arrivals divided by the most that was allowed; above 1 the promise is broken.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.count as f64 / self.most.max(1) as f64
    }

    /// The first microsecond after the span.
    #[must_use]
    pub fn end_us(&self) -> i64 {
        self.start_us.saturating_add(micros(self.per))
    }
}

/// Judges numbered permits. `spent` gives each permit's window, by its first microsecond, and its number in that
/// window. Use this when the windows follow another clock than the bank's.
#[must_use]
pub fn judge_numbers(spent: impl IntoIterator<Item = (i64, i32)>, promise: LimitPromise) -> Vec<Judged> {
    let mut windows: BTreeMap<i64, (usize, usize)> = BTreeMap::new();
    for (window_us, ordinal) in spent {
        let (count, highest) = windows.entry(window_us).or_default();
        *count += 1;
        *highest = usize::try_from(ordinal).unwrap_or(usize::MAX).max(*highest);
    }
    let judged = windows.into_iter().map(|(start_us, (count, highest))| Judged {
        start_us,
        per: promise.per,
        count: count.max(highest),
        most: promise.permits as usize,
        plain: true,
    });
    judged.collect()
}

/// Judges arrivals against periods. Arrivals are in microseconds since 1970, in any order; periods are in the order
/// in which they began. Every arrival begins one span for each length in its promises. Where only aligned windows were
/// promised, the windows are judged instead.
#[must_use]
pub fn judge(arrivals: &[i64], periods: &[JudgedPeriod]) -> Vec<Judged> {
    let mut times = arrivals.to_vec();
    times.sort_unstable();
    let mut judged = Vec::new();
    let mut last_window = Vec::new();
    for (nth, &start_us) in times.iter().enumerate() {
        let mut lengths: Vec<Duration> = periods_within(periods, start_us, start_us + 1)
            .flat_map(|p| p.promises.iter().map(|promise| promise.per))
            .collect();
        lengths.sort_unstable();
        lengths.dedup();
        for per in lengths {
            if let Some(window) = aligned_window(periods, start_us, per) {
                if !last_window.contains(&(window, per)) {
                    last_window.retain(|(_, of)| *of != per);
                    last_window.push((window, per));
                    judged.push(of_window(&times, nth, window, per, periods));
                }
                continue;
            }
            let end_us = start_us.saturating_add(micros(per));
            let count = times[nth..].partition_point(|at| *at < end_us);
            judged.push(of_span(start_us, per, count, periods));
        }
    }
    judged
}

/// The aligned window around a moment, if every promise that applies within it is for aligned windows of this length.
fn aligned_window(periods: &[JudgedPeriod], at_us: i64, per: Duration) -> Option<i64> {
    let start = at_us - at_us.rem_euclid(micros(per));
    periods_within(periods, start, start.saturating_add(micros(per)))
        .all(|period| period.aligned().is_some_and(|promise| promise.per == per))
        .then_some(start)
}

fn of_window(times: &[i64], nth: usize, start_us: i64, per: Duration, periods: &[JudgedPeriod]) -> Judged {
    let end_us = start_us.saturating_add(micros(per));
    let first = times[..nth].partition_point(|at| *at < start_us);
    let count = times[first..].partition_point(|at| *at < end_us);
    let promises: Vec<LimitPromise> =
        periods_within(periods, start_us, end_us).filter_map(JudgedPeriod::aligned).collect();
    let most = promises.iter().map(|promise| promise.permits as usize).max().unwrap_or(0);
    Judged { start_us, per, count, most, plain: promises.len() == 1 }
}

fn of_span(start_us: i64, per: Duration, count: usize, periods: &[JudgedPeriod]) -> Judged {
    let allowed: Vec<usize> = periods_within(periods, start_us, start_us.saturating_add(micros(per)))
        .map(|period| period.most_in(per))
        .collect();
    let most = allowed.iter().copied().max().unwrap_or(0);
    Judged { start_us, per, count, most, plain: allowed.len() == 1 }
}

/// The periods that a node may have applied within a stretch.
fn periods_within(
    periods: &[JudgedPeriod],
    start_us: i64,
    end_us: i64,
) -> impl Iterator<Item = &JudgedPeriod> {
    periods.iter().enumerate().filter_map(move |(nth, period)| {
        let over_us = periods.get(nth + 1).map_or(i64::MAX, |next| next.settled_us);
        (period.from_us < end_us && over_us > start_us).then_some(period)
    })
}

/// A span in microseconds, at least one.
pub(crate) fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn promise(span: JudgedSpan, permits: u32) -> LimitPromise {
        LimitPromise { span, permits, per: SECOND }
    }

    fn times(ms: &[i64]) -> Vec<i64> {
        ms.iter().map(|ms| ms * 1000).collect()
    }

    fn worst(ms: &[i64], periods: &[JudgedPeriod]) -> Judged {
        let judged = judge(&times(ms), periods);
        judged.into_iter().max_by(|a, b| a.share().total_cmp(&b.share())).unwrap()
    }

    #[test]
    fn a_burst_across_an_edge_keeps_the_promise_of_windows_and_breaks_that_of_spans() {
        let burst = [5_998, 5_999, 6_000, 6_001];
        let windows = worst(&burst, &JudgedPeriod::always(promise(JudgedSpan::Aligned, 2)));
        assert_eq!((windows.count, windows.most, windows.is_above()), (2, 2, false));
        let spans = worst(&burst, &JudgedPeriod::always(promise(JudgedSpan::Any, 2)));
        assert_eq!((spans.start_us, spans.count, spans.most, spans.is_above()), (5_998_000, 4, 2, true));
        let bucket = worst(&burst, &JudgedPeriod::always(promise(JudgedSpan::AnyAndBurst(2), 2)));
        assert_eq!((bucket.count, bucket.most, bucket.is_above()), (4, 4, false));
    }

    #[test]
    fn arrivals_exactly_one_span_apart_do_not_share_a_span() {
        assert_eq!(
            worst(&[1_000, 2_000, 3_000], &JudgedPeriod::always(promise(JudgedSpan::Any, 1))).count,
            1
        );
    }

    #[test]
    fn around_a_change_the_looser_promise_counts_and_elsewhere_its_own() {
        let mut periods = JudgedPeriod::always(promise(JudgedSpan::Any, 4));
        periods.push(JudgedPeriod {
            from_us: 10_000_000,
            settled_us: 12_000_000,
            promises: vec![promise(JudgedSpan::Any, 2)],
        });
        let judged = judge(&times(&[8_000, 9_500, 11_900, 12_000, 12_001, 12_002]), &periods);
        let seen: Vec<_> = judged.iter().map(|j| (j.start_us / 1000, j.count, j.most, j.plain)).collect();
        assert_eq!(
            seen,
            [
                (8_000, 1, 4, true),
                (9_500, 1, 4, false),
                (11_900, 4, 4, false),
                (12_000, 3, 2, true),
                (12_001, 2, 2, true),
                (12_002, 1, 2, true)
            ]
        );
    }

    #[test]
    fn windows_that_meet_another_promise_are_judged_as_spans() {
        let mut periods = JudgedPeriod::always(promise(JudgedSpan::Aligned, 2));
        periods.push(JudgedPeriod {
            from_us: 10_500_000,
            settled_us: 11_500_000,
            promises: vec![promise(JudgedSpan::Any, 2)],
        });
        let judged = judge(&times(&[9_100, 9_200, 10_100, 10_200]), &periods);
        let seen: Vec<_> = judged.iter().map(|j| (j.start_us / 1000, j.count, j.most, j.plain)).collect();
        assert_eq!(seen, [(9_000, 2, 2, true), (10_100, 2, 4, false), (10_200, 1, 4, false)]);
    }

    #[test]
    fn promises_side_by_side_are_added_up() {
        let both = JudgedPeriod {
            from_us: 0,
            settled_us: 0,
            promises: vec![promise(JudgedSpan::Any, 2), promise(JudgedSpan::Aligned, 1)],
        };
        assert_eq!(worst(&[1_000, 1_001, 1_002], &[both]).most, 4);
    }

    #[test]
    fn a_longer_stretch_holds_as_many_windows_as_can_touch_it() {
        let long = Duration::from_millis(1_500);
        assert_eq!(promise(JudgedSpan::Any, 10).most_in(long), 20);
        assert_eq!(promise(JudgedSpan::Aligned, 10).most_in(long), 30);
        assert_eq!(promise(JudgedSpan::AnyAndBurst(5), 10).most_in(long), 25);
        assert_eq!(promise(JudgedSpan::Any, 10).most_in(SECOND / 2), 10);
    }
}
