//! The limits of a test campaign: their text in a node's configuration, and their promise to the bank.

use std::time::Duration;

use crate::judge::{JudgedSpan, LimitPromise};

/// An algorithm of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TestAlgorithm {
    FixedWindow,
    Paced,
    SlidingLog,
    SlidingWindow,
    TokenBucket,
}

impl TestAlgorithm {
    /// All algorithms. `tests/it/limits.rs` holds them equal to those of refundd.
    pub const ALL: [TestAlgorithm; 5] = [
        TestAlgorithm::FixedWindow,
        TestAlgorithm::Paced,
        TestAlgorithm::SlidingLog,
        TestAlgorithm::SlidingWindow,
        TestAlgorithm::TokenBucket,
    ];

    /// The algorithm's name in a configuration file.
    pub fn name(self) -> &'static str {
        match self {
            TestAlgorithm::FixedWindow => "fixed_window",
            TestAlgorithm::Paced => "paced",
            TestAlgorithm::SlidingLog => "sliding_log",
            TestAlgorithm::SlidingWindow => "sliding_window",
            TestAlgorithm::TokenBucket => "token_bucket",
        }
    }

    /// Whether a limit must say its `burst`, which a span may have on top of `permits`.
    pub fn has_burst(self) -> bool {
        match self {
            TestAlgorithm::TokenBucket => true,
            TestAlgorithm::FixedWindow
            | TestAlgorithm::Paced
            | TestAlgorithm::SlidingLog
            | TestAlgorithm::SlidingWindow => false,
        }
    }
}

/// The rule of a limit: `permits` in each `per`, counted by an algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TestRule {
    pub algorithm: TestAlgorithm,
    pub permits: u32,
    pub per: Duration,
}

impl TestRule {
    /// 50 permits a second.
    pub fn usual(algorithm: TestAlgorithm) -> TestRule {
        TestRule { algorithm, permits: 50, per: Duration::from_secs(1) }
    }

    fn burst(self) -> Option<u32> {
        self.algorithm.has_burst().then(|| (self.permits / 2).max(1))
    }

    /// The algorithm, the permits and the burst, as in the limit's section of a configuration file.
    pub fn settings(self) -> String {
        let burst = self.burst().map_or(String::new(), |burst| format!("burst = {burst}\n"));
        format!("algorithm = \"{}\"\npermits = {}\n{burst}", self.algorithm.name(), self.permits)
    }

    /// The limit's section of a configuration file.
    pub fn section(self, limit: &str) -> String {
        format!("[limit.{limit}]\n{}per = \"{}ms\"\n", self.settings(), self.per.as_millis())
    }

    /// What the limit promises to the bank.
    pub fn promise(self) -> LimitPromise {
        let span = match (self.algorithm, self.burst()) {
            (TestAlgorithm::FixedWindow, _) => JudgedSpan::Aligned,
            (_, Some(burst)) => JudgedSpan::AnyAndBurst(burst),
            (_, None) => JudgedSpan::Any,
        };
        LimitPromise { span, permits: self.permits, per: self.per }
    }

    /// The share of its permits that the limit lets through in the long run (docs/limits.md).
    pub fn share(self, lateness: Duration) -> f64 {
        let share = self.per.as_secs_f64() / (self.per + lateness).as_secs_f64();
        match self.algorithm {
            TestAlgorithm::FixedWindow => 1.0,
            TestAlgorithm::Paced | TestAlgorithm::SlidingLog | TestAlgorithm::TokenBucket => share,
            // The limiter counts eleven segments; ten are the span.
            TestAlgorithm::SlidingWindow => share / 1.1,
        }
    }
}

/// The section of a channel under this limit. The channel's name is also its path at the bank.
pub fn channel(name: &str, limit: &str) -> String {
    format!(
        "[channel.{name}]\nendpoint = \"http://{{bank}}/{name}/refunds\"\nlimits = [\"{limit}\"]\nmax_in_flight = 60\n\
         timeout = \"2s\"\nconnect_timeout = \"1s\"\n"
    )
}
