//! The answer to a pause or a resume in words.

use super::PauseResult;
use crate::desk::channel::SuspensionStatus;
use crate::store::SuspendedBy;

/// What a request changed, and what suspends its `channel`, or everything, still.
pub(super) fn message(
    result: PauseResult,
    channel: Option<&str>,
    ends: Option<SuspendedBy>,
    left: &[SuspensionStatus],
) -> String {
    let subject = channel.map_or_else(|| "everything".to_owned(), |channel| format!("channel `{channel}`"));
    let was = match ends {
        None => return format!("{subject} is paused"),
        Some(SuspendedBy::Credentials) => "suspended because of its credentials",
        Some(SuspendedBy::Breaker) => "suspended by its breaker",
        Some(SuspendedBy::All | SuspendedBy::Person | SuspendedBy::Cooling) => "paused",
    };
    let changed = match result {
        PauseResult::WasNotSuspended => format!("{subject} was not {was}, and nothing was changed"),
        PauseResult::Paused | PauseResult::Resumed => format!("{subject} is not {was} any more"),
    };
    if left.is_empty() {
        return format!("{changed}; nothing suspends it");
    }
    let left: Vec<String> = left.iter().map(SuspensionStatus::with_request).collect();
    format!("{changed}. {}", left.join(". "))
}
