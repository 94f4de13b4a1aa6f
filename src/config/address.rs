//! The laws for the addresses to which a channel sends requests: its `endpoint`, and the `url` of its inquiry.

use hyper::Uri;

use super::field::Field;
use super::source::Source;
use crate::bucket::is_this_host;

/// Complains about an address whose scheme is not HTTP, that names no host, or that has a user or a `#` part.
/// Unless clear text is accepted, `http://` may lead to this host only.
pub(super) fn address_laws(
    source: &Source<'_>,
    field: &mut Field<String>,
    uri: &Uri,
    accepts_plain_http: bool,
) {
    let scheme = matches!(uri.scheme_str(), Some("http" | "https"));
    field.law(source, scheme, || "must start with `https://` or `http://`");
    field.law(source, uri.host().is_some_and(|host| !host.is_empty()), || "names no host");
    let user_info = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
    field.law(source, !user_info, || {
        "must not hold a user or a password; put the `Authorization` header in a file and name it with \
         `authorization_file`"
    });
    let fragment = field.value.contains('#');
    field.law(source, !fragment, || "must not have a `#` part, since that is never sent");
    let host = uri.host().unwrap_or_default();
    let safe = accepts_plain_http || uri.scheme_str() != Some("http") || is_this_host(host);
    field.law(source, safe, || {
        format!(
            "would send refunds and the `Authorization` header to another host, `{host}`, in clear text; use `https://`, \
             or, if you trust every network on the way, set `plain_http = \"accepted\"` in the channel"
        )
    });
}
