//! Which rule was in force when.
//!
//! The rows say when a node first ran a rule; nothing says when the last one stopped. While files
//! disagree the stricter rule counts, so of two neighbours the looser is what a proof can hold against.

use std::time::Duration;

use super::Period;
use crate::limiter::{Algorithm, Rule};

/// One rule and how long it was in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reign {
    pub since_us: i64,
    pub until_us: i64,
    /// `None` if it cannot be known, or read.
    pub rule: Option<Rule>,
    /// As it was written down.
    pub text: String,
    /// Who wrote it.
    pub node: String,
}

/// Every rule of one limit, the oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    reigns: Vec<Reign>,
}

impl History {
    /// From rows of (since, rule, node) in order of time. Two nodes may have written the same rule at
    /// once: equal neighbours are one.
    #[must_use]
    pub fn new(rows: impl IntoIterator<Item = (i64, String, String)>) -> Self {
        let mut reigns: Vec<Reign> = Vec::new();
        for (since_us, text, node) in rows {
            if let Some(last) = reigns.last_mut() {
                if last.text == text {
                    continue;
                }
                last.until_us = since_us;
            }
            reigns.push(Reign { since_us, until_us: i64::MAX, rule: text.parse().ok(), text, node });
        }
        History { reigns }
    }

    /// Permits were spent before the first rule was written down, under one that nobody knows.
    pub fn began_before(&mut self, oldest_us: i64) {
        let Some(first) = self.reigns.first() else { return };
        let reach = first.rule.as_ref().map_or(0, reach);
        if first.since_us != i64::MIN && oldest_us < first.since_us - reach {
            let (until_us, nobody) = (first.since_us, String::new());
            self.reigns.insert(
                0,
                Reign { since_us: i64::MIN, until_us, rule: None, text: nobody.clone(), node: nobody },
            );
        }
    }

    pub fn reigns(&self) -> &[Reign] {
        &self.reigns
    }

    /// When the first rule that is known was written down.
    #[must_use]
    pub fn begins_us(&self) -> Option<i64> {
        self.reigns.iter().map(|reign| reign.since_us).find(|since| *since != i64::MIN)
    }

    #[must_use]
    pub fn at(&self, us: i64) -> Option<&Reign> {
        self.reigns.iter().rev().find(|reign| reign.since_us <= us)
    }

    /// The rules in force in a period.
    pub fn within(&self, period: Period) -> impl Iterator<Item = &Reign> {
        self.reigns
            .iter()
            .filter(move |reign| reign.since_us < period.to_us && reign.until_us > period.from_us)
    }

    /// How many permits the rules allow between two moments at their full rate; the first that is known
    /// counts from the beginning on.
    pub(super) fn capacity(&self, period: Period) -> f64 {
        let (known, Period { from_us, to_us }) = (self.begins_us(), period);
        let reigns = self.within(period).filter_map(|reign| Some((reign, reign.rule.as_ref()?)));
        reigns
            .map(|(reign, rule)| {
                let since = if Some(reign.since_us) == known { from_us } else { reign.since_us.max(from_us) };
                (reign.until_us.min(to_us) - since) as f64 * f64::from(rule.permits) / micros(rule.per) as f64
            })
            .sum()
    }
}

pub(super) fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX / 4)
}

/// How long a span is that the rule speaks of.
pub(super) fn reach(rule: &Rule) -> i64 {
    match &rule.algorithm {
        // The longest day has 25 hours.
        Algorithm::FixedWindow { zone: Some(_) } => micros(rule.per) + 3_600_000_000,
        Algorithm::FixedWindow { zone: None } => micros(rule.per),
        _ => micros(rule.per + rule.lateness),
    }
}
