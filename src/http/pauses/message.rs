//! The answer to a pause or a resume in words.

use crate::desk::channel::SuspensionStatus;
use crate::store::SuspendedBy;

/// What a request changed, which suspension it `ended`, and what suspends its `channel`, or everything, still.
pub(super) fn message(
    channel: Option<&str>,
    ends: Option<SuspendedBy>,
    ended: Option<&SuspensionStatus>,
    left: &[SuspensionStatus],
) -> String {
    let subject = subject(channel);
    let Some(ends) = ends else { return format!("{subject} is paused") };
    let was = state(ends);
    let changed = match ended {
        None => format!("{subject} was not {was}, and nothing was changed"),
        Some(_) => format!("{subject} is not {was} any more"),
    };
    let free = if left.is_empty() { "; nothing suspends it" } else { "" };
    let ended = ended.map(SuspensionStatus::past_sentence);
    let left = left.iter().map(SuspensionStatus::with_request);
    let sentences: Vec<String> = std::iter::once(changed + free).chain(ended).chain(left).collect();
    sentences.join(". ")
}

/// That a pause, or the end of what a request `ends`, is written, and that nobody knows what suspends the channel now.
pub(super) fn written_unread(channel: Option<&str>, ends: Option<SuspendedBy>) -> String {
    let subject = subject(channel);
    let is = ends.map_or_else(|| "is paused".to_owned(), |ends| format!("is not {} any more", state(ends)));
    format!(
        "{subject} {is}: this is written. What suspends it now could not be read; look at it before you repeat the request"
    )
}

/// That the suspension is another one than the request saw, and which.
pub(super) fn changed(channel: Option<&str>, cause: SuspendedBy, now: Option<&SuspensionStatus>) -> String {
    let (subject, state) = (subject(channel), state(cause));
    let now = now.map_or_else(|| format!("{subject} is not {state} any more"), SuspensionStatus::sentence);
    format!("nothing was changed, because {subject} is not as you saw it. {now}. Look again before deciding")
}

fn subject(channel: Option<&str>) -> String {
    channel.map_or_else(|| "everything".to_owned(), |channel| format!("channel `{channel}`"))
}

fn state(by: SuspendedBy) -> &'static str {
    match by {
        SuspendedBy::Credentials => "suspended because of its credentials",
        SuspendedBy::Breaker => "suspended by its breaker",
        SuspendedBy::Cooling => "cooling",
        SuspendedBy::All | SuspendedBy::Person => "paused",
    }
}
