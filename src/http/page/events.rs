//! `GET /events`: who changed what, newest first, of all channels or of one, in a chosen time.

use axum::extract::State;
use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;

use super::super::named_channel::exists;
use super::super::query::Parameters;
use super::super::{Api, Problem, Who};
use super::parts::{Tone, badge, cell, foreign, head, time, with_times};
use super::{Page, Tab, moments};
use crate::caller::Names;
use crate::desk::change::change;
use crate::refund::ChannelName;
use crate::refund::draft::FieldError;
use crate::store::{Event, EventCursor, EventFilter, EventPage};

/// Events on one page.
const MOST: u32 = 100;
/// A longer change is folded away.
const LONG: usize = 160;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::http) struct EventsQuery {
    channel: String,
    from: String,
    to: String,
    /// The `next` of the page before.
    after: String,
}

/// `GET /events`.
pub(in crate::http) async fn show(
    State(api): State<Api>,
    who: Who,
    Parameters(query): Parameters<EventsQuery>,
) -> Result<Page, Problem> {
    let store = &api.node.store;
    let now = store.now().await?;
    let filter = filter(&query, now, who.channels()).map_err(Problem::invalid)?;
    exists(&api, &who, filter.channel.as_deref()).await?;
    let node = api.node.clone();
    let read = async move {
        let page = node.store.events(&filter).await?;
        let since = if page.next.is_none() { node.store.events_kept_since(&filter).await? } else { None };
        Ok((page, since))
    };
    let (EventPage { events, next }, kept_since) = api.lists.place(&who).await.run(read).await?;
    let body = html! {
        h1 { "Events" }
        p { "Who changed what, newest first: what " code { (command(&query)) } " says." }
        (form(&query))
        div #list data-live {
            @if events.is_empty() { p.empty { "No event matches." } }
            @else { (table("Events, newest first", &events)) }
            @if let Some(since) = kept_since {
                p.notice { "Events before " (time(since)) " may be missing: " code { "[recovery] keep_events" } " drops old ones." }
            }
            (pager(&query, next))
        }
    };
    Ok(Page::new(Tab::Events, "Events", &who, body).every(5))
}

/// Reads the query. The error names every wrong field.
fn filter(query: &EventsQuery, now: Timestamp, channels: Names) -> Result<EventFilter, Vec<FieldError>> {
    let mut filter = EventFilter { limit: MOST, ..EventFilter::of(channels) };
    let mut wrong = Vec::new();
    let mut refuse = |field: &str, text: &str, message: String| {
        wrong.push(FieldError::new(field, Some(&text.into()), message));
    };
    let channel = query.channel.trim();
    if !channel.is_empty() {
        match ChannelName::new(channel) {
            Ok(channel) => filter.channel = Some(channel.into()),
            Err(bad) => refuse("channel", channel, bad.to_string()),
        }
    }
    for (field, text, place) in
        [("from", query.from.trim(), &mut filter.from), ("to", query.to.trim(), &mut filter.to)]
    {
        if text.is_empty() {
            continue;
        }
        let us =
            moments::read(text, now).and_then(|when| when.us(now).map_err(|problem| problem.to_string()));
        match us {
            Ok(us) => *place = Timestamp::from_microsecond(us).ok(),
            Err(message) => refuse(field, text, message),
        }
    }
    if !query.after.is_empty() {
        match query.after.parse() {
            Ok(after) => filter.after = Some(after),
            Err(()) => refuse("after", &query.after, "must be the link of a page before".to_owned()),
        }
    }
    if wrong.is_empty() { Ok(filter) } else { Err(wrong) }
}

/// The command that lists the same events, of any time.
fn command(query: &EventsQuery) -> String {
    match ChannelName::new(query.channel.trim()) {
        Ok(channel) => format!("refundd log {channel}"),
        Err(_) => "refundd log".to_owned(),
    }
}

fn form(query: &EventsQuery) -> Markup {
    html! {
        form.filter action="/events" {
            label { "Channel" input type="search" name="channel" value=(query.channel) maxlength="63" placeholder="all" autocomplete="off"; }
            (moments::field("From", "from", &query.from, Some("the oldest"), false))
            (moments::field("To", "to", &query.to, Some("now"), false))
            button { "Filter" }
        }
        p #times .hint { (moments::HINT) }
    }
}

pub(super) fn table(caption: &str, events: &[Event]) -> Markup {
    html! {
        table.stack.events role="table" {
            (head(caption, &["Time", "What", "About", "By", "What changed, and why"]))
            tbody role="rowgroup" {
                @for event in events {
                    tr role="row" {
                        th scope="row" role="rowheader" { (time(event.at)) }
                        (cell("What", &kind(event)))
                        (cell("About", &about(event)))
                        (cell("By", &by(event)))
                        (cell("What changed, and why", &html! {
                            @if let Some(reason) = &event.reason { p { (foreign(reason)) } }
                            (changed(event))
                        }))
                    }
                }
            }
        }
    }
}

/// What happened, in a word or two.
pub(super) fn kind(event: &Event) -> Markup {
    let tone = match event.kind.as_str() {
        "paused" | "cooled" | "node_left" => Tone::Warning,
        "suspended"
        | "breaker_tripped"
        | "bank_unreachable"
        | "bank_refusing"
        | "clock_stepped"
        | "late_answer_differs"
        | "refund_lost" => Tone::Bad,
        "resumed"
        | "released"
        | "breaker_ended"
        | "cooling_ended"
        | "bank_reached"
        | "bank_refusing_ended"
        | "channel_returned" => Tone::Good,
        _ => Tone::Plain,
    };
    badge(tone, &event.kind.replace('_', " "))
}

/// Who did it; of a node only its name.
pub(super) fn by(event: &Event) -> Markup {
    foreign(event.who.split('#').next().unwrap_or(&event.who))
}

fn about(event: &Event) -> Markup {
    html! {
        @match event.channel.as_deref() {
            Some("*") => "all channels",
            Some(channel) => { a href={ "/channels/" (channel) } { (foreign(channel)) } }
            None if event.limit.is_none() => "the node",
            None => {}
        }
        @if let Some(limit) = &event.limit { "limit " (foreign(limit)) }
        @if let Some(refund) = event.refund_id { ", " a href={ "/refunds/" (refund) } { "refund " (refund) } }
    }
}

/// What the event changed. The settings of a new channel are long, so they are folded away.
fn changed(event: &Event) -> Markup {
    let Some(text) = change(event) else { return html! {} };
    html! {
        @if text.chars().count() > LONG {
            details id={ "event-" (event.id) } { summary { "Show it" span.hidden { " of " (event.at) } } p.small { (with_times(&text)) } }
        } @else { p.small { (with_times(&text)) } }
    }
}

fn pager(query: &EventsQuery, next: Option<EventCursor>) -> Markup {
    let link = |after: &str| {
        let mut serializer = form_urlencoded::Serializer::new(String::new());
        let fields = [("channel", query.channel.as_str()), ("from", &query.from), ("to", &query.to)];
        serializer.extend_pairs(fields).append_pair("after", after);
        format!("/events?{}", serializer.finish())
    };
    html! {
        @if next.is_some() || !query.after.is_empty() {
            nav.pager aria-label="Pages of events" {
                @if !query.after.is_empty() { a href=(link("")) { "To the newest events" } }
                @if let Some(next) = next { a rel="next" href=(link(&next.to_string())) { "Older events" } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_into_a_filter_and_every_wrong_field_is_named() {
        let now: Timestamp = "2026-11-23T12:00:00Z".parse().unwrap();
        let query = |channel: &str, from: &str, to: &str, after: &str| EventsQuery {
            channel: channel.to_owned(),
            from: from.to_owned(),
            to: to.to_owned(),
            after: after.to_owned(),
        };
        let read = filter(&query(" acme ", "10:00", "2026-11-23 11:00", "12-3"), now, Names::All).unwrap();
        assert_eq!(read.channel.as_deref(), Some("acme"));
        assert_eq!(read.from, "2026-11-23T10:00:00Z".parse().ok());
        assert_eq!(read.to, "2026-11-23T11:00:00Z".parse().ok());
        assert_eq!(read.after.unwrap().to_string(), "12-3");
        let all = filter(&query("", " ", "", ""), now, Names::All).unwrap();
        assert_eq!((all.channel, all.from, all.to, all.limit), (None, None, None, MOST));
        let errors = filter(&query("A B", "yesterday", "soon", "x"), now, Names::All).unwrap_err();
        let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(fields, ["channel", "from", "to", "after"]);
    }
}
