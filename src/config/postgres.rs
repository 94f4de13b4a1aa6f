//! `[postgres]`: the database that holds the refunds.

use std::path::PathBuf;

use secrecy::SecretString;

use super::secret::{Address, Origin, contents};
use super::section::Section;

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
    pub(super) const KEYS: &'static [&'static str] = &["url", "url_file", "password_file", "connections"];
    pub(super) const CONNECTIONS: u32 = 10;
    const ADDRESS: Address = Address {
        section: "postgres",
        variable: "REFUNDD_POSTGRES_URL",
        credential: "postgres-url",
        schemes: &["postgres", "postgresql"],
        trouble: crate::store::trouble_of_address,
    };

    /// Reads the section; `None` after a complaint.
    pub(super) fn read(section: &Section<'_>) -> Option<Self> {
        section.keys(
            Self::KEYS,
            &[("password", "a password does not belong in this file; name a file with `password_file`")],
        );
        let address = Self::ADDRESS.find(section);
        let password =
            section.optional_text("password_file").map(|mut file| contents(section.source, &mut file));
        let mut connections = section.integer("connections", i64::from(Self::CONNECTIONS));
        connections.within(section.source, &(2..=1_000));
        let (url, url_origin) = address?;
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
