//! What is tortured, for how long, and by which seed.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;

#[derive(Debug)]
pub struct Plan {
    pub seconds: Duration,
    pub seed: u64,
    /// Where the evidence goes, if it is to be kept.
    pub keep: Option<PathBuf>,
}

impl Plan {
    pub fn read() -> anyhow::Result<Plan> {
        Ok(Plan {
            seconds: Duration::from_secs(number("SECONDS")?.unwrap_or(120)),
            seed: number("SEED")?.unwrap_or_else(|| fastrand::u64(..1_000_000)),
            keep: std::env::var_os("TORTURE_KEEP").map(PathBuf::from),
        })
    }

    /// What chance decides for one of the hands.
    pub fn dice(&self, hand: u64) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.seed.wrapping_mul(1_000).wrapping_add(hand))
    }

    /// Where the evidence of a run goes; of one that found a violation always somewhere.
    pub fn evidence(&self, broken: bool) -> Option<PathBuf> {
        let somewhere = || std::env::temp_dir().join(format!("refundd-torture-{}", self.seed));
        self.keep.clone().or_else(|| broken.then(somewhere))
    }

    /// How to do it once more.
    pub fn again(&self) -> String {
        format!("SEED={} SECONDS={} make torture", self.seed, self.seconds.as_secs())
    }
}

fn number(variable: &str) -> anyhow::Result<Option<u64>> {
    let Ok(text) = std::env::var(variable) else { return Ok(None) };
    text.parse().map(Some).with_context(|| format!("{variable}={text} is not a number"))
}
