//! `[redis]`: the server that holds the buckets and whose clock counts.

use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};

use super::certificates;
use super::mask;
use super::secret::{Address, Origin};
use super::section::Section;
use crate::bucket::{Bucket, BucketError, ClearText, ServerTrust};

#[derive(Debug, Clone)]
pub struct Redis {
    pub url: SecretString,
    /// The source of `url`.
    pub url_origin: Origin,
    /// The roots by which the servers' certificates are checked, and whether other hosts may be reached in clear text.
    pub trust: ServerTrust,
    /// The start of every Redis key.
    pub key_prefix: String,
    /// The difference between Redis's and Postgres's clock above which claims are refused.
    pub clock_tolerance: Duration,
}

impl Redis {
    pub(super) const KEYS: &'static [&'static str] =
        &["url", "url_file", "plain", "ca_file", "key_prefix", "clock_tolerance"];
    pub(super) const KEY_PREFIX: &'static str = "refundd";
    pub(super) const CLOCK_TOLERANCE: Duration = Duration::from_secs(5);
    const ADDRESS: Address = Address {
        section: "redis",
        variable: "REFUNDD_REDIS_URL",
        credential: "redis-url",
        schemes: &[
            "redis",
            "rediss",
            "redis+unix",
            "unix",
            "valkey",
            "valkeys",
            "valkey+unix",
            "redis+sentinel",
            "rediss+sentinel",
            "redis-sentinel",
            "rediss-sentinel",
            "redis+cluster",
            "rediss+cluster",
            "redis-cluster",
            "rediss-cluster",
        ],
        trouble: crate::bucket::trouble_of_address,
        unchecked_hosts: crate::bucket::unchecked_hosts,
        way_out: "use TLS with a checked certificate: `rediss://`, `rediss+sentinel://` or `rediss-cluster://`",
    };

    /// Opens the buckets at this address. The first call connects.
    ///
    /// # Errors
    /// When the address cannot be understood.
    pub fn open(&self) -> Result<Bucket, BucketError> {
        Bucket::open(self.url.expose_secret(), self.trust.clone(), &self.key_prefix, self.clock_tolerance)
    }

    /// The address without its passwords, and its source unless that is the configuration file; for messages.
    pub fn named(&self) -> String {
        let url = mask::server_address(self.url.expose_secret());
        match &self.url_origin {
            Origin::ConfigFile => format!("[redis] url = \"{url}\""),
            elsewhere => format!("[redis] url = \"{url}\", from {elsewhere},"),
        }
    }

    /// Reads the section; `None` after a complaint. `needed` says that a missing address is a fault. A bucket in
    /// memory needs no address.
    pub(super) fn read(section: &Section<'_>, needed: bool) -> Option<Self> {
        let source = section.source;
        section.keys(
            Self::KEYS,
            &[("password", "a password does not belong in this file; name a file that holds the whole address with `url_file`")],
        );
        let is_accepted = section.is_accepted("plain");
        let given = section.has("url") || section.has("url_file");
        let address = if needed || given {
            Self::ADDRESS.find(section, is_accepted)
        } else {
            Some((SecretString::from("redis://127.0.0.1:6379"), Origin::ConfigFile))
        };
        let mut key_prefix = section.text("key_prefix", Self::KEY_PREFIX);
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.:".contains(&b);
        let sound = (1..=100).contains(&key_prefix.value.len()) && key_prefix.value.bytes().all(plain);
        key_prefix.require(source, sound, || {
            "must be 1 to 100 of a-z, A-Z, 0-9, `-`, `_`, `.` and `:`; braces would move keys to other slots of a \
             cluster"
        });
        let mut clock_tolerance = section.duration("clock_tolerance", Self::CLOCK_TOLERANCE);
        clock_tolerance.within(source, &(Duration::from_millis(100)..=Duration::from_mins(5)));
        let (url, url_origin) = address?;
        let roots = section.optional_text("ca_file").and_then(|mut field| {
            let text = url.expose_secret().trim_start();
            let is_secure = ["rediss", "valkeys"].iter().any(|scheme| text.starts_with(scheme));
            field.require(source, is_secure, || "is only for an address that uses TLS, such as `rediss://`");
            certificates::server_roots(source, &mut field)
        });
        let clear_text = if is_accepted { ClearText::Accepted } else { ClearText::ThisHostOnly };
        let trust = ServerTrust { roots: roots.map(Into::into), clear_text };
        let (key_prefix, clock_tolerance) = (key_prefix.value, clock_tolerance.value);
        Some(Redis { url, url_origin, trust, key_prefix, clock_tolerance })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_named_without_its_passwords_and_with_its_source() {
        let named = |url: &str, url_origin| {
            let clock_tolerance = Redis::CLOCK_TOLERANCE;
            let trust = ServerTrust::default();
            Redis { url: url.into(), url_origin, trust, key_prefix: String::new(), clock_tolerance }.named()
        };
        let shown =
            named("redis+sentinel://app:word@one,two/main?sentinel_password=phrase", Origin::ConfigFile);
        assert!(
            shown.starts_with("[redis] url = \"redis+sentinel://") && shown.contains("one,two/main"),
            "{shown}"
        );
        assert!(!shown.contains("word@") && !shown.contains("phrase"), "{shown}");
        let shown = named("redis://one", Origin::Environment("REFUNDD_REDIS_URL"));
        assert_eq!(shown, "[redis] url = \"redis://one\", from environment variable REFUNDD_REDIS_URL,");
    }
}
