//! The requirements for the addresses to which refundd sends requests: a channel's `endpoint`, the `url` of its inquiry and of its
//! tokens, and the `url` of `[notify]`.

use hyper::Uri;

use super::field::Field;
use super::mask;
use super::section::Section;
use super::source::Source;
use crate::bucket::is_this_host;

/// What refundd shows the server at an address.
pub(super) struct Shown {
    /// What nobody else may read on the way.
    what: &'static str,
    /// How refundd names itself there, because the address names no user.
    instead_of_user: &'static str,
}

/// A bank, for sends and inquiries.
pub(super) const TO_A_BANK: Shown = Shown {
    what: "refunds and the `Authorization` header",
    instead_of_user: "put the `Authorization` header in a file and name it with `authorization_file`",
};
/// A server that gives tokens.
pub(super) const FOR_TOKENS: Shown = Shown {
    what: "the client's secret",
    instead_of_user: "name the client with `client_id` and the file of its secret with `client_secret_file`",
};

/// Reads the address that must stand under `key`; `None` after a complaint. `check` has further requirements. Complaints show
/// neither user nor query.
pub(super) fn required_uri(
    section: &Section<'_>,
    key: &str,
    why: &str,
    example: &str,
    check: impl FnOnce(&mut Field<String>, &Uri),
) -> Option<Uri> {
    let mut field = section.required_text(key, why)?;
    field.shown_as(&mask::endpoint(&field.value));
    let uri: Option<Uri> = field.value.parse().ok();
    field.require(section.source, uri.is_some(), || format!("is not an address, such as \"{example}\""));
    let uri = uri?;
    check(&mut field, &uri);
    field.is_sound().then_some(uri)
}

/// Complains about an address whose scheme is not HTTP, that names no host, or that has a user or a `#` part.
/// Unless clear text is accepted, `http://` may lead to this host only.
pub(super) fn require_address(
    source: &Source<'_>,
    field: &mut Field<String>,
    uri: &Uri,
    shown: &Shown,
    accepts_plain_http: bool,
) {
    require_form(source, field, uri, shown.instead_of_user);
    let safe = accepts_plain_http || is_private_way(uri);
    field.require(source, safe, || {
        let host = uri.host().unwrap_or_default();
        format!(
            "would send {} to another host, `{host}`, in clear text; use `https://`, \
             or, if you trust every network on the way, set `plain_http = \"accepted\"` in the channel",
            shown.what
        )
    });
}

/// The requirements for the address of the receiver of webhooks: those for a bank, and `http://` leads to this host always.
pub(super) fn require_receiver(source: &Source<'_>, field: &mut Field<String>, uri: &Uri) {
    require_form(source, field, uri, "the receiver knows refundd by the signature of each message");
    field.require(source, is_private_way(uri), || {
        let host = uri.host().unwrap_or_default();
        format!("would send what becomes of refunds to another host, `{host}`, in clear text; use `https://`")
    });
}

/// Whether nobody between the two ends can read what is sent.
fn is_private_way(uri: &Uri) -> bool {
    uri.scheme_str() != Some("http") || is_this_host(uri.host().unwrap_or_default())
}

fn require_form(source: &Source<'_>, field: &mut Field<String>, uri: &Uri, instead_of_user: &str) {
    let scheme = matches!(uri.scheme_str(), Some("http" | "https"));
    field.require(source, scheme, || "must start with `https://` or `http://`");
    field.require(source, uri.host().is_some_and(|host| !host.is_empty()), || "names no host");
    let user_info = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
    field.require(source, !user_info, || format!("must not hold a user or a password; {instead_of_user}"));
    let fragment = field.value.contains('#');
    field.require(source, !fragment, || "must not have a `#` part, since that is never sent");
}
