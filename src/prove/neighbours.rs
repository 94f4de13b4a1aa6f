//! Finds the rules whose time is near a moment, among the many rules of one limit.
//!
//! The rule of a slowed channel changes 20,000 times a day, and a comparison of each with all others takes long. The rules
//! come in order of time, so a search finds those that are near.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Period;
use super::history::{RulePeriod, reach};
use crate::limiter::timing::{self, micros};

/// A little longer than the time for which a stricter rule stays in force after its last use.
const SETTLING: Duration = timing::SEEN_FOR.saturating_add(Duration::from_millis(200));

/// The rules of one limit, in groups whose spans have similar lengths: a rule with long spans is near for longer.
#[derive(Debug)]
pub(super) struct Neighbours<'a> {
    rule_periods: &'a [RulePeriod],
    clocks_us: i64,
    /// By the bits of the longest span in us: indexes of the rules, in order of time.
    groups: BTreeMap<u32, Vec<usize>>,
}

impl<'a> Neighbours<'a> {
    pub(super) fn new(rule_periods: &'a [RulePeriod], clocks: Duration) -> Self {
        let mut groups: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (nth, rule_period) in rule_periods.iter().enumerate() {
            groups.entry(i64::BITS - own_reach(rule_period).leading_zeros()).or_default().push(nth);
        }
        Neighbours { rule_periods, clocks_us: micros(clocks), groups }
    }

    /// The period in which a rule bounds spans of this length, which another rule limits.
    fn near(&self, other: &RulePeriod, length: i64, others_reach: i64) -> Period {
        Period {
            from_us: other.since_us.saturating_sub(self.clocks_us),
            to_us: other
                .until_us
                .saturating_add(micros(SETTLING) + length.max(others_reach) + self.clocks_us),
        }
    }

    /// Each rule that bounds spans of this length which touch a period, except the rule `own`, and the period in which it does.
    pub(super) fn of(
        &self,
        own: &RulePeriod,
        touched: Period,
        length: i64,
    ) -> impl Iterator<Item = (&'a RulePeriod, Period)> {
        let wide = Period { from_us: touched.from_us - length, to_us: touched.to_us + length };
        self.groups.iter().flat_map(move |(bits, group)| {
            // No rule of the group has longer spans.
            let most = 1_i64.checked_shl(*bits).unwrap_or(i64::MAX / 4).clamp(0, i64::MAX / 4);
            let at = |nth: &usize, reach| self.near(&self.rule_periods[*nth], length, reach);
            let first = group.partition_point(|nth| at(nth, most).to_us <= wide.from_us);
            let after = group.partition_point(|nth| at(nth, most).from_us < wide.to_us).max(first);
            group[first..after].iter().filter_map(move |nth| {
                let other = &self.rule_periods[*nth];
                let near = self.near(other, length, own_reach(other));
                (other != own && near.to_us > wide.from_us).then_some((other, near))
            })
        })
    }
}

/// The length of a rule's spans, in us; 0 if the rule is not known.
fn own_reach(rule_period: &RulePeriod) -> i64 {
    rule_period.rule.as_ref().map_or(0, reach)
}
