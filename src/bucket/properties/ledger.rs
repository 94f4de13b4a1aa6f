//! Models the ledger's part of a limit, as `store/generation.rs` does it.
//!
//! The ledger accepts each permit number once, and only under the current generation. Its count of spent permits uses
//! two clocks: Redis's clock, which named the permits, and Postgres's own clock.

use std::collections::{BTreeMap, HashSet};

use super::scripts::{TOLERANCE, micros};
use crate::limiter::Permit;
use crate::limiter::Rule;

/// One permit, and when its first byte may reach the bank, in real time.
#[derive(Debug, Clone)]
pub(super) struct Arrival {
    pub rule: Rule,
    /// The first moment at which the first byte may reach the bank.
    pub earliest: i64,
    /// The first moment at which the first byte can no longer reach the bank.
    pub latest: i64,
    /// Whether the ledger accepted it.
    pub claimed: bool,
    /// When the ledger accepted it, by Postgres's clock.
    pub spent_at: i64,
    /// Whether another service acquired it.
    pub acquired: bool,
    pub opens: i64,
    pub closes: i64,
    /// The window or slot, by the clock of the Redis that granted it.
    pub window: i64,
    pub ordinal: i64,
    pub generation: i64,
}

impl Arrival {
    fn number(&self) -> (i64, i64) {
        (self.window, self.ordinal)
    }
}

/// The times of the two clocks at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clocks {
    pub redis: i64,
    pub postgres: i64,
}

/// A limit, and the ledger's part of it.
#[derive(Debug, Default)]
pub(super) struct CountedLimit {
    pub keys: [String; 2],
    pub granted: Vec<Arrival>,
    /// The places in `granted` of the permits that are not claimed yet.
    pub pending: Vec<usize>,
    spent: HashSet<(i64, i64)>,
    pub generation: i64,
    adopted: Option<Rule>,
    /// As in `refundd.limits`: how long permits of the rule before may matter, and when that rule was replaced.
    older: i64,
    older_at: Option<i64>,
    /// The server whose memory counts, and since when.
    server: String,
    server_since: i64,
    /// The numbers granted since the last loss.
    pub numbers: HashSet<(i64, i64, i64)>,
}

impl CountedLimit {
    pub fn new(nth: usize) -> Self {
        CountedLimit { keys: [format!("limit{nth}"), format!("log{nth}")], ..CountedLimit::default() }
    }

    /// Claims a permit. The ledger accepts a number once, and only under the current generation.
    pub fn claim(&mut self, at: usize, now: i64) {
        let arrival = &mut self.granted[at];
        if arrival.generation == self.generation && self.spent.insert(arrival.number()) {
            arrival.claimed = true;
            arrival.spent_at = now;
        }
    }

    /// The statement `ADOPT`: begins a new generation after the count was lost. For an algorithm with numbers it
    /// begins one only when the rule or the server is another one.
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

    /// As `Store::adopt` and `Store::count_spent`. Returns the arguments of `restore`. `ahead` is that of the limit.
    pub fn count_spent(
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
        let lead = ahead + micros(Permit::LONGEST_LEAD_TIME);
        let furthest = lead.max(micros(Permit::NEXT_SLOT));
        let lead_of = |a: &Arrival| if a.acquired { furthest } else { lead };
        let young = if is_dated { memory + older + furthest } else { 0 };
        // For each group: the last opening, the number of permits, and when the last one may have opened by
        // Postgres's clock.
        let mut groups: BTreeMap<i64, (i64, i64, i64)> = BTreeMap::new();
        for a in spent() {
            if a.window <= from - apart || (a.window <= from && a.spent_at <= now.postgres - young) {
                continue;
            }
            let group = ((a.window - from + apart) * 64 / (to - from + apart)).min(64);
            let (last, count, opened) = groups.entry(group).or_insert((i64::MIN, 0, i64::MIN));
            *last = (*last).max(a.window);
            *count += 1;
            *opened = (*opened).max(a.spent_at + lead_of(a) + lead);
        }
        let mut args: Vec<String> = vec![rule.to_string(), self.generation.to_string(), String::new()];
        let rest = micros(rule.per).max(older).min(micros(Permit::LIFETIME)) + lead;
        let elsewhere = || spent().filter(|a| a.spent_at <= self.server_since);
        let latest = elsewhere().map(|a| a.spent_at).max().unwrap_or(i64::MIN / 2);
        let rest =
            if is_dated || latest < 0 { String::new() } else { (latest + rest - now.postgres).to_string() };
        args.extend([TOLERANCE, window, used].iter().map(ToString::to_string));
        args.push(rest);
        args.extend([server.to_owned(), String::new()]);
        for (last, count, opened) in groups.into_values() {
            let at = (last + older).min(to.max(last));
            let still = older.min(2 * micros(Permit::LIFETIME));
            args.extend([at, count, now.postgres - opened - still].iter().map(ToString::to_string));
        }
        args
    }
}

/// Whether only the numbers differ that leave the count as it is: `permits` and the burst.
pub(super) fn same_shape(a: &Rule, b: &Rule) -> bool {
    let plain =
        |rule: &Rule| Rule { permits: 1, algorithm: rule.algorithm.clone().with_burst(1), ..rule.clone() };
    plain(a) == plain(b)
}

/// As the SQL function `refundd.rule_reach`.
fn reach(old: &Rule, new: &Rule) -> i64 {
    let late = micros(old.lateness);
    late.max(match old.window() {
        Some(window) => micros(window),
        None if old.per <= Permit::LIFETIME => late + micros(old.per) - micros(new.per),
        None => 0,
    })
}
