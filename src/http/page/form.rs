//! Forms of the page: reads what a person sent, and refuses what another page made the person's browser send.
//!
//! A browser adds a password or a client certificate to every request for this address, whichever page caused it. So a
//! form counts only if all three hold: its `Origin` is this address (`guard` compares the two), its cookie came from this
//! address, and the form has the cookie's value as its key. A page of another origin can read neither cookie nor key.
//!
//! Over TLS the cookie's name begins with `__Host-`. Browsers take such a cookie by TLS alone, so nobody on the network
//! path can set one in clear text.

use std::convert::Infallible;

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::header::{CONTENT_TYPE, COOKIE, ORIGIN, SET_COOKIE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use serde_json::{Map, Value};
use subtle::ConstantTimeEq;

use super::super::server::OverTls;
use super::super::{Api, Problem, Who};

/// The cookie's name in clear text. Other ports of this host may set it too, so it is not enough by itself.
const NAME: &str = "refundd_form";
const NAME_OVER_TLS: &str = "__Host-refundd_form";
const KEY_BYTES: usize = 16;
/// The most bytes of a form: a thousand decisions with their versions.
const MOST_BYTES: usize = 128 * 1024;

/// The key of the forms of one browser.
#[derive(Debug, Clone)]
pub(in crate::http) struct FormKey {
    value: String,
    is_new: bool,
    is_over_tls: bool,
}

impl<S: Send + Sync> FromRequestParts<S> for FormKey {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let is_over_tls = is_over_tls(parts);
        if let Some(value) = given(&parts.headers, is_over_tls) {
            return Ok(FormKey { value: value.to_owned(), is_new: false, is_over_tls });
        }
        let mut random = [0_u8; KEY_BYTES];
        // Without random numbers the key stays empty, and no form is taken.
        let value = match getrandom::fill(&mut random) {
            Ok(()) => hex::encode(random),
            Err(_) => String::new(),
        };
        Ok(FormKey { value, is_new: true, is_over_tls })
    }
}

impl FormKey {
    /// Whether the browser is here by TLS.
    pub(super) fn is_over_tls(&self) -> bool {
        self.is_over_tls
    }

    /// The hidden field of a form.
    pub(super) fn field(&self) -> Markup {
        html! { input type="hidden" name="key" value=(self.value); }
    }

    /// The answer, with the cookie if the browser has none.
    pub(super) fn keep(&self, answer: impl IntoResponse) -> Response {
        let mut response = answer.into_response();
        let name = name(self.is_over_tls);
        let secure = if self.is_over_tls { "; Secure" } else { "" };
        let cookie = format!("{name}={}; Path=/; HttpOnly; SameSite=Lax{secure}", self.value);
        if self.is_new
            && let Ok(cookie) = HeaderValue::try_from(cookie)
        {
            response.headers_mut().insert(SET_COOKIE, cookie);
        }
        response
    }
}

fn is_over_tls(parts: &Parts) -> bool {
    parts.extensions.get::<OverTls>().is_some()
}

fn name(is_over_tls: bool) -> &'static str {
    if is_over_tls { NAME_OVER_TLS } else { NAME }
}

/// The key in the request's cookie, if it is one.
fn given(headers: &HeaderMap, is_over_tls: bool) -> Option<&str> {
    let cookies = headers.get_all(COOKIE).into_iter().filter_map(|cookies| cookies.to_str().ok());
    let mut cookies =
        cookies.flat_map(|cookies| cookies.split(';')).filter_map(|one| one.trim().split_once('='));
    let (_, value) = cookies.find(|(given, _)| *given == name(is_over_tls))?;
    let is_key = value.len() == 2 * KEY_BYTES && value.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_key.then_some(value)
}

/// The fields of a form that a person of this page sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Form(Vec<(String, String)>);

impl Form {
    /// Reads a form.
    ///
    /// # Errors
    /// When the request is not a form of this page.
    pub(super) async fn read(api: &Api, head: &Parts, body: Body) -> Result<Form, Problem> {
        let headers = &head.headers;
        let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !kind
            .split(';')
            .next()
            .unwrap_or_default()
            .trim()
            .eq_ignore_ascii_case("application/x-www-form-urlencoded")
        {
            let detail = "the content-type must be application/x-www-form-urlencoded, as a browser sends it; programs use /v1";
            return Err(Problem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "unsupported-content-type",
                "Unsupported content type",
                detail,
            ));
        }
        if !headers.contains_key(ORIGIN) {
            let detail =
                "the form has no `Origin`, which every browser sends; programs use the routes below /v1";
            return Err(Problem::new(StatusCode::FORBIDDEN, "foreign-origin", "Foreign origin", detail));
        }
        let bytes = api.bodies.read(head, body, MOST_BYTES).await?;
        let form = Form(form_urlencoded::parse(&bytes).into_owned().collect());
        let has_key = given(headers, is_over_tls(head))
            .is_some_and(|key| key.as_bytes().ct_eq(form.text("key").as_bytes()).into());
        if !has_key {
            let detail = "the form is not one that this page gave to your browser; nothing was changed. Go back, load the page again and repeat";
            return Err(Problem::new(StatusCode::FORBIDDEN, "foreign-form", "Foreign form", detail));
        }
        Ok(form)
    }

    /// The value of a field, without the spaces around it; empty if the form does not have it.
    pub(super) fn text(&self, name: &str) -> &str {
        self.0.iter().find(|(field, _)| field == name).map_or("", |(_, value)| value.trim())
    }

    /// All values of a field.
    pub(super) fn all<'f>(&'f self, name: &'f str) -> impl Iterator<Item = &'f str> {
        self.0.iter().filter(move |(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    /// These fields as a JSON object, so that a form gets the checks of the routes for programs. An empty field is left out.
    pub(super) fn object(&self, fields: &[&str]) -> Map<String, Value> {
        let given = fields.iter().map(|name| (*name, self.text(name))).filter(|(_, text)| !text.is_empty());
        given.map(|(name, text)| (name.to_owned(), text.into())).collect()
    }
}

/// The field for a person's reason.
pub(super) fn reason_field(label: &str) -> Markup {
    html! { label { (label) input type="text" name="reason" required maxlength="400" autocomplete="off"; } }
}

/// The field for a person's name; nothing where the caller is known.
pub(super) fn by_field(who: &Who) -> Markup {
    html! {
        @if who.name().is_none() {
            label { "Your name" input type="text" name="by" required maxlength="100" autocomplete="name"; }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(cookie: &str) -> HeaderMap {
        [(COOKIE, HeaderValue::try_from(cookie).unwrap())].into_iter().collect()
    }

    #[test]
    fn a_key_is_found_among_other_cookies_and_nothing_else_is_a_key() {
        let key = "0123456789abcdef0123456789abcdef";
        for (name, is_over_tls) in [("refundd_form", false), ("__Host-refundd_form", true)] {
            let cookies = headers(&format!("a=b; {name}={key};c=d"));
            assert_eq!(given(&cookies, is_over_tls), Some(key));
            assert_eq!(given(&cookies, !is_over_tls), None);
        }
        for wrong in
            ["", "refundd_form=", "refundd_form=abc", "x_refundd_form=0123456789abcdef0123456789abcdef"]
        {
            assert_eq!(given(&headers(wrong), false), None, "{wrong}");
        }
    }
}
