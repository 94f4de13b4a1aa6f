//! A refund's story: what happened to it and to its channel, in order, with every request to the bank and its answer.

use std::collections::HashMap;

use jiff::Timestamp;
use maud::{Markup, html};

use super::events::{by, kind};
use super::parts::{Tone, badge, count, exact, foreign, state, time, with_times};
use crate::caller::Names;
use crate::desk::story::{Happening, HappeningKind, Story};
use crate::refund::RefundId;
use crate::store::{Event, Evidence, EvidenceKind, FirstByte, Store, StoreError};

/// The story, oldest first, as a viewer with these channels may see it. All viewers share the story that was read.
pub(super) fn story(story: &Story, events: &[Event], channels: &Names) -> Markup {
    let refund = &story.refund;
    let mut lines: Vec<(Timestamp, Markup)> =
        story.happened.iter().map(|one| (one.at, happening(one, channels))).collect();
    lines.extend(events.iter().map(|event| (event.at, of_channel(event))));
    // The sort keeps the order of lines of one time.
    lines.sort_by_key(|(at, _)| *at);
    html! {
        @if let Some(before) = story.forgotten_before {
            p.notice { "The journal goes back to " (time(before)) " only; earlier requests may be missing here." }
        }
        ol.story {
            @for (_, line) in &lines { (line) }
            @if refund.settled_at.is_none() { li.now { p { "Now " (state(refund.state)) "." } } }
        }
    }
}

fn happening(one: &Happening, channels: &Names) -> Markup {
    match &one.evidence {
        // Its line in the journal is that of a decision; the text names both channels.
        Some(_) if one.what == HappeningKind::Move => html! {
            li { (exact(one.at)) p { strong { "Moved" } ": " (foreign(&one.text)) } }
        },
        Some(evidence) => numbered(&evidence.clone().shown_to(channels), one.nth, one.became.as_deref()),
        None if one.what == HappeningKind::Saved => html! {
            li {
                (exact(one.at))
                p { strong { "Saved" } (with_times(&one.text.trim_start_matches("saved").replace('`', ""))) "." }
            }
        },
        None => html! { li { (exact(one.at)) p { strong { "Ended" } " as " (foreign(&one.text)) "." } } },
    }
}

/// An event of the refund's channel.
fn of_channel(event: &Event) -> Markup {
    html! {
        li.beside {
            (exact(event.at))
            p {
                @if event.channel.as_deref() == Some("*") { "All channels: " } @else { "Its channel: " }
                (kind(event)) " by " (by(event))
            }
            @if let Some(reason) = &event.reason { p.message { (foreign(reason)) } }
        }
    }
}

/// Lines of one refund's journal in a list; its own page has all.
const MOST_LINES: u32 = 10;
/// Lines to read for [`evidence`]: one more says that there are more.
const READ_LINES: u32 = MOST_LINES + 1;

/// Whether a refund has more lines than [`evidence`] shows, and perhaps more than these.
pub(super) fn is_cut(lines: &[Evidence]) -> bool {
    lines.len() > MOST_LINES as usize
}

/// The last lines of the journal about each of these refunds, at most [`READ_LINES`] of each, oldest first, as a viewer with these
/// channels may see them.
pub(super) async fn last_lines(
    store: &Store,
    refunds: &[RefundId],
    channels: &Names,
) -> Result<HashMap<RefundId, Vec<Evidence>>, StoreError> {
    let mut lines: HashMap<RefundId, Vec<Evidence>> = HashMap::new();
    for (id, line) in store.evidence_of(refunds, READ_LINES).await? {
        lines.entry(id).or_default().push(line.shown_to(channels));
    }
    Ok(lines)
}

/// The last lines of the journal about a refund, folded away. `lines` has at most [`READ_LINES`].
pub(super) fn evidence(lines: &[Evidence], refund_ref: &str) -> Markup {
    let shown = &lines[lines.len().saturating_sub(MOST_LINES as usize)..];
    let number = count(shown.len() as u64, "line");
    html! {
        details {
            summary {
                @if is_cut(lines) { "The last " (number) " of the journal; its page has all" }
                @else { (number) " of the journal" }
                span.hidden { " about " (refund_ref) }
            }
            ol.story { @for one in shown { (line(one)) } }
        }
    }
}

/// One line of the journal, without those before it.
fn line(one: &Evidence) -> Markup {
    numbered(one, None, None)
}

/// One line of the journal. `nth` counts the refund's sends; without it, a send has the number that the bank saw. `became` says
/// what became of a proposal.
fn numbered(one: &Evidence, nth: Option<u32>, became: Option<&str>) -> Markup {
    let what = match one.kind {
        EvidenceKind::Send => format!("Send {}", nth.map_or(i64::from(one.number), i64::from)),
        EvidenceKind::Inquiry => format!("Inquiry {}", one.number),
        EvidenceKind::Manual => "Decision".to_owned(),
        EvidenceKind::Recovery => "Recovery".to_owned(),
    };
    let tone = match one.outcome.as_str() {
        "succeeded" => Tone::Good,
        "rejected" | "unknown" | "review" => Tone::Bad,
        "not_executed" => Tone::Warning,
        _ => Tone::Plain,
    };
    html! {
        li {
            @if let Some(at) = one.started_at.or(one.finished_at) { (exact(at)) }
            p {
                strong { (what) } " by " (foreign(one.node.split('#').next().unwrap_or(&one.node))) ": "
                (badge(tone, &one.outcome))
                @if let Some(status) = one.status { " status " (status) }
                @if let Some(code) = one.code.as_ref().filter(|code| **code != one.outcome) { " " code { (code) } }
                @if let Some(moved_to) = &one.moved_to { ", moved to " strong { (moved_to) } }
                // A proposal, or its withdrawal, moves nothing by itself.
                @else if one.kind != EvidenceKind::Manual { ", too late to move it" }
                @if let Some(became) = became { ", " (foreign(became)) }
            }
            @if let Some(message) = &one.message { p.message { (foreign(message)) } }
            // Recovery and people send nothing to the bank, so their lines prove nothing about a first byte.
            @if matches!(one.kind, EvidenceKind::Send | EvidenceKind::Inquiry) {
                p.small {
                    @match one.first_byte() {
                        FirstByte::Left(_) => "its first byte left at the time above",
                        FirstByte::NotSent => "no byte left",
                        FirstByte::NobodyKnows => "nobody knows whether a byte left",
                    }
                    @if let Some(at) = one.finished_at { "; written down at " (exact(at)) }
                    @if let Some(permit) = &one.permit { "; permit " code { (permit) } }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(kind: EvidenceKind, outcome: &str, moved_to: Option<&str>) -> String {
        let evidence = Evidence {
            channel: "acme".to_owned(),
            kind,
            number: 0,
            lease_epoch: 1,
            node: "ann".to_owned(),
            permit: None,
            started_at: None,
            finished_at: Some(Timestamp::UNIX_EPOCH),
            outcome: outcome.to_owned(),
            moved_to: moved_to.map(str::to_owned),
            status: None,
            code: Some(outcome.to_owned()),
            message: None,
        };
        line(&evidence).into_string()
    }

    #[test]
    fn only_a_request_to_the_bank_says_whether_a_byte_left() {
        for kind in [EvidenceKind::Recovery, EvidenceKind::Manual] {
            assert!(!shown(kind, "unknown", Some("unknown")).contains("byte left"));
        }
        assert!(shown(EvidenceKind::Send, "not_executed", Some("ready")).contains("no byte left"));
        // The node died, and recovery wrote the line.
        let lapsed = shown(EvidenceKind::Send, "unknown", Some("unknown"));
        assert!(lapsed.contains("nobody knows whether a byte left") && !lapsed.contains("no byte left"));
    }

    #[test]
    fn a_proposal_is_not_too_late_and_an_outcome_that_moved_nothing_is() {
        assert!(!shown(EvidenceKind::Manual, "proposed", None).contains("too late"));
        assert!(shown(EvidenceKind::Send, "succeeded", None).contains("too late"));
    }

    #[test]
    fn a_code_that_repeats_the_outcome_is_not_shown_again() {
        assert!(!shown(EvidenceKind::Send, "succeeded", Some("succeeded")).contains("<code>succeeded"));
    }
}
