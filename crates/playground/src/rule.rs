//! The limits of a campaign: as the nodes' files have them, and as the bank was told.

use std::time::Duration;

use crate::judge::{Law, Span};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    FixedWindow,
    Paced,
    SlidingLog,
    SlidingWindow,
    TokenBucket,
}

impl Algorithm {
    pub const ALL: [Algorithm; 5] = [
        Algorithm::FixedWindow,
        Algorithm::Paced,
        Algorithm::SlidingLog,
        Algorithm::SlidingWindow,
        Algorithm::TokenBucket,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Algorithm::FixedWindow => "fixed_window",
            Algorithm::Paced => "paced",
            Algorithm::SlidingLog => "sliding_log",
            Algorithm::SlidingWindow => "sliding_window",
            Algorithm::TokenBucket => "token_bucket",
        }
    }
}

/// What a limit counts by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    pub algorithm: Algorithm,
    pub permits: u32,
    pub per: Duration,
}

impl Rule {
    /// 50 in a second.
    pub fn usual(algorithm: Algorithm) -> Rule {
        Rule { algorithm, permits: 50, per: Duration::from_secs(1) }
    }

    fn burst(self) -> u32 {
        (self.permits / 2).max(1)
    }

    /// As it stands in a node's file.
    pub fn section(self, limit: &str) -> String {
        let Rule { algorithm, permits, per } = self;
        let burst = match algorithm {
            Algorithm::TokenBucket => format!("burst = {}\n", self.burst()),
            _ => String::new(),
        };
        format!(
            "[limit.{limit}]\nalgorithm = \"{}\"\npermits = {permits}\nper = \"{}ms\"\n{burst}",
            algorithm.name(),
            per.as_millis()
        )
    }

    /// As the bank was told.
    pub fn law(self) -> Law {
        let span = match self.algorithm {
            Algorithm::FixedWindow => Span::Aligned,
            Algorithm::TokenBucket => Span::AnyAndBurst(self.burst()),
            Algorithm::Paced | Algorithm::SlidingLog | Algorithm::SlidingWindow => Span::Any,
        };
        Law { span, permits: self.permits, per: self.per }
    }
}

/// A channel of its own name under this limit.
pub fn channel(name: &str, limit: &str) -> String {
    format!(
        "[channel.{name}]\nendpoint = \"http://{{bank}}/{name}/refunds\"\nlimits = [\"{limit}\"]\nmax_in_flight = 60\n\
         timeout = \"2s\"\nconnect_timeout = \"1s\"\n"
    )
}
