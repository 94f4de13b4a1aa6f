//! The address of a channel's bank. It tells one bank from another after a refund may have been sent.
//!
//! The address has no secrets: it has neither the `Authorization` header nor the query, where some banks want a key.
//! A bank that tells its customers apart by the query alone counts as one bank. So does a bank that tells them apart by
//! their credentials, unless the file names the account: a bank knows a request id within one account.

use super::Channel;

/// The addresses of one bank, without secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BankAddress {
    /// The address that refunds are sent to, and the name of the account there if the file has one:
    /// `https://gateway.example/refunds (account merchant-17)`. SQL compares it as a whole.
    pub endpoint: String,
    /// The address for inquiries, with `{request_id}` as in the file; empty for a channel without an inquiry.
    pub inquiry: String,
}

impl BankAddress {
    pub(super) fn of(channel: &Channel) -> Self {
        BankAddress {
            endpoint: at(&channel.endpoint.to_string(), channel.account.as_deref()),
            inquiry: channel.inquiry.as_ref().map_or_else(String::new, |inquiry| plain(&inquiry.url)),
        }
    }
}

/// The URL of an endpoint without its query, and the account there. No URL has a space, so an endpoint with an account
/// never equals another endpoint without one.
fn at(endpoint: &str, account: Option<&str>) -> String {
    let endpoint = plain(endpoint);
    match account {
        Some(account) => format!("{endpoint} (account {account})"),
        None => endpoint,
    }
}

/// A URL without its query: scheme and host in small letters, the port unless it is the scheme's default, and the
/// path. The SQL function `refundd.address_of` gives the same result.
fn plain(url: &str) -> String {
    let (origin, rest) = split(url);
    let path = rest.split(['?', '#']).next().unwrap_or_default();
    format!("{origin}{}", if path.is_empty() { "/" } else { path })
}

/// Whether two URLs have the same scheme, host and port.
pub(super) fn is_one_origin(one: &str, other: &str) -> bool {
    split(one).0 == split(other).0
}

/// The scheme, the host and the port of a URL as [`plain`] writes them, and the rest of the URL.
fn split(url: &str) -> (String, &str) {
    let start = url.find("://").map_or(0, |scheme| scheme + 3);
    let end = url[start..].find(['/', '?', '#']).map_or(url.len(), |at| start + at);
    let mut origin = url[..end].to_ascii_lowercase();
    let usual = [("http://", ":80"), ("https://", ":443")];
    if let Some((_, port)) =
        usual.iter().find(|(scheme, port)| origin.starts_with(scheme) && origin.ends_with(port))
    {
        origin.truncate(origin.len() - port.len());
    }
    (origin, &url[end..])
}

#[cfg(test)]
mod tests {
    use super::{at, plain};

    #[test]
    fn an_address_has_no_secrets() {
        for (url, known) in [
            ("https://Bank.example/Acme/refunds", "https://bank.example/Acme/refunds"),
            ("HTTPS://bank.example:443/refunds?key=hunter2", "https://bank.example/refunds"),
            ("http://bank.example:80", "http://bank.example/"),
            ("http://bank.example:443/", "http://bank.example:443/"),
            ("https://bank.example:8443/?a=/b", "https://bank.example:8443/"),
            ("https://[::1]:443/r/{request_id}?x", "https://[::1]/r/{request_id}"),
            ("http://b?key={request_id}", "http://b/"),
        ] {
            assert_eq!(plain(url), known, "{url}");
        }
    }

    #[test]
    fn an_account_makes_another_address_and_none_leaves_the_url_as_it_is() {
        let url = "https://Bank.example:443/refunds?key=hunter2";
        let named = |account| at(url, account);
        assert_eq!(named(None), plain(url));
        assert_eq!(named(Some("merchant-17")), "https://bank.example/refunds (account merchant-17)");
        assert_ne!(named(Some("merchant-17")), named(Some("Merchant-17")));
        // What stands there for an account cannot be the end of a URL.
        assert!(named(Some("merchant-17")).parse::<hyper::Uri>().is_err());
    }
}
