//! What is wrong with an address of Postgres, found before anything connects.
//!
//! The client ignores a parameter that it does not know, with a line in the log. A misspelt `sslmode` would so be lost.

use std::path::PathBuf;
use std::str::FromStr;

use sqlx::postgres::{PgConnectOptions, PgSslMode};

/// The parameters about TLS, each with all its names. Of several, the client obeys the last one.
const OF_TLS: &[&[&str]] = &[
    &["sslmode", "ssl-mode"],
    &["sslrootcert", "ssl-root-cert", "ssl-ca"],
    &["sslcert", "ssl-cert"],
    &["sslkey", "ssl-key"],
];
/// The other parameters that the client knows.
const KNOWN: &[&str] = &[
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
    let rest = url.split_once('?').map_or(url, |(rest, _)| rest);
    let authority =
        rest.split_once("://").map_or(rest, |(_, rest)| rest).split('/').next().unwrap_or_default();
    let hosts = authority.rsplit('@').next().unwrap_or_default();
    let several = parameters(url).any(|(name, value)| name.starts_with("host") && value.contains(','));
    if hosts.contains(',') || several {
        return Some(
            "names several hosts, and refundd connects to one: name one, or put a proxy that knows the primary before them"
                .to_owned(),
        );
    }
    for (name, value) in parameters(url) {
        if name == "target_session_attrs" {
            return Some(
                "has the parameter `target_session_attrs`, which refundd does not know: it waits for a server that takes writes by itself"
                    .to_owned(),
            );
        }
        if !KNOWN.contains(&name) && names_of(name).is_empty() && !name.starts_with("options[") {
            return Some(format!("has the parameter `{name}`, which refundd does not know"));
        }
        if matches!(name, "sslmode" | "ssl-mode") && !SSL_MODES.contains(&value) {
            return Some(format!("has `{name}={value}`; it must be one of {}", SSL_MODES.join(", ")));
        }
    }
    for names in OF_TLS {
        let mut given = parameters(url).map(|(name, _)| name).filter(|name| names.contains(name));
        if let (Some(first), Some(second)) = (given.next(), given.next()) {
            return Some(if first == second {
                format!("has the parameter `{first}` twice; keep one of them")
            } else {
                format!(
                    "has `{first}` and `{second}`, which are two names of one parameter; keep one of them"
                )
            });
        }
    }
    let error = PgConnectOptions::from_str(url).err()?;
    Some(format!("cannot be read as an address: {error}"))
}

/// The parameters of an address, as they are written.
fn parameters(url: &str) -> impl Iterator<Item = (&str, &str)> {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let parts = query.split('&').filter(|part| !part.is_empty());
    parts.map(|part| part.split_once('=').unwrap_or((part, "")))
}

/// All names of a parameter about TLS; empty for another parameter.
fn names_of(parameter: &str) -> &'static [&'static str] {
    OF_TLS.iter().find(|names| names.contains(&parameter)).copied().unwrap_or_default()
}

/// The value of a parameter about TLS in an address, by whichever of its names.
#[must_use]
pub fn tls_parameter<'a>(url: &'a str, parameter: &str) -> Option<&'a str> {
    let names = names_of(parameter);
    parameters(url).find(|(name, _)| names.contains(name)).map(|(_, value)| value)
}

/// Whether the client, as it reads this address, demands TLS with a certificate of the server's name.
#[must_use]
pub fn is_verify_full(url: &str) -> bool {
    let options = PgConnectOptions::from_str(url.trim());
    options.is_ok_and(|options| matches!(options.get_ssl_mode(), PgSslMode::VerifyFull))
}

/// The host whose certificate is not checked by its name: the way to it may be read, or lead to another server. `None`
/// for `sslmode=verify-full`, for a Unix socket, and for an address that cannot be read.
#[must_use]
pub fn unchecked_host(url: &str) -> Option<String> {
    let options = PgConnectOptions::from_str(url.trim()).ok()?;
    (!is_socket(&options) && !is_verify_full(url)).then(|| options.get_host().to_owned())
}

/// Whether the client connects to a Unix socket, where Postgres makes no TLS.
fn is_socket(options: &PgConnectOptions) -> bool {
    options.get_socket().is_some() || options.get_host().starts_with('/')
}

/// Where the client of Postgres gets its certificate, or the key of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientPem {
    /// In this file, which the client reads at each connection.
    InFile(PathBuf),
    /// In the environment itself, as PEM.
    Pem(String),
}

/// The certificate that a node shows to Postgres: the one that the address names, or else the one of the variable `PGSSLCERT`.
/// `None` if neither names one, or if the client makes no TLS with this address.
#[must_use]
pub fn client_certificate(url: &str, variable: Option<String>) -> Option<ClientPem> {
    of_client(url, "sslcert", variable)
}

/// The file with the key of that certificate: the one that the address names, or else the one of the variable `PGSSLKEY`. `None`
/// if neither names one, if the variable has the key itself, or if the client makes no TLS with this address.
#[must_use]
pub fn client_key_file(url: &str, variable: Option<String>) -> Option<PathBuf> {
    match of_client(url, "sslkey", variable)? {
        ClientPem::InFile(file) => Some(file),
        ClientPem::Pem(_) => None,
    }
}

/// What the address names by this parameter of the client, or else the variable.
fn of_client(url: &str, parameter: &str, variable: Option<String>) -> Option<ClientPem> {
    let url = url.trim();
    let is_clear = |options: PgConnectOptions| {
        is_socket(&options) || matches!(options.get_ssl_mode(), PgSslMode::Disable | PgSslMode::Allow)
    };
    if PgConnectOptions::from_str(url).is_ok_and(is_clear) {
        return None;
    }
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let parameters = form_urlencoded::parse(query.as_bytes());
    let named = parameters.filter(|(name, _)| names_of(parameter).contains(&&**name));
    // The client uses the last one.
    let of_address = named.last().map(|(_, file)| ClientPem::InFile(PathBuf::from(file.into_owned())));
    of_address.or_else(|| {
        let value = variable?;
        let text = value.trim();
        // The client tells a text from a name in the same way.
        let is_pem = text.starts_with("-----BEGIN") && text.ends_with("-----");
        Some(if is_pem { ClientPem::Pem(value) } else { ClientPem::InFile(value.into()) })
    })
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
            ("postgres://db/r?sslmode=verify-full&ssl-mode=disable", "has `sslmode` and `ssl-mode`"),
            ("postgres://db/r?sslmode=verify-full&sslmode=verify-full", "has the parameter `sslmode` twice"),
            ("postgres://db/r?sslrootcert=/a&ssl-ca=/b", "has `sslrootcert` and `ssl-ca`"),
            ("postgres://db/r?sslkey=/a&ssl-key=/a", "has `sslkey` and `ssl-key`"),
            // The client decodes the names.
            ("postgres://db/r?sslmode=verify-full&%73slmode=disable", "`%73slmode`"),
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

    fn in_file(file: &str) -> ClientPem {
        ClientPem::InFile(PathBuf::from(file))
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
            assert_eq!(client_certificate(url, None), file.map(in_file), "{url}");
        }
    }

    #[test]
    fn the_key_of_the_node_is_the_file_that_the_address_or_the_environment_names() {
        let pem = "-----BEGIN PRIVATE KEY-----\nMA==\n-----END PRIVATE KEY-----";
        for (url, variable, file) in [
            (
                "postgres://db/p?sslmode=verify-full&sslkey=%2Fetc%2Fmy+node.key",
                "b.key",
                Some("/etc/my node.key"),
            ),
            ("postgres://db/p?sslmode=verify-full&ssl-key=a.key", "b.key", Some("a.key")),
            ("postgres://db/p?sslmode=verify-full", "b.key", Some("b.key")),
            ("postgres://db/p?sslmode=verify-full", pem, None),
            ("postgres://db/p?sslmode=disable&sslkey=a.key", "b.key", None),
            ("postgres://u@localhost/p?host=/run/postgresql&sslkey=a.key", "b.key", None),
            ("postgres://u@%2Frun%2Fpostgresql/p", "b.key", None),
        ] {
            assert_eq!(client_key_file(url, Some(variable.to_owned())), file.map(PathBuf::from), "{url}");
        }
        assert_eq!(client_key_file("postgres://db/p?sslmode=verify-full", None), None);
    }

    #[test]
    fn an_address_without_a_certificate_takes_that_of_the_environment_unless_it_makes_no_tls() {
        let pem = "\n-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n";
        let text = ClientPem::Pem(pem.to_owned());
        for (url, variable, shown) in [
            ("postgres://db/p?sslmode=verify-full", "/etc/node.pem", Some(in_file("/etc/node.pem"))),
            ("postgres://db/p?sslmode=verify-full", pem, Some(text)),
            ("postgres://db/p?sslmode=verify-full&sslcert=a.pem", "/etc/node.pem", Some(in_file("a.pem"))),
            ("postgres://db/p?sslmode=disable", "/etc/node.pem", None),
            ("postgres://db/p?sslmode=disable&sslcert=a.pem", "/etc/node.pem", None),
        ] {
            assert_eq!(client_certificate(url, Some(variable.to_owned())), shown, "{url}");
        }
    }
}
