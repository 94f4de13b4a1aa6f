//! The length, the seed and the evidence folder of a torture run, from environment variables.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use playground::variable::number;

#[derive(Debug)]
pub struct Plan {
    pub seconds: Duration,
    pub seed: u64,
    /// How many refunds a second come into the channels without a limit, beside what keeps every channel busy.
    pub rate: u32,
    /// By how much longer the hands wait between two faults: with few faults, many more refunds pass.
    pub calm: u64,
    /// The folder for the evidence, if every run keeps it.
    pub keep: Option<PathBuf>,
}

impl Plan {
    /// Reads `SECONDS`, `SEED`, `RATE`, `CALM` and `TORTURE_KEEP`. The defaults are 120 s, a random seed, no more refunds, and 1.
    pub fn read() -> anyhow::Result<Plan> {
        Ok(Plan {
            seconds: Duration::from_secs(number("SECONDS")?.unwrap_or(120)),
            seed: number("SEED")?.unwrap_or_else(|| fastrand::u64(..1_000_000)),
            calm: number("CALM")?.unwrap_or(1),
            rate: u32::try_from(number("RATE")?.unwrap_or(0)).context("RATE is too large")?,
            keep: std::env::var_os("TORTURE_KEEP").map(PathBuf::from),
        })
    }

    /// The random numbers of one hand. They depend on the seed and the hand only.
    pub fn dice(&self, hand: u64) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.seed.wrapping_mul(1_000).wrapping_add(hand))
    }

    /// Whether a hand sets Postgres's clock. A flood is without it: such a Postgres reads a file each time it looks at its
    /// clock, and saves fewer refunds.
    pub fn sets_postgres_clock(&self) -> bool {
        self.rate == 0
    }

    /// The folder for the evidence. A broken run always has one: a temporary folder if no other was named.
    pub fn evidence(&self, broken: bool) -> Option<PathBuf> {
        let somewhere = || std::env::temp_dir().join(format!("refundd-torture-{}", self.seed));
        self.keep.clone().or_else(|| broken.then(somewhere))
    }

    /// The command that repeats this run.
    pub fn again(&self) -> String {
        let other = |name: &str, value: u64, usual: u64| {
            if value == usual { String::new() } else { format!("{name}={value} ") }
        };
        let (rate, calm) = (other("RATE", self.rate.into(), 0), other("CALM", self.calm, 1));
        format!("{rate}{calm}SEED={} SECONDS={} make torture", self.seed, self.seconds.as_secs())
    }
}
