//! The limits of the torture run: their text in the nodes' files, and their promises to the bank.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use playground::judge::{JudgedPeriod, JudgedSpan, LimitPromise};
use playground::rule::{TestAlgorithm, TestRule};

use crate::channels::{CHANNELS, DAY};
use crate::plan::Plan;

/// One limit and its promises.
#[derive(Debug, Clone)]
pub struct TestedLimit {
    pub limit: &'static str,
    pub rule: TestRule,
    /// More lines of its section.
    pub more: String,
    /// Its promises, each with the time of its beginning.
    pub periods: Vec<JudgedPeriod>,
}

/// All limits, and the banks to which the channels go now.
#[derive(Debug, Clone)]
pub struct Limits {
    pub all: Vec<TestedLimit>,
    /// The channels that moved at least once. Each stays at its bank until `Place::until_us`.
    pub moved: BTreeMap<&'static str, Place>,
    /// The slots of a channel without a limit on each node.
    pub free_slots: u32,
}

/// The bank of a channel that moves.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// Whether it goes to the second bank.
    pub is_away: bool,
    pub until_us: i64,
}

/// The default `lateness` is too short: every request passes through forwarders on a busy machine.
const LATENESS: &str = "lateness = \"100ms\"\n";
/// The bucket is short, so that refunds which become due meet a backlog in the rows and not in the bucket.
const SHORT: &str = "[bucket]\ncapacity = 100\n";
/// After the last node has read its file, a stricter old rule still applies for 3 s.
pub const SETTLES: Duration = Duration::from_millis(3_500);
/// The limits whose rule never changes. The windows of `fixed` and `pair-window` follow Redis's clock. While that clock is
/// wrong, nobody can tell which rule filled a window. Another rule of `day` would begin another count of the day.
const KEPT: [&str; 3] = ["fixed", "pair-window", DAY];

impl Limits {
    pub fn usual(plan: &Plan) -> Limits {
        let of = |limit, rule: TestRule| {
            // These windows follow Redis's clock, which a hand sets. Wherever the edges are, a span meets two
            // windows.
            let promise = match rule.algorithm {
                TestAlgorithm::FixedWindow => {
                    LimitPromise { span: JudgedSpan::AnyAndBurst(rule.permits), ..rule.promise() }
                }
                _ => rule.promise(),
            };
            TestedLimit { limit, rule, more: String::new(), periods: JudgedPeriod::always(promise) }
        };
        let tested = |limit, algorithm, permits| {
            of(limit, TestRule { algorithm, permits, per: Duration::from_secs(1) })
        };
        // All shares together keep the promise of the whole limit (docs/limits.md). That holds while nodes join and leave. It
        // also holds while the rule changes, because the nodes with shares have one rule, or the looser one for a moment.
        let shared_out = |tested: TestedLimit, nodes: u32| TestedLimit {
            more: format!("placement = \"local_share\"\nnodes = {nodes}\n"),
            ..tested
        };
        let day =
            TestRule { algorithm: TestAlgorithm::FixedWindow, permits: 50, per: Duration::from_hours(24) };
        let day = TestedLimit {
            more: format!("time_zone = \"{}\"\n", zone_without_midnight(Timestamp::now())),
            // No midnight comes within the run, so all its requests are of one day.
            periods: JudgedPeriod::always(LimitPromise { span: JudgedSpan::Any, ..day.promise() }),
            ..of(DAY, day)
        };
        let window =
            TestRule { algorithm: TestAlgorithm::FixedWindow, permits: 40, per: Duration::from_secs(2) };
        let limits = vec![
            tested("fixed", TestAlgorithm::FixedWindow, 40),
            tested("paced", TestAlgorithm::Paced, 40),
            tested("log", TestAlgorithm::SlidingLog, 40),
            tested("window", TestAlgorithm::SlidingWindow, 40),
            tested("bucket", TestAlgorithm::TokenBucket, 40),
            tested("slow", TestAlgorithm::SlidingLog, 2),
            tested("slower", TestAlgorithm::Paced, 1),
            tested("twins", TestAlgorithm::SlidingLog, 50),
            tested("asked", TestAlgorithm::SlidingWindow, 30),
            tested("asked-apart", TestAlgorithm::SlidingLog, 30),
            tested("asks", TestAlgorithm::TokenBucket, 20),
            tested("asked-in-vain", TestAlgorithm::Paced, 30),
            tested("again", TestAlgorithm::TokenBucket, 30),
            tested("again-asked", TestAlgorithm::SlidingLog, 30),
            tested("moved", TestAlgorithm::Paced, 30),
            tested("moved-again", TestAlgorithm::SlidingLog, 30),
            tested("pair-second", TestAlgorithm::SlidingLog, 30),
            of("pair-window", window),
            shared_out(tested("shares", TestAlgorithm::SlidingLog, 30), 3),
            shared_out(tested("beside-shares", TestAlgorithm::Paced, 20), 2),
            tested("beside-redis", TestAlgorithm::SlidingLog, 15),
            day,
        ];
        let free_slots = if plan.rate == 0 { 4 } else { 128 };
        Limits { all: limits, moved: BTreeMap::new(), free_slots }
    }

    /// The limits and the channels as text for a node's configuration file.
    pub fn file(&self, ca_file: &Path) -> String {
        let limits =
            self.all.iter().map(|tested| tested.rule.section(tested.limit) + LATENESS + &tested.more);
        std::iter::once(SHORT.to_owned())
            .chain(limits)
            .chain(
                CHANNELS
                    .iter()
                    .map(|channel| channel.section(ca_file, self.is_away(channel.name), self.free_slots)),
            )
            .collect()
    }

    fn is_away(&self, channel: &str) -> bool {
        self.moved.get(channel).is_some_and(|place| place.is_away)
    }

    /// Moves one channel to the other bank or back, unless it must stay longer at its bank. The first stay and half
    /// of the others are longer than one minute. After one minute refundd shows people the refunds that the bank
    /// before may have executed.
    pub fn relocate(&mut self, dice: &mut fastrand::Rng, now_us: i64) -> Option<&'static str> {
        let moving: Vec<&str> =
            CHANNELS.iter().filter(|channel| channel.moves).map(|channel| channel.name).collect();
        let channel = dice.choice(moving)?;
        let before = self.moved.get(channel);
        if before.is_some_and(|place| place.until_us > now_us) {
            return None;
        }
        let stay_us = if before.is_none() || dice.bool() { dice.i64(65_000_000..75_000_000) } else { 0 };
        let place = Place { is_away: !self.is_away(channel), until_us: now_us + stay_us };
        self.moved.insert(channel, place);
        Some(channel)
    }

    /// Changes the permits of one limit, and returns its number. Slow limits stay slow, and those in [`KEPT`] stay as they
    /// are.
    pub fn change(&mut self, dice: &mut fastrand::Rng) -> usize {
        let changing: Vec<usize> =
            (0..self.all.len()).filter(|nth| !KEPT.contains(&self.all[*nth].limit)).collect();
        let nth = changing[dice.usize(..changing.len())];
        let permits = &mut self.all[nth].rule.permits;
        *permits = if *permits < 10 { dice.u32(1..4) } else { dice.u32(20..60) };
        nth
    }

    /// Records that the rule of limit `nth` was changed between these times.
    pub fn note(&mut self, nth: usize, from_us: i64, settled_us: i64) {
        let promises: Vec<LimitPromise> = vec![self.all[nth].rule.promise()];
        self.all[nth].periods.push(JudgedPeriod { from_us, settled_us, promises });
    }
}

/// A time zone in which no day begins within the next hours. Midnight comes at 18:30 UTC in Kolkata, and at 4 or 5 UTC in
/// New York.
fn zone_without_midnight(now: Timestamp) -> &'static str {
    let hour = now.as_second().div_euclid(3_600).rem_euclid(24);
    if (14..20).contains(&hour) { "America/New_York" } else { "Asia/Kolkata" }
}
