//! Secrets: from the environment, a systemd credential, a file, or (least) the configuration itself.
//!
//! The first of these that is there wins, in that order. None is ever printed or logged.

use std::path::PathBuf;

use secrecy::SecretString;

use super::field::Field;
use super::mask;
use super::section::Section;

/// Where a url may come from.
pub(super) struct Named<'a> {
    pub(super) env: &'a str,
    /// The name of a systemd credential, `LoadCredential=NAME:...`.
    pub(super) credential: &'a str,
    pub(super) schemes: &'a [&'a str],
    pub(super) example: &'a str,
}

/// Reads a url from wherever it is.
pub(super) fn url(section: &Section<'_>, named: &Named<'_>) -> Option<SecretString> {
    let source = section.source;
    let law = || {
        format!(
            "must start with {} and name a server, such as \"{}\"",
            named.schemes.join(" or "),
            named.example
        )
    };
    let good = |url: &str| {
        named.schemes.iter().any(|scheme| url.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty()))
    };

    let in_file = section.optional_text("url").map(|mut field| {
        let shown = mask::server_address(&field.value);
        field.shown_as(&shown);
        field
    });
    let elsewhere = source.env(named.env).map(|url| (format!("the environment's {}", named.env), Ok(url)));
    let elsewhere = elsewhere.or_else(|| {
        credential(section, named.credential)
            .map(|read| (format!("the credential `{}`", named.credential), read))
    });
    let elsewhere = elsewhere.or_else(|| {
        let file = section.optional_text("url_file")?;
        let path = source.path(&file.value);
        Some((format!("the file `{}`", path.display()), read(&path)))
    });
    match (elsewhere, in_file) {
        (Some((place, Ok(url))), _) => {
            if good(&url) {
                return Some(url.into());
            }
            source.complain_outside(place, law());
            None
        }
        (Some((place, Err(why))), _) => {
            source.complain_outside(place, why);
            None
        }
        (None, Some(mut field)) => {
            let holds = good(&field.value);
            field.law(source, holds, law).then(|| field.value.into())
        }
        (None, None) => {
            section.complain(format!(
                "`url` is missing; write url = \"{}\", or url_file = \"/path\", or set {} or the systemd credential `{}`",
                named.example, named.env, named.credential
            ));
            None
        }
    }
}

/// The trimmed content of a file that a field names.
pub(super) fn file(section: &Section<'_>, mut field: Field<String>) -> Option<SecretString> {
    let path = section.source.path(&field.value);
    match read(&path) {
        Ok(secret) => Some(secret.into()),
        Err(why) => {
            field.law(section.source, false, || why);
            None
        }
    }
}

/// The trimmed content of a systemd credential that a field names.
pub(super) fn credential_of(section: &Section<'_>, mut field: Field<String>) -> Option<SecretString> {
    match credential(section, &field.value) {
        Some(Ok(secret)) => Some(secret.into()),
        Some(Err(why)) => {
            field.law(section.source, false, || why);
            None
        }
        None => {
            field.law(
                section.source,
                false,
                || "names a systemd credential that is not there; the unit needs LoadCredential= for it",
            );
            None
        }
    }
}

fn credential(section: &Section<'_>, name: &str) -> Option<Result<String, String>> {
    let folder = section.source.env("CREDENTIALS_DIRECTORY")?;
    let path = PathBuf::from(folder).join(name);
    path.exists().then(|| read(&path))
}

fn read(path: &std::path::Path) -> Result<String, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot be read: {error}"))?;
    let text = text.trim();
    if text.is_empty() { Err("is empty".to_owned()) } else { Ok(text.to_owned()) }
}
