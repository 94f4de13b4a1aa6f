//! Judges spans that are several times as long as the `per` of their promise.
//!
//! Only a promise with a burst says anything new about them. Under the other promises, a span of two `per` holds at most twice
//! the permits as soon as each span of one `per` keeps its own number. A burst is allowed once, however long the span.

use std::time::Duration;

use super::{Intervals, Judged, JudgedPeriod, JudgedSpan, micros, of_span, periods_within};

/// Judges spans of these multiples of `per` against periods with a burst in their promises. Arrivals are in microseconds
/// since 1970, in any order; periods are in the order in which they began. Every arrival begins one span of each
/// length, but for spans that touch `left_out`. Around a change the looser promise counts, as for spans of one `per`.
#[must_use]
pub fn judge_longer(
    arrivals: &[i64],
    periods: &[JudgedPeriod],
    multiples: &[u32],
    left_out: &Intervals,
) -> Vec<Judged> {
    let mut times = arrivals.to_vec();
    times.sort_unstable();
    let mut judged = Vec::new();
    for (nth, &start_us) in times.iter().enumerate() {
        for per in lengths(periods, start_us) {
            for multiple in multiples {
                let length = per.saturating_mul(*multiple);
                let end_us = start_us.saturating_add(micros(length));
                if left_out.touch(&(start_us..end_us)) {
                    continue;
                }
                let count = times[nth..].partition_point(|at| *at < end_us);
                judged.push(of_span(start_us, length, count, periods));
            }
        }
    }
    judged
}

/// The `per` of each promise with a burst that a node may have applied at a moment.
fn lengths(periods: &[JudgedPeriod], at_us: i64) -> Vec<Duration> {
    let promises =
        periods_within(periods, at_us, at_us.saturating_add(1)).flat_map(|period| &period.promises);
    let with_burst = promises.filter(|promise| matches!(promise.span, JudgedSpan::AnyAndBurst(_)));
    let mut lengths: Vec<Duration> = with_burst.map(|promise| promise.per).collect();
    lengths.sort_unstable();
    lengths.dedup();
    lengths
}

#[cfg(test)]
mod tests {
    use super::super::{LimitPromise, judge};
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn bucket(burst: u32, permits: u32) -> LimitPromise {
        LimitPromise { span: JudgedSpan::AnyAndBurst(burst), permits, per: SECOND }
    }

    fn times(ms: impl IntoIterator<Item = i64>) -> Vec<i64> {
        ms.into_iter().map(|ms| ms * 1000).collect()
    }

    /// The worst span of so many `per`.
    fn worst(times: &[i64], periods: &[JudgedPeriod], multiple: u32) -> Judged {
        let judged = judge_longer(times, periods, &[multiple], &Intervals::default());
        judged.into_iter().max_by(|a, b| a.share().total_cmp(&b.share())).unwrap()
    }

    #[test]
    fn a_burst_in_each_span_keeps_the_promise_of_one_span_and_breaks_that_of_two() {
        let bursts = times([0, 1, 2, 3, 1_000, 1_001, 1_002, 1_003, 2_000, 2_001, 2_002, 2_003]);
        let periods = JudgedPeriod::always(bucket(2, 2));
        assert!(judge(&bursts, &periods).iter().all(|span| !span.is_above()));
        let two = worst(&bursts, &periods, 2);
        assert_eq!((two.per, two.count, two.most), (2 * SECOND, 8, 6));
        assert!(two.is_above());
    }

    #[test]
    fn a_full_bucket_that_fills_up_at_its_rate_keeps_the_promise_of_every_length() {
        let burst_and_rate = times([0].into_iter().chain((0..60).map(|nth| nth * 500)));
        let periods = JudgedPeriod::always(bucket(1, 2));
        for (multiple, count, most) in [(2, 5, 5), (5, 11, 11), (10, 21, 21)] {
            let worst = worst(&burst_and_rate, &periods, multiple);
            assert_eq!((worst.count, worst.most, worst.is_above()), (count, most, false));
        }
    }

    #[test]
    fn windows_of_a_clock_that_stands_elsewhere_meet_a_longer_span_once_more_than_it_has_windows() {
        // The windows begin at 300 ms. A span of two seconds meets three of them.
        let windows = times([1_298, 1_299, 1_300, 1_301, 2_300, 2_301, 3_300, 3_301]);
        assert!(!worst(&windows, &JudgedPeriod::always(bucket(2, 2)), 2).is_above());
        let one_too_many = times([1_298, 1_299, 1_300, 1_301, 2_300, 2_301, 3_297]);
        assert!(worst(&one_too_many, &JudgedPeriod::always(bucket(2, 2)), 2).is_above());
    }

    #[test]
    fn a_longer_span_around_a_change_is_judged_by_the_looser_promise() {
        let mut periods = JudgedPeriod::always(bucket(2, 4));
        periods.push(JudgedPeriod {
            from_us: 10_000_000,
            settled_us: 12_000_000,
            promises: vec![bucket(1, 2)],
        });
        let judged =
            judge_longer(&times([7_000, 9_000, 11_999, 12_000]), &periods, &[2], &Intervals::default());
        let seen: Vec<_> = judged.iter().map(|span| (span.start_us / 1000, span.most, span.plain)).collect();
        assert_eq!(seen, [(7_000, 10, true), (9_000, 10, false), (11_999, 10, false), (12_000, 5, true)]);
    }

    #[test]
    fn spans_that_touch_a_time_left_out_are_not_judged() {
        let left_out: Intervals = std::iter::once(3_000_000..3_500_000).collect();
        let periods = JudgedPeriod::always(bucket(1, 1));
        let judged = judge_longer(&times([900, 1_000, 1_001, 3_499, 3_500]), &periods, &[2], &left_out);
        assert_eq!(
            judged.iter().map(|span| span.start_us).collect::<Vec<_>>(),
            [900_000, 1_000_000, 3_500_000]
        );
    }

    #[test]
    fn a_promise_without_a_burst_says_nothing_new_about_longer_spans() {
        for span in [JudgedSpan::Any, JudgedSpan::Aligned] {
            let periods = JudgedPeriod::always(LimitPromise { span, ..bucket(0, 1) });
            assert!(judge_longer(&times([0, 1, 2]), &periods, &[2, 5], &Intervals::default()).is_empty());
        }
    }
}
