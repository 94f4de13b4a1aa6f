//! What of the campaign is run, and for how long.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use playground::rule::Algorithm;

pub const PARTS: [&str; 3] = ["losses", "clocks", "reloads"];

pub struct Plan {
    pub parts: Vec<&'static str>,
    pub algorithms: Vec<Algorithm>,
    /// Each part ends by then, however many faults it has had.
    pub seconds: Option<Duration>,
    pub seed: u64,
    pub keep: Option<PathBuf>,
}

impl Plan {
    /// Faults of each part.
    pub const FAULTS: usize = 210;

    pub fn read(words: impl Iterator<Item = String>) -> anyhow::Result<Plan> {
        let mut plan = Plan {
            parts: Vec::new(),
            algorithms: Vec::new(),
            seconds: number("SECONDS")?.map(Duration::from_secs),
            seed: number("SEED")?.unwrap_or_else(|| fastrand::u64(..1_000_000)),
            keep: std::env::var_os("FAULTS_KEEP").map(PathBuf::from),
        };
        for word in words.filter(|word| !word.starts_with("--")) {
            if let Some(part) = PARTS.into_iter().find(|part| *part == word) {
                plan.parts.push(part);
            } else if let Some(algorithm) = Algorithm::ALL.into_iter().find(|a| a.name() == word) {
                plan.algorithms.push(algorithm);
            } else {
                let names: Vec<&str> = Algorithm::ALL.iter().map(|a| a.name()).collect();
                bail!(
                    "`{word}` is neither a part ({}) nor an algorithm ({})",
                    PARTS.join(", "),
                    names.join(", ")
                );
            }
        }
        if plan.parts.is_empty() {
            plan.parts = PARTS.to_vec();
        }
        if plan.algorithms.is_empty() {
            plan.algorithms = Algorithm::ALL.to_vec();
        }
        Ok(plan)
    }

    /// What chance decides in one part.
    pub fn dice(&self) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.seed)
    }

    pub fn is_whole(&self) -> bool {
        self.parts.len() == PARTS.len()
            && self.algorithms.len() == Algorithm::ALL.len()
            && self.seconds.is_none()
    }

    /// Whether a part that began then and has had so many faults has more to come.
    pub fn goes_on(&self, began: Instant, faults: usize) -> bool {
        faults < Self::FAULTS && self.seconds.is_none_or(|seconds| began.elapsed() < seconds)
    }
}

fn number(variable: &str) -> anyhow::Result<Option<u64>> {
    let Ok(text) = std::env::var(variable) else { return Ok(None) };
    text.parse().map(Some).with_context(|| format!("{variable}={text} is not a number"))
}
