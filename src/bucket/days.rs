//! The days of time zones, by which the scripts count.
//!
//! It publishes no day: the node does, in Postgres.

use super::Bucket;
use crate::limiter::Limit;
use crate::lock::SharedLock;

impl Bucket {
    /// Sets where the days of a time zone begin, in us since 1970 and in order. All nodes must give the same ones.
    /// Before the first call, no limit of that zone grants a permit: the scripts reply FORGOT.
    pub fn share_edges(&self, zone: &str, edges_us: impl IntoIterator<Item = i64>) {
        let edges: Vec<String> = edges_us.into_iter().map(|us| us.to_string()).collect();
        self.edges.write_locked().insert(zone.to_owned(), edges.join(" "));
    }

    pub(super) fn edges(&self, limit: &Limit) -> String {
        let Some(zone) = limit.rule.zone() else { return String::new() };
        let edges = self.edges.read_locked();
        edges.get(zone).cloned().unwrap_or_default()
    }

    /// The day of the limit's time zone that holds a moment: its first microsecond, and that of the next day. `None` for
    /// a limit without a zone, and for a moment of which no day is known.
    pub fn day_of(&self, limit: &Limit, at_us: i64) -> Option<(i64, i64)> {
        let edges = self.edges(limit);
        let edges: Vec<i64> = edges.split(' ').filter_map(|edge| edge.parse().ok()).collect();
        edges.windows(2).find_map(|day| match *day {
            [begins, ends] if begins <= at_us && at_us < ends => Some((begins, ends)),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::limiter::Placement;
    use crate::refund::LimitName;

    #[test]
    fn a_moment_belongs_to_the_day_that_began_last() {
        let rule = r#"{"algorithm":"fixed_window","permits":9,"per_us":86400000000,"lateness_us":20000,"zone":"Europe/Berlin"}"#;
        let limit = Limit {
            name: LimitName::new("acme").unwrap(),
            rule: rule.parse().unwrap(),
            ahead: Duration::ZERO,
            placement: Placement::Shared,
        };
        let bucket = Bucket::in_memory(Duration::from_secs(5)).unwrap();
        assert_eq!(bucket.day_of(&limit, 15), None);
        bucket.share_edges("Europe/Berlin", [10, 20, 30]);
        let days = [9, 10, 19, 20, 29, 30].map(|at_us| bucket.day_of(&limit, at_us));
        assert_eq!(days, [None, Some((10, 20)), Some((10, 20)), Some((20, 30)), Some((20, 30)), None]);
    }
}
