//! `token` of a channel: where it gets access tokens, by OAuth 2.0 with client credentials.

use crate::channel::TokenSource;

use super::address::{FOR_TOKENS, require_address, required_uri};
use super::secret::contents;
use super::section::Section;

pub(super) const KEYS: &[&str] = &["url", "client_id", "client_secret_file", "scope"];

/// Reads the source of tokens; `None` after a complaint. `is_secure` says that the channel's `endpoint` starts with
/// `https://`.
pub(super) fn read(section: &Section<'_>, is_secure: bool, accepts_plain_http: bool) -> Option<TokenSource> {
    let source = section.source;
    section.keys(
        KEYS,
        &[(
            "client_secret",
            "a secret does not belong in this file; name its file with `client_secret_file`",
        )],
    );
    let why = "it is the address at which refundd asks for tokens";
    let url = required_uri(section, "url", why, "https://login.example/token", |field, uri| {
        require_address(source, field, uri, &FOR_TOKENS, accepts_plain_http);
        field.require(
            source,
            !is_secure || uri.scheme_str() == Some("https"),
            || "must start with `https://` like the `endpoint`: the client's secret goes there",
        );
    });
    let client_id =
        section.required_text("client_id", "it is the name by which the token server knows refundd");
    let client_id = client_id.and_then(|mut field| {
        let given = !field.value.is_empty();
        field.require(source, given, || "must not be empty");
        given.then_some(field.value)
    });
    let secret = section.required_text("client_secret_file", "it is the file that holds the client's secret");
    let secret = secret.and_then(|mut field| contents(source, &mut field));
    let scope = section.optional_text("scope").map(|field| field.value);
    Some(TokenSource { url: url?, client_id: client_id?, client_secret: secret?.0.into(), scope })
}
