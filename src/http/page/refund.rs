//! `GET /refunds` finds a refund; `GET /refunds/{id}` tells its story: what it is, every request to the bank with its answer,
//! and what people decided.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use serde::Deserialize;

use super::super::look::{Named, refund_of};
use super::super::{Api, Problem, Who};
use super::decision::{choices, decision_fields};
use super::form::FormKey;
use super::overview::wrong_query;
use super::parts::{Tone, badge, count, foreign, money, state, time};
use super::{Page, Tab};
use crate::caller::scope::CallerScope;
use crate::refund::text::problem;
use crate::refund::{Refund, RefundId};
use crate::store::{Evidence, Filter};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::http) struct Wanted {
    q: String,
}

/// `GET /refunds`: leads to the refund that has this ref or this id.
pub(in crate::http) async fn find(
    State(api): State<Api>,
    who: Who,
    query: Result<Query<Wanted>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(Wanted { q }) = query.map_err(|error| wrong_query(&error))?;
    let q = q.trim();
    let found = if q.is_empty() || problem(q).is_some() { None } else { search(&api, &who, q).await? };
    if let Some(id) = found {
        return Ok(Redirect::to(&format!("/refunds/{id}")).into_response());
    }
    let body = html! {
        h1 { "Find a refund" }
        @if !q.is_empty() {
            p.notice role="status" { "No refund has the ref or the id " strong { (foreign(q)) } ". Both must be exact, with capitals as they were saved." }
        }
        form.filter action="/refunds" {
            label { "Refund ref or id" input type="search" name="q" value=(q) required maxlength="200" autocomplete="off"; }
            button.primary { "Find" }
        }
        p.hint { "The ref is the name that the caller gave, such as order-8812-refund-1. The id is refundd's own number; it stands in logs and in the request to the bank." }
    };
    Ok(Page::new(Tab::Refunds, "Find a refund", &who, body).into_response())
}

/// The refund with this ref, or else with this id.
async fn search(api: &Api, who: &Who, q: &str) -> Result<Option<RefundId>, Problem> {
    let store = &api.node.store;
    let filter =
        Filter { refund_ref: Some(q.to_owned()), channels: who.channels(), limit: 1, ..Filter::default() };
    let by_ref = store.list(&filter).await.map_err(|error| Problem::store(&error))?;
    if let Some(refund) = by_ref.first() {
        return Ok(Some(refund.id));
    }
    let Some(id) = q.parse().ok().filter(|id| *id > 0).map(RefundId) else { return Ok(None) };
    let by_id = store.refund(id).await.map_err(|error| Problem::store(&error))?;
    Ok(by_id.filter(|refund| who.has_channel(&refund.channel)).map(|refund| refund.id))
}

/// `GET /refunds/{id}`.
pub(in crate::http) async fn show(
    State(api): State<Api>,
    who: Who,
    key: FormKey,
    Named(id): Named,
) -> Result<Response, Problem> {
    let refund = refund_of(&api, &who, id).await?;
    let store = &api.node.store;
    let evidence = store.evidence(id).await.map_err(|error| Problem::store(&error))?;
    let forgotten = store.forgotten_before(&refund).await.map_err(|error| Problem::store(&error))?;
    let body = html! {
        h1 { "Refund " (foreign(&refund.refund_ref)) }
        div #refund data-live {
            p.standing { (state(refund.state)) @if let Some(reason) = &refund.reason { " " (foreign(reason)) } }
            (facts(&refund))
        }
        section aria-labelledby="story" {
            h2 #story { "What happened" }
            div #events data-live {
                @if let Some(before) = forgotten {
                    p.notice { "The journal goes back to " (time(before)) " only; earlier requests may be missing here." }
                }
                (story(&refund, &evidence))
            }
        }
        @if who.may(CallerScope::Review) && !choices(refund.state).is_empty() {
            section aria-labelledby="decide" {
                h2 #decide { "Decide" }
                form method="post" action="/review" {
                    (key.field())
                    input type="hidden" name="refund" value={ (refund.id) "@" (refund.version) };
                    (decision_fields(&who, &choices(refund.state)))
                    button.primary { "Write the decision" }
                }
            }
        }
        @if let Some(payload) = &refund.payload {
            section aria-labelledby="payload" {
                h2 #payload { "Payload, as the bank gets it" }
                pre tabindex="0" { (payload.get()) }
            }
        }
    };
    let page = Page::new(Tab::Refunds, format!("Refund {}", refund.refund_ref), &who, body);
    Ok(key.keep(page.every(5)))
}

fn facts(refund: &Refund) -> Markup {
    html! {
        dl.facts {
            div { dt { "Amount" } dd { strong { (money(&refund.money)) } } }
            div { dt { "Channel" } dd { a href={ "/channels/" (refund.channel) } { (foreign(&refund.channel)) } } }
            div { dt { "Payment" } dd { (foreign(&refund.payment_ref)) } }
            div { dt { "Id, version" } dd { (refund.id) ", version " (refund.version) } }
            div { dt { "Key at the bank" } dd { code { (refund.request_id) } } }
            div { dt { "Sends that counted" } dd { (count(u64::try_from(refund.attempts).unwrap_or(0), "send")) } }
            div { dt { "Saved" } dd { (time(refund.created_at)) } }
            div { dt { "Not before" } dd { (time(refund.due_at)) } }
            @if let Some(at) = refund.deadline_at { div { dt { "Not after" } dd { (time(at)) } } }
            @if let Some(at) = refund.uncertain_since {
                div { dt { "May have been executed" } dd { strong.bad { "since " (time(at)) } } }
            }
            @if let Some(at) = refund.settled_at { div { dt { "Ended" } dd { (time(at)) } } }
        }
    }
}

fn story(refund: &Refund, evidence: &[Evidence]) -> Markup {
    html! {
        ol.story {
            li { (time(refund.created_at)) p { "Saved, to be sent from " (time(refund.due_at)) " on." } }
            @for one in evidence { (line(one)) }
            @if let Some(at) = refund.settled_at {
                li { (time(at)) p { "Ended as " (state(refund.state)) "." } }
            } @else {
                li.now { p { "Now " (state(refund.state)) "." } }
            }
        }
    }
}

/// One line of the journal.
pub(super) fn line(one: &Evidence) -> Markup {
    let what = match one.kind.as_str() {
        "send" => format!("Send {}", one.number),
        "inquiry" => format!("Inquiry {}", one.number),
        "manual" => "Decision".to_owned(),
        "recovery" => "Recovery".to_owned(),
        other => other.to_owned(),
    };
    let tone = match one.outcome.as_str() {
        "succeeded" => Tone::Good,
        "rejected" | "unknown" | "review" => Tone::Bad,
        "not_executed" => Tone::Warning,
        _ => Tone::Plain,
    };
    html! {
        li {
            @if let Some(at) = one.started_at.or(one.finished_at) { (time(at)) }
            p {
                strong { (what) } " by " (foreign(one.node.split('#').next().unwrap_or(&one.node))) ": "
                (badge(tone, &one.outcome))
                @if let Some(status) = one.status { " status " (status) }
                @if let Some(code) = &one.code { " " code { (code) } }
                @if let Some(moved_to) = &one.moved_to { ", moved to " strong { (moved_to) } }
                @else { ", moved nothing" }
            }
            @if let Some(message) = &one.message { p.message { (foreign(message)) } }
            @if matches!(one.kind.as_str(), "send" | "inquiry") {
                p.small {
                    @match one.started_at {
                        Some(_) => "its first byte left at the time above",
                        None => "no byte left",
                    }
                    @if let Some(at) = one.finished_at { "; written down at " (time(at)) }
                    @if let Some(permit) = &one.permit { "; permit " code { (permit) } }
                }
            }
        }
    }
}
