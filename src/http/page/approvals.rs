//! `GET /approvals`: the decisions that wait for a second person, with the evidence; the forms approve or withdraw some of
//! them. An approval names the version of the refund that the list showed.

use std::collections::HashMap;

use axum::extract::{Request, State};
use axum::response::Response;
use maud::{Markup, html};
use serde_json::{Value, json};

use super::super::named_channel::in_filter;
use super::super::proposals::{ProposalResult, ProposalResults, carry_out, read_approvals, read_withdrawals};
use super::super::query::Parameters;
use super::super::{Api, Problem, Who};
use super::form::{Form, FormKey, by_field, reason_field};
use super::list::{ListQuery, MOST};
use super::parts::{cell, count, foreign, head, news, state, time, whole};
use super::story;
use super::{Page, Tab};
use crate::caller::scope::CallerScope;
use crate::refund::draft::FieldError;
use crate::refund::{ProposalId, RefundId};
use crate::store::{Evidence, ProposalFilter, WaitingProposal};

const NAMES: [&str; 6] =
    ["Choose", "Refund", "Amount", "Channel", "The decision, and the evidence", "Why two people"];

/// `GET /approvals`.
pub(in crate::http) async fn show(
    State(api): State<Api>,
    who: Who,
    key: FormKey,
    Parameters(query): Parameters<ListQuery>,
) -> Result<Response, Problem> {
    let channel = in_filter(&api, &who, &query.channel).await?;
    let filter = ProposalFilter {
        channel,
        after: query.after().map(ProposalId),
        limit: MOST,
        ..ProposalFilter::of(who.channels())
    };
    let (api_of_read, of_page) = (api.clone(), filter.clone());
    let read = async move { read(&api_of_read, &of_page).await };
    let (proposals, evidence) = api.lists.place(&who).await.run(read).await?;
    let may = [CallerScope::Approve, CallerScope::Review].map(|scope| who.may(scope));
    let body = html! {
        h1 { "Decisions that wait for a second person" }
        p { "One person decided each of these refunds. Nothing moves before another person approves." }
        form.filter action="/approvals" {
            label { "Channel" input type="search" name="channel" value=(query.channel) maxlength="63" placeholder="all" autocomplete="off"; }
            button { "Filter" }
        }
        (news("decision"))
        @if proposals.is_empty() { p.empty { "Nothing waits for a second person here." } }
        @else if may.contains(&true) {
            // A browser that goes back would choose the decisions at the old places, which may be other ones by now.
            form #opinions.sides method="post" action="/approvals/approve" autocomplete="off" {
                (key.field())
                div { (table(&proposals, &evidence, true)) }
                section.controls aria-labelledby="answer" {
                    h2 #answer { "Answer about the chosen decisions" }
                    (reason_field("Reason: how you know"))
                    (by_field(&who))
                    p.hint { "The person who proposed a decision cannot approve it. A withdrawal leaves the refund as it is." }
                    div.buttons {
                        @if may[0] { button.primary { "Approve" } }
                        @if may[1] { button formaction="/approvals/withdraw" { "Withdraw" } }
                    }
                }
            }
        } @else { (table(&proposals, &evidence, false)) }
        (query.pager("/approvals", "decisions", proposals.iter().map(|one| one.proposal.id.0)))
        p { a href="/review" { "To the refunds in review" } }
    };
    Ok(key.keep(Page::new(Tab::Review, "Approvals", &who, body).every(10)))
}

type Read = (Vec<WaitingProposal>, HashMap<RefundId, Vec<Evidence>>);

/// The proposals, and the last attempts of their refunds.
async fn read(api: &Api, filter: &ProposalFilter) -> Result<Read, Problem> {
    let store = &api.node.store;
    let proposals = store.proposals(filter).await?;
    let ids: Vec<RefundId> = proposals.iter().map(|one| one.proposal.refund_id).collect();
    let evidence = story::last_lines(store, &ids, &filter.channels).await?;
    Ok((proposals, evidence))
}

fn table(
    proposals: &[WaitingProposal],
    evidence: &HashMap<RefundId, Vec<Evidence>>,
    may_answer: bool,
) -> Markup {
    html! {
        table.stack role="table" {
            (head("Decisions that wait for a second person, the oldest first", &NAMES[usize::from(!may_answer)..]))
            tbody role="rowgroup" {
                @for one in proposals {
                    (row(one, evidence.get(&one.proposal.refund_id).map_or(&[][..], Vec::as_slice), may_answer))
                }
            }
        }
    }
}

fn row(one: &WaitingProposal, evidence: &[Evidence], may_answer: bool) -> Markup {
    let WaitingProposal { proposal, refund_ref, money: amount, state_now } = one;
    html! {
        tr role="row" data-row={ (proposal.id) "@" (proposal.version) } {
            @if may_answer {
                (cell("Choose", &html! {
                    input type="checkbox" name="proposal" value={ (proposal.id) "@" (proposal.version) }
                        aria-label={ "Choose the decision about refund " (refund_ref) ", version " (proposal.version) };
                }))
            }
            th scope="row" role="rowheader" { a href={ "/refunds/" (proposal.refund_id) } { (foreign(refund_ref)) } }
            (cell("Amount", &html! { (amount) }))
            (cell("Channel", &html! { a href={ "/channels/" (proposal.channel) } { (foreign(&proposal.channel)) } }))
            (cell("The decision, and the evidence", &html! {
                p {
                    (state(*state_now)) " to become " (state(proposal.state)) ", by " strong { (foreign(&proposal.by)) }
                    @if let Some(at) = proposal.proposed_at { " at " (time(at)) }
                    ": " (foreign(&proposal.reason))
                }
                @if proposal.not_executed { p { "Confirmed: the bank executed none of the earlier sends." } }
                (story::evidence(evidence, refund_ref))
            }))
            (cell("Why two people", &html! {
                (proposal.needed_for.why())
                @if let Some(at) = proposal.expires_at { p.small { "It can be approved until " (time(at)) "." } }
            }))
        }
    }
}

/// `POST /approvals/approve`.
pub(in crate::http) async fn approve(
    State(api): State<Api>,
    who: Who,
    request: Request,
) -> Result<Page, Problem> {
    answer(api, who, request, true).await
}

/// `POST /approvals/withdraw`.
pub(in crate::http) async fn withdraw(
    State(api): State<Api>,
    who: Who,
    request: Request,
) -> Result<Page, Problem> {
    answer(api, who, request, false).await
}

async fn answer(api: Api, who: Who, request: Request, approves: bool) -> Result<Page, Problem> {
    let (head, body) = request.into_parts();
    let form = Form::read(&api, &head, body).await?;
    if form.all("proposal").next().is_none() {
        let message = "none is chosen: go back, and choose the decisions that you answer";
        return Err(Problem::invalid(vec![FieldError::new("proposal", None, message)]));
    }
    let mut object = form.object(&["reason", "by"]);
    object.insert("proposals".to_owned(), form.all("proposal").map(|text| named(text, approves)).collect());
    let answers = if approves { read_approvals(&object, &who) } else { read_withdrawals(&object, &who) };
    let results = carry_out(api, who.clone(), answers.map_err(Problem::invalid)?).await?;
    Ok(Page::new(Tab::Review, "Answered", &who, answered(&results, approves)))
}

/// A proposal as the body of the route for programs names it.
fn named(text: &str, approves: bool) -> Value {
    let (id, version) = text.split_once('@').unwrap_or((text, ""));
    if approves { json!({ "id": id, "version": version.parse::<i32>().ok() }) } else { id.into() }
}

fn answered(results: &ProposalResults, approves: bool) -> Markup {
    let done = if approves { "approved" } else { "withdrawn" };
    let (yes, no): (Vec<&ProposalResult>, Vec<_>) = results.results.iter().partition(|one| one.is_done());
    html! {
        h1 { @if yes.is_empty() { "Nothing was " (done) } @else if approves { "Approved" } @else { "Withdrawn" } }
        p.notice role="status" {
            (whole(results.done as u64)) " of " (count(results.results.len() as u64, "decision")) " " (done)
            @if no.is_empty() { "." } @else { "; the others are listed below with the reason." }
        }
        @for (title, results) in [(format!("Not {done}"), no), (format!("Now {done}"), yes)] {
            @if !results.is_empty() {
                h2 { (title) }
                ul { @for one in results { li { (result(one)) } } }
            }
        }
        p { a href="/approvals" { "Back to the approvals" } }
    }
}

fn result(one: &ProposalResult) -> Markup {
    html! {
        @match one.refund_id {
            Some(id) => { a href={ "/refunds/" (id) } { "Refund " (id) } }
            None => { "Decision " (one.id) }
        }
        @if let Some(now) = one.state { " is " (state(now)) }
        // Where the message goes on with a route, it is for programs.
        @if let Some(message) = &one.message { ": " (foreign(message.split("; GET ").next().unwrap_or(message))) }
    }
}
