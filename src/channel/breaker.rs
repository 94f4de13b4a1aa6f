//! After how many outcomes of one kind, one after the other, a channel's breaker trips. Values only; `node::breakers`
//! counts.

use std::time::Duration;

/// The breaker of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Breaker {
    /// The bank refused so many refunds one after the other.
    pub rejected: u32,
    /// So many refunds one after the other came to an outcome that nobody can be sure of.
    pub unknown: u32,
    /// So many connections one after the other failed on one node.
    pub unreachable: u32,
    /// The time from a trip, or from a failed probe, to the next probe.
    pub probe: Duration,
}

impl Default for Breaker {
    fn default() -> Self {
        Breaker { rejected: 20, unknown: 5, unreachable: 5, probe: Duration::from_mins(1) }
    }
}
