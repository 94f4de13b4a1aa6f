//! Measures how fast requests reached the pretend bank.
//!
//! "20 a second" has two meanings, and both are measured. Aligned windows start at whole multiples of their length
//! since 1970, as the limiter's windows in Redis do. A rolling span may start at any time.

use std::collections::HashMap;
use std::time::Duration;

use super::ledger::{Account, Arrival, Ledger};
use crate::judge::micros;

/// The window or span with the most arrivals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fullest {
    /// Its first microsecond since 1970.
    pub start_us: i64,
    /// The arrivals in it.
    pub count: usize,
}

/// How much of a limit was used.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Usage {
    /// Aligned windows from the first arrival's window to the last one's.
    pub windows: usize,
    /// Windows with at least one arrival.
    pub used: usize,
    /// Arrivals divided by the permits of all windows.
    pub share: f64,
}

/// A part of a run that begins and ends with an arrival after a lull, so that no burst is cut in two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stretch {
    /// The first arrival, in microseconds since 1970.
    pub from_us: i64,
    /// The last arrival, in microseconds since 1970.
    pub to_us: i64,
    /// The time between each arrival and the next, in order. There is one gap less than arrivals.
    pub gaps_us: Vec<i64>,
}

impl Stretch {
    /// Arrivals divided by the permits that came due meanwhile, `permits` in each `per`.
    pub fn share(&self, permits: u32, per: Duration) -> f64 {
        let due = (self.to_us - self.from_us) as f64 / micros(per) as f64 * f64::from(permits);
        self.gaps_us.len() as f64 / due
    }
}

impl Ledger {
    /// The aligned window with the most arrivals; the first one if several have as many. `None` without arrivals.
    pub fn worst_aligned_window(&self, channel: &str, per: Duration) -> Option<Fullest> {
        let windows = self.windows(channel, per);
        let fullest = |(start_us, count)| Fullest { start_us, count };
        windows.into_iter().map(fullest).max_by_key(|w| (w.count, std::cmp::Reverse(w.start_us)))
    }

    /// The span of length `per` with the most arrivals. Two arrivals exactly `per` apart are in different spans.
    pub fn worst_rolling_span(&self, channel: &str, per: Duration) -> Option<Fullest> {
        let times = self.times(channel);
        let per = micros(per);
        let mut worst: Option<Fullest> = None;
        let mut end = 0;
        for (start, &start_us) in times.iter().enumerate() {
            while end < times.len() && times[end] < start_us + per {
                end += 1;
            }
            if worst.is_none_or(|worst| end - start > worst.count) {
                worst = Some(Fullest { start_us, count: end - start });
            }
        }
        worst
    }

    /// Arrivals a second, from the first to the last; `None` with fewer than two.
    pub fn rate(&self, channel: &str) -> Option<f64> {
        let times = self.times(channel);
        let span = times.last()? - times.first()?;
        (span > 0).then(|| (times.len() - 1) as f64 / (span as f64 / 1e6))
    }

    /// How many windows were used, and how much of `permits` in each. `None` without arrivals. The first and the last
    /// window count whole, although the run may have begun and ended within them.
    pub fn usage(&self, channel: &str, per: Duration, permits: u32) -> Option<Usage> {
        let windows_used = self.windows(channel, per);
        let (first, last) = (windows_used.keys().min()?, windows_used.keys().max()?);
        let windows = usize::try_from((last - first) / micros(per) + 1).ok()?;
        let arrivals: usize = windows_used.values().sum();
        let share = arrivals as f64 / (windows as f64 * f64::from(permits));
        Some(Usage { windows, used: windows_used.len(), share })
    }

    /// A stretch of the run that covers whole periods, for even and for bursty arrivals. It begins with the arrival
    /// after the longest lull in the first `search` after `from_us`. It ends with the arrival after the longest lull
    /// in the last `search` before `to_us`. `None` when these are not two different arrivals.
    pub fn stretch(&self, channel: &str, from_us: i64, to_us: i64, search: Duration) -> Option<Stretch> {
        let times = self.times(channel);
        let after_the_longest_lull = |from: i64, to: i64| {
            (1..times.len())
                .filter(|i| (from..=to).contains(&times[*i]))
                .max_by_key(|i| (times[*i] - times[i - 1], std::cmp::Reverse(*i)))
        };
        let first = after_the_longest_lull(from_us, from_us + micros(search))?;
        let last = after_the_longest_lull(to_us - micros(search), to_us)?;
        let inside = times.get(first..=last).filter(|inside| inside.len() > 1)?;
        let gaps_us = inside.windows(2).map(|pair| pair[1] - pair[0]).collect();
        Some(Stretch { from_us: times[first], to_us: times[last], gaps_us })
    }

    /// A summary of every channel, by name.
    pub fn accounts(&self) -> Vec<Account> {
        let mut names: Vec<&str> = self.all().iter().map(|arrival| &*arrival.channel).collect();
        names.sort_unstable();
        names.dedup();
        let doubled = self.doubled();
        let account = |name: &str| {
            let own: Vec<&Arrival> = self.arrivals(name).collect();
            let refs: std::collections::HashSet<&str> =
                own.iter().map(|arrival| &*arrival.refund_ref).collect();
            Account {
                channel: name.to_owned(),
                arrivals: own.len(),
                paid: own.iter().filter(|arrival| arrival.paid).count(),
                doubled: doubled.iter().filter(|(refund_ref, _)| refs.contains(refund_ref)).count(),
                worst_second: self.worst_aligned_window(name, Duration::from_secs(1)).map_or(0, |w| w.count),
                per_second: self.rate(name),
            }
        };
        names.into_iter().map(account).collect()
    }

    /// Arrivals in each aligned window, by the window's first microsecond.
    fn windows(&self, channel: &str, per: Duration) -> HashMap<i64, usize> {
        let per = micros(per);
        let mut windows = HashMap::new();
        for arrival in self.arrivals(channel) {
            *windows.entry(arrival.at_us - arrival.at_us.rem_euclid(per)).or_insert(0) += 1;
        }
        windows
    }

    fn times(&self, channel: &str) -> Vec<i64> {
        let mut times: Vec<i64> = self.arrivals(channel).map(|arrival| arrival.at_us).collect();
        times.sort_unstable();
        times
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bank::ledger::Kind;

    const SECOND: Duration = Duration::from_secs(1);

    fn ledger(times_ms: &[i64]) -> Ledger {
        let arrival = |ms: &i64| Arrival {
            at_us: ms * 1000,
            handled_us: ms * 1000,
            channel: "acme".into(),
            kind: Kind::Send,
            key: "k".into(),
            attempt: 1,
            traceparent: "".into(),
            refund_ref: format!("R-{ms}").into(),
            amount_minor: 1,
            body_hash: 0,
            paid: true,
            executing: false,
            pending_until_us: 0,
            refused: false,
            answered: Some(200),
            says: crate::bank::BankSays::Executed,
            ended_us: None,
            left_us: None,
        };
        let mut ledger = Ledger::default();
        for arrival in times_ms.iter().map(arrival) {
            ledger.enter(arrival);
        }
        ledger
    }

    #[test]
    fn a_burst_across_an_edge_is_one_full_span_but_two_half_windows() {
        let ledger = ledger(&[5_999, 5_998, 6_000, 6_001, 8_000]);
        let window = ledger.worst_aligned_window("acme", SECOND).unwrap();
        assert_eq!(window, Fullest { start_us: 5_000_000, count: 2 });
        let span = ledger.worst_rolling_span("acme", SECOND).unwrap();
        assert_eq!(span, Fullest { start_us: 5_998_000, count: 4 });
    }

    #[test]
    fn arrivals_exactly_one_span_apart_do_not_share_a_span() {
        let span = ledger(&[1_000, 2_000, 3_000]).worst_rolling_span("acme", SECOND).unwrap();
        assert_eq!(span, Fullest { start_us: 1_000_000, count: 1 });
    }

    #[test]
    fn usage_counts_the_empty_windows_between() {
        let usage = ledger(&[1_000, 2_500, 4_999]).usage("acme", SECOND, 1).unwrap();
        assert_eq!((usage.windows, usage.used), (4, 3));
        assert!((usage.share - 0.75).abs() < 1e-9);
    }

    #[test]
    fn a_stretch_of_even_arrivals_tells_their_gaps_and_their_share() {
        let ledger = ledger(&[0, 500, 1_000, 1_500, 2_000, 2_500, 3_000]);
        let stretch = ledger.stretch("acme", 400_000, 2_600_000, Duration::from_millis(200)).unwrap();
        assert_eq!((stretch.from_us, stretch.to_us), (500_000, 2_500_000));
        assert_eq!(stretch.gaps_us, [500_000; 4]);
        assert!((stretch.share(2, SECOND) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_stretch_does_not_cut_a_burst_in_two() {
        let bursts: Vec<i64> = (0..6).flat_map(|s| [s * 1_000, s * 1_000 + 5, s * 1_000 + 10]).collect();
        // `from_us` and `to_us` lie in the middle of a burst. The stretch is still whole periods.
        let stretch = ledger(&bursts).stretch("acme", 3_000, 5_007_000, SECOND + SECOND).unwrap();
        assert_eq!((stretch.from_us, stretch.to_us), (1_000_000, 4_000_000));
        assert_eq!(stretch.gaps_us.len(), 9);
        assert!((stretch.share(3, SECOND) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn without_arrivals_at_both_ends_there_is_no_stretch() {
        assert_eq!(ledger(&[1_000]).stretch("acme", 0, 9_000_000, SECOND), None);
        assert_eq!(ledger(&[1_000, 1_100]).stretch("acme", 1_050_000, 9_000_000, SECOND), None);
        assert_eq!(ledger(&[]).stretch("acme", 0, 9_000_000, SECOND), None);
    }

    #[test]
    fn the_rate_is_counted_between_arrivals() {
        assert_eq!(ledger(&[1_000, 1_500, 2_000]).rate("acme"), Some(2.0));
        assert_eq!(ledger(&[1_000]).rate("acme"), None);
        assert_eq!(ledger(&[]).worst_rolling_span("acme", SECOND), None);
    }
}
