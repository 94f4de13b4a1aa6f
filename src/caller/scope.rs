//! Scopes: what a caller may do. Each route of the HTTP interface needs one of them.

use std::fmt;

/// One kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CallerScope {
    /// Save refunds.
    Enqueue,
    /// Read refunds, their journal, and how channels stand.
    Look,
    /// Withdraw refunds that were never executed.
    Cancel,
    /// Take permits of limits for itself.
    Acquire,
    /// Pause, resume and move.
    Operate,
    /// Decide refunds that wait for a person.
    Review,
    /// Approve what another person proposed.
    Approve,
    /// Read the metrics of a node, which cover all channels.
    Metrics,
}

impl CallerScope {
    pub const ALL: [CallerScope; 8] = [
        CallerScope::Enqueue,
        CallerScope::Look,
        CallerScope::Cancel,
        CallerScope::Acquire,
        CallerScope::Operate,
        CallerScope::Review,
        CallerScope::Approve,
        CallerScope::Metrics,
    ];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            CallerScope::Enqueue => "enqueue",
            CallerScope::Look => "look",
            CallerScope::Cancel => "cancel",
            CallerScope::Acquire => "acquire",
            CallerScope::Operate => "operate",
            CallerScope::Review => "review",
            CallerScope::Approve => "approve",
            CallerScope::Metrics => "metrics",
        }
    }

    #[must_use]
    pub fn named(name: &str) -> Option<CallerScope> {
        CallerScope::ALL.into_iter().find(|scope| scope.as_str() == name)
    }

    /// Whether the work is about channels, so that a caller without channels could not do any.
    #[must_use]
    pub fn needs_channels(self) -> bool {
        match self {
            CallerScope::Enqueue
            | CallerScope::Look
            | CallerScope::Cancel
            | CallerScope::Operate
            | CallerScope::Review
            | CallerScope::Approve => true,
            CallerScope::Acquire | CallerScope::Metrics => false,
        }
    }
}

impl fmt::Display for CallerScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
