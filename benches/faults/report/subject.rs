//! What is judged together: one or several channels, by their promise or by the numbers of their permits.

use std::collections::{BTreeMap, HashMap};

use playground::judge::{Judged, JudgedPeriod, JudgedSpan, LimitPromise, judge};
use playground::rule::{TestAlgorithm, TestRule};

use crate::load::{Outcome, Spent};

/// One or several channels whose arrivals are judged together.
pub struct Subject {
    pub(super) channels: Vec<&'static str>,
    pub(super) periods: Vec<JudgedPeriod>,
    /// The rule, if the windows follow Redis's clock and not the bank's. Then the numbered permits are judged.
    pub(super) numbered: Option<TestRule>,
}

impl Subject {
    /// The channel that is named after its algorithm, under the usual rule.
    pub fn always(algorithm: TestAlgorithm) -> Subject {
        let periods = JudgedPeriod::always(TestRule::usual(algorithm).promise());
        Subject { channels: vec![algorithm.name()], periods, numbered: None }
    }

    /// Like [`Subject::always`], while Redis's clock steps.
    pub fn by_its_own_clock(algorithm: TestAlgorithm) -> Subject {
        let numbered = (algorithm == TestAlgorithm::FixedWindow).then(|| TestRule::usual(algorithm));
        Subject { numbered, ..Subject::always(algorithm) }
    }

    /// Channels whose limits change.
    pub fn changing(channels: Vec<&'static str>, periods: Vec<JudgedPeriod>) -> Subject {
        Subject { channels, periods, numbered: None }
    }

    pub(super) fn name(&self) -> String {
        self.channels.join("+")
    }

    pub(super) fn judge(&self, times: &[i64], outcome: &Outcome) -> Vec<Judged> {
        match self.numbered {
            Some(rule) => {
                // Wherever the windows' edges are, a span meets at most two windows.
                let promise = LimitPromise { span: JudgedSpan::AnyAndBurst(rule.permits), ..rule.promise() };
                let mut judged = judge(times, &JudgedPeriod::always(promise));
                judged.extend(judge_numbers(self.channels[0], rule, outcome));
                judged.sort_unstable_by_key(|judged| judged.start_us);
                judged
            }
            None => judge(times, &self.periods),
        }
    }
}

/// Judges the permits of each window of Redis's clock. A window is dated by the first arrival under its permits.
fn judge_numbers(limit: &str, rule: TestRule, outcome: &Outcome) -> Vec<Judged> {
    let mut arrived: HashMap<&str, i64> = HashMap::new();
    for arrival in outcome.ledger.all() {
        let at = arrived.entry(&*arrival.refund_ref).or_insert(arrival.at_us);
        *at = arrival.at_us.min(*at);
    }
    let mut windows: BTreeMap<i64, Vec<&Spent>> = BTreeMap::new();
    for spent in outcome.spent.iter().filter(|spent| spent.limit == limit) {
        windows.entry(spent.window_us).or_default().push(spent);
    }
    let judged = windows.into_values().map(|spent| {
        let highest =
            spent.iter().map(|s| usize::try_from(s.ordinal).unwrap_or(usize::MAX)).max().unwrap_or(0);
        Judged {
            start_us: spent.iter().filter_map(|s| arrived.get(&*s.refund_ref)).copied().min().unwrap_or(0),
            per: rule.per,
            count: spent.len().max(highest),
            most: rule.permits as usize,
            plain: true,
        }
    });
    let mut judged: Vec<Judged> = judged.collect();
    judged.sort_unstable_by_key(|judged| judged.start_us);
    judged
}
