//! The page for people: what the channels, refunds and nodes do, and the decisions and pauses of an operator.
//!
//! It shows what the HTTP API shows, by the same functions, and is made on the server. One small script only updates what
//! is there already. Reads that cost more than a few rows are shared by all viewers (`watch`), so viewers do not add up.
//!
//! Every text is escaped twice: `maud` escapes markup, and [`Page`] writes out hidden characters. The content security
//! policy allows no script and no style that stands in the page itself.

pub(super) mod approvals;
mod binds;
pub(super) mod channel;
mod chart;
mod decision;
pub(super) mod events;
mod form;
mod limit_bars;
mod list;
mod moments;
pub(super) mod nodes;
mod notice;
mod numbered;
pub(super) mod overview;
mod parts;
pub(super) mod pausing;
pub(super) mod problem;
pub(super) mod proof;
pub(super) mod refund;
pub(super) mod review;
mod standing;
mod story;
mod totals;
pub(super) mod watch;

use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, REFERRER_POLICY};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use maud::{DOCTYPE, Markup, html};

use super::Who;
use crate::refund::text::shown;

/// Nothing is loaded from elsewhere, and nothing in the page itself is a script or a style.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The parts of the page, in the order of its menu.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tab {
    Channels,
    Review,
    Refunds,
    Events,
    Proof,
    Nodes,
}

impl Tab {
    const ALL: [(Tab, &'static str, &'static str); 6] = [
        (Tab::Channels, "/", "Channels"),
        (Tab::Review, "/review", "Review"),
        (Tab::Refunds, "/refunds", "Refunds"),
        (Tab::Events, "/events", "Events"),
        (Tab::Proof, "/proof", "Proof"),
        (Tab::Nodes, "/nodes", "Nodes"),
    ];
}

/// One page, as an answer.
#[derive(Debug)]
pub(super) struct Page {
    status: StatusCode,
    title: String,
    tab: Option<Tab>,
    /// Who looks; `None` where nobody knows.
    who: Option<Who>,
    /// After how many seconds the script reads the page again; `None` for a page that does not change.
    every: Option<u32>,
    body: Markup,
}

impl Page {
    fn new(tab: Tab, title: impl Into<String>, who: &Who, body: Markup) -> Page {
        let (title, who) = (title.into(), Some(who.clone()));
        Page { status: StatusCode::OK, title, tab: Some(tab), who, every: None, body }
    }

    fn every(self, seconds: u32) -> Page {
        Page { every: Some(seconds), ..self }
    }

    fn markup(&self) -> Markup {
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (self.title) " · refundd" }
                    link rel="stylesheet" href="/page.css";
                    link rel="icon" type="image/svg+xml" href="/page.svg";
                    script src="/page.js" defer {}
                }
                body data-every=[self.every] {
                    a.skip href="#content" { "Skip to the content" }
                    header {
                        a.brand href="/" { img src="/page.svg" alt="" width="24" height="24"; span { "refundd" } }
                        nav aria-label="Pages" {
                            ul {
                                @for (tab, path, name) in Tab::ALL {
                                    li { a href=(path) aria-current=[(self.tab == Some(tab)).then_some("page")] { (name) } }
                                }
                            }
                        }
                        form.find role="search" action="/refunds" {
                            label.hidden for="find" { "Find a refund by its ref, id, request id, bank reference or payment ref" }
                            input #find type="search" name="q" maxlength="200" placeholder="Refund by any name" autocomplete="off";
                            button { "Find" }
                        }
                    }
                    main #content tabindex="-1" {
                        p #freshness role="status" {}
                        (self.body)
                    }
                    footer {
                        @match &self.who {
                            Some(Who::Caller(caller)) => p { "You are the caller " strong { (caller.name.as_str()) } "." },
                            Some(Who::Anyone) => p {
                                "The configuration has no callers, so everybody who reaches this address may do everything here."
                            },
                            Some(Who::Stranger) | None => {},
                        }
                        p { "refundd " (env!("CARGO_PKG_VERSION")) ". For programs: " a href="/v1/openapi.json" { "/v1/openapi.json" } "." }
                    }
                }
            }
        }
    }
}

impl IntoResponse for Page {
    fn into_response(self) -> Response {
        let text = shown(&self.markup().into_string()).into_owned();
        let headers = [
            (CONTENT_TYPE, "text/html; charset=utf-8"),
            (CONTENT_SECURITY_POLICY, POLICY),
            // With `no-referrer` a browser would send a form with `Origin: null`.
            (REFERRER_POLICY, "same-origin"),
            (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        ];
        let headers = headers.map(|(name, value)| (name, HeaderValue::from_static(value)));
        (self.status, headers, text).into_response()
    }
}

/// `GET /page.css`.
pub(super) async fn style() -> impl IntoResponse {
    file("text/css; charset=utf-8", include_str!("page/page.css"))
}

/// `GET /page.js`.
pub(super) async fn script() -> impl IntoResponse {
    file("text/javascript; charset=utf-8", include_str!("page/page.js"))
}

/// `GET /page.svg`.
pub(super) async fn icon() -> impl IntoResponse {
    file("image/svg+xml", include_str!("page/page.svg"))
}

fn file(kind: &'static str, text: &'static str) -> impl IntoResponse {
    let headers = [(CONTENT_TYPE, kind), (CONTENT_SECURITY_POLICY, POLICY)];
    (headers.map(|(name, value)| (name, HeaderValue::from_static(value))), text)
}
