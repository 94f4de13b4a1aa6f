//! The breaker's probe that a node has reserved.

use std::time::Instant;

use jiff::Timestamp;

/// One refund that may go out although the breaker suspends its channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReservedProbe {
    /// Until when the node may send it.
    pub until: Instant,
    /// When the suspension began, by Postgres's clock. A success ends that one, however late it comes, and no later one.
    pub since: Timestamp,
}
