//! What a request to a bank carries that no text for people may show. The bank may repeat it in its answer.
//!
//! A secret is looked for in the bank's own text, before digits are hidden in it and it is cut. A part of a secret is
//! not found.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::header::HeaderValue;
use secrecy::{ExposeSecret, SecretString};

use crate::channel::{Authorization, Channel};
use crate::refund::ExpectedEcho;

/// A shorter secret is not hidden. It may be a part of any word, and then `****` would show it.
const SHORTEST: usize = 6;

/// What is known of a request when its answer is read.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'r> {
    /// The values that the answer may repeat.
    pub expected: &'r ExpectedEcho,
    /// The values that it may not show.
    pub secrets: Secrets<'r>,
}

/// A request without secrets.
impl<'r> From<&'r ExpectedEcho> for Asked<'r> {
    fn from(expected: &'r ExpectedEcho) -> Self {
        Asked { expected, secrets: Secrets::default() }
    }
}

/// The secrets of one request. Its `Debug` text hides them.
#[derive(Clone, Copy, Default)]
pub struct Secrets<'r> {
    of_client: &'r [SecretString],
    /// The token, and the request id.
    of_request: [&'r str; 2],
}

impl fmt::Debug for Secrets<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets").finish_non_exhaustive()
    }
}

impl Secrets<'_> {
    /// The text with `****` in the place of each secret.
    #[must_use]
    pub fn hide<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut shown = Cow::Borrowed(text);
        for secret in self.of_client.iter().map(ExposeSecret::expose_secret).chain(self.of_request) {
            if secret.len() >= SHORTEST && shown.contains(secret) {
                shown = Cow::Owned(shown.replace(secret, "****"));
            }
        }
        shown
    }
}

/// The secrets that all requests of one client carry. The longest comes first: others may be parts of it.
#[derive(Debug, Default)]
pub struct ClientSecrets(Vec<SecretString>);

impl ClientSecrets {
    /// Those in the query of the address and in the header.
    pub fn of(address: &hyper::Uri, authorization: Option<&Authorization>) -> Self {
        let mut secrets = ClientSecrets::default();
        let query = address.query().unwrap_or_default();
        for pair in query.split('&') {
            secrets.add(pair.split_once('=').map_or(pair, |(_, value)| value));
        }
        for (_, value) in form_urlencoded::parse(query.as_bytes()) {
            secrets.add(&value);
        }
        let Some(Authorization(header)) = authorization else { return secrets };
        let header = header.expose_secret();
        secrets.add(header);
        secrets.add(credential(header));
        // A gateway may decode the login of `Basic` before it shows it.
        if let Some(login) = login(header) {
            secrets.add(&login);
            secrets.add(login.split_once(':').map_or("", |(_, secret)| secret));
        }
        secrets
    }

    pub fn add(&mut self, secret: &str) {
        if secret.len() >= SHORTEST {
            self.0.push(secret.into());
            self.0.sort_by_key(|secret| Reverse(secret.expose_secret().len()));
        }
    }

    /// Those of one request, with the header that carries its token and with its request id.
    pub fn with<'r>(&'r self, token: Option<&'r HeaderValue>, request_id: &'r str) -> Secrets<'r> {
        let token = token.and_then(|header| header.to_str().ok()).map_or("", credential);
        Secrets { of_client: &self.0, of_request: [token, request_id] }
    }
}

/// The part of a header after its scheme.
fn credential(header: &str) -> &str {
    header.split_once(' ').map_or(header, |(_, credential)| credential.trim_start())
}

/// The decoded login of a `Basic` header.
fn login(header: &str) -> Option<String> {
    STANDARD.decode(credential(header)).ok().and_then(|login| String::from_utf8(login).ok())
}

/// Whether a header or the client's secret of this channel is too short to be hidden.
#[must_use]
pub fn has_short_secret(channel: &Channel) -> bool {
    let is_short = |header: &Authorization| {
        let header = header.0.expose_secret();
        let login = login(header);
        let password = login.as_deref().and_then(|login| login.split_once(':'));
        credential(header).len() < SHORTEST || password.is_some_and(|(_, password)| password.len() < SHORTEST)
    };
    let of_inquiry = channel.inquiry.as_ref().and_then(|inquiry| inquiry.authorization.as_ref());
    channel.authorization.iter().chain(of_inquiry).any(is_short)
        || channel.token.as_ref().is_some_and(|token| token.client_secret.expose_secret().len() < SHORTEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST_ID: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";

    fn secrets(address: &str, header: &str) -> ClientSecrets {
        ClientSecrets::of(&address.parse().unwrap(), Some(&Authorization(header.to_owned().into())))
    }

    #[test]
    fn each_secret_of_a_request_is_hidden_and_no_other_text() {
        let address = "https://b/?key=query-secret&v=2&sig=a%2Bb%2Fcdef&bare-secret";
        let bearer = secrets(address, "Bearer fixed-secret");
        let token = HeaderValue::from_static("Bearer token-secret");
        let of_request = bearer.with(Some(&token), REQUEST_ID);
        for (said, shown) in [
            ("bad key Bearer fixed-secret", "bad key ****"),
            ("bad key fixed-secret!", "bad key ****!"),
            ("bad token token-secret", "bad token ****"),
            ("not Bearer token-secret", "not Bearer ****"),
            ("query-secretquery-secret", "********"),
            ("a%2Bb%2Fcdef and a+b/cdef", "**** and ****"),
            ("?v=2&bare-secret", "?v=2&****"),
            ("key 0f8fad5b-d9cb-469f-a165-70867728950e is used", "key **** is used"),
        ] {
            assert_eq!(of_request.hide(said), shown, "{said}");
        }
        for said in ["", "fixed", "Bearer", "version 2", "fixed-secre"] {
            assert!(matches!(of_request.hide(said), Cow::Borrowed(same) if same == said), "{said}");
        }
        assert!(!format!("{bearer:?} {of_request:?}").contains("fixed-secret"));
    }

    #[test]
    fn the_login_of_a_basic_header_is_hidden_coded_and_decoded() {
        let basic = secrets("https://b/", "Basic cmVmdW5kZDpodW50ZXIyLWxvbmc=");
        for (said, shown) in [
            ("no Basic cmVmdW5kZDpodW50ZXIyLWxvbmc=", "no ****"),
            ("no cmVmdW5kZDpodW50ZXIyLWxvbmc=", "no ****"),
            ("no refundd:hunter2-long", "no ****"),
            ("no hunter2-long of refundd", "no **** of refundd"),
        ] {
            assert_eq!(basic.with(None, "").hide(said), shown, "{said}");
        }
    }

    #[test]
    fn a_secret_of_less_than_six_bytes_and_an_empty_one_hide_nothing() {
        let short = secrets("https://b/?a=12345&b=&c", "abcde");
        assert_eq!(short.with(None, "").hide("abcde 12345 b"), "abcde 12345 b");
    }
}
