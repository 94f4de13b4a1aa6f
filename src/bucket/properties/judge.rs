//! Compares the worst case that the bank may have seen with the rules.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::ledger::{Arrival, same_shape};
use super::scripts::micros;
use super::world::World;
use crate::limiter::{Algorithm, Rule};

pub(super) fn judge(world: &World) -> Result<(), TestCaseError> {
    for (nth, limit) in world.limits.iter().enumerate() {
        // Judges the rules in the order of their use. Each one is judged over all permits up to the end of its use,
        // because a grant counts all earlier permits, under any rule.
        let mut begin = 0;
        while begin < limit.granted.len() {
            let rule = &limit.granted[begin].rule;
            let length = limit.granted[begin..].iter().take_while(|a| a.rule == *rule).count();
            let end = begin + length;
            let arrived = || {
                limit.granted[..end]
                    .iter()
                    .enumerate()
                    .filter(|(_, a)| a.claimed)
                    .map(|(at, a)| (at >= begin, a))
            };
            match rule.algorithm {
                // The windows of two clocks may lie anywhere, so a span may meet two of them.
                Algorithm::FixedWindow { .. } if world.taken_over => {
                    rolling(rule, 2 * i64::from(rule.permits), arrived())?;
                }
                Algorithm::FixedWindow { .. } => aligned(rule, arrived())?,
                Algorithm::PacedStrict => {
                    rolling(rule, most(&world.rules_of(nth), rule), arrived())?;
                    apart(rule, arrived())?;
                }
                Algorithm::Paced
                | Algorithm::SlidingLog
                | Algorithm::SlidingWindow { .. }
                | Algorithm::TokenBucket { .. } => {
                    rolling(rule, most(&world.rules_of(nth), rule), arrived())?;
                }
            }
            begin = end;
        }
    }
    Ok(())
}

/// The most permits in any span. The history of a `token_bucket` is only one time. So after a change of numbers
/// alone, a span under both rules may have as many as the looser rule allows.
fn most<'a>(files: &(impl Iterator<Item = &'a Rule> + Clone), rule: &Rule) -> i64 {
    let permits = |rule: &Rule| i64::from(rule.permits);
    let burst = |rule: &Rule| rule.algorithm.burst().map_or(0, i64::from);
    let alike = || files.clone().filter(|other| same_shape(other, rule));
    match rule.algorithm {
        Algorithm::TokenBucket { .. } => {
            alike().map(permits).max().unwrap_or(0) + alike().map(burst).max().unwrap_or(0) - 1
        }
        Algorithm::FixedWindow { .. }
        | Algorithm::Paced
        | Algorithm::PacedStrict
        | Algorithm::SlidingLog
        | Algorithm::SlidingWindow { .. } => permits(rule),
    }
}

/// Checks that no half-open span with a permit of this rule has more than `most` permits.
fn rolling<'a>(
    rule: &Rule,
    most: i64,
    arrived: impl Iterator<Item = (bool, &'a Arrival)>,
) -> Result<(), TestCaseError> {
    let per = micros(rule.per);
    // In the worst case, a span that begins at t contains the arrival if t lies between these two times.
    let mut changes: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
    for (of_this_rule, arrival) in arrived {
        let own = i64::from(of_this_rule);
        let first = changes.entry(arrival.earliest - per + 1).or_default();
        *first = (first.0 + 1, first.1 + own);
        let last = changes.entry(arrival.latest).or_default();
        *last = (last.0 - 1, last.1 - own);
    }
    let (mut all, mut own) = (0, 0);
    for (t, (more, more_own)) in changes {
        (all, own) = (all + more, own + more_own);
        prop_assert!(
            own == 0 || all <= most,
            "{all} permits may fall into the span of {per} from {t}, {rule} allows {most}"
        );
    }
    Ok(())
}

/// Checks that no two permits of this rule are closer than `per` / `permits`.
fn apart<'a>(rule: &Rule, arrived: impl Iterator<Item = (bool, &'a Arrival)>) -> Result<(), TestCaseError> {
    let least = rule.spacing_us().cast_signed() - micros(rule.lateness);
    let mut all: Vec<(bool, &Arrival)> = arrived.collect();
    all.sort_by_key(|(_, arrival)| arrival.earliest);
    for pair in all.windows(2) {
        let ((own, first), (own_too, second)) = (pair[0], pair[1]);
        let gap = second.earliest - (first.latest - 1);
        prop_assert!(
            !(own && own_too) || gap >= least,
            "{gap} between {first:?} and {second:?}, under {rule}"
        );
    }
    Ok(())
}

/// Checks that no aligned window with a permit of this rule has more than `permits` permits.
fn aligned<'a>(rule: &Rule, arrived: impl Iterator<Item = (bool, &'a Arrival)>) -> Result<(), TestCaseError> {
    let per = micros(rule.per);
    let mut windows: BTreeMap<i64, (u32, u32)> = BTreeMap::new();
    for (of_this_rule, arrival) in arrived {
        let (first, last) = (arrival.earliest.div_euclid(per), (arrival.latest - 1).div_euclid(per));
        prop_assert!(!of_this_rule || first == last, "a permit may be used in two windows: {arrival:?}");
        for window in first..=last {
            let counts = windows.entry(window).or_default();
            *counts = (counts.0 + 1, counts.1 + u32::from(of_this_rule));
        }
    }
    for (window, (all, own)) in windows {
        prop_assert!(
            own == 0 || all <= rule.permits,
            "{all} permits in window {}, under {rule}",
            window * per
        );
    }
    Ok(())
}
