//! Times that a check leaves out.

use std::ops::Range;

/// Stretches of time in microseconds since 1970, in order and without overlaps.
#[derive(Debug, Clone, Default)]
pub struct Intervals(Vec<Range<i64>>);

impl FromIterator<Range<i64>> for Intervals {
    fn from_iter<I: IntoIterator<Item = Range<i64>>>(ranges: I) -> Intervals {
        let mut ranges: Vec<Range<i64>> = ranges.into_iter().filter(|range| !range.is_empty()).collect();
        ranges.sort_unstable_by_key(|range| range.start);
        let mut joined: Vec<Range<i64>> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match joined.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => joined.push(range),
            }
        }
        Intervals(joined)
    }
}

impl Intervals {
    /// Whether a part of this span lies in one of them.
    #[must_use]
    pub fn touch(&self, span: &Range<i64>) -> bool {
        let next = self.0.partition_point(|range| range.end <= span.start);
        self.0.get(next).is_some_and(|range| range.start < span.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_touches_an_interval_with_which_it_shares_a_microsecond() {
        let intervals: Intervals = [40..50, 10..20, 15..30].into_iter().collect();
        for inside in [0..11, 12..13, 29..35, 0..100, 45..46] {
            assert!(intervals.touch(&inside), "{inside:?}");
        }
        for outside in [0..10, 30..40, 50..100, 60..61] {
            assert!(!intervals.touch(&outside), "{outside:?}");
        }
        assert!(!Intervals::default().touch(&(0..100)));
    }
}
