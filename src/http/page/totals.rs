//! The numbers above the list of channels.

use maud::{Markup, html};

use super::parts::{rounded, whole};
use crate::refund::State as RefundState;
use crate::store::ChannelCensus;

/// What these channels have together; `in_trouble` of them need a look.
pub(super) fn totals(own: &[&ChannelCensus], in_trouble: usize) -> Markup {
    let total = |state: RefundState| -> u64 {
        own.iter().map(|one| one.counts.get(&state).copied().unwrap_or(0)).sum()
    };
    let late: u64 = own.iter().filter_map(|one| one.late).map(|(late, _)| late).sum();
    // As in the rows: over 10 s for a busy channel, over 60 s for another.
    let pace: f64 = own.iter().map(|one| one.observed().0).sum();
    let (review, unknown) = (total(RefundState::Review), total(RefundState::Unknown));
    // What somebody must act on stands first.
    let (trouble, ready) = (in_trouble as u64, total(RefundState::Ready));
    let one_or = |number: u64, one: &'static str, more: &'static str| if number == 1 { one } else { more };
    let cards = [
        (
            "Trouble",
            whole(trouble),
            one_or(trouble, "channel needs a look", "channels need a look"),
            "/?show=trouble",
            trouble > 0,
        ),
        (
            "Review",
            whole(review),
            one_or(review, "refund waits for a person", "refunds wait for a person"),
            "/review",
            review > 0,
        ),
        (
            "Late",
            whole(late),
            one_or(late, "refund will miss its deadline", "refunds will miss their deadlines"),
            "/?show=trouble",
            late > 0,
        ),
        (
            "Unknown",
            whole(unknown),
            one_or(unknown, "refund has no known outcome yet", "refunds have no known outcome yet"),
            "/?show=unknown",
            false,
        ),
        (
            "Ready",
            whole(ready),
            one_or(ready, "refund waits to be sent", "refunds wait to be sent"),
            "/",
            false,
        ),
        ("Pace", rounded(pace), "accepted sends a second, in the last 10 to 60 s", "/", false),
    ];
    html! {
        ul.cards {
            @for (name, number, what, path, is_bad) in cards {
                li class=[is_bad.then_some("attention")] {
                    a href=(path) { span.name { (name) } " " strong { (number) } " " span.what { (what) } }
                }
            }
        }
    }
}
