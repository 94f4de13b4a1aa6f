//! Hides possible secrets in text for messages.
//!
//! It hides every part in doubt. Hiding too much costs a person a look into the file; hiding too
//! little reveals a password.

/// Replaces a secret.
pub(super) const HIDDEN: &str = "****";

/// Parts of keys whose value is never shown, in the file and in the parameters of an address.
const SECRET_KEYS: [&str; 9] =
    ["password", "pass", "passwd", "pwd", "secret", "token", "authorization", "api_key", "apikey"];

/// Hides the passwords of an address: `user:password@` and `password=...`.
pub(super) fn address(text: &str) -> String {
    let text = user_info(text);
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(end) = first_secret_parameter(rest) {
        out.push_str(&rest[..end]);
        out.push_str(HIDDEN);
        rest = rest[end..].find('&').map_or("", |next| &rest[end + next..]);
    }
    out.push_str(rest);
    out
}

/// Hides the passwords of a server's address. A text without `://` may be a password, and is hidden as a whole.
pub(super) fn server_address(text: &str) -> String {
    if text.contains("://") { address(text) } else { HIDDEN.to_owned() }
}

/// Hides the user, the password and the query of a bank's address; some banks want a key in the query.
pub(super) fn endpoint(text: &str) -> String {
    let start = text.find("://").map_or(0, |scheme| scheme + 3);
    let (before, query) = text.split_once('?').map_or((text, ""), |(before, _)| (before, "?****"));
    match text.rfind('@').filter(|at| *at >= start) {
        Some(at) if at < before.len() => format!("{}{HIDDEN}{}{query}", &text[..start], &before[at..]),
        Some(_) => format!("{}{HIDDEN}", &text[..start]), // a `?` inside a password
        None => format!("{before}{query}"),
    }
}

/// Whether the value of this key may be a secret, or may be one by mistake.
pub(super) fn is_sensitive(key: &str) -> bool {
    matches!(key, "url" | "endpoint")
        || ["_file", "_files", "_credential"].iter().any(|end| key.ends_with(end))
}

/// Shows a path only if it surely is one. A secret that was written in the place of its file's name must not get into
/// the log.
pub(super) fn path(text: &str) -> String {
    let sure = text.starts_with('/') || text.starts_with("./") || text.starts_with("../");
    if sure && !text.contains(char::is_whitespace) { text.to_owned() } else { HIDDEN.to_owned() }
}

/// Hides the secrets in one line of a configuration file that is not TOML.
pub(super) fn line(line: &str) -> String {
    let Some((key, value)) = line.split_once('=') else { return address(line) };
    let name = key.trim().trim_matches(['"', '\'']).to_ascii_lowercase();
    let points_elsewhere = name.ends_with("_file") || name.ends_with("_credential");
    if (!points_elsewhere && SECRET_KEYS.iter().any(|secret| name.contains(secret)))
        || (points_elsewhere && value.contains(' ') && path(value.trim().trim_matches(['"', '\''])) == HIDDEN)
    {
        return format!("{key}= {HIDDEN}");
    }
    if name.ends_with("endpoint") {
        return format!("{key}={}", endpoint(value));
    }
    let cut_off = name.ends_with("url") && !value.contains('@');
    if let (true, Some(at)) = (cut_off, value.find("://")) {
        return format!("{key}={}{HIDDEN}", &value[..at + 3]);
    }
    // An inline table may hold addresses, and some banks want a key in the query.
    let shown = address(value);
    let query = shown.find("://").and_then(|at| Some(at + shown[at..].find('?')?));
    format!("{key}={}", query.map_or_else(|| shown.clone(), |at| format!("{}?{HIDDEN}", &shown[..at])))
}

/// Hides everything between the user's name and the last `@`, because a password may contain `/`, `:`
/// and even `@`.
fn user_info(text: &str) -> String {
    let Some(at) = text.rfind('@') else { return text.to_owned() };
    let start = text.find("://").map_or(0, |scheme| scheme + 3);
    match text.get(start..at).and_then(|user| user.find(':')) {
        Some(colon) => format!("{}:{HIDDEN}{}", &text[..start + colon], &text[at..]),
        None => text.to_owned(),
    }
}

/// The byte at which the value of the first parameter such as `password=` begins. A name with an escape, such as
/// `%70assword`, may be one of them.
fn first_secret_parameter(text: &str) -> Option<usize> {
    let lower = text.to_ascii_lowercase();
    let escaped = text.match_indices(['?', '&']).find_map(|(at, _)| {
        let end = at + text[at..].find('=')?;
        text[at..end].contains('%').then_some(end + 1)
    });
    SECRET_KEYS
        .iter()
        .filter_map(|key| {
            let mut places = lower.match_indices(key).map(|(at, _)| at + key.len());
            places.find_map(|end| {
                let blanks = lower[end..].len() - lower[end..].trim_start().len();
                lower[end + blanks..].starts_with('=').then_some(end + blanks + 1)
            })
        })
        .chain(escaped)
        .filter(|&end| !text[end..].is_empty())
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_survives_in_an_address() {
        for (shown, hidden) in [
            ("postgres://refundd:hunter2@db/payments", "postgres://refundd:****@db/payments"),
            ("redis://:hunter2@cache:6379/0", "redis://:****@cache:6379/0"),
            ("postgres://u:hun@ter/2:x@db/p", "postgres://u:****@db/p"),
            ("refundd:hunter2@db", "refundd:****@db"),
            ("postgres:///p?host=/tmp&password=hunter2&a=b", "postgres:///p?host=/tmp&password=****&a=b"),
            ("redis+unix:///run/redis?user=app&pass=hunter2", "redis+unix:///run/redis?user=app&pass=****"),
            ("host=db password='hunter 2' user=x", "host=db password=****"),
            ("postgres://db/p?a=b&%70assword=hunter2&c=d", "postgres://db/p?a=b&%70assword=****&c=d"),
            ("https://bank.example:8443/refunds", "https://bank.example:8443/refunds"),
            ("postgres://refundd@db/payments", "postgres://refundd@db/payments"),
        ] {
            assert_eq!(address(shown), hidden);
        }
    }

    #[test]
    fn no_secret_survives_in_a_faulty_line() {
        for (shown, hidden) in [
            (r#"url = "postgres://u:hunter2@db"#, r#"url = "postgres://u:****@db"#),
            (r#"url = "postgres://u:hunter2"#, r#"url = "postgres://****"#),
            (r"url = postgres://u:hun=ter2@db", r"url = postgres://u:****@db"),
            (r#"password = "hunter2"#, "password = ****"),
            (r#""api_key" = hunter2""#, r#""api_key" = ****"#),
            (r"authorization_file = Bearer hunter2", "authorization_file = ****"),
            (r#"timeout = 10s""#, r#"timeout = 10s""#),
            (r#"endpoint = "https://hunter2@b/?key=hunter2"#, r#"endpoint = "https://****@b/?****"#),
            (r"postgres://u:hunter2@db", "postgres://u:****@db"),
            (
                r#"inquiry = { url = "https://b/{request_id}?key=hunter2" "#,
                r#"inquiry = { url = "https://b/{request_id}?****"#,
            ),
            (r#"acme = { authorization = "Bearer hunter2" "#, "acme = { authorization =****"),
        ] {
            assert_eq!(line(shown), hidden);
        }
    }

    #[test]
    fn a_secret_in_the_place_of_its_file_is_hidden() {
        assert_eq!(path("/etc/refundd/pg-password"), "/etc/refundd/pg-password");
        assert_eq!(path("hunter2"), "****");
        assert_eq!(path("/Bearer hunter2"), "****");
        assert_eq!(server_address("hunter2"), "****");
    }

    #[test]
    fn an_endpoint_is_shown_without_user_and_query() {
        for (shown, hidden) in [
            ("https://bank.example/refunds", "https://bank.example/refunds"),
            ("https://hunter2@bank/refunds?key=hunter2", "https://****@bank/refunds?****"),
            ("https://u:hun?ter2@bank/refunds", "https://****"),
            ("https://u:hun@ter?2@bank/refunds", "https://****"),
            ("bank/?hunter2", "bank/?****"),
        ] {
            assert_eq!(endpoint(shown), hidden);
        }
    }
}
