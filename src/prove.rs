//! Proves the pace of a past period: compares the spent permits with the rules that were in force.
//!
//! Pure: the ledger's permits come in, in order of time, and findings go out. The store reads the ledger, and the
//! command prints the findings. Memory holds the permits of one span, however long the period is.
//!
//! A permit counts at the moment when it opens, on Redis's clock. Its first byte may reach the bank `lateness` later.
//! Some algorithms promise a bound for any span. Their permits are counted in spans of `per` + `lateness`. If no
//! such span has too many openings, no span of `per` at the bank had too many requests.

pub mod chain;
mod grid;
mod history;
mod neighbours;
mod period;
mod watch;

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::limiter::timing::micros;

pub use history::{History, RulePeriod};
pub use period::{Period, When, WrongPeriod, time};
use watch::RuleWatch;

/// The permits of one window, slot or moment, as the ledger has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opening {
    /// Microseconds since 1970, by Redis's clock.
    pub at_us: i64,
    /// Permits spent for refunds.
    pub refunds: u64,
    /// Permits granted to other services.
    pub others: u64,
    /// The greatest number of a permit among them.
    pub top: u64,
    /// How many of these permits belong to shares of the limit. One node counts a share alone, so two shares may have a slot
    /// at one moment.
    pub in_shares: u64,
}

impl Opening {
    fn count(&self) -> u64 {
        self.refunds + self.others
    }
}

/// The kind of value that a bound limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// The number of permits in a span; a maximum is allowed.
    Permits,
    /// A permit's number in its window; a maximum is allowed.
    Number,
    /// Microseconds between two slots; a minimum is required.
    Gap,
}

/// One span, its actual value, and the allowed value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanCount {
    pub measure: Measure,
    pub span: Period,
    pub actual: u64,
    pub allowed: u64,
}

impl SpanCount {
    /// Whether this span is fuller, or its slots closer, than `other` of the same measure.
    fn is_worse_than(&self, other: &SpanCount) -> bool {
        let (mine, theirs) = (
            u128::from(self.actual) * u128::from(other.allowed),
            u128::from(other.actual) * u128::from(self.allowed),
        );
        if self.measure == Measure::Gap { mine < theirs } else { mine > theirs }
    }
}

/// Spans of one kind: how many there are, and the first ten.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CountedSpans {
    pub count: u64,
    pub first: Vec<SpanCount>,
}

impl CountedSpans {
    const SHOWN: usize = 10;

    fn add(&mut self, span: SpanCount) {
        self.count += 1;
        if self.first.len() < Self::SHOWN {
            self.first.push(span);
        }
    }
}

/// What the ledger shows about one limit in one period.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Findings {
    /// Permits spent for refunds in the period.
    pub refunds: u64,
    /// Permits granted to other services in the period.
    pub others: u64,
    /// Counted spans. Each begins at a window or a moment with permits.
    pub spans: u64,
    /// The fullest span, in relation to its allowed value.
    pub worst: Option<SpanCount>,
    /// The two closest slots.
    pub closest: Option<SpanCount>,
    /// Spans above the limit.
    pub broken: CountedSpans,
    /// Spans above every known rule, at a time when an unknown rule may have been in force.
    pub doubtful: CountedSpans,
    /// The most permits that the rules allow in the counted time.
    pub most: u64,
}

/// A part of the period about which nothing can be proven, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unproven {
    pub period: Period,
    pub why: Why,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// No node had recorded a rule yet.
    NoRule,
    /// Another version of refundd recorded the rule, and this version cannot read it.
    ForeignRule(String),
    /// Older permits may have been pruned.
    Pruned,
    /// Postgres is a standby that had not replayed the commits of then.
    NotReplayed,
}

/// The part of a period that can be proven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// Empty if nothing can be proven.
    pub provable: Period,
    pub unproven: Vec<Unproven>,
    /// The permits of these moments count as the period's. The ends are those of whole windows, where there are any.
    pub counted: Period,
}

/// Permits younger than this were never pruned, whatever the configuration said: `recovery.keep_permits` must
/// exceed the longest window by this time.
const ALWAYS_KEPT: Duration = Duration::from_hours(1);

impl Scope {
    /// Cuts a period to the part that the rules' history and the ledger cover.
    ///
    /// `oldest_us` is the moment of the oldest permit in the ledger, in microseconds since 1970.
    #[must_use]
    pub fn of(requested: Period, history: &History, oldest_us: Option<i64>, now_us: i64) -> Scope {
        let mut unproven = Vec::new();
        let mut note = |from_us: i64, to_us: i64, why: Why| {
            let period = requested.common(Period { from_us, to_us });
            if !period.is_empty() {
                unproven.push(Unproven { period, why });
            }
        };
        let ruled_us = history.begins_us().unwrap_or(i64::MAX);
        note(i64::MIN, ruled_us, Why::NoRule);
        let kept_us = kept_from(history, oldest_us, now_us);
        note(ruled_us, kept_us, Why::Pruned);
        for rule_period in history.rule_periods() {
            if rule_period.rule.is_none() && rule_period.since_us != i64::MIN {
                note(
                    rule_period.since_us.max(kept_us),
                    rule_period.until_us,
                    Why::ForeignRule(rule_period.text.clone()),
                );
            }
        }
        let provable = requested.common(Period { from_us: ruled_us.max(kept_us), to_us: i64::MAX });
        let window = |us: i64| {
            let rule = history.at(us).and_then(|rule_period| rule_period.rule.as_ref());
            rule.and_then(|rule| history.grid(rule)).map(|grid| grid.window(us))
        };
        let counted = Period {
            from_us: window(provable.from_us).map_or(provable.from_us, |window| window.from_us),
            to_us: window(provable.to_us - 1).map_or(provable.to_us, |window| window.to_us),
        };
        Scope { provable, unproven, counted }
    }
}

/// The moment from which the ledger still has every permit.
///
/// Pruning goes by age, so it touched no permit that is younger than the oldest one in the ledger. But it may have
/// cut the window of that oldest permit.
fn kept_from(history: &History, oldest_us: Option<i64>, now_us: i64) -> i64 {
    let surely = now_us - micros(ALWAYS_KEPT);
    let Some(oldest) = oldest_us else { return surely };
    let rule = history
        .at(oldest)
        .or(history.rule_periods().first())
        .and_then(|rule_period| rule_period.rule.as_ref());
    let grid = rule.and_then(|rule| history.grid(rule));
    let over = grid.map_or(oldest + 1, |grid| grid.window(oldest).to_us);
    if over > surely { oldest.min(surely) } else { over.min(surely) }
}

/// Counts one limit's permits of one period.
#[derive(Debug)]
pub struct Prover {
    counted: Period,
    /// In order of time.
    watches: Vec<RuleWatch>,
    /// The length of the longest spans, in microseconds.
    longest: i64,
    /// The indexes of the watches to which coming permits can still matter, and of the first one for which it is too early.
    active: Vec<usize>,
    next: usize,
    findings: Findings,
}

impl Prover {
    /// Makes a prover for one limit.
    ///
    /// `clocks` is the largest difference between Redis's clock and Postgres's clock. Permits open by Redis's clock.
    /// Rules were recorded by Postgres's clock.
    #[must_use]
    pub fn new(history: &History, scope: &Scope, clocks: Duration) -> Self {
        let period = scope.provable;
        let (watches, most) = if period.is_empty() {
            (Vec::new(), 0)
        } else {
            (RuleWatch::all(history, period, clocks), history.most(scope.counted))
        };
        let findings = Findings { most, ..Findings::default() };
        let longest = watches.iter().map(RuleWatch::reach).max().unwrap_or(0);
        Prover { counted: scope.counted, watches, longest, active: Vec::new(), next: 0, findings }
    }

    /// The period whose permits `see` must get. Spans that touch the proven period reach beyond it.
    #[must_use]
    pub fn reads(&self) -> Period {
        Period { from_us: self.counted.from_us - self.longest, to_us: self.counted.to_us + self.longest }
    }

    /// Counts the next permits. An opening must not be earlier than the one before.
    pub fn see(&mut self, opening: &Opening) {
        if (self.counted.from_us..self.counted.to_us).contains(&opening.at_us) {
            self.findings.refunds += opening.refunds;
            self.findings.others += opening.others;
        }
        while self.watches.get(self.next).is_some_and(|watch| watch.begins_us(self.longest) <= opening.at_us)
        {
            self.active.push(self.next);
            self.next += 1;
        }
        self.active.retain(|nth| !self.watches[*nth].is_over(opening.at_us));
        for nth in &self.active {
            self.watches[*nth].see(opening, &mut self.findings);
        }
    }

    /// Counts the spans that are still open, and returns the findings.
    #[must_use]
    pub fn finish(mut self) -> Findings {
        for watch in &mut self.watches {
            watch.finish(&mut self.findings);
        }
        self.findings
    }
}
