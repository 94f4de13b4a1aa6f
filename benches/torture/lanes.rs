//! The limits and channels under torture, as the nodes' files have them and as the bank was told.

use std::time::Duration;

use refundd::playground::judge::{Law, Period};

use crate::rule::{Algorithm, Rule, channel};

/// A limit, and the channels that count under it.
#[derive(Debug, Clone)]
pub struct Lane {
    pub limit: &'static str,
    pub channels: &'static [&'static str],
    pub rule: Rule,
    /// What it promised since when.
    pub periods: Vec<Period>,
}

/// All limits in force.
#[derive(Debug, Clone)]
pub struct Lanes(pub Vec<Lane>);

/// A channel without any limit, so much for speed.
pub const FREE: &str = "free";

/// What every channel has beside its endpoint and its limits: a bank that is asked again soon, and leases
/// that are over soon, so that a short run sees many.
const QUICK: &str =
    "lease = \"8s\"\ncool_down = \"500ms\"\nretry = { base = \"200ms\", cap = \"2s\", sends = 100 }\n";
/// Everything passes through forwarders on a machine that has more to do.
const LATENESS: &str = "lateness = \"100ms\"\n";
/// After the last node has read its file, the old rule, if it is the stricter one, still rules for 3 s.
pub const SETTLES: Duration = Duration::from_millis(3_500);

impl Lanes {
    pub fn usual() -> Lanes {
        let lane = |limit, channels, algorithm, permits| {
            let rule = Rule { algorithm, permits, per: Duration::from_secs(1) };
            Lane { limit, channels, rule, periods: Period::always(rule.law()) }
        };
        Lanes(vec![
            lane("fixed", &["fixed"], Algorithm::FixedWindow, 40),
            lane("paced", &["paced"], Algorithm::Paced, 40),
            lane("log", &["log"], Algorithm::SlidingLog, 40),
            lane("window", &["window"], Algorithm::SlidingWindow, 40),
            lane("bucket", &["bucket"], Algorithm::TokenBucket, 40),
            lane("twins", &["twin-a", "twin-b"], Algorithm::SlidingLog, 50),
        ])
    }

    pub fn channels(&self) -> Vec<&'static str> {
        self.0.iter().flat_map(|lane| lane.channels).copied().chain([FREE]).collect()
    }

    /// As it stands in a node's file.
    pub fn file(&self) -> String {
        let mut file = String::new();
        for lane in &self.0 {
            file += &(lane.rule.section(lane.limit) + LATENESS);
            for name in lane.channels {
                file += &(channel(name, lane.limit) + QUICK);
            }
        }
        file += &channel(FREE, FREE)
            .replace(&format!("[\"{FREE}\"]"), "[]")
            .replace("max_in_flight = 60", "max_in_flight = 4");
        file + QUICK
    }

    /// Changes how many permits one limit has; never of the one whose windows are Redis's own, because by
    /// which rule one of those was filled cannot be told while Redis's clock is wrong.
    pub fn change(&mut self, dice: &mut fastrand::Rng) -> usize {
        let nth = dice.usize(1..self.0.len());
        self.0[nth].rule.permits = dice.u32(20..60);
        nth
    }

    /// Writes down that a limit's rule was changed between these moments.
    pub fn note(&mut self, nth: usize, from_us: i64, settled_us: i64) {
        let laws: Vec<Law> = vec![self.0[nth].rule.law()];
        self.0[nth].periods.push(Period { from_us, settled_us, laws });
    }
}
