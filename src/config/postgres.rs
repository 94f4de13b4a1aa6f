//! `[postgres]`: the database that holds the refunds.

use std::path::PathBuf;

use secrecy::{ExposeSecret, SecretString};

use super::certificates::{certificates_of, server_roots};
use super::secret::{Address, Origin, contents, trouble_of_file};
use super::section::Section;
use crate::store::{client_key_file, is_verify_full, tls_parameter};

#[derive(Debug, Clone)]
pub struct Postgres {
    pub url: SecretString,
    /// The source of `url`.
    pub url_origin: Origin,
    /// Replaces a password in `url`.
    pub password: Option<SecretString>,
    /// The file that holds `password`.
    pub password_file: Option<PathBuf>,
    /// The largest number of connections of this node, 2 to 1000.
    pub connections: u32,
}

impl Postgres {
    pub(super) const KEYS: &'static [&'static str] = &[
        "url",
        "url_file",
        "password_file",
        "tls",
        "ca_file",
        "certificate_file",
        "key_file",
        "plain",
        "connections",
    ];
    pub(super) const CONNECTIONS: u32 = 10;
    const VERIFY_FULL: &'static str = "verify-full";
    const ADDRESS: Address = Address {
        section: "postgres",
        variable: "REFUNDD_POSTGRES_URL",
        credential: "postgres-url",
        schemes: &["postgres", "postgresql"],
        trouble: crate::store::trouble_of_address,
        unchecked_hosts: |url| crate::store::unchecked_host(url).into_iter().collect(),
        way_out: "set `tls = \"verify-full\"` in `[postgres]`, or write `?sslmode=verify-full` at the end of the address",
    };

    /// Reads the section; `None` after a complaint.
    pub(super) fn read(section: &Section<'_>) -> Option<Self> {
        section.keys(
            Self::KEYS,
            &[("password", "a password does not belong in this file; name a file with `password_file`")],
        );
        let mut tls = section.optional_text("tls");
        if let Some(tls) = &mut tls {
            let sound = tls.value == Self::VERIFY_FULL;
            tls.require(
                section.source,
                sound,
                || "must be \"verify-full\"; leave it out for a Postgres on this host",
            );
        }
        let is_accepted = section.is_accepted("plain");
        let address = Self::ADDRESS.find(section, tls.is_some() || is_accepted);
        let password =
            section.optional_text("password_file").map(|mut file| contents(section.source, &mut file));
        let mut connections = section.integer("connections", i64::from(Self::CONNECTIONS));
        connections.within(section.source, &(2..=1_000));
        let (mut url, url_origin) = address?;
        if let Some(mut tls) = tls {
            if tls_parameter(url.expose_secret(), "sslmode").is_none() {
                url = with_parameter(&url, "sslmode", Self::VERIFY_FULL);
            }
            // The client's own reading counts: another part of the address may undo the parameter.
            let agrees = is_verify_full(url.expose_secret());
            tls.require(
                section.source,
                agrees,
                || "contradicts the `sslmode` of the address; remove that one",
            );
        }
        let url = certificates(section, &url)?;
        let (password, password_file) = password.flatten().unzip();
        Some(Postgres {
            url,
            url_origin,
            password: password.map(SecretString::from),
            password_file,
            connections: u32::try_from(connections.value).ok()?,
        })
    }
}

/// The address with the files of `ca_file`, `certificate_file` and `key_file`; `None` after a complaint.
fn certificates(section: &Section<'_>, url: &SecretString) -> Option<SecretString> {
    let source = section.source;
    let complaints_before = source.complaint_count();
    if section.has("certificate_file") != section.has("key_file") {
        section.complain(
            "`certificate_file` and `key_file` go together: give both, or neither to show Postgres no certificate",
        );
    }
    let mut url = url.clone();
    for (key, parameter) in
        [("ca_file", "sslrootcert"), ("certificate_file", "sslcert"), ("key_file", "sslkey")]
    {
        let Some(mut field) = section.optional_text(key) else { continue };
        let text = url.expose_secret();
        let is_secure = tls_parameter(text, "sslmode").is_some_and(|mode| mode.starts_with("verify-"));
        field.require(
            source,
            is_secure,
            || "is only for TLS that checks the server's certificate; set `tls = \"verify-full\"`",
        );
        let twice = tls_parameter(text, parameter).is_some();
        field.require(source, !twice, || {
            format!("and `{parameter}` in the address name one thing; remove that one")
        });
        // The client reads the files at each connection; here they are only checked.
        match key {
            "key_file" => drop(contents(source, &mut field)),
            "ca_file" => drop(server_roots(source, &mut field)),
            _ => drop(certificates_of(source, &mut field)),
        }
        url = with_parameter(&url, parameter, &source.path(&field.value).to_string_lossy());
    }
    if !section.has("key_file") {
        require_private_key(section, url.expose_secret());
    }
    (source.complaint_count() == complaints_before).then_some(url)
}

/// Complains about the file of a key that the address or the variable `PGSSLKEY` names: the client does not look at its mode.
fn require_private_key(section: &Section<'_>, url: &str) {
    let source = section.source;
    let Some(file) = client_key_file(url, source.env("PGSSLKEY")) else { return };
    let Some(trouble) = trouble_of_file(source, &file) else { return };
    if tls_parameter(url, "sslkey").is_some() {
        section.complain(format!("`sslkey` in the address: {trouble}"));
    } else {
        source.complain_outside("environment variable `PGSSLKEY`".to_owned(), trouble);
    }
}

/// The address with one more parameter.
fn with_parameter(url: &SecretString, name: &str, value: &str) -> SecretString {
    let text = url.expose_secret();
    let sign = if text.contains('?') { '&' } else { '?' };
    let coded: String = form_urlencoded::byte_serialize(value.as_bytes()).collect();
    format!("{text}{sign}{name}={coded}").into()
}
