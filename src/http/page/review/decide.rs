//! `POST /review`: what a person decided about some refunds of the list. A decision names the version that the list showed, so it is
//! refused if the refund has moved since.

use axum::extract::{Request, State};
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::super::super::review::{DecisionResult, carry_out, read};
use super::super::super::{Api, Problem, Who};
use super::super::form::Form;
use super::super::parts::{count, foreign, state, whole};
use super::super::{Page, Tab};
use crate::refund::draft::FieldError;

/// `POST /review`.
pub(in crate::http) async fn decide(
    State(api): State<Api>,
    who: Who,
    request: Request,
) -> Result<Page, Problem> {
    let (head, body) = request.into_parts();
    let form = Form::read(&api, &head, body).await?;
    if form.all("refund").next().is_none() {
        let error = FieldError::new(
            "refund",
            None,
            "none is chosen: go back, and choose the refunds that you decide about",
        );
        return Err(Problem::invalid(vec![error]));
    }
    let decisions = read(&as_body(&form), &who).map_err(Problem::invalid)?;
    let results = carry_out(&api, &who, decisions).await?;
    let (done, others): (Vec<&DecisionResult>, Vec<_>) =
        results.results.iter().partition(|one| one.is_decided());
    let (proposed, not): (Vec<&DecisionResult>, Vec<_>) =
        others.into_iter().partition(|one| one.is_proposed());
    let title = match (done.is_empty(), proposed.is_empty()) {
        (false, _) => "Decided",
        (true, false) => "Not decided yet",
        (true, true) => "Nothing was decided",
    };
    let body = html! {
        h1 { (title) }
        p.notice role="status" {
            (whole(done.len() as u64)) " of " (count(results.results.len() as u64, "refund")) " decided"
            @if !proposed.is_empty() {
                "; " (proposed.len()) @if proposed.len() == 1 { " waits" } @else { " wait" } " for a second person"
            }
            @if not.is_empty() { "." } @else { "; the others are listed below with the reason." }
        }
        @if !proposed.is_empty() {
            h2 { "Waiting for a second person" }
            p { "Nothing has moved yet. Another person approves or withdraws these decisions on the page of "
                a href="/approvals" { "approvals" } "." }
            ul { @for one in &proposed { li { (result(one, false)) } } }
        }
        @if !not.is_empty() {
            h2 { "Not decided" }
            ul { @for one in &not { li { (result(one, true)) } } }
        }
        @if !done.is_empty() {
            h2 { "Decided" }
            ul { @for one in &done { li { (result(one, true)) } } }
        }
        p { a href="/review" { "Back to the review list" } }
    };
    Ok(Page::new(Tab::Review, title, &who, body))
}

/// What became of one decision. The message about a proposal is for programs.
fn result(one: &DecisionResult, with_message: bool) -> Markup {
    html! {
        a href={ "/refunds/" (one.id) } { "Refund " (one.id) }
        @if let Some(now) = one.state { " is " (state(now)) }
        @if let Some(version) = one.version { ", version " (version) }
        @if let Some(words) = one.words().filter(|_| with_message) { ": " (foreign(&words)) }
    }
}

/// The form as the body of `POST /v1/review`, so that both ways in have the same checks.
fn as_body(form: &Form) -> Map<String, Value> {
    let refund = |text: &str| {
        let (id, version) = text.split_once('@').unwrap_or((text, ""));
        json!({ "id": id, "version": version.parse::<i32>().ok() })
    };
    let mut body = form.object(&["state", "reason", "by", "confirm"]);
    body.insert("refunds".to_owned(), form.all("refund").map(refund).collect());
    body
}
