//! Counts the spans of one rule that touch the period, over the time when the rule was in force.
//!
//! A span near a change of rule may have as many permits as the looser of the rules allows, because granted permits
//! stay granted. "Near" begins when the other rule was recorded. It ends one span after the time for which a
//! stricter rule stays in force.
//!
//! The module does not know which rules there were: [`history`](super::history) does.

use std::collections::VecDeque;
use std::time::Duration;

use super::grid::Grid;
use super::history::{History, reach};
use super::neighbours::Neighbours;
use super::{Findings, Measure, Opening, Period, SpanCount};
use crate::limiter::Rule;

/// The bound that one rule sets for a span of another rule.
#[derive(Debug, Clone)]
struct Bound {
    /// The bound applies to spans that touch this period.
    near: Period,
    /// How many permits a span may have; `None` if the rule is not known.
    allowed: Option<u64>,
    /// The greatest number of a permit; `None` if the rule numbers permits in another way.
    number: Option<u64>,
    /// The smallest gap between slots, in microseconds; `None` if the rule has no slots.
    gap: Option<u64>,
}

/// One rule in force.
#[derive(Debug)]
pub(super) struct RuleWatch {
    /// Spans that touch this period are counted.
    touched: Period,
    /// The length of a span, in microseconds.
    reach: i64,
    /// The bound of the rule itself comes first.
    bounds: Vec<Bound>,
    counting: Counting,
}

#[derive(Debug)]
enum Counting {
    Windows {
        grid: Grid,
        open: Option<(Period, u64, u64)>,
    },
    /// Openings less than one span apart, the sum of their permits, and the last opening with a permit of no share.
    Spans {
        length: i64,
        openings: VecDeque<(i64, u64)>,
        sum: u64,
        last: Option<i64>,
    },
}

impl RuleWatch {
    /// Makes one watch for each known rule that was in force in the period.
    pub(super) fn all(history: &History, period: Period, clocks: Duration) -> Vec<RuleWatch> {
        let neighbours = Neighbours::new(history.rule_periods(), clocks);
        let known =
            history.within(period).filter_map(|rule_period| Some((rule_period, rule_period.rule.as_ref()?)));
        known
            .map(|(rule_period, rule)| {
                let touched =
                    period.common(Period { from_us: rule_period.since_us, to_us: rule_period.until_us });
                let (grid, length) = (history.grid(rule), reach(rule));
                let always = Period { from_us: i64::MIN, to_us: i64::MAX };
                let mut bounds = vec![Bound::of(history, rule, Some(rule), always)];
                let near = neighbours.of(rule_period, touched, length);
                bounds.extend(near.map(|(other, near)| Bound::of(history, rule, other.rule.as_ref(), near)));
                let counting = match grid {
                    Some(grid) => Counting::Windows { grid, open: None },
                    None => Counting::Spans { length, openings: VecDeque::new(), sum: 0, last: None },
                };
                RuleWatch { touched, reach: length, bounds, counting }
            })
            .collect()
    }

    /// How far the rule's spans reach beyond the period, in microseconds.
    pub(super) fn reach(&self) -> i64 {
        self.reach
    }

    /// Openings before this moment cannot matter to the rule, if its spans are not longer than `longest`.
    pub(super) fn begins_us(&self, longest: i64) -> i64 {
        self.touched.from_us - longest
    }

    /// Whether openings from this moment on cannot matter to the rule. `finish` counts the spans that are still open.
    pub(super) fn is_over(&self, at_us: i64) -> bool {
        at_us >= self.touched.to_us.saturating_add(self.reach)
    }

    pub(super) fn see(&mut self, opening: &Opening, findings: &mut Findings) {
        let at = opening.at_us;
        if at < self.touched.from_us - self.reach || self.is_over(at) {
            return;
        }
        match &mut self.counting {
            Counting::Windows { grid, open } => {
                if let Some((window, count, top)) = open
                    && at < window.to_us
                {
                    *count += opening.count();
                    *top = opening.top.max(*top);
                    return;
                }
                let window = grid.window(at);
                let full = open.replace((window, opening.count(), opening.top));
                self.judge_window(full, findings);
            }
            Counting::Spans { length, openings, sum, last } => {
                let mut full = Vec::new();
                while let Some(&(first, count)) = openings.front()
                    && at - first >= *length
                {
                    full.push((first, *sum));
                    *sum -= count;
                    openings.pop_front();
                }
                openings.push_back((at, opening.count()));
                *sum += opening.count();
                let in_slots = opening.count().saturating_sub(opening.in_shares);
                let before = if in_slots > 0 { last.replace(at) } else { None };
                for (first, sum) in full {
                    self.judge_span(first, sum, findings);
                }
                if in_slots > 1 {
                    self.judge_gap(at, at, findings);
                }
                if let Some(before) = before {
                    self.judge_gap(before, at, findings);
                }
            }
        }
    }

    /// Counts the spans that are still open.
    pub(super) fn finish(&mut self, findings: &mut Findings) {
        match &mut self.counting {
            Counting::Windows { open, .. } => {
                let full = open.take();
                self.judge_window(full, findings);
            }
            Counting::Spans { openings, sum, .. } => {
                let (left, mut sum) = (std::mem::take(openings), std::mem::take(sum));
                for (first, count) in left {
                    self.judge_span(first, sum, findings);
                    sum -= count;
                }
            }
        }
    }

    fn judge_window(&self, full: Option<(Period, u64, u64)>, findings: &mut Findings) {
        let Some((window, count, top)) = full else { return };
        self.judge(window, count, findings);
        if self.counts(window) {
            let allowed =
                self.bounds(window).map(|bound| bound.number).try_fold(0, |most, n| Some(n?.max(most)));
            if let Some(allowed) = allowed
                && top > allowed
                && count <= allowed
            {
                findings.broken.add(SpanCount {
                    measure: Measure::Number,
                    span: window,
                    actual: top,
                    allowed,
                });
            }
        }
    }

    fn judge_span(&self, first: i64, sum: u64, findings: &mut Findings) {
        self.judge(Period { from_us: first, to_us: first + self.reach }, sum, findings);
    }

    fn judge(&self, span: Period, actual: u64, findings: &mut Findings) {
        if !self.counts(span) {
            return;
        }
        findings.spans += 1;
        let allowed = self.bounds(span).filter_map(|bound| bound.allowed).max().unwrap_or(0);
        let span_count = SpanCount { measure: Measure::Permits, span, actual, allowed };
        if findings.worst.is_none_or(|worst| span_count.is_worse_than(&worst)) {
            findings.worst = Some(span_count);
        }
        if actual > allowed {
            let all_known = self.bounds(span).all(|bound| bound.allowed.is_some());
            if all_known { &mut findings.broken } else { &mut findings.doubtful }.add(span_count);
        }
    }

    fn judge_gap(&self, before: i64, at: i64, findings: &mut Findings) {
        let span = Period { from_us: before, to_us: at + 1 };
        if !self.counts(span) {
            return;
        }
        let least =
            self.bounds(span).map(|bound| bound.gap).try_fold(u64::MAX, |least, gap| Some(gap?.min(least)));
        let Some(allowed) = least else { return };
        let actual = u64::try_from(at - before).unwrap_or(0);
        let span_count = SpanCount { measure: Measure::Gap, span, actual, allowed };
        if findings.closest.is_none_or(|closest| span_count.is_worse_than(&closest)) {
            findings.closest = Some(span_count);
        }
        if actual < allowed {
            findings.broken.add(span_count);
        }
    }

    /// Whether a span belongs to this rule's part of the period.
    fn counts(&self, span: Period) -> bool {
        !self.touched.common(span).is_empty()
    }

    fn bounds(&self, span: Period) -> impl Iterator<Item = &Bound> {
        self.bounds
            .iter()
            .filter(move |bound| span.to_us > bound.near.from_us && span.from_us < bound.near.to_us)
    }
}

impl Bound {
    /// What `other` allows in a span of `rule`.
    fn of(history: &History, rule: &Rule, other: Option<&Rule>, near: Period) -> Bound {
        let Some(other) = other else { return Bound { near, allowed: None, number: None, gap: None } };
        let (length, grid, theirs) = (reach(rule), history.grid(rule), history.grid(other));
        let permits = u64::from(other.permits);
        let spans = |each: i64| u64::try_from((length + each - 1) / each.max(1)).unwrap_or(u64::MAX);
        let allowed = match (&grid, &theirs) {
            (Some(own), Some(grid)) if own == grid => permits,
            // The span consists of whole windows of the other rule. In other cases it can touch one window more.
            (Some(Grid::Every(own)), Some(Grid::Every(each))) if own % each == 0 => {
                permits.saturating_mul(spans(*each))
            }
            (_, Some(Grid::Every(each))) => permits.saturating_mul(spans(*each) + 1),
            (_, Some(Grid::Days { .. })) => permits.saturating_mul(spans(82_800_000_000) + 1),
            (_, None) => {
                let burst = other.algorithm.burst().map_or(0, u64::from);
                permits.saturating_mul(spans(reach(other))).saturating_add(burst)
            }
        };
        let gap = other.algorithm.is_paced().then(|| other.spacing_us());
        Bound {
            near,
            allowed: Some(allowed),
            number: (grid.is_some() && grid == theirs).then_some(permits),
            gap,
        }
    }
}
