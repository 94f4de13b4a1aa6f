//! `GET /refunds` finds a refund by any of its names; `GET /refunds/{id}` tells its story, and what it waits for; the form
//! cancels a refund that was never sent.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::http::header::HOST;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;

use super::super::cancel::{carry_out, read_fields};
use super::super::find::named;
use super::super::look::{Named, refund_of};
use super::super::query::Parameters;
use super::super::{Api, Problem, Who};
use super::decision::{TwoPeople, choices, decision_fields};
use super::form::{Form, FormKey, by_field, reason_field};
use super::notice::Said;
use super::parts::{cell, count, foreign, head, reason, span, state, time, whole, with_times};
use super::story;
use super::{Page, Tab};
use crate::caller::scope::CallerScope;
use crate::desk::story::{Story, WaitsFor};
use crate::refund::text::problem;
use crate::refund::{Refund, State as RefundState};
use crate::store::{Found, FoundRefunds, ProposalFilter, WaitingProposal};

/// The most refunds with one name in the list.
const MOST: u32 = 100;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::http) struct RefundsQuery {
    q: String,
}

/// `GET /refunds`: leads to the refund that has this name, or lists those that have it.
pub(in crate::http) async fn find(
    State(api): State<Api>,
    who: Who,
    Parameters(RefundsQuery { q }): Parameters<RefundsQuery>,
) -> Result<Response, Problem> {
    let q = q.trim();
    let FoundRefunds { found, more } = if q.is_empty() || problem(q).is_some() {
        FoundRefunds { found: Vec::new(), more: false }
    } else {
        named(&api, &who, q.to_owned(), MOST).await?
    };
    if let [Found { refund, by }] = found.as_slice() {
        // A person may have meant a ref that no refund has.
        let how = if *by == ["id"] { "?done=found_by_id" } else { "" };
        return Ok(Redirect::to(&format!("/refunds/{}{how}", refund.id)).into_response());
    }
    let body = html! {
        h1 { "Find a refund" }
        @if !found.is_empty() { (matches(q, &found, more)) }
        @else if !q.is_empty() {
            p.notice role="status" {
                "No refund has the ref, id, request id, bank reference or payment ref " strong { (foreign(q)) }
                ". It must be exact, with capitals as they were saved."
            }
        }
        form.filter action="/refunds" {
            label { "Any name of the refund" input type="search" name="q" value=(q) required maxlength="200" autocomplete="off"; }
            button.primary { "Find" }
        }
        ul.hint {
            li { "The ref is the name that the caller gave, such as order-8812-refund-1." }
            li { "The id is refundd's own number; it stands in logs and in the request to the bank." }
            li { "The request id is the key that the bank gets with every send." }
            li { "The bank reference is the bank's own name for the refund." }
            li { "The payment ref is the payment that the refund returns; a payment may have several refunds." }
        }
    };
    Ok(Page::new(Tab::Refunds, "Find a refund", &who, body).into_response())
}

fn matches(q: &str, found: &[Found], more: bool) -> Markup {
    html! {
        p.notice role="status" {
            @if more { "More than " } (count(found.len() as u64, "refund")) " have the name " strong { (foreign(q)) } "."
        }
        table.stack role="table" {
            (head("Refunds with this name, newest first", &["Refund", "State", "Amount", "Channel", "Found by", "Saved"]))
            tbody role="rowgroup" {
                @for Found { refund, by } in found {
                    tr role="row" {
                        th scope="row" role="rowheader" { a href={ "/refunds/" (refund.id) } { (foreign(&refund.refund_ref)) } }
                        (cell("State", &state(refund.state)))
                        (cell("Amount", &html! { (refund.money) }))
                        (cell("Channel", &html! { a href={ "/channels/" (refund.channel) } { (foreign(&refund.channel)) } }))
                        (cell("Found by", &html! { (by.join(", ").replace('_', " ")) }))
                        (cell("Saved", &time(refund.created_at)))
                    }
                }
            }
        }
    }
}

/// `GET /refunds/{id}`.
pub(in crate::http) async fn show(
    State(api): State<Api>,
    who: Who,
    key: FormKey,
    Named(id): Named,
    Parameters(said): Parameters<Said>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let place = place(&headers, key.is_over_tls());
    let refund = refund_of(&api, &who, id).await?;
    let read = api.watch.story(&api, &who, &refund).await?;
    let about = ProposalFilter { refunds: Some(vec![id]), limit: 1, ..ProposalFilter::of(who.channels()) };
    let proposal = api.node.store.proposals(&about).await?.pop();
    let two_people = TwoPeople::read(&api).await?;
    let body = html! {
        h1 { "Refund " (foreign(&refund.refund_ref)) }
        div #refund data-live {
            @if said.done == "cancelled" && refund.state == RefundState::Cancelled && !may_have_left(read.story.as_ref()) {
                p.notice role="status" { "Cancelled: it is never sent." }
            }
            @if said.done == "found_by_id" {
                p.notice role="status" { "Found by its id, " (id) ". Its ref is " strong { (foreign(&refund.refund_ref)) } "." }
            }
            p.standing { (state(refund.state)) @if let Some(text) = &refund.reason { " " (reason(text)) } }
            @if let Some(proposal) = &proposal { (waiting(proposal)) }
            @if let Some(story) = &read.story { (progress(story)) }
            (facts(&refund))
        }
        section aria-labelledby="story" {
            h2 #story { "What happened" }
            div #events data-live { @if let Some(story) = &read.story { (story::story(story, &read.events, &who.channels())) } }
            p { a href={ "/events?channel=" (refund.channel) } { "All events of its channel" } }
        }
        @if who.may(CallerScope::Review) && !choices(refund.state).is_empty() {
            section aria-labelledby="decide" {
                h2 #decide { "Decide" }
                form method="post" action="/review" autocomplete="off" {
                    (key.field())
                    input type="hidden" name="refund" value={ (refund.id) "@" (refund.version) };
                    (decision_fields(&who, &choices(refund.state), &two_people.of(&refund)))
                    button.primary { "Write the decision" }
                }
            }
        }
        @if who.may(CallerScope::Cancel) && refund.state == RefundState::Ready {
            section aria-labelledby="cancel" {
                h2 #cancel { "Cancel" }
                @if may_have_left(read.story.as_ref()) {
                    p { "A byte of it may have left, so it cannot be cancelled here. The bank executed nothing, so this command withdraws it:" }
                    pre tabindex="0" { (withdrawal(&refund, &who, &place)) }
                } @else { (cancel_form(&who, &key, &refund)) }
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

/// A decision that waits for a second person.
fn waiting(proposal: &WaitingProposal) -> Markup {
    let proposal = &proposal.proposal;
    html! {
        p.notice {
            "The decision " (state(proposal.state)) " of " (foreign(&proposal.by)) " waits for a second person, because "
            (proposal.needed_for.why()) ". " a href={ "/approvals?channel=" (proposal.channel) } { "To the approvals" }
        }
    }
}

/// What the refund waits for, its place, and when it will probably be sent.
fn progress(story: &Story) -> Markup {
    html! {
        dl.facts {
            @if let Some(awaited) = &story.waits_for {
                div.wide { dt { "Waits for" } dd {
                    // The command that the text names for a person is this page.
                    @if awaited.what == WaitsFor::Person { "a person, who decides" }
                    @else { (with_times(&awaited.text.replace('`', ""))) }
                } }
            }
            @if let Some((place, of)) = story.place.zip(story.of) {
                div { dt { "Place" } dd { (whole(place)) " of " (whole(of)) " that are ready" } }
                div { dt { "Will probably be sent" } dd {
                    @match story.expected_at.zip(story.expected_in_seconds) {
                        Some((at, seconds)) => {
                            "in " (span(Duration::try_from_secs_f64(seconds).unwrap_or_default())) span.at { " at " (time(at)) }
                        }
                        None => { "unknown" @if let Some(why) = &story.no_forecast_because { ": " (why) } }
                    }
                } }
            }
        }
    }
}

fn facts(refund: &Refund) -> Markup {
    html! {
        dl.facts {
            div { dt { "Amount" } dd { strong { (refund.money) } } }
            div { dt { "Channel" } dd { a href={ "/channels/" (refund.channel) } { (foreign(&refund.channel)) } } }
            div { dt { "Payment" } dd { (foreign(&refund.payment_ref)) } }
            div { dt { "Id, version" } dd { (refund.id) ", version " (refund.version) } }
            div { dt { "Request id, the key at the bank" } dd { code { (refund.request_id) } } }
            div { dt { "Bank reference" } dd {
                @match &refund.bank_ref { Some(name) => { (foreign(name)) } None => span.none { "not known" } }
            } }
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

/// Whether a byte of the refund may have left, as far as is known. Postgres decides when the form is sent.
fn may_have_left(story: Option<&Story>) -> bool {
    story.is_none_or(|story| story.may_have_left)
}

/// The command that withdraws a refund of which a byte left, at the place of this page.
fn withdrawal(refund: &Refund, who: &Who, place: &str) -> String {
    let (token, by) = match who.name() {
        Some(_) => (" -H \"authorization: Bearer $TOKEN\"", ""),
        None => ("", ", \"by\": \"your name\""),
    };
    let Refund { id, version, .. } = refund;
    let body = format!("{{\"version\": {version}, \"reason\": \"why\"{by}}}");
    format!("curl {place}/v1/refunds/{id}/cancel -H 'content-type: application/json'{token} -d '{body}'")
}

/// The scheme and the host of this page, as the browser named them.
fn place(headers: &HeaderMap, is_over_tls: bool) -> String {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or("127.0.0.1:8080");
    format!("{}://{host}", if is_over_tls { "https" } else { "http" })
}

fn cancel_form(who: &Who, key: &FormKey, refund: &Refund) -> Markup {
    html! {
        details {
            summary { "Cancel this refund" }
            form method="post" action={ "/refunds/" (refund.id) "/cancel" } {
                (key.field())
                input type="hidden" name="version" value=(refund.version);
                (reason_field("Reason, for the journal"))
                (by_field(who))
                p.hint { "It is never sent then, and its ref is used up. A refund that a node claims meanwhile is sent and stays." }
                button.danger { "Cancel the refund" }
            }
        }
    }
}

/// `POST /refunds/{id}/cancel`: as `refundd cancel`, only a refund of which no byte ever left.
pub(in crate::http) async fn cancel(
    State(api): State<Api>,
    who: Who,
    Named(id): Named,
    request: Request,
) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let form = Form::read(&api, &head, body).await?;
    let mut object = form.object(&["by"]);
    // A person always says why, and who they are.
    object.insert("reason".to_owned(), form.text("reason").into());
    if who.name().is_none() {
        object.insert("by".to_owned(), form.text("by").into());
    }
    object.insert("version".to_owned(), form.text("version").parse::<i32>().map_or(Value::Null, Value::from));
    let mut cancellation = read_fields(&object, &who)?;
    cancellation.canceller.never_sent = true;
    carry_out(api, &who, id, cancellation).await?;
    Ok(Redirect::to(&format!("/refunds/{id}?done=cancelled")).into_response())
}
