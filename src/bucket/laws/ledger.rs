//! The ledger's side of a limit, as `store/ledger.rs` has it: it takes each number once, only under the
//! generation that holds, and says what was spent by two clocks: Redis's, which named the permits, and its own.

use std::collections::{BTreeMap, HashSet};

use super::scripts::{TOLERANCE, micros};
use crate::limiter::Permit;
use crate::limiter::rule::{Algorithm, Rule};

/// One permit: when its first byte may reach the bank, in real time.
#[derive(Debug, Clone)]
pub(super) struct Arrival {
    pub rule: Rule,
    pub earliest: i64,
    /// Just too late.
    pub latest: i64,
    /// The ledger took it.
    pub claimed: bool,
    /// When the ledger took it, by its own clock.
    pub spent_at: i64,
    /// It went to another service.
    pub acquired: bool,
    pub opens: i64,
    pub closes: i64,
    /// By the clock of the Redis that granted it.
    pub window: i64,
    pub ordinal: i64,
    pub generation: i64,
}

impl Arrival {
    fn number(&self) -> (i64, i64) {
        (self.window, self.ordinal)
    }
}

/// The two clocks at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clocks {
    pub redis: i64,
    pub postgres: i64,
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
    /// As in `refundd.limits`: how long permits of the rule before may matter, and when it was given up.
    older: i64,
    older_at: Option<i64>,
    /// Whose memory counts, and since when.
    server: String,
    server_since: i64,
    /// The numbers granted since the last loss.
    pub numbers: HashSet<(i64, i64, i64)>,
}

impl Limit {
    pub fn new(nth: usize) -> Self {
        Limit { keys: [format!("limit{nth}"), format!("log{nth}")], ..Limit::default() }
    }

    /// The ledger takes a number once, and only under the generation that holds.
    pub fn claim(&mut self, at: usize, now: i64) {
        let arrival = &mut self.granted[at];
        if arrival.generation == self.generation && self.spent.insert(arrival.number()) {
            arrival.claimed = true;
            arrival.spent_at = now;
        }
    }

    /// `ADOPT`: settles a generation where the count was lost or the rule is another (of kinds with
    /// numbers, only then, or for another server).
    fn adopt(&mut self, rule: &Rule, server: &str, now: i64) {
        let is_another = self.server != server;
        if is_another {
            (self.server, self.server_since) = (server.to_owned(), now);
        }
        if rule.algorithm.is_numbered() && self.adopted.as_ref() == Some(rule) && !is_another {
            return;
        }
        self.generation += 1;
        if let Some(old) = self.adopted.replace(rule.clone())
            && !same_shape(&old, rule)
        {
            let reach = reach(&old, rule);
            let still = self.older_at.is_some_and(|at| at > now - self.older - micros(rule.memory()));
            self.older = if still { self.older.max(reach) } else { reach };
            self.older_at = Some(now);
        }
    }

    /// `Store::adopt` and `Store::recollect`: the arguments of `remind`. `ahead` is the limit's own.
    pub fn recollect(
        &mut self,
        rule: &Rule,
        ahead: i64,
        now: Clocks,
        (window, over): (i64, i64),
        server: &str,
    ) -> Vec<String> {
        self.adopt(rule, server, now.postgres);
        let memory = micros(rule.memory());
        let older = match self.older_at {
            Some(at) if at > now.postgres - self.older - memory => self.older,
            _ => 0,
        };
        let spent = || self.granted.iter().filter(|a| a.claimed);
        let inside = spent().filter(|a| a.window > window - older.max(1) && a.window < over).count();
        let highest = spent().filter(|a| a.window == window).map(|a| a.ordinal).max().unwrap_or(0);
        let is_dated = !rule.algorithm.is_numbered();
        let used = if is_dated { 0 } else { highest.max(i64::try_from(inside).unwrap()) };
        let from = match rule.window() {
            Some(_) if older == 0 => over - 1,
            Some(_) => window - older,
            None => now.redis - memory - older,
        };
        let to = (now.redis + micros(Permit::LIFETIME)).max(from + 1);
        let apart = if is_dated { 2 * TOLERANCE } else { 0 };
        let lead = ahead + micros(Permit::MOST_HASTE);
        let furthest = lead.max(micros(Permit::NEXT_SLOT));
        let lead_of = |a: &Arrival| if a.acquired { furthest } else { lead };
        let young = if is_dated { memory + older + furthest } else { 0 };
        // By groups: the last opening, how many, and when the last of them may have opened by our clock.
        let mut groups: BTreeMap<i64, (i64, i64, i64)> = BTreeMap::new();
        for a in spent() {
            if a.window <= from - apart || (a.window <= from && a.spent_at <= now.postgres - young) {
                continue;
            }
            let group = ((a.window - from + apart) * 64 / (to - from + apart)).min(64);
            let (last, count, opened) = groups.entry(group).or_insert((i64::MIN, 0, i64::MIN));
            *last = (*last).max(a.window);
            *count += 1;
            *opened = (*opened).max(a.spent_at + lead_of(a));
        }
        let mut args: Vec<String> = vec![rule.to_string(), self.generation.to_string(), String::new()];
        let rest = micros(rule.per).max(older).min(micros(Permit::LIFETIME)) + lead;
        let elsewhere = || spent().filter(|a| a.spent_at <= self.server_since);
        let latest = elsewhere().map(|a| a.spent_at).max().unwrap_or(i64::MIN / 2);
        let rest =
            if is_dated || latest < 0 { String::new() } else { (latest + rest - now.postgres).to_string() };
        args.extend([TOLERANCE, window, used].iter().map(ToString::to_string));
        args.push(rest);
        args.push(server.to_owned());
        for (last, count, opened) in groups.into_values() {
            let at = (last + older).min(to.max(last));
            args.extend([at, count, now.postgres - opened - older].iter().map(ToString::to_string));
        }
        args
    }
}

pub(super) fn same_shape(a: &Rule, b: &Rule) -> bool {
    let segments = |rule: &Rule| match rule.algorithm {
        Algorithm::SlidingWindow { segments } => segments,
        _ => 0,
    };
    a.algorithm.name() == b.algorithm.name()
        && a.per == b.per
        && a.lateness == b.lateness
        && segments(a) == segments(b)
}

/// `refundd.rule_reach`.
fn reach(old: &Rule, new: &Rule) -> i64 {
    let late = micros(old.lateness);
    late.max(match old.algorithm {
        Algorithm::FixedWindow { .. } => micros(old.per),
        _ if old.per <= Permit::LIFETIME => late + micros(old.per) - micros(new.per),
        _ => 0,
    })
}
