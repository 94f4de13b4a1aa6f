//! `refundd log`: who changed what, newest first, one line an event.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::builder::PossibleValuesParser;

use super::namesakes;
use crate::caller::Names;
use crate::config::duration;
use crate::desk::change::change;
use crate::refund::Refund;
use crate::refund::text::{shown, shown_json};
use crate::store::{EVENT_KINDS, Event, EventFilter, Store};

/// How many events one statement reads.
const PAGE: u32 = 500;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Only the events of this channel, or else of the refund with this ref, id or request id; a name of two refunds is refused
    #[arg(value_name = "CHANNEL|REF|ID")]
    about: Option<String>,
    /// Only events of this kind; several if the option is repeated
    #[arg(long = "kind", value_name = "KIND", value_parser = PossibleValuesParser::new(EVENT_KINDS))]
    kinds: Vec<String>,
    /// Only events of this time before now, such as "2h" or "7d"
    #[arg(long, value_name = "TIME", value_parser = duration::read)]
    since: Option<Duration>,
    /// At most so many events
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    most: u32,
    /// For programs: one JSON object for each event. Standard error says if there may be others
    #[arg(long)]
    json: bool,
}

pub(super) async fn log(args: Args, store: &Store) -> anyhow::Result<ExitCode> {
    let mut filter = EventFilter { since: args.since, kinds: args.kinds, ..EventFilter::of(Names::All) };
    if let Some(about) = &args.about
        && let Some(refund) = aim(&mut filter, about, store).await?
        && !args.json
    {
        println!("Events of {}:", namesakes::title(refund.id, &refund.refund_ref));
    }
    let mut left = args.most;
    let is_all = loop {
        filter.limit = left.min(PAGE);
        let page = store.events(&filter).await?;
        for event in &page.events {
            if args.json {
                println!("{}", shown_json(serde_json::to_string(event)?));
            } else {
                println!("{}", line(event));
            }
        }
        left = left.saturating_sub(u32::try_from(page.events.len()).unwrap_or(u32::MAX));
        match page.next {
            Some(next) if left > 0 => filter.after = Some(next),
            Some(_) => {
                note(
                    "There may be older events: ask for more with --most, or for fewer hours with --since.",
                    args.json,
                );
                break false;
            }
            None => break true,
        }
    };
    if filter.after.is_none() && left == args.most && !args.json {
        println!("No event matches.");
    }
    if is_all && let Some(since) = store.events_kept_since(&filter).await? {
        note(
            &format!("Events before {since:.0} may be missing: [recovery] keep_events drops old ones."),
            args.json,
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Says which events are not in the list. For programs, standard output has events alone.
fn note(line: &str, for_programs: bool) {
    if for_programs {
        eprintln!("{line}");
    } else {
        println!("{line}");
    }
}

/// Finds out what `about` names: a channel, or the one refund with this ref, id or request id, which is answered.
async fn aim(filter: &mut EventFilter, about: &str, store: &Store) -> anyhow::Result<Option<Refund>> {
    if store.is_channel(about).await? {
        filter.channel = Some(about.to_owned());
        return Ok(None);
    }
    let mut refunds = namesakes::named(about, store).await?;
    if refunds.len() > 1 {
        bail!("{}: name the one that you mean by its request id", namesakes::several(about, &refunds));
    }
    let Some(refund) = refunds.pop() else {
        bail!("`{about}` is no channel, and no refund's ref, id or request id of this database");
    };
    filter.refund = Some(refund.id);
    Ok(Some(refund))
}

/// One event as one line. Hidden characters are written out, so that no text commands a terminal.
fn line(event: &Event) -> String {
    let Event { at, kind, who, channel, limit, refund_id, reason, .. } = event;
    let mut line = format!("{at:.3}  {kind:<15}");
    match channel.as_deref() {
        Some("*") => line.push_str("  all channels"),
        Some(channel) => {
            let _ = write!(line, "  {channel}");
        }
        None => {}
    }
    if let Some(limit) = limit {
        let _ = write!(line, "  limit {limit}");
    }
    if let Some(refund) = refund_id {
        let _ = write!(line, "  refund {refund}");
    }
    let _ = write!(line, "  by {who}");
    if let Some(change) = change(event) {
        let _ = write!(line, "  {change}");
    }
    if let Some(reason) = reason {
        let _ = write!(line, ": \"{}\"", reason.replace('"', "\\\""));
    }
    shown(&line).into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_is_one_line_without_hidden_characters() {
        let event = Event {
            id: 7,
            at: "2026-03-01T12:00:00.25Z".parse().unwrap(),
            kind: "decided".to_owned(),
            who: "ann\u{1b}[2J".to_owned(),
            channel: Some("acme".to_owned()),
            limit: None,
            refund_id: Some(4711),
            before: Some(json!({ "state": "review", "version": 3 })),
            after: Some(json!({ "state": "succeeded", "version": 4 })),
            reason: Some("on the\nstatement".to_owned()),
        };
        assert_eq!(
            line(&event),
            "2026-03-01T12:00:00.250Z  decided          acme  refund 4711  by ann\\u{1b}[2J  state=review version=3 -> \
             state=succeeded version=4: \"on the\\nstatement\""
        );
    }
}
