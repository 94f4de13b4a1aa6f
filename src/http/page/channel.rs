//! `GET /channels/{name}`: one channel, with its last minutes second by second; and its pause and resume.

use std::time::Duration;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use serde::Deserialize;

mod minutes;

use super::super::channels::statuses;
use super::super::{Api, Problem, Who};
use super::form::{Form, FormKey, by_field};
use super::overview::{forecast, pace, wrong_query};
use super::parts::{cell, count, foreign, head, rounded, span, state, time, whole};
use super::standing::{Standing, reasons};
use super::watch::{Minutes, moment, patience};
use super::{Page, Tab};
use crate::caller::scope::CallerScope;
use crate::desk::channel::ChannelStatus;
use crate::refund::{ChannelName, State as RefundState};
use crate::store::{Pause, Resumed, SuspendedBy};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::http) struct Said {
    /// What a form on this page did.
    done: String,
}

/// `GET /channels/{name}`.
pub(in crate::http) async fn show(
    State(api): State<Api>,
    who: Who,
    key: FormKey,
    name: Result<Path<String>, PathRejection>,
    said: Result<Query<Said>, QueryRejection>,
) -> Result<Response, Problem> {
    let name = existing(&who, name)?;
    let Query(said) = said.map_err(|error| wrong_query(&error))?;
    let census = api.census.read(&api.node, patience(api.census.has_value())).await?;
    let mut census =
        census.iter().find(|one| one.channel == name.as_str()).cloned().ok_or_else(no_such_channel)?;
    // Read now: who has just paused the channel wants to see that.
    let read = api.node.store.read_suspensions(&mut census).await;
    read.map_err(|error| Problem::store(&error))?;
    let cluster = api.watch.cluster(&api.node.store).await?;
    let running = api.node.running();
    let limits = running.channels.iter().find(|channel| channel.name == name);
    let limits = limits.map_or(&[][..], |channel| channel.limits.as_slice());
    let minutes = api.watch.minutes(&api.node.store, name.as_str(), limits).await?;
    let Some(status) = statuses(&api.node, std::iter::once(&census)).pop() else {
        return Err(no_such_channel());
    };
    let body = html! {
        h1 { "Channel " (name) }
        @if let Some(done) = notice(&said.done) { p.notice role="status" { (done) } }
        div #standing data-live {
            p.standing { (Standing::of(&census, &cluster).badge()) " as of " (time(moment(minutes.until))) }
            @let reasons = reasons(&census, &minutes.banks, &cluster);
            @if !reasons.is_empty() { ul.reasons { @for reason in reasons { li { (reason) } } } }
            (facts(&status))
        }
        div #controls data-live { (controls(&who, &key, &status)) }
        section aria-labelledby="minutes" {
            h2 #minutes { "The last 15 minutes, second by second" }
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
    };
    Ok(key.keep(Page::new(Tab::Channels, format!("Channel {name}"), &who, body).every(2)))
}

/// The channel that a path names, if it exists for the one who asks.
fn existing(who: &Who, name: Result<Path<String>, PathRejection>) -> Result<ChannelName, Problem> {
    let name = name.ok().and_then(|Path(name)| ChannelName::new(&name).ok());
    name.filter(|name| who.has_channel(name.as_str())).ok_or_else(no_such_channel)
}

pub(super) fn no_such_channel() -> Problem {
    let detail = "no channel of this name was run on this database";
    Problem::new(StatusCode::NOT_FOUND, "no-such-channel", "No such channel", detail)
}

fn notice(done: &str) -> Option<&'static str> {
    match done {
        "paused" => Some(
            "Paused: nothing more is claimed, and every node knows within a second. Requests under way still end.",
        ),
        "resumed" => Some("Resumed: the channel sends again within a second."),
        _ => None,
    }
}

fn facts(status: &ChannelStatus) -> Markup {
    html! {
        dl.facts {
            div { dt { "Pace, last minute" } dd { (pace(status)) } }
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
                    Some(wait) => { "limit " strong { (wait.limit) } ", for " (span(Duration::from_secs_f64(wait.seconds.max(0.0)))) " yet" }
                    None => "no limit, on this node"
                }
            } }
            div { dt { "Late" } dd {
                @match &status.late {
                    Some(late) => { strong.bad { (count(late.refunds, "refund")) } " will miss their deadlines, the first at " (time(late.from)) }
                    None => "no refund will miss its deadline"
                }
            } }
            div { dt { "Run by" } dd {
                @if status.run_by.is_empty() { "no living node" }
                @else { (status.run_by.iter().map(|node| node.split('#').next().unwrap_or(node)).collect::<Vec<_>>().join(", ")) }
            } }
        }
    }
}

/// What a resume lifts of this cause, and the text of its button; `None` for a pause of everything, which concerns all
/// channels.
fn lifts(cause: &str) -> Option<(&'static str, &'static str)> {
    match cause {
        "person" => Some(("pause", "Resume")),
        "credentials" => Some(("credentials", "The credentials are right now: resume")),
        "breaker" => Some(("breaker", "Lift the breaker of")),
        _ => None,
    }
}

fn controls(who: &Who, key: &FormKey, status: &ChannelStatus) -> Markup {
    let path = |verb: &str| format!("/channels/{}/{verb}", status.channel);
    html! {
        @if who.may(CallerScope::Operate) {
            section.controls aria-label="Pause and resume" {
                @for cause in &status.suspended_by {
                    @if let Some((lift, what)) = lifts(cause) {
                        form method="post" action=(path("resume")) {
                            (key.field()) (by_field(who))
                            input type="hidden" name="lift" value=(lift);
                            button.primary { (what) " " (status.channel) }
                        }
                    }
                }
                @if !status.suspended_by.iter().any(|cause| cause == "person") {
                    details {
                        summary { "Pause this channel" }
                        form method="post" action=(path("pause")) {
                            (key.field())
                            label { "Reason, for everybody who asks why"
                                input type="text" name="reason" required maxlength="400" autocomplete="off";
                            }
                            (by_field(who))
                            p.hint { "All nodes stop sends and inquiries within a second. Refunds can still be saved. Requests under way still end." }
                            button.danger { "Pause " (status.channel) }
                        }
                    }
                }
            }
        }
    }
}

fn counts(status: &ChannelStatus) -> Markup {
    html! {
        ul.states {
            @for (of, number) in &status.counts {
                li {
                    (state(*of)) " "
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
            @match span { Some(span) => { (rounded(span)) " ms" } None => span.none { "not measured in the last minute" } }
        }
    };
    html! {
        @if minutes.banks.is_empty() { p.empty { "No living node has measured it." } }
        @else {
            table.stack role="table" {
                (head("What each node sees of the bank", &["Node", "Connection set-up", "Round trip", "It varies by"]))
                tbody role="rowgroup" {
                    @for bank in &minutes.banks {
                        tr role="row" {
                            th scope="row" role="rowheader" { (foreign(&bank.node)) }
                            (cell("Connection set-up", &html! { (millis(bank.set_up_ms)) }))
                            (cell("Round trip", &html! { (millis(bank.round_trip_ms)) }))
                            (cell("It varies by", &html! { (millis(bank.round_trip_variation_ms)) }))
                        }
                    }
                }
            }
        }
    }
}

/// `POST /channels/{name}/pause`.
pub(in crate::http) async fn pause(
    State(api): State<Api>,
    who: Who,
    name: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, Problem> {
    let name = existing(&who, name)?;
    let (head, body) = request.into_parts();
    let form = Form::read(&api, &head.headers, body).await?;
    let reason =
        form.words("reason", 400, "why; everybody who asks for the status sees it").map(str::to_owned);
    let (reason, by) = match (reason, form.by(&who)) {
        (Ok(reason), Ok(by)) => (reason, by),
        (reason, by) => return Err(Problem::invalid(reason.err().into_iter().chain(by.err()).collect())),
    };
    // In a task of its own, so that the pause goes on when the browser hangs up.
    let channel = name.clone();
    let task = tokio::spawn(async move {
        let pause = Pause { reason: &reason, who: &by, lasts: None };
        api.node.store.pause(channel.as_str(), &pause).await
    });
    changed(&name, "paused", task.await)
}

/// `POST /channels/{name}/resume`.
pub(in crate::http) async fn resume(
    State(api): State<Api>,
    who: Who,
    name: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, Problem> {
    let name = existing(&who, name)?;
    let (head, body) = request.into_parts();
    let form = Form::read(&api, &head.headers, body).await?;
    let by = form.by(&who).map_err(|error| Problem::invalid(vec![error]))?;
    let own = match form.text("lift") {
        "credentials" => Some(SuspendedBy::Credentials),
        "breaker" => Some(SuspendedBy::Breaker),
        _ => None,
    };
    let channel = name.clone();
    let task = tokio::spawn(async move {
        let (store, channel) = (&api.node.store, channel.as_str());
        match own {
            Some(own) => store.release(channel, own, &by, None).await,
            None => store.resume(channel, &by, None).await,
        }
        .map(|resumed| resumed != Resumed::NoSuchChannel)
    });
    changed(&name, "resumed", task.await)
}

/// Back to the channel, if it exists.
fn changed(
    name: &ChannelName,
    done: &str,
    result: Result<Result<bool, crate::store::StoreError>, tokio::task::JoinError>,
) -> Result<Response, Problem> {
    let exists = result.map_err(|_| Problem::internal())?.map_err(|error| Problem::store(&error))?;
    if !exists {
        return Err(no_such_channel());
    }
    Ok(Redirect::to(&format!("/channels/{name}?done={done}")).into_response())
}
