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

    /// With what nodes see: whether the bank is unreachable, and whether no refund can be taken or claimed.
    #[must_use]
    pub fn with_nodes(self, is_unreachable: bool, is_blocked: bool) -> Standing {
        use Standing::{Blocked, Breaker, Cooling, NotRun, Paused, Unreachable};
        if matches!(self, Paused | Breaker | Cooling | NotRun) {
            return self;
        }
        if is_unreachable {
            Unreachable
        } else if is_blocked {
            Blocked
        } else {
            self
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
