//! Proves the pace of a past period: holds the permits that were spent against the rules then in force.
//!
//! Pure: the ledger's permits come in, in order of time, and findings go out; reading the ledger is the
//! store's business and telling people is the command's. Memory is what one span holds, however long
//! the period.
//!
//! A permit is judged by the moment it opens, on Redis's clock, and its first byte may reach the bank
//! `lateness` after that. So the kinds that promise something of any span are held against spans of
//! `per` + `lateness`: with no more openings in any of those, no span of `per` at the bank had more.

mod history;
mod watch;

#[cfg(test)]
mod tests;

use std::time::Duration;

pub use history::{History, Reign};
use watch::Watch;

/// `[from, to)`, in microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period {
    pub from_us: i64,
    pub to_us: i64,
}

impl Period {
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.from_us >= self.to_us
    }

    fn common(self, other: Period) -> Period {
        Period { from_us: self.from_us.max(other.from_us), to_us: self.to_us.min(other.to_us) }
    }
}

/// The permits of one window, slot or moment, as the ledger has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opening {
    pub at_us: i64,
    /// Spent for refunds.
    pub refunds: u64,
    /// Granted to other services.
    pub others: u64,
    /// The greatest number among them.
    pub top: u64,
}

impl Opening {
    fn count(&self) -> u64 {
        self.refunds + self.others
    }
}

/// What a law counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Permits in a span, and how many are allowed.
    Permits,
    /// A permit's number in its window, and the greatest there may be.
    Number,
    /// Microseconds between two slots, and the fewest there may be.
    Gap,
}

/// One span and what was found in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    pub measure: Measure,
    pub span: Period,
    pub found: u64,
    pub allowed: u64,
}

impl Found {
    /// Fuller, or closer, than another of the same measure.
    fn is_worse_than(&self, other: &Found) -> bool {
        let (mine, theirs) = (
            u128::from(self.found) * u128::from(other.allowed),
            u128::from(other.found) * u128::from(self.allowed),
        );
        if self.measure == Measure::Gap { mine < theirs } else { mine > theirs }
    }
}

/// Spans of one sort: how many, and the first few.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counted {
    pub count: u64,
    pub first: Vec<Found>,
}

impl Counted {
    const SHOWN: usize = 10;

    fn add(&mut self, found: Found) {
        self.count += 1;
        if self.first.len() < Self::SHOWN {
            self.first.push(found);
        }
    }
}

/// What the ledger shows of one limit in one period.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Findings {
    /// Permits spent in the period for refunds, and granted to other services.
    pub refunds: u64,
    pub others: u64,
    /// Windows or moments with permits, each the beginning of a span that was counted.
    pub spans: u64,
    /// The fullest span, by what was allowed in it.
    pub worst: Option<Found>,
    /// The two closest slots.
    pub closest: Option<Found>,
    /// Above the limit.
    pub broken: Counted,
    /// Above every rule that is known, while one that is not known may have counted.
    pub doubtful: Counted,
    /// How many permits the rules allow in the period at their full rate.
    pub capacity: f64,
}

/// A part of the period of which nothing can be said, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unproven {
    pub period: Period,
    pub why: Why,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// No node had written down a rule yet.
    NoRule,
    /// The rule is of another version of refundd.
    ForeignRule(String),
    /// Older permits may have been pruned.
    Pruned,
}

/// What may be proven of a period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// Empty if nothing can be.
    pub provable: Period,
    pub unproven: Vec<Unproven>,
    /// The permits of these moments are the period's: of whole windows, where it has windows.
    pub counted: Period,
}

/// Permits younger than this were never pruned, whatever the file said: `recovery.keep_permits` must
/// outlive the longest window by as much.
const ALWAYS_KEPT: Duration = Duration::from_hours(1);

impl Scope {
    /// Cuts a period to what the rules' history and the ledger reach back to. `oldest_us` is the oldest
    /// permit that is kept.
    #[must_use]
    pub fn of(asked: Period, history: &History, oldest_us: Option<i64>, now_us: i64) -> Scope {
        let mut unproven = Vec::new();
        let mut note = |from_us: i64, to_us: i64, why: Why| {
            let period = asked.common(Period { from_us, to_us });
            if !period.is_empty() {
                unproven.push(Unproven { period, why });
            }
        };
        let ruled_us = history.begins_us().unwrap_or(i64::MAX);
        note(i64::MIN, ruled_us, Why::NoRule);
        let kept_us = kept_from(history, oldest_us, now_us);
        note(ruled_us, kept_us, Why::Pruned);
        for reign in history.reigns() {
            if reign.rule.is_none() && reign.since_us != i64::MIN {
                note(reign.since_us.max(kept_us), reign.until_us, Why::ForeignRule(reign.text.clone()));
            }
        }
        let provable = asked.common(Period { from_us: ruled_us.max(kept_us), to_us: i64::MAX });
        let window = |us: i64| {
            let rule = history.at(us).and_then(|reign| reign.rule.as_ref());
            rule.and_then(watch::Grid::of).map(|grid| grid.window(us))
        };
        let counted = Period {
            from_us: window(provable.from_us).map_or(provable.from_us, |window| window.from_us),
            to_us: window(provable.to_us - 1).map_or(provable.to_us, |window| window.to_us),
        };
        Scope { provable, unproven, counted }
    }
}

/// From when on every permit is still there. Pruning goes by age, so whatever is younger than the oldest
/// that is kept was not touched; that one's own window may be cut.
fn kept_from(history: &History, oldest_us: Option<i64>, now_us: i64) -> i64 {
    let surely = now_us - history::micros(ALWAYS_KEPT);
    let Some(oldest) = oldest_us else { return surely };
    let rule = history.at(oldest).or(history.reigns().first()).and_then(|reign| reign.rule.as_ref());
    let over = rule.and_then(watch::Grid::of).map_or(oldest + 1, |grid| grid.window(oldest).to_us);
    if over > surely { oldest.min(surely) } else { over.min(surely) }
}

/// Counts one limit's permits of one period.
#[derive(Debug)]
pub struct Prover {
    counted: Period,
    watches: Vec<Watch>,
    /// Those before have seen all they will see.
    first: usize,
    findings: Findings,
}

impl Prover {
    /// `clocks` is how far Redis's clock, by which permits open, may be from Postgres's, by which rules
    /// were written down.
    #[must_use]
    pub fn new(history: &History, scope: &Scope, clocks: Duration) -> Self {
        let period = scope.provable;
        let (watches, capacity) = if period.is_empty() {
            (Vec::new(), 0.0)
        } else {
            (Watch::all(history, period, clocks), history.capacity(scope.counted))
        };
        let findings = Findings { capacity, ..Findings::default() };
        Prover { counted: scope.counted, watches, first: 0, findings }
    }

    /// Which permits must be shown: spans that touch the period reach out of it.
    #[must_use]
    pub fn reads(&self) -> Period {
        let reach = self.watches.iter().map(Watch::reach).max().unwrap_or(0);
        Period { from_us: self.counted.from_us - reach, to_us: self.counted.to_us + reach }
    }

    /// Counts the next permits; never earlier than the last.
    pub fn see(&mut self, opening: &Opening) {
        if (self.counted.from_us..self.counted.to_us).contains(&opening.at_us) {
            self.findings.refunds += opening.refunds;
            self.findings.others += opening.others;
        }
        while self.watches.get(self.first).is_some_and(|watch| watch.is_over(opening.at_us)) {
            self.first += 1;
        }
        for watch in &mut self.watches[self.first..] {
            watch.see(opening, &mut self.findings);
        }
    }

    #[must_use]
    pub fn finish(mut self) -> Findings {
        for watch in &mut self.watches {
            watch.finish(&mut self.findings);
        }
        self.findings
    }
}
