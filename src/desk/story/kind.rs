//! The kinds of events in a refund's story.

use std::fmt;

use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HappeningKind {
    Saved,
    Send,
    Inquiry,
    Decision,
    /// To another channel.
    Move,
    Recovery,
    Ended,
}

impl fmt::Display for HappeningKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            HappeningKind::Saved => "saved",
            HappeningKind::Send => "send",
            HappeningKind::Inquiry => "inquiry",
            HappeningKind::Decision => "decision",
            HappeningKind::Move => "move",
            HappeningKind::Recovery => "recovery",
            HappeningKind::Ended => "ended",
        })
    }
}
