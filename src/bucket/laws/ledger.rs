//! The ledger's side of a limit: it takes each number once, and only under the generation that holds.

use std::collections::HashSet;

use super::scripts::micros;
use super::world::TOLERANCE;
use crate::limiter::rule::{Algorithm, Rule};

/// One permit: when its first byte may reach the bank.
#[derive(Debug, Clone)]
pub(super) struct Arrival {
    pub rule: Rule,
    pub earliest: i64,
    /// Just too late.
    pub latest: i64,
    /// The ledger took it.
    pub claimed: bool,
    pub opens: i64,
    pub closes: i64,
    pub window: i64,
    pub ordinal: i64,
    pub generation: i64,
}

impl Arrival {
    fn number(&self) -> (i64, i64) {
        (self.window, self.ordinal)
    }
}

/// A limit, and the ledger's side of it.
#[derive(Debug, Default)]
pub(super) struct Limit {
    pub keys: [String; 2],
    pub granted: Vec<Arrival>,
    /// Those of them that are not claimed yet.
    pub pending: Vec<usize>,
    spent: HashSet<(i64, i64)>,
    pub generation: i64,
    adopted: Option<Rule>,
    /// The numbers granted since the last loss.
    pub numbers: HashSet<(i64, i64, i64)>,
}

impl Limit {
    pub fn new(nth: usize) -> Self {
        Limit { keys: [format!("limit{nth}"), format!("log{nth}")], ..Limit::default() }
    }

    /// The ledger takes a number once, and only under the generation that holds.
    pub fn claim(&mut self, at: usize) {
        let arrival = &mut self.granted[at];
        if arrival.generation == self.generation && self.spent.insert(arrival.number()) {
            arrival.claimed = true;
        }
    }

    /// Settles a generation where the count was lost or the rule is another (of kinds with numbers, only
    /// then), and says all that was spent: the arguments of `remind`.
    pub fn recollect(&mut self, rule: &Rule, now: i64, (window, over): (i64, i64)) -> Vec<String> {
        let same = self.adopted.as_ref().is_some_and(|adopted| adopted == rule);
        if !(rule.algorithm.is_numbered() && same) {
            self.generation += 1;
            self.adopted = Some(rule.clone());
        }
        let spent = || self.granted.iter().filter(|a| a.claimed);
        let inside = spent().filter(|a| a.earliest < over && a.latest > window).count();
        let highest = spent().filter(|a| a.window == window && same).map(|a| a.ordinal).max().unwrap_or(0);
        let used = highest.max(i64::try_from(inside).unwrap());
        // When its last byte may arrive, less what the rule itself allows for; fixed windows: to the end.
        let late = micros(rule.lateness);
        let mut history: Vec<i64> = spent()
            .map(|a| match rule.algorithm {
                Algorithm::FixedWindow { .. } => (a.latest - 1).max(a.opens),
                _ => (a.latest - late).max(a.opens),
            })
            .filter(|at| *at > now - micros(rule.memory()) - late)
            .collect();
        history.sort_unstable();
        let mut args: Vec<String> = vec![rule.to_string(), self.generation.to_string(), String::new()];
        args.extend([TOLERANCE, window, used].iter().map(ToString::to_string));
        // In as many groups as may be, or in fewer.
        let groups = 1 + self.granted.len() % 64;
        for group in history.chunks(history.len().div_ceil(groups).max(1)) {
            args.extend([group[group.len() - 1].to_string(), group.len().to_string(), String::new()]);
        }
        args
    }
}
