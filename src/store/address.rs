//! What is wrong with an address of Postgres, found before anything connects.
//!
//! The client ignores a parameter that it does not know, with a line in the log. A misspelt `sslmode` would so be lost.

use std::path::PathBuf;
use std::str::FromStr;

use sqlx::postgres::{PgConnectOptions, PgSslMode};

/// The parameters that the client knows.
const KNOWN: &[&str] = &[
    "sslmode",
    "ssl-mode",
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "statement-cache-capacity",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
];
const SSL_MODES: &[&str] = &["disable", "allow", "prefer", "require", "verify-ca", "verify-full"];

/// Why an address cannot be used, as the second half of a sentence that begins with its name; `None` if it can. The
/// text quotes no user, no password and no host.
#[must_use]
pub fn trouble_of_address(url: &str) -> Option<String> {
    let (rest, query) = url.split_once('?').unwrap_or((url, ""));
    let authority =
        rest.split_once("://").map_or(rest, |(_, rest)| rest).split('/').next().unwrap_or_default();
    let hosts = authority.rsplit('@').next().unwrap_or_default();
    let parameters = || query.split('&').filter(|part| !part.is_empty());
    let several = parameters().any(|part| part.starts_with("host") && part.contains(','));
    if hosts.contains(',') || several {
        return Some(
            "names several hosts, and refundd connects to one: name one, or put a proxy that knows the primary before them"
                .to_owned(),
        );
    }
    for part in parameters() {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        if name == "target_session_attrs" {
            return Some(
                "has the parameter `target_session_attrs`, which refundd does not know: it waits for a server that takes writes by itself"
                    .to_owned(),
            );
        }
        if !KNOWN.contains(&name) && !name.starts_with("options[") {
            return Some(format!("has the parameter `{name}`, which refundd does not know"));
        }
        if matches!(name, "sslmode" | "ssl-mode") && !SSL_MODES.contains(&value) {
            return Some(format!("has `{name}={value}`; it must be one of {}", SSL_MODES.join(", ")));
        }
    }
    let error = PgConnectOptions::from_str(url).err()?;
    Some(format!("cannot be read as an address: {error}"))
}

/// The host whose certificate is not checked by its name: the way to it may be read, or lead to another server. `None`
/// for `sslmode=verify-full`, for a Unix socket, and for an address that cannot be read.
#[must_use]
pub fn unchecked_host(url: &str) -> Option<String> {
    let options = PgConnectOptions::from_str(url.trim()).ok()?;
    let host = options.get_host();
    let is_socket = options.get_socket().is_some() || host.starts_with('/');
    let is_checked = matches!(options.get_ssl_mode(), PgSslMode::VerifyFull);
    (!is_socket && !is_checked).then(|| host.to_owned())
}

/// The file with the certificate that a node shows to Postgres; `None` if the address names none.
#[must_use]
pub fn client_certificate_file(url: &str) -> Option<PathBuf> {
    let (_, query) = url.trim().split_once('?')?;
    let parameters = form_urlencoded::parse(query.as_bytes());
    let named = parameters.filter(|(name, _)| matches!(&**name, "sslcert" | "ssl-cert"));
    // The client uses the last one.
    named.last().map(|(_, file)| PathBuf::from(file.into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_the_client_would_misread_is_refused_with_the_way_out() {
        for (url, part) in [
            ("postgres://u:secret@db/refunds?sslmode=verify_full", "sslmode=verify_full"),
            ("postgres://u:secret@a,b/refunds", "several hosts"),
            ("postgres://u:secret@a:1,b:2/refunds", "several hosts"),
            ("postgres:///refunds?host=a,b", "several hosts"),
            ("postgres://db/refunds?target_session_attrs=read-write", "target_session_attrs"),
            ("postgres://db/refunds?sslmod=require", "`sslmod`"),
            ("postgres://db:port/refunds", "cannot be read"),
        ] {
            let trouble = trouble_of_address(url).unwrap_or_default();
            assert!(trouble.contains(part) && !trouble.contains("secret"), "{url}: {trouble}");
        }
    }

    #[test]
    fn usual_addresses_are_accepted() {
        for url in [
            "postgres://db",
            "postgresql://user:pa,ss@db:5433/refunds?sslmode=verify-full&sslrootcert=/etc/ca.pem",
            "postgres:///refunds?host=/run/postgresql&user=refundd",
            "postgres://user@[::1]:5432/refunds?application_name=a&options[search_path]=x",
        ] {
            assert_eq!(trouble_of_address(url), None, "{url}");
        }
    }

    #[test]
    fn only_a_socket_and_verify_full_are_safe_on_the_way() {
        for (url, host) in [
            ("postgres://u@db/p", Some("db")),
            ("postgres://u@db/p?sslmode=require", Some("db")),
            ("postgres://u@db/p?sslmode=verify-ca", Some("db")),
            ("postgres://u@db/p?sslmode=verify-full", None),
            ("postgres://u@db/p?ssl-mode=verify-full", None),
            ("postgres://u@db/p?hostaddr=203.0.113.7", Some("203.0.113.7")),
            ("postgres://u@db/p?host=/run/postgresql", None),
            ("postgres://u@%2Frun%2Fpostgresql/p", None),
            ("postgres://u@[::1]/p", Some("[::1]")),
        ] {
            assert_eq!(unchecked_host(url).as_deref(), host, "{url}");
        }
    }

    #[test]
    fn the_certificate_of_the_node_is_the_file_that_the_address_names() {
        for (url, file) in [
            (
                "postgres://db/p?sslmode=verify-full&sslcert=%2Fetc%2Fmy+node.pem&sslkey=k",
                Some("/etc/my node.pem"),
            ),
            ("postgres://db/p?ssl-cert=a.pem&sslcert=b.pem", Some("b.pem")),
            ("postgres://db/p?sslrootcert=ca.pem", None),
            ("postgres://db/sslcert=a", None),
        ] {
            assert_eq!(client_certificate_file(url), file.map(PathBuf::from), "{url}");
        }
    }
}
