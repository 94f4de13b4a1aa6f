//! The parts and algorithms that are run, and for how long.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::bail;
use playground::rule::{TestAlgorithm, TestRule, channel};
use playground::variable::number;

pub const PARTS: [&str; 3] = ["losses", "clocks", "reloads"];

/// The choices for a run.
pub struct Plan {
    pub parts: Vec<&'static str>,
    pub algorithms: Vec<TestAlgorithm>,
    /// The most time of each part; without it a part ends after `FAULTS` faults.
    pub seconds: Option<Duration>,
    pub seed: u64,
    /// The folder for the evidence, if it is kept.
    pub keep: Option<PathBuf>,
}

impl Plan {
    /// The number of faults in each part.
    pub const FAULTS: usize = 210;

    /// Reads the arguments and `SECONDS`, `SEED` and `FAULTS_KEEP`. Fails on an unknown argument.
    pub fn read(arguments: impl Iterator<Item = String>) -> anyhow::Result<Plan> {
        let mut plan = Plan {
            parts: Vec::new(),
            algorithms: Vec::new(),
            seconds: number("SECONDS")?.map(Duration::from_secs),
            seed: number("SEED")?.unwrap_or_else(|| fastrand::u64(..1_000_000)),
            keep: std::env::var_os("FAULTS_KEEP").map(PathBuf::from),
        };
        for argument in arguments.filter(|argument| !argument.starts_with("--")) {
            if let Some(part) = PARTS.into_iter().find(|part| *part == argument) {
                plan.parts.push(part);
            } else if let Some(algorithm) = TestAlgorithm::ALL.into_iter().find(|a| a.name() == argument) {
                plan.algorithms.push(algorithm);
            } else {
                let names: Vec<&str> = TestAlgorithm::ALL.iter().map(|a| a.name()).collect();
                bail!(
                    "`{argument}` is neither a part ({}) nor an algorithm ({})",
                    PARTS.join(", "),
                    names.join(", ")
                );
            }
        }
        if plan.parts.is_empty() {
            plan.parts = PARTS.to_vec();
        }
        if plan.algorithms.is_empty() {
            plan.algorithms = TestAlgorithm::ALL.to_vec();
        }
        Ok(plan)
    }

    /// The channels of a run. Each has the name of its algorithm.
    pub fn names(&self) -> Vec<&'static str> {
        self.algorithms.iter().map(|a| a.name()).collect()
    }

    /// The sections of these channels, each with its usual limit.
    pub fn file(&self) -> String {
        let section =
            |a: &TestAlgorithm| TestRule::usual(*a).section(a.name()) + &channel(a.name(), a.name());
        self.algorithms.iter().map(section).collect()
    }

    /// The random numbers of one part.
    pub fn dice(&self) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.seed)
    }

    /// Whether all parts run with all algorithms and without a time limit.
    pub fn is_whole(&self) -> bool {
        self.parts.len() == PARTS.len()
            && self.algorithms.len() == TestAlgorithm::ALL.len()
            && self.seconds.is_none()
    }

    /// Whether a part that began at `began` and had this many faults goes on.
    pub fn goes_on(&self, began: Instant, faults: usize) -> bool {
        faults < Self::FAULTS && self.seconds.is_none_or(|seconds| began.elapsed() < seconds)
    }
}

/// The kinds of faults of a part, in rounds. Each round has every kind once, in an order by chance.
pub struct Rounds {
    kinds: &'static [&'static str],
    left: Vec<&'static str>,
}

impl Rounds {
    pub fn of(kinds: &'static [&'static str]) -> Rounds {
        Rounds { kinds, left: Vec::new() }
    }

    /// The kind of the next fault.
    pub fn kind(&mut self, dice: &mut fastrand::Rng) -> &'static str {
        if self.left.is_empty() {
            self.left.extend(self.kinds);
            dice.shuffle(&mut self.left);
        }
        self.left.pop().unwrap_or(self.kinds[0])
    }
}
