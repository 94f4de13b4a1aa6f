//! When a channel was to send nothing in its last minutes: its pauses and suspensions, as its last events say.

use serde_json::Value;

use super::super::chart::Shaded;
use super::super::watch::Minutes;
use crate::store::Event;

/// The events that begin a time and end it, and its name.
const KINDS: [(&str, &str, &str); 3] = [
    ("paused", "resumed", "paused"),
    ("suspended", "released", "suspended"),
    ("breaker_tripped", "breaker_ended", "suspended"),
];

/// The pauses and suspensions between two seconds.
pub(super) fn spans(minutes: &Minutes, from: i64, until: i64) -> Vec<Shaded> {
    of_events(&minutes.events, from, until)
}

fn of_events(newest_first: &[Event], from: i64, until: i64) -> Vec<Shaded> {
    let mut spans = Vec::new();
    for (begins, ends, name) in KINDS {
        // A pause of everything and one of the channel are two.
        for is_of_all in [true, false] {
            let mut open: Option<(i64, i64)> = None;
            let mut add = |(begin, end): (i64, i64)| {
                let (begin, end) = (begin.max(from), end.min(until));
                if begin < end {
                    spans.push(Shaded { name, class: name, from: begin, until: end });
                }
            };
            let of_kind = |event: &&Event| (event.channel.as_deref() == Some("*")) == is_of_all;
            for event in newest_first.iter().rev().filter(of_kind) {
                let at = event.at.as_second();
                if event.kind == begins {
                    let end = second(event.after.as_ref(), "until").unwrap_or(i64::MAX);
                    open = Some((open.map_or(at, |(begin, _)| begin), end));
                } else if event.kind == ends {
                    let begin = open.take().map(|(begin, _)| begin);
                    let begin = begin.or_else(|| second(event.before.as_ref(), "since"));
                    add((begin.unwrap_or(from), at));
                }
            }
            if let Some(open) = open {
                add(open);
            }
        }
    }
    spans
}

/// A moment that an event names.
fn second(of: Option<&Value>, field: &str) -> Option<i64> {
    let at: jiff::Timestamp = of?[field].as_str()?.parse().ok()?;
    Some(at.as_second())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(second: i64, kind: &str, channel: &str) -> Event {
        let at = jiff::Timestamp::from_second(second).unwrap();
        let (kind, channel) = (kind.to_owned(), Some(channel.to_owned()));
        let who = "ann".to_owned();
        Event {
            id: 0,
            at,
            kind,
            who,
            channel,
            limit: None,
            refund_id: None,
            before: None,
            after: None,
            reason: None,
        }
    }

    #[test]
    fn pauses_and_suspensions_are_found_in_the_events_and_cut_at_the_ends() {
        let span = |name, from, until| Shaded { name, class: name, from, until };
        let resumed =
            |since: &str| Event { before: Some(json!({ "since": since })), ..event(130, "resumed", "acme") };
        let ends = |at: &str| Event { after: Some(json!({ "until": at })), ..event(150, "paused", "acme") };
        for (events, expected) in [
            (vec![], vec![]),
            (vec![event(120, "resumed", "a"), event(110, "paused", "a")], vec![span("paused", 110, 120)]),
            // It began before the first event that was read.
            (vec![resumed("1970-01-01T00:01:55Z")], vec![span("paused", 115, 130)]),
            (vec![event(130, "resumed", "a")], vec![span("paused", 100, 130)]),
            // It goes on, was given another reason, or ends by itself.
            (vec![event(150, "suspended", "a")], vec![span("suspended", 150, 200)]),
            (vec![event(160, "paused", "a"), event(150, "paused", "a")], vec![span("paused", 150, 200)]),
            (vec![ends("1970-01-01T00:03:00Z")], vec![span("paused", 150, 180)]),
            // The end of one is not the end of another.
            (
                vec![event(190, "resumed", "a"), event(180, "breaker_ended", "a"), event(150, "paused", "*")],
                vec![span("paused", 150, 200), span("paused", 100, 190), span("suspended", 100, 180)],
            ),
            (vec![event(90, "resumed", "a"), event(80, "paused", "a")], vec![]),
        ] {
            assert_eq!(of_events(&events, 100, 200), expected, "{events:?}");
        }
    }
}
