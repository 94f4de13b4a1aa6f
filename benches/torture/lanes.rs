//! The limits under torture, as the nodes' files have them and as the bank was told.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use playground::judge::{Law, Period, Span};
use playground::rule::{Algorithm, Rule};

use crate::channels::CHANNELS;

/// A limit.
#[derive(Debug, Clone)]
pub struct Lane {
    pub limit: &'static str,
    pub rule: Rule,
    /// What it promised since when.
    pub periods: Vec<Period>,
}

/// All limits in force, and where the channels go.
#[derive(Debug, Clone)]
pub struct Lanes {
    pub limits: Vec<Lane>,
    /// The channels that go to the second bank, or have been there; until when each stays where it is.
    pub moved: BTreeMap<&'static str, Place>,
}

/// Where a channel that moves goes.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    pub is_away: bool,
    pub until_us: i64,
}

/// Everything passes through forwarders on a machine that has more to do.
const LATENESS: &str = "lateness = \"100ms\"\n";
/// The line is short, so that what becomes due meets the backlog in the rows and not in the line.
const SHORT: &str = "[bucket]\ncapacity = 100\n";
/// After the last node has read its file, the old rule, if it is the stricter one, still rules for 3 s.
pub const SETTLES: Duration = Duration::from_millis(3_500);

impl Lanes {
    pub fn usual() -> Lanes {
        let lane = |limit, algorithm, permits| {
            let rule = Rule { algorithm, permits, per: Duration::from_secs(1) };
            // Its windows are those of Redis's clock, which is set: wherever their edges lie, two of them meet a span.
            let law = match algorithm {
                Algorithm::FixedWindow => Law { span: Span::AnyAndBurst(permits), ..rule.law() },
                _ => rule.law(),
            };
            Lane { limit, rule, periods: Period::always(law) }
        };
        let limits = vec![
            lane("fixed", Algorithm::FixedWindow, 40),
            lane("paced", Algorithm::Paced, 40),
            lane("log", Algorithm::SlidingLog, 40),
            lane("window", Algorithm::SlidingWindow, 40),
            lane("bucket", Algorithm::TokenBucket, 40),
            lane("slow", Algorithm::Paced, 2),
            lane("slower", Algorithm::Paced, 1),
            lane("twins", Algorithm::SlidingLog, 50),
            lane("asked", Algorithm::SlidingWindow, 30),
            lane("asked-apart", Algorithm::SlidingLog, 30),
            lane("asks", Algorithm::TokenBucket, 20),
            lane("asked-in-vain", Algorithm::Paced, 30),
            lane("again", Algorithm::TokenBucket, 30),
            lane("again-asked", Algorithm::SlidingLog, 30),
            lane("moved", Algorithm::Paced, 30),
            lane("moved-again", Algorithm::SlidingLog, 30),
        ];
        Lanes { limits, moved: BTreeMap::new() }
    }

    /// With the channels, as it stands in a node's file.
    pub fn file(&self, ca_file: &Path) -> String {
        let limits = self.limits.iter().map(|lane| lane.rule.section(lane.limit) + LATENESS);
        std::iter::once(SHORT.to_owned())
            .chain(limits)
            .chain(CHANNELS.iter().map(|channel| channel.section(ca_file, self.is_away(channel.name))))
            .collect()
    }

    fn is_away(&self, channel: &str) -> bool {
        self.moved.get(channel).is_some_and(|place| place.is_away)
    }

    /// Moves one channel to the other bank or back, if it has stayed for long enough where it is. The first stay and
    /// half of the others are longer than the minute after which people are shown what the bank before may have executed.
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

    /// Changes how many permits one limit has; never of the one whose windows are Redis's own, because by
    /// which rule one of those was filled cannot be told while Redis's clock is wrong. Slow ones stay slow.
    pub fn change(&mut self, dice: &mut fastrand::Rng) -> usize {
        let nth = dice.usize(1..self.limits.len());
        let permits = &mut self.limits[nth].rule.permits;
        *permits = if *permits < 10 { dice.u32(1..4) } else { dice.u32(20..60) };
        nth
    }

    /// Writes down that a limit's rule was changed between these moments.
    pub fn note(&mut self, nth: usize, from_us: i64, settled_us: i64) {
        let laws: Vec<Law> = vec![self.limits[nth].rule.law()];
        self.limits[nth].periods.push(Period { from_us, settled_us, laws });
    }
}
