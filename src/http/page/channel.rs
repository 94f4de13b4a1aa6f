//! `GET /channels/{name}`: one channel, with what binds and suspends it, and with its last minutes second by second.

use std::time::Duration;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};

mod minutes;
mod spans;

use super::super::census::uncounted;
use super::super::channels::statuses;
use super::super::named_channel::{in_path, known, no_such_channel};
use super::super::query::Parameters;
use super::super::{Api, Problem, Who};
use super::binds::{binds, percent};
use super::events;
use super::form::FormKey;
use super::notice::{Said, notice};
use super::overview::{forecast, pace};
use super::parts::{Tone, badge, cell, count, foreign, head, rounded, span, state, time, whole, with_times};
use super::pausing::{causes, pause_form};
use super::standing::{reasons, standing_badge};
use super::watch::{Minutes, moment, patience, unread};
use super::{Page, Tab};
use crate::caller::scope::CallerScope;
use crate::desk::channel::{BindsSeen, ChannelStatus, meaning};
use crate::refund::State as RefundState;
use crate::store::{BankOfNode, BankStatus, SuspendedBy, Suspension};

/// `GET /channels/{name}`.
pub(in crate::http) async fn show(
    State(api): State<Api>,
    who: Who,
    key: FormKey,
    name: Result<Path<String>, PathRejection>,
    Parameters(said): Parameters<Said>,
) -> Result<Response, Problem> {
    let name = known(&who, &in_path(name)?)?;
    let census = match api.census.now(&api, patience(api.census.has_value())).await {
        Ok(census) => census,
        Err(problem) => {
            return show_controls(&api, &who, &key, name.as_str(), &said, &uncounted(&problem)).await;
        }
    };
    let no_such_channel = || no_such_channel(name.as_str());
    let census = census.iter().find(|one| one.channel == name.as_str()).ok_or_else(no_such_channel)?;
    let suspensions = &census.suspensions;
    let without_figures = async |problem: Problem| {
        let page = show_controls(&api, &who, &key, name.as_str(), &said, &unread(&problem)).await?;
        // An open page keeps its figures, and says since when they are not updated.
        Ok((StatusCode::SERVICE_UNAVAILABLE, page).into_response())
    };
    let cluster = match api.watch.cluster(&api.node.store, &who).await {
        Ok(cluster) => cluster,
        Err(problem) => return without_figures(problem).await,
    };
    let running = api.node.running();
    let limits = running.channel(&name).map_or(&[][..], |channel| channel.limits.as_slice());
    let minutes = match api.watch.minutes(&api.node.store, &who, name.as_str(), limits).await {
        Ok(minutes) => minutes,
        Err(problem) => return without_figures(problem).await,
    };
    let Some(mut status) = statuses(&api.node, std::iter::once(census)).pop() else {
        return Err(no_such_channel());
    };
    status.note_binds(minutes.banks.iter().filter_map(|bank| BindsSeen::read(&bank.report)).collect());
    let notice = notice(&api, &who, &said, Some(name.as_str()), suspensions).await?;
    let pause = suspensions.iter().find(|one| one.by == SuspendedBy::Person);
    let body = html! {
        div.title {
            h1 { "Channel " (name) }
            @if who.may(CallerScope::Operate) {
                div #steer data-live { (pause_form(&who, &key, &status.channel, pause)) }
            }
        }
        div #said data-live { @if let Some(notice) = &notice { (notice) } }
        div #standing data-live {
            p.standing { (standing_badge(census, &cluster)) " as of " (time(moment(minutes.until))) }
            p.headline {
                "What binds it: " (binds(&status)) ": "
                (meaning(status.binds).replace('`', "")) "."
            }
            @let reasons = reasons(&who, &status, &minutes.banks, &cluster);
            @if !reasons.is_empty() { ul.reasons { @for reason in reasons { li { (reason) } } } }
        }
        div #controls data-live { (controls(&who, &key, &status.channel, suspensions)) }
        div #facts data-live { (facts(&status)) }
        section aria-labelledby="minutes" {
            h2 #minutes { "The last minutes, second by second" }
            div #charts data-live { (minutes::charts(&minutes)) }
        }
        section aria-labelledby="refunds" {
            h2 #refunds { "Its refunds" }
            div #counts data-live { (counts(&status)) }
        }
        section aria-labelledby="limits" {
            h2 #limits { "Its limits" }
            div #rules data-live { (minutes::rules(&status, &minutes)) }
        }
        section aria-labelledby="bank" {
            h2 #bank { "The way to the bank" }
            div #banks data-live { (banks(&minutes)) }
        }
        section aria-labelledby="events" {
            h2 #events { "Its last events" }
            div #changes data-live {
                @if minutes.events.is_empty() { p.empty { "No event is kept." } }
                @else { (events::table("The last events of the channel, newest first", &minutes.events)) }
            }
            p { a href={ "/events?channel=" (name) } { "All events of the channel, also those of its refunds" } }
        }
    };
    Ok(key.keep(Page::new(Tab::Channels, format!("Channel {name}"), &who, body).every(2)))
}

/// The page while its figures cannot be read. What suspends the channel, and the forms that pause and resume it, need none.
/// `unknown` says which figures are not known, and why.
async fn show_controls(
    api: &Api,
    who: &Who,
    key: &FormKey,
    name: &str,
    said: &Said,
    unknown: &str,
) -> Result<Response, Problem> {
    if !api.node.store.is_channel(name).await? {
        return Err(no_such_channel(name));
    }
    let suspensions = api.node.store.suspensions_of(Some(name)).await?;
    let notice = notice(api, who, said, Some(name), &suspensions).await?;
    let pause = suspensions.iter().find(|one| one.by == SuspendedBy::Person);
    let body = html! {
        div.title {
            h1 { "Channel " (name) }
            @if who.may(CallerScope::Operate) { div #steer data-live { (pause_form(who, key, name, pause)) } }
        }
        div #said data-live { @if let Some(notice) = &notice { (notice) } }
        div #standing data-live { p.notice { (foreign(unknown)) } }
        div #controls data-live { (controls(who, key, name, &suspensions)) }
        p { a href={ "/events?channel=" (name) } { "All events of the channel, also those of its refunds" } }
    };
    Ok(key.keep(Page::new(Tab::Channels, format!("Channel {name}"), who, body).every(2)))
}

fn facts(status: &ChannelStatus) -> Markup {
    html! {
        dl.facts {
            div { dt { "Pace, last " (status.observed_over_seconds) " s" } dd { (pace(status)) } }
            div { dt { "Backlog" } dd {
                (count(status.backlog, "refund")) " ready"
                @if let Some(most) = status.max_backlog { ", of " (whole(most)) " at most" }
                @if let Some(ids) = status.ids_in_bucket { "; " (whole(ids)) " in the bucket" }
            } }
            div { dt { "Oldest due refund" } dd {
                @match status.oldest_ready_age_seconds {
                    Some(age) => { "due for " (span(Duration::from_secs_f64(age.max(0.0)))) }
                    None => "none is due"
                }
            } }
            div { dt { "Backlog empty in" } dd { (forecast(status)) } }
            div { dt { "Waits for" } dd {
                @match &status.waits_for {
                    Some(wait) => { "limit " strong { (wait.limit) } ", another " (span(Duration::from_secs_f64(wait.seconds.max(0.0)))) }
                    None if !status.suspensions.is_empty() => "the end of what suspends it",
                    None => "no limit, on this node",
                }
            } }
            div { dt { "Late" } dd {
                @match &status.late {
                    Some(late) if late.refunds == 1 => { strong.bad { "1 refund" } " will miss its deadline, at " (time(late.from)) }
                    Some(late) => { strong.bad { (count(late.refunds, "refund")) } " will miss their deadlines, the first at " (time(late.from)) }
                    None => (with_times(&status.none_late().replace('`', ""))),
                }
            } }
            div { dt { "Bank" } dd { (bank(status.bank.as_ref())) } }
            div { dt { "Run by" } dd {
                @if status.run_by.is_empty() { "no living node" }
                @else { (status.run_by.iter().map(|node| node.split('#').next().unwrap_or(node)).collect::<Vec<_>>().join(", ")) }
            } }
        }
    }
}

/// How long the bank takes, as this node sees it; all nodes stand in a table below.
fn bank(bank: Option<&BankStatus>) -> Markup {
    let answers = bank.and_then(|bank| bank.bank_p50_ms.zip(bank.bank_p95_ms));
    html! {
        @match answers {
            Some((half, most)) => { "half of the answers within about " (rounded(half)) " ms, 95 in 100 within about " (rounded(most)) " ms" }
            None => span.none { "no answer in the last minutes, on this node" }
        }
    }
}

/// What suspends the channel, with the forms that end it.
fn controls(who: &Who, key: &FormKey, channel: &str, suspensions: &[Suspension]) -> Markup {
    html! {
        @if !suspensions.is_empty() {
            section.controls aria-label="Suspensions" { (causes(who, key, Some(channel), suspensions)) }
        }
    }
}

fn counts(status: &ChannelStatus) -> Markup {
    html! {
        ul.states {
            @for (of, number) in &status.counts {
                li {
                    // No refund in a state is neither good nor bad.
                    @if *number > 0 { (state(*of)) } @else { (badge(Tone::Plain, of.as_str())) } " "
                    @if *of == RefundState::Review && *number > 0 {
                        a href={ "/review?channel=" (status.channel) } { (count(*number, "refund")) }
                    } @else { (count(*number, "refund")) }
                }
            }
        }
    }
}

fn banks(minutes: &Minutes) -> Markup {
    let millis = |span: Option<f64>| {
        html! {
            @match span { Some(span) => { (rounded(span)) " ms" } None => span.none { "not measured" } }
        }
    };
    let names = [
        "Node",
        "What binds it there",
        "Half of the answers",
        "95 in 100",
        "Connection set-up",
        "Round trip",
        "Variation of the round trip",
    ];
    html! {
        @if minutes.banks.is_empty() { p.empty { "No living node has measured it in the last minutes." } }
        @else {
            table.stack role="table" {
                (head("What each node sees of the bank", &names))
                tbody role="rowgroup" {
                    @for BankOfNode { node, report, .. } in &minutes.banks {
                        @let bank = &report.status;
                        tr role="row" {
                            th scope="row" role="rowheader" { (foreign(node)) }
                            (cell("What binds it there", &html! {
                                @match &report.binds {
                                    Some(kind) => {
                                        (kind) @if let Some(limit) = &report.binds_limit { " " (limit) }
                                        @if let Some(share) = report.binds_share { span.at { " " (percent(share, report.binds_over_seconds)) } }
                                    }
                                    None => span.none { "nothing" }
                                }
                            }))
                            (cell("Half of the answers", &millis(bank.bank_p50_ms)))
                            (cell("95 in 100", &millis(bank.bank_p95_ms)))
                            (cell("Connection set-up", &millis(bank.set_up_ms)))
                            (cell("Round trip", &millis(bank.round_trip_ms)))
                            (cell("Variation of the round trip", &millis(bank.round_trip_variation_ms)))
                        }
                    }
                }
            }
        }
    }
}
