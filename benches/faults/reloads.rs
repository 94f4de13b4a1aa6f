//! Changes the nodes' files under load, one node after the other, so that the nodes disagree for a moment.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use playground::RedisOptions;
use playground::judge::{JudgedPeriod, LimitPromise};
use playground::rule::{TestAlgorithm, TestRule, channel};

use crate::load::{Load, now_us, pause};
use crate::plan::{Plan, Rounds};
use crate::report::{Fault, Part, Subject};

const SHARING: &str = "shared or not";
const KINDS: [&str; 5] = ["more permits", "fewer permits", "another algorithm", "another per", SHARING];
/// After the last node has read its file, a stricter old rule still applies for 3 s.
const SETTLES: Duration = Duration::from_millis(3_500);

/// The limits and channels of the files.
#[derive(Clone)]
struct Rules {
    names: Vec<&'static str>,
    each: Vec<TestRule>,
    /// Whether the last channel counts under the limit of the channel before it.
    shared: bool,
}

impl Rules {
    fn file(&self) -> String {
        let limits = self.names.iter().zip(&self.each).map(|(name, rule)| rule.section(name));
        let channels = (0..self.names.len()).map(|n| channel(self.names[n], self.names[self.limit_of(n)]));
        limits.chain(channels).collect()
    }

    fn limit_of(&self, channel: usize) -> usize {
        if self.shared && channel + 1 == self.names.len() { channel - 1 } else { channel }
    }

    /// The limits of some channels. A shared limit appears once.
    fn limits_of(&self, channels: &[usize]) -> BTreeSet<usize> {
        channels.iter().map(|channel| self.limit_of(*channel)).collect()
    }

    /// The channels that count under each limit.
    fn by_limit(&self) -> Vec<Vec<&'static str>> {
        let under = |limit: usize| {
            let channels = (0..self.names.len()).filter(|channel| self.limit_of(*channel) == limit);
            channels.map(|channel| self.names[channel]).collect::<Vec<_>>()
        };
        (0..self.names.len()).map(under).filter(|channels| !channels.is_empty()).collect()
    }

    fn promises(&self, limits: &BTreeSet<usize>) -> Vec<LimitPromise> {
        limits.iter().map(|limit| self.each[*limit].promise()).collect()
    }

    /// Makes a change of this kind, and returns the numbers of the channels that it concerns.
    fn change(&mut self, kind: &str, dice: &mut fastrand::Rng) -> Vec<usize> {
        let last = self.names.len() - 1;
        if kind == SHARING {
            self.shared = last > 0 && !self.shared;
            return (last.saturating_sub(1)..=last).collect();
        }
        let mut all: Vec<usize> = (0..=last).collect();
        dice.shuffle(&mut all);
        all.truncate(dice.usize(1..=2));
        for limit in &all {
            self.each[*limit] = changed(self.each[*limit], kind, dice);
        }
        all
    }
}

/// Another rule, of about 20 to 100 a second.
fn changed(rule: TestRule, kind: &str, dice: &mut fastrand::Rng) -> TestRule {
    let millis = |span: Duration| u32::try_from(span.as_millis()).unwrap_or(u32::MAX).max(1);
    let within = |permits: u32, per: Duration| {
        let (least, most) = (millis(per) / 50, millis(per) / 10);
        TestRule { permits: permits.clamp(least, most), per, ..rule }
    };
    match kind {
        "more permits" => within(rule.permits * dice.u32(110..200) / 100, rule.per),
        "fewer permits" => within(rule.permits * dice.u32(30..90) / 100, rule.per),
        "another algorithm" => {
            let others: Vec<TestAlgorithm> =
                TestAlgorithm::ALL.into_iter().filter(|a| *a != rule.algorithm).collect();
            TestRule { algorithm: others[dice.usize(..others.len())], ..rule }
        }
        // The same rate over half a second, a second or two.
        _ => {
            let others =
                [500, 1_000, 2_000].map(Duration::from_millis).into_iter().filter(|per| *per != rule.per);
            let per = dice.choice(others.collect::<Vec<_>>()).unwrap_or(rule.per);
            within(rule.permits * millis(per) / millis(rule.per), per)
        }
    }
}

pub async fn run(plan: &Plan) -> anyhow::Result<Part> {
    let names = plan.names();
    let each = plan.algorithms.iter().map(|a| TestRule::usual(*a)).collect();
    let mut rules = Rules { names: names.clone(), each, shared: false };
    let mut subjects: Vec<(Vec<usize>, Vec<JudgedPeriod>)> = (0..names.len())
        .map(|n| vec![n])
        .chain((1..names.len()).last().map(|n| vec![n - 1, n]))
        .map(|channels| {
            let promises = rules.promises(&rules.limits_of(&channels));
            (channels, vec![JudgedPeriod { from_us: i64::MIN, settled_us: i64::MIN, promises }])
        })
        .collect();
    let load = Load::start(&names, &rules.file(), &RedisOptions::default()).await?;
    let mut dice = plan.dice();
    let (began, mut faults, mut stalled) = (Instant::now(), Vec::new(), false);
    let mut rounds = Rounds::of(&KINDS);
    while plan.goes_on(began, faults.len()) {
        let kind = rounds.kind(&mut dice);
        let before = rules.clone();
        let touched: Vec<&'static str> =
            rules.change(kind, &mut dice).into_iter().map(|n| names[n]).collect();
        let file = rules.file();
        let from_us = now_us();
        let mut order: Vec<usize> = (0..load.nodes.len()).collect();
        dice.shuffle(&mut order);
        for (nth, node) in order.into_iter().enumerate() {
            if nth > 0 {
                pause(&mut dice, 0, 250).await;
            }
            load.reload(node, &file).await?;
        }
        let settled_us = now_us() + i64::try_from(SETTLES.as_micros())?;
        faults.push(Fault { touched: Some(touched), ..Fault::now(kind, from_us) });
        for (channels, periods) in &mut subjects {
            let limits = rules.limits_of(channels);
            let promises = rules.promises(&limits);
            let moved = limits != before.limits_of(channels);
            if !moved && periods.last().is_some_and(|last| last.promises == promises) {
                continue;
            }
            if moved {
                // Each limit keeps its own promise. For a moment a channel counts under its old and its new limit.
                let both = rules.promises(&(&limits | &before.limits_of(channels)));
                periods.push(JudgedPeriod { from_us, settled_us, promises: both });
            }
            periods.push(JudgedPeriod { from_us, settled_us, promises });
        }
        if !load.is_mended(&rules.by_limit(), now_us()).await {
            stalled = true;
            break;
        }
        pause(&mut dice, 300, 900).await;
    }
    let took = began.elapsed();
    let outcome = load.finish("reloads", plan.keep.as_deref()).await?;
    let subjects = subjects
        .into_iter()
        .map(|(channels, periods)| Subject::changing(channels.iter().map(|n| names[*n]).collect(), periods))
        .collect::<Vec<_>>();
    Ok(Part::judge("reloads", plan, &faults, took, &subjects, &outcome)?.and_stalled(stalled))
}
