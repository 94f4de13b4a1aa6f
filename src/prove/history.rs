//! The history of a limit: which rule was in force when.
//!
//! A row says when a node first ran a rule. No row says when the last node stopped running the rule. While the nodes'
//! files disagree, the stricter rule counts. So near a change a proof can only require the looser of the two rules.
//!
//! The module counts no permits: [`watch`](super::watch) does.

use std::collections::{BTreeMap, BTreeSet};

use jiff::civil::Date;

use super::Period;
use super::grid::{AgreedDays, Grid};
use crate::limiter::timing::micros;
use crate::limiter::{Rule, Supply};

/// One rule and the time when it was in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RulePeriod {
    pub since_us: i64,
    pub until_us: i64,
    /// `None` if the rule is not known, or not readable.
    pub rule: Option<Rule>,
    /// The rule as the node recorded it.
    pub text: String,
    /// The node that recorded the rule.
    pub node: String,
}

/// Every rule of one limit, the oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    rule_periods: Vec<RulePeriod>,
    agreed_days: AgreedDays,
}

impl History {
    /// Makes a history from rows of (since, rule, node) in order of time.
    ///
    /// Two nodes may have recorded the same rule at once, so equal neighbours become one rule.
    #[must_use]
    pub fn new(rows: impl IntoIterator<Item = (i64, String, String)>) -> Self {
        let mut rule_periods: Vec<RulePeriod> = Vec::new();
        for (since_us, text, node) in rows {
            if let Some(last) = rule_periods.last_mut() {
                if last.text == text {
                    continue;
                }
                last.until_us = since_us;
            }
            rule_periods.push(RulePeriod {
                since_us,
                until_us: i64::MAX,
                rule: text.parse().ok(),
                text,
                node,
            });
        }
        History { rule_periods, agreed_days: AgreedDays::default() }
    }

    /// The time zones whose days are windows of the rules.
    #[must_use]
    pub fn zones(&self) -> BTreeSet<String> {
        let rules = self.rule_periods.iter().filter_map(|rule_period| rule_period.rule.as_ref());
        rules.filter_map(Rule::zone).map(str::to_owned).collect()
    }

    /// Lets the days of a zone begin where the nodes agreed, in microseconds since 1970. This machine's time zone database
    /// may be another one than theirs was.
    pub fn agree_on(&mut self, zone: String, days: BTreeMap<Date, i64>) {
        self.agreed_days.insert(zone, days);
    }

    /// The windows of a rule; `None` for a rule without windows.
    pub(super) fn grid(&self, rule: &Rule) -> Option<Grid> {
        Grid::of(rule, &self.agreed_days)
    }

    /// Puts an unknown rule first, if permits were spent before the first rule was recorded.
    ///
    /// `oldest_us` is the moment of the oldest permit in the ledger, in microseconds since 1970.
    pub fn began_before(&mut self, oldest_us: i64) {
        let Some(first) = self.rule_periods.first() else { return };
        let reach = first.rule.as_ref().map_or(0, reach);
        if first.since_us != i64::MIN && oldest_us < first.since_us - reach {
            let (until_us, nobody) = (first.since_us, String::new());
            self.rule_periods.insert(
                0,
                RulePeriod { since_us: i64::MIN, until_us, rule: None, text: nobody.clone(), node: nobody },
            );
        }
    }

    pub fn rule_periods(&self) -> &[RulePeriod] {
        &self.rule_periods
    }

    /// When the first known rule was recorded, in microseconds since 1970; `None` without rules.
    #[must_use]
    pub fn begins_us(&self) -> Option<i64> {
        self.rule_periods.iter().map(|rule_period| rule_period.since_us).find(|since| *since != i64::MIN)
    }

    /// The rule at a moment, in microseconds since 1970.
    #[must_use]
    pub fn at(&self, us: i64) -> Option<&RulePeriod> {
        self.rule_periods.iter().rev().find(|rule_period| rule_period.since_us <= us)
    }

    /// The rules in force in a period.
    pub fn within(&self, period: Period) -> impl Iterator<Item = &RulePeriod> {
        self.rule_periods.iter().filter(move |rule_period| {
            rule_period.since_us < period.to_us && rule_period.until_us > period.from_us
        })
    }

    /// The most permits that the rules allow in a period. The first known rule counts from the beginning of the period.
    pub(super) fn most(&self, period: Period) -> u64 {
        let (known, Period { from_us, to_us }) = (self.begins_us(), period);
        let rule_periods =
            self.within(period).filter_map(|rule_period| Some((rule_period, rule_period.rule.as_ref()?)));
        rule_periods
            .map(|(rule_period, rule)| {
                let since = if Some(rule_period.since_us) == known {
                    from_us
                } else {
                    rule_period.since_us.max(from_us)
                };
                let period = Period { from_us: since, to_us: rule_period.until_us.min(to_us) };
                most(rule, self.grid(rule).as_ref(), period)
            })
            .fold(0, u64::saturating_add)
    }
}

/// The most permits that a rule allows in a period: of every window that the period touches, of every slot, or of every
/// span, with the burst once.
fn most(rule: &Rule, grid: Option<&Grid>, period: Period) -> u64 {
    if period.is_empty() {
        return 0;
    }
    let length = u64::try_from(period.to_us - period.from_us).unwrap_or(0);
    let (permits, spacing) = (u64::from(rule.permits), rule.spacing_us().max(1));
    let spans = length.div_ceil(u64::try_from(reach(rule)).unwrap_or(0).max(1));
    match (grid, rule.algorithm.supply()) {
        (Some(grid), _) => permits.saturating_mul(grid.windows(period)),
        (None, Supply::Slots) => length.div_ceil(spacing),
        (None, Supply::OneByOne) => {
            length.div_ceil(spacing).saturating_add(rule.algorithm.burst().map_or(0, u64::from))
        }
        (None, Supply::Together) => permits.saturating_mul(spans),
    }
}

/// The length of the spans that a rule limits, in microseconds.
pub(super) fn reach(rule: &Rule) -> i64 {
    match rule.window() {
        // The longest day has 25 hours.
        Some(day) if rule.zone().is_some() => micros(day) + 3_600_000_000,
        Some(window) => micros(window),
        None => micros(rule.per + rule.lateness),
    }
}
