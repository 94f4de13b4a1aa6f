//! Finds secrets, and keeps them out of messages.
//!
//! The address of a server comes from the first of these that exists: an environment variable, a
//! systemd credential, `url_file` or `url` in the file. A source that one process alone has comes
//! before the file, which all processes share.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use secrecy::SecretString;

use super::config_file::require_closed_file;
use super::field::Field;
use super::mask;
use super::named_file::NamedFile;
use super::section::{Section, listed};
use super::source::Source;
use crate::bucket::is_this_host;

/// The source of a secret. It never contains the secret itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    Environment(&'static str),
    Credential(PathBuf),
    File(PathBuf),
    ConfigFile,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Environment(name) => write!(f, "environment variable {name}"),
            Origin::Credential(path) => write!(f, "systemd credential {}", path.display()),
            Origin::File(path) => write!(f, "file {}", path.display()),
            Origin::ConfigFile => f.write_str("the configuration file"),
        }
    }
}

/// The ways to give the address of one server.
pub(super) struct Address {
    pub(super) section: &'static str,
    pub(super) variable: &'static str,
    pub(super) credential: &'static str,
    pub(super) schemes: &'static [&'static str],
    /// Finds a further fault of an address, as the second half of a message.
    pub(super) trouble: fn(&str) -> Option<String>,
    /// The hosts that an address reaches in clear text, or without checking who they are.
    pub(super) unchecked_hosts: fn(&str) -> Vec<String>,
    /// How to reach another host safely.
    pub(super) way_out: &'static str,
}

impl Address {
    /// Looks the address up; `None` after a complaint. `is_safe` says that it may name any host: what it lacks for a
    /// safe way is given elsewhere, or the operator does without.
    pub(super) fn find(&self, section: &Section<'_>, is_safe: bool) -> Option<(SecretString, Origin)> {
        let source = section.source;
        let mut inline = section.optional_text("url");
        if let Some(field) = &mut inline {
            field.shown_as(&mask::server_address(&field.value));
            // Also if the address comes from elsewhere: others can read the password all the same.
            if self.has_password(&field.value) {
                require_closed_file(source, field, self.variable, self.credential);
            }
        }
        let file = section.optional_text("url_file");
        if section.has("url") && section.has("url_file") {
            section.complain("has both `url` and `url_file`; keep one of them");
            return None;
        }
        if let Some(url) = source.env(self.variable) {
            let wrong = self.wrong(&url, is_safe);
            let subject = || format!("environment variable `{}`", self.variable);
            return checked(wrong, url, Origin::Environment(self.variable), |requirement| {
                source.complain_outside(subject(), requirement);
            });
        }
        match credential(source, self.credential) {
            Ok(Some((url, path))) => {
                let subject = || format!("systemd credential `{}`", self.credential);
                let wrong = self.wrong(&url, is_safe);
                return checked(wrong, url, Origin::Credential(path), |requirement| {
                    source.complain_outside(subject(), requirement);
                });
            }
            Ok(None) => {}
            Err(error) => {
                let subject = format!("systemd credential `{}`", self.credential);
                source.complain_outside(subject, format!("cannot be read: {error}"));
                return None;
            }
        }
        if let Some(mut field) = file {
            let (url, path) = contents(source, &mut field)?;
            let wrong = self.wrong(&url, is_safe);
            return checked(wrong, url, Origin::File(path), |requirement| {
                field.require(source, false, || format!("the address in this file {requirement}"));
            });
        }
        if let Some(mut field) = inline {
            let wrong = self.wrong(&field.value, is_safe);
            let url = field.value.trim().to_owned();
            return checked(wrong, url, Origin::ConfigFile, |requirement| {
                field.require(source, false, || requirement);
            });
        }
        if !section.has("url") && !section.has("url_file") {
            section.complain(format!(
                "no address; set `url` or `url_file` in `[{}]`, the environment variable `{}` or the systemd \
                 credential `{}`",
                self.section, self.variable, self.credential
            ));
        }
        None
    }

    /// Whether an address has a password. In one that cannot be read, every part in doubt counts as one.
    fn has_password(&self, url: &str) -> bool {
        has_readable_password(url) || ((self.trouble)(url).is_some() && mask::address(url) != url)
    }

    /// The fault of an address, as the second half of a message that quotes at most a host of the address.
    fn wrong(&self, url: &str, is_safe: bool) -> Option<String> {
        let known = self.schemes.iter().any(|scheme| url.trim().starts_with(&format!("{scheme}://")));
        let schemes: Vec<String> = self.schemes.iter().map(|scheme| format!("{scheme}://")).collect();
        let schemes: Vec<&str> = schemes.iter().map(String::as_str).collect();
        if !known {
            return Some(format!("must start with one of {}", listed(&schemes)));
        }
        let trouble = (self.trouble)(url);
        if trouble.is_some() || is_safe {
            return trouble;
        }
        let host = (self.unchecked_hosts)(url).into_iter().find(|host| !is_this_host(host))?;
        Some(format!(
            "leads to another host, `{host}`, and anyone on the way could read and change what is sent; {}, or, if you \
             trust every network on the way, set `plain = \"accepted\"` in `[{}]`",
            self.way_out, self.section
        ))
    }
}

/// Whether an address has a password that is not empty, where the clients look for one.
fn has_readable_password(url: &str) -> bool {
    let (before, query) = url.split_once('?').unwrap_or((url, ""));
    let rest = before.split_once("://").map_or("", |(_, rest)| rest);
    let authority = rest.split(['/', '#']).next().unwrap_or_default();
    let login = authority.rsplit_once('@').map_or("", |(login, _)| login);
    let password = login.split_once(':').map_or("", |(_, password)| password);
    let is_password = |name: &str| matches!(name, "password" | "pass" | "sentinel_password");
    !password.is_empty()
        || form_urlencoded::parse(query.as_bytes())
            .any(|(name, value)| is_password(&name) && !value.is_empty())
}

/// The address and its source if nothing is `wrong`; otherwise complains.
fn checked(
    wrong: Option<String>,
    url: String,
    origin: Origin,
    complain: impl FnOnce(String),
) -> Option<(SecretString, Origin)> {
    match wrong {
        None => Some((url.into(), origin)),
        Some(requirement) => {
            complain(requirement);
            None
        }
    }
}

/// The trimmed contents of the file that a `*_file` key names.
pub(super) fn contents(source: &Source<'_>, field: &mut Field<String>) -> Option<(String, PathBuf)> {
    let shown = mask::path(&field.value);
    field.shown_as(&shown);
    let path = source.path(&field.value);
    let read = read_private(source, &path);
    let text = read.as_deref().unwrap_or_default().trim().to_owned();
    let sound = match read {
        Ok(_) => field.require(source, !text.is_empty(), || "this file is empty"),
        Err(unread) => field.require(source, false, || unread.requirement(&path, shown == mask::HIDDEN)),
    };
    sound.then_some((text, path))
}

/// Why the file of a secret that a text names cannot be used, as the second half of a message; `None` if it can.
pub(super) fn trouble_of_file(source: &Source<'_>, path: &Path) -> Option<String> {
    read_private(source, path).err().map(|unread| unread.requirement(path, true))
}

/// The trimmed contents of a systemd credential and its path; `Ok(None)` if the service does not have it.
///
/// # Errors
/// When the credential is empty or cannot be read.
pub(super) fn credential(source: &Source<'_>, name: &str) -> io::Result<Option<(String, PathBuf)>> {
    let Some(directory) = source.env("CREDENTIALS_DIRECTORY") else { return Ok(None) };
    let path = PathBuf::from(directory).join(name);
    match NamedFile::open(&path).and_then(NamedFile::text) {
        Ok(text) if text.trim().is_empty() => Err(io::Error::other("it is empty")),
        Ok(text) => Ok(Some((text.trim().to_owned(), path))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The trimmed contents of the systemd credential that a `*_credential` key names; `None` after a complaint.
pub(super) fn named_credential(source: &Source<'_>, field: &mut Field<String>) -> Option<String> {
    let plain = !field.value.is_empty() && !field.value.starts_with('.') && !field.value.contains('/');
    field.require(source, plain, || "must be the name of a systemd credential, not a path");
    let read = if field.is_sound() { credential(source, &field.value) } else { Ok(None) };
    field.require(source, matches!(read, Ok(Some(_))), || match &read {
        Err(error) => format!("this systemd credential cannot be read: {error}"),
        Ok(_) => {
            "the service was not given this systemd credential; add `LoadCredential=` to its unit".to_owned()
        }
    });
    Some(read.ok().flatten()?.0)
}

/// Why the file of a secret was not read.
enum Unread {
    /// Users other than its owner may read, write or execute it.
    Open {
        mode: u32,
    },
    Failed(io::Error),
}

impl Unread {
    /// `is_hidden` says that the message must not show the name of the file, which may be the secret itself.
    fn requirement(&self, path: &Path, is_hidden: bool) -> String {
        match self {
            Unread::Open { mode } => {
                let path = path.display();
                format!(
                    "the file {path} has a secret, and others than its owner have rights to it: its mode is {mode:04o}; run \
                     `chmod 600 {path}`"
                )
            }
            Unread::Failed(error) if is_hidden => format!(
                "the file it names {}; it must be the name of a file that holds the secret, not the secret",
                reason(error)
            ),
            Unread::Failed(error) => format!("this file {}", reason(error)),
        }
    }
}

/// Reads a file on which nobody but its owner has rights, or a systemd credential.
fn read_private(source: &Source<'_>, path: &Path) -> Result<String, Unread> {
    let file = NamedFile::open(path).map_err(Unread::Failed)?;
    let mode = file.mode;
    if mode & 0o077 != 0 && !source.is_credential(path) {
        return Err(Unread::Open { mode });
    }
    file.text().map_err(Unread::Failed)
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "does not exist".to_owned(),
        io::ErrorKind::PermissionDenied => "may not be read by this user".to_owned(),
        _ => format!("cannot be read: {error}"),
    }
}
