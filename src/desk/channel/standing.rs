//! How a channel stands, in one word: what keeps it from its full rate, or that nothing does.

use serde::Serialize;

use crate::node::meter::Binds;
use crate::store::{ChannelCensus, SuspendedBy};

/// What keeps a channel from its full rate, in the order in which people should look at channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    Blocked,
    Unreachable,
    #[serde(rename = "not run")]
    NotRun,
    Paused,
    Breaker,
    Cooling,
    Full,
    Slowed,
    Running,
}

impl Standing {
    /// As Postgres knows it: without what nodes see of Redis and of the bank.
    pub fn of(census: &ChannelCensus) -> Standing {
        // The suspensions stand in the order in which they count.
        match census.suspensions.first().map(|first| first.by) {
            Some(SuspendedBy::All | SuspendedBy::Person | SuspendedBy::Credentials) => Standing::Paused,
            Some(SuspendedBy::Breaker) => Standing::Breaker,
            Some(SuspendedBy::Cooling) => Standing::Cooling,
            None if census.run_by.is_empty() => Standing::NotRun,
            None if census.slowed.is_some() => Standing::Slowed,
            None if census.full => Standing::Full,
            None => Standing::Running,
        }
    }

    /// What keeps one node from sending: why it cannot reach the bank, or why it can take or claim no refund. `None` if
    /// nothing does. A node with both says that the bank is unreachable.
    pub fn of_node(unreachable: Option<&str>, blocked: Option<&str>) -> Option<Standing> {
        unreachable.map(|_| Standing::Unreachable).or(blocked.map(|_| Standing::Blocked))
    }

    /// What keeps some node from sending; `None` if nothing does. One node is enough, and an unreachable bank on any of
    /// them counts more than a block.
    pub fn of_nodes(
        nodes: impl IntoIterator<Item = Option<Standing>>,
        redis_is_away: bool,
    ) -> Option<Standing> {
        let of_redis = redis_is_away.then_some(Standing::Blocked);
        let troubles = nodes.into_iter().flatten().chain(of_redis);
        troubles.max_by_key(|trouble| *trouble == Standing::Unreachable)
    }

    /// With what keeps some node from sending, as [`Standing::of_nodes`] says it.
    #[must_use]
    pub fn with_nodes(self, trouble: Option<Standing>) -> Standing {
        match self {
            Standing::Paused | Standing::Breaker | Standing::Cooling | Standing::NotRun => self,
            _ => trouble.unwrap_or(self),
        }
    }

    /// The word for people.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Standing::Blocked => "blocked",
            Standing::Unreachable => "unreachable",
            Standing::NotRun => "not run",
            Standing::Paused => "paused",
            Standing::Breaker => "breaker",
            Standing::Cooling => "cooling",
            Standing::Full => "full",
            Standing::Slowed => "slowed",
            Standing::Running => "running",
        }
    }

    /// What binds a suspended channel; `None` if the channel is not suspended.
    pub(super) fn suspended(self) -> Option<Binds> {
        match self {
            Standing::Paused => Some(Binds::Paused),
            Standing::Breaker => Some(Binds::Breaker),
            Standing::Cooling => Some(Binds::Cooling),
            _ => None,
        }
    }
}
