//! A problem as a page: what is wrong, in the words of the form, and the way back.

use axum::extract::Request;
use axum::http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HOST, REFERER};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};

use super::super::Problem;
use super::{Page, parts};
use crate::refund::draft::FieldError;

/// What the page of a problem knows of the request.
#[derive(Debug)]
pub(in crate::http) struct AskedByPerson {
    is_form: bool,
    /// The page that the person came from.
    back: Option<String>,
}

impl AskedByPerson {
    /// `Some` if the request comes from a browser that shows a page. The routes of programs answer programs, whatever they accept.
    pub(in crate::http) fn of(request: &Request) -> Option<AskedByPerson> {
        let path = request.uri().path();
        let is_of_programs = path.starts_with("/v1/") || path.starts_with("/health/") || path == "/metrics";
        let accepts = |value: &HeaderValue| value.to_str().is_ok_and(|value| value.contains("text/html"));
        let is_person = !is_of_programs && request.headers().get_all(ACCEPT).iter().any(accepts);
        let asked = |path| AskedByPerson {
            is_form: request.method() == Method::POST,
            back: back(request.headers(), path),
        };
        is_person.then(|| asked(request.uri().path()))
    }

    /// The same answer; a problem becomes a page.
    pub(in crate::http) fn show(&self, response: Response) -> Response {
        let Some(problem) = response.extensions().get::<Problem>() else { return response };
        let mut page = self.page(problem).into_response();
        for (name, value) in response.headers() {
            if ![CONTENT_TYPE, CONTENT_LENGTH].contains(name) {
                page.headers_mut().insert(name.clone(), value.clone());
            }
        }
        page
    }

    fn page(&self, problem: &Problem) -> Page {
        let has_wrong_fields = !problem.errors.is_empty();
        let is_refused_form = self.is_form && has_wrong_fields;
        let title = match (is_refused_form, has_wrong_fields) {
            (true, _) => "Nothing was changed",
            (false, true) => "Nothing to show",
            (false, false) => problem.title,
        };
        let body = html! {
            h1 { (title) }
            @if has_wrong_fields { p { "The form lacks something, or has something wrong:" } }
            @else { p { (problem.status().as_u16()) ": " (problem.detail) } }
            @if !problem.errors.is_empty() {
                ul { @for error in &problem.errors { li { (self.line(error)) } } }
            }
            @if is_refused_form { p { "The Back button of your browser keeps what you wrote." } }
            @if problem.status() == StatusCode::UNAUTHORIZED {
                p { "Log in with any user name, and with your caller's token as the password; or with a client certificate." }
            }
            @if let Some(seconds) = problem.retry_after_s {
                p { "Try again in " (parts::count(u64::from(seconds), "second")) "." }
            }
            @if let Some(back) = &self.back { p { a href=(back) { "Back to the page that you came from" } } }
            p { a href="/" { "To the channels" } }
        };
        Page { status: problem.status(), title: title.to_owned(), tab: None, who: None, every: None, body }
    }

    fn line(&self, error: &FieldError) -> Markup {
        let message = if self.is_form { words(&error.field) } else { None };
        html! { strong { (label(&error.field)) } ": " (parts::with_times(&message.unwrap_or(&error.message).replace('`', ""))) }
    }
}

/// The page of this node that the browser came from, if it says one, and another than this one.
fn back(headers: &HeaderMap, path: &str) -> Option<String> {
    let from: Uri = headers.get(REFERER)?.to_str().ok()?.parse().ok()?;
    let is_own = headers.get(HOST)?.to_str().ok() == from.authority().map(Authority::as_str);
    // A path that begins with two slashes would name another host.
    let is_page = from.path().starts_with('/') && !from.path().starts_with("//") && from.path() != path;
    (is_own && (is_page || path == "/review")).then(|| from.path_and_query().map(ToString::to_string))?
}

/// A field by the name that its form shows.
fn label(field: &str) -> &str {
    match without_place(field) {
        "reason" => "Reason",
        "by" => "Your name",
        "state" => "What became of it",
        "confirm" => "The box about earlier sends",
        "refund" | "refunds" | "proposal" | "proposals" => "Choose",
        "for_seconds" => "Ends",
        "version" | "lift" | "seen" => "The page",
        "channel" => "Channel",
        "from" => "From",
        "to" => "To",
        "id" | "query" | "after" => "The address",
        other => other,
    }
}

/// The list of an entry such as `refunds[3]`.
fn without_place(field: &str) -> &str {
    field.split_once('[').map_or(field, |(list, _)| list)
}

/// What a person does about a field of a form, where the message is for programs.
fn words(field: &str) -> Option<&'static str> {
    match without_place(field) {
        "state" => Some("choose one of the results"),
        "confirm" => Some("tick it only to send the refund again"),
        "refunds" | "proposals" => {
            Some("choose at least one and at most 1,000 of the list, and load a list that is old again")
        }
        "for_seconds" => Some("choose one of the ends in the list"),
        "version" | "lift" | "seen" => Some("load it again, and repeat"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_back_is_a_page_of_this_node() {
        let back_from = |referer: &str, path: &str| {
            let headers = [(HOST, "node:8080"), (REFERER, referer)];
            let headers = headers.map(|(name, value)| (name, HeaderValue::try_from(value).unwrap()));
            back(&headers.into_iter().collect(), path)
        };
        assert_eq!(
            back_from("http://node:8080/review?channel=a", "/review").as_deref(),
            Some("/review?channel=a")
        );
        assert_eq!(
            back_from("http://node:8080/channels/a", "/channels/a/pause").as_deref(),
            Some("/channels/a")
        );
        for wrong in
            ["http://other:8080/review", "http://node:8080//other/", "http://node:8080/here", "x", ""]
        {
            assert_eq!(back_from(wrong, "/here"), None, "{wrong}");
        }
    }
}
