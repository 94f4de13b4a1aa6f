//! `GET /`: all channels, those with trouble first, each with its pace against its limit, what binds it, its backlog and its
//! forecast; and the form that stops everything.

mod names;

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;

use self::names::show_names;
use super::super::census::uncounted;
use super::super::channels::statuses;
use super::super::query::Parameters;
use super::super::{Api, Problem, Who};
use super::binds::binds;
use super::form::FormKey;
use super::notice::{Said, notice};
use super::numbered::NumberedPage;
use super::parts::{PerUnit, bar, cell, clock, count, head, none, rounded, span, time, whole};
use super::pausing::{causes, may_stop_everything, stop_form};
use super::standing::{has_trouble, order, standing_badge};
use super::totals::totals;
use super::watch::{Cluster, patience, unread};
use super::{Page, Tab};
use crate::desk::channel::{ChannelStatus, Drain, LimitStatus};
use crate::refund::State as RefundState;
use crate::store::{ChannelCensus, Suspension};

/// A forecast that ends so soon has no date.
const NEAR: Duration = Duration::from_hours(12);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::http) struct OverviewQuery {
    /// A part of the name.
    q: String,
    /// `trouble` for the channels that need a look, `unknown` for those with refunds whose outcome is not known.
    show: String,
    page: usize,
}

/// `GET /`.
pub(in crate::http) async fn show(
    State(api): State<Api>,
    who: Who,
    key: FormKey,
    Parameters(query): Parameters<OverviewQuery>,
    Parameters(said): Parameters<Said>,
) -> Result<Response, Problem> {
    let census = match api.census.now(&api, patience(api.census.has_value())).await {
        Ok(census) => census,
        Err(problem) => return show_names(&api, &who, &key, &query, &said, &uncounted(&problem)).await,
    };
    let cluster = match api.watch.cluster(&api.node.store, &who).await {
        Ok(cluster) => cluster,
        Err(problem) => {
            let page = show_names(&api, &who, &key, &query, &said, &unread(&problem)).await?;
            // An open page keeps its figures, and says since when they are not updated.
            return Ok((StatusCode::SERVICE_UNAVAILABLE, page).into_response());
        }
    };
    // Read now: who has just stopped everything wants to see that.
    let stops = api.node.store.suspensions_of(None).await?;
    let notice = notice(&api, &who, &said, None, &stops).await?;
    let own: Vec<&ChannelCensus> = census.iter().filter(|one| who.has_channel(&one.channel)).collect();
    let in_trouble = own.iter().filter(|one| has_trouble(one, &cluster)).count();
    let q = query.q.trim();
    let mut found: Vec<&ChannelCensus> = own
        .iter()
        .copied()
        .filter(|one| one.channel.contains(q) && is_shown(one, &query.show, &cluster))
        .collect();
    found.sort_by_cached_key(|one| order(one, &cluster));
    let page = NumberedPage::new(query.page, found.len());
    let shown = &found[page.places()];
    let rows: Vec<(&ChannelCensus, ChannelStatus)> =
        shown.iter().copied().zip(statuses(&api.node, shown.iter().copied())).collect();
    let body = html! {
        div.title {
            h1 { "Channels" }
            @if may_stop_everything(&who) { div #stop data-live { (stop_form(&who, &key, stops.first())) } }
        }
        div #said data-live { @if let Some(notice) = &notice { (notice) } }
        div #everything data-live { (everything(&who, &key, &stops)) }
        div #totals data-live { (totals(&own, in_trouble)) }
        (filter(q, &query.show, own.len()))
        div #channels data-live {
            @if rows.is_empty() {
                p.empty {
                    @if own.is_empty() { "No channel was run on this database yet. Start a node with a channel in its file." }
                    @else { "No channel matches." }
                }
            } @else {
                (table(&rows, &cluster))
                (page.links("/", "channel", &[("q", q), ("show", query.show.as_str())]))
            }
        }
    };
    Ok(key.keep(Page::new(Tab::Channels, "Channels", &who, body).every(5)))
}

fn is_shown(census: &ChannelCensus, show: &str, cluster: &Cluster) -> bool {
    match show {
        "trouble" => has_trouble(census, cluster),
        "unknown" => census.counts.get(&RefundState::Unknown).is_some_and(|count| *count > 0),
        _ => true,
    }
}

/// The stop of everything: why, by whom, and the form that resumes.
fn everything(who: &Who, key: &FormKey, stops: &[Suspension]) -> Markup {
    html! {
        @if !stops.is_empty() {
            section.controls.slim aria-label="Everything" { (causes(who, key, None, stops)) }
        }
    }
}

fn filter(q: &str, show: &str, channels: usize) -> Markup {
    html! {
        form.filter action="/" {
            label { "Name contains" input type="search" name="q" value=(q) maxlength="63" autocomplete="off"; }
            label { "Which channels"
                select name="show" {
                    option value="" { "all " (count(channels as u64, "channel")) }
                    option value="trouble" selected[show == "trouble"] { "only those that need a look" }
                    option value="unknown" selected[show == "unknown"] { "only those with unknown outcomes" }
                }
            }
            button { "Filter" }
        }
    }
}

fn table(rows: &[(&ChannelCensus, ChannelStatus)], cluster: &Cluster) -> Markup {
    let names = [
        "Channel",
        "State",
        "Binds",
        "Pace and limit",
        "Backlog",
        "Oldest due for",
        "Empty in",
        "Late",
        "Review",
    ];
    html! {
        table.stack role="table" {
            (head("Channels, those with trouble first", &names))
            tbody role="rowgroup" {
                @for (census, status) in rows { (row(census, status, cluster)) }
            }
        }
    }
}

fn row(census: &ChannelCensus, status: &ChannelStatus, cluster: &Cluster) -> Markup {
    let review = status.counts.get(&RefundState::Review).copied().unwrap_or(0);
    html! {
        tr role="row" {
            th scope="row" role="rowheader" { a href={ "/channels/" (status.channel) } { (status.channel) } }
            (cell("State", &standing_badge(census, cluster)))
            (cell("Binds", &binds(status)))
            (cell("Pace and limit", &pace(status)))
            (cell("Backlog", &backlog(status)))
            (cell("Oldest due for", &html! {
                @match status.oldest_ready_age_seconds {
                    Some(age) => { (span(Duration::from_secs_f64(age.max(0.0)))) }
                    None => (none("none is due")),
                }
            }))
            (cell("Empty in", &forecast(status)))
            (cell("Late", &html! {
                @match &status.late {
                    Some(late) => { strong.bad { (count(late.refunds, "refund")) } ", from " (time(late.from)) }
                    None => (none("none")),
                }
            }))
            (cell("Review", &html! {
                @if review > 0 { a href={ "/review?channel=" (status.channel) } { (count(review, "refund")) } }
                @else { (none("none")) }
            }))
        }
    }
}

/// The accepted sends of the last 10 or 60 seconds, against the limit with the shortest `per`: a quota of a day says nothing about a minute.
pub(super) fn pace(status: &ChannelStatus) -> Markup {
    let shortest = |a: &&LimitStatus, b: &&LimitStatus| {
        let per = a.per_seconds.total_cmp(&b.per_seconds);
        per.then(a.permits_per_second.total_cmp(&b.permits_per_second))
    };
    let limit = status.limits.iter().flatten().min_by(shortest);
    html! {
        @match limit {
            Some(limit) => {
                @let unit = PerUnit::of(limit.permits_per_second);
                span.figure { (unit.rate(status.observed_per_second)) " of " (unit.rate(limit.permits_per_second)) " a " (unit.name) }
                (bar(status.observed_per_second / limit.permits_per_second))
            }
            None if status.limits.is_some() => { (rounded(status.observed_per_second)) " a second, unlimited" }
            None => { (rounded(status.observed_per_second)) " a second; its limit is in the files of other nodes" }
        }
    }
}

fn backlog(status: &ChannelStatus) -> Markup {
    html! {
        (count(status.backlog, "refund"))
        @if let Some(most) = status.max_backlog { " of " (whole(most)) }
    }
}

/// When the backlog will be gone, by the forecast that `refundd status` and HTTP show.
pub(super) fn forecast(status: &ChannelStatus) -> Markup {
    html! {
        @match status.drain() {
            Drain::Empty => span.none { "empty" }
            Drain::In(left) => {
                span.figure { (span(left)) }
                @if let Ok(at) = Timestamp::now().checked_add(left) {
                    // The day is clear where the end is near.
                    span.at { " at " @if left < NEAR { (clock(at)) } @else { (time(at)) } }
                }
            }
            Drain::Unknown(why) => span.none { "unknown: " (why) }
        }
    }
}
