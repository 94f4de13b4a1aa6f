//! Postgres's clock in the run: how far it was set ahead of the machine's clock, and since when.
//!
//! The bank's ledger, the producers and the judge use the machine's clock. Only the dates in Postgres's tables are of this clock.

/// How far Postgres's clock was ahead since the times at which it was set, in order; both in microseconds.
#[derive(Debug, Clone, Default)]
pub struct PostgresClock(Vec<(i64, i64)>);

/// The longest time from the first byte of a request to its line in the journal: a time-out, and the longest stop of a node.
const WRITTEN_WITHIN_US: i64 = 10_000_000;

impl PostgresClock {
    /// Notes that the clock is `ahead_us` ahead of the machine's clock from now on.
    pub fn note(&mut self, now_us: i64, ahead_us: i64) {
        self.0.push((now_us, ahead_us));
    }

    /// The machine's times that a date in the journal may mean. There is one, and more only around a step. Postgres computes
    /// such a date backwards when it writes the line, so the date is of the clock at the time of the write.
    pub fn meant_us(&self, date_us: i64) -> impl Iterator<Item = i64> {
        (0..=self.0.len()).filter_map(move |nth| {
            let before = nth.checked_sub(1).and_then(|before| self.0.get(before));
            let (since_us, ahead_us) = before.copied().unwrap_or((i64::MIN, 0));
            let until_us = self.0.get(nth).map_or(i64::MAX, |next| next.0);
            let at_us = date_us - ahead_us;
            (since_us.saturating_sub(WRITTEN_WITHIN_US)..until_us).contains(&at_us).then_some(at_us)
        })
    }

    /// The machine's time that a date in the journal means, if it is the date of what happened near `at_us`.
    pub fn nearest_us(&self, date_us: i64, at_us: i64) -> i64 {
        self.meant_us(date_us).min_by_key(|meant_us| meant_us.abs_diff(at_us)).unwrap_or(date_us)
    }
}
