//! The end of a suspension.

use std::time::{Duration, Instant};

/// Until when a channel sends nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// Until this moment.
    At(Instant),
    /// Until somebody ends the suspension.
    Ended,
}

impl Until {
    /// Two readings of one end differ by less than this: by the time to Postgres and back.
    pub(super) const SAME: Duration = Duration::from_millis(100);

    pub(super) fn after(left: Option<Duration>) -> Until {
        left.map_or(Until::Ended, |left| Until::At(Instant::now() + left))
    }

    pub(super) fn later(self, other: Until) -> Until {
        match (self, other) {
            (Until::At(a), Until::At(b)) => Until::At(a.max(b)),
            (Until::Ended, _) | (_, Until::Ended) => Until::Ended,
        }
    }

    /// Whether both are readings of one end, or there is none in both.
    pub(super) fn are_about(one: Option<Until>, other: Option<Until>) -> bool {
        match (one, other) {
            (Some(Until::At(a)), Some(Until::At(b))) => a.max(b).duration_since(a.min(b)) < Self::SAME,
            (one, other) => one == other,
        }
    }

    /// Whether the suspension holds at this moment.
    pub(super) fn holds(self, now: Instant) -> bool {
        match self {
            Until::At(at) => at > now,
            Until::Ended => true,
        }
    }
}
