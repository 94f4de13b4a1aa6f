//! The limits of a test campaign: their text in a node's configuration, and their promise to the bank.

use std::time::Duration;

use crate::judge::{JudgedSpan, Law};

/// An algorithm of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestAlgorithm {
    FixedWindow,
    Paced,
    SlidingLog,
    SlidingWindow,
    TokenBucket,
}

impl TestAlgorithm {
    /// All algorithms.
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

    fn burst(self) -> u32 {
        (self.permits / 2).max(1)
    }

    /// The limit's section of a configuration file.
    pub fn section(self, limit: &str) -> String {
        let TestRule { algorithm, permits, per } = self;
        let burst = match algorithm {
            TestAlgorithm::TokenBucket => format!("burst = {}\n", self.burst()),
            _ => String::new(),
        };
        format!(
            "[limit.{limit}]\nalgorithm = \"{}\"\npermits = {permits}\nper = \"{}ms\"\n{burst}",
            algorithm.name(),
            per.as_millis()
        )
    }

    /// What the limit promises to the bank.
    pub fn law(self) -> Law {
        let span = match self.algorithm {
            TestAlgorithm::FixedWindow => JudgedSpan::Aligned,
            TestAlgorithm::TokenBucket => JudgedSpan::AnyAndBurst(self.burst()),
            TestAlgorithm::Paced | TestAlgorithm::SlidingLog | TestAlgorithm::SlidingWindow => {
                JudgedSpan::Any
            }
        };
        Law { span, permits: self.permits, per: self.per }
    }
}

/// The section of a channel under this limit. The channel's name is also its path at the bank.
pub fn channel(name: &str, limit: &str) -> String {
    format!(
        "[channel.{name}]\nendpoint = \"http://{{bank}}/{name}/refunds\"\nlimits = [\"{limit}\"]\nmax_in_flight = 60\n\
         timeout = \"2s\"\nconnect_timeout = \"1s\"\n"
    )
}
