//! The names of refunds, proposals, requests, channels, limits and callers. Each has its own type, so that the compiler refuses mix-ups.
//!
//! The module does not know whether a named thing exists.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// refundd's number for a refund: the key of its row, and its entry in a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RefundId(pub i64);

impl RefundId {
    /// Reads an id as refundd writes it: `00004711` and `+4711` are other texts, and may be another refund's ref.
    #[must_use]
    pub fn read(text: &str) -> Option<RefundId> {
        text.parse::<i64>().ok().filter(|id| *id > 0 && id.to_string() == text).map(RefundId)
    }
}

impl fmt::Display for RefundId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// refundd's number for a decision that waits for a second person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProposalId(pub i64);

impl fmt::Display for ProposalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The key that the bank sees as `Idempotency-Key`. With it the bank can recognise a repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestId(pub Uuid);

impl RequestId {
    /// Stands in an answer for a key that is not shown. No refund has it.
    pub const HIDDEN: RequestId = RequestId(Uuid::nil());
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The error for a text that is not a valid name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a name: use 1 to 63 of a-z, 0-9, `-` and `_`, starting with a letter or digit")]
pub struct BadName(pub String);

fn checked(name: &str) -> Result<Arc<str>, BadName> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let mut bytes = name.bytes();
    let ok = name.len() <= 63
        && bytes.next().is_some_and(plain)
        && bytes.all(|b| plain(b) || b == b'-' || b == b'_');
    if ok { Ok(name.into()) } else { Err(BadName(name.to_owned())) }
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Makes a name from a text, after a check.
            ///
            /// # Errors
            /// Fails if the text is empty, longer than 63 characters, or has a character that keys and tables
            /// should not hold.
            pub fn new(name: &str) -> Result<Self, BadName> {
                checked(name).map(Self)
            }

            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = BadName;
            fn try_from(name: String) -> Result<Self, BadName> {
                Self::new(&name)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0.as_ref().to_owned()
            }
        }
    };
}

name! {
    /// A bank endpoint's name, `[channel.NAME]` in the configuration file.
    ChannelName
}

name! {
    /// A limit's name, `[limit.NAME]` in the configuration file.
    LimitName
}

name! {
    /// The name of a program that may use the HTTP interface, `[caller.NAME]` in the configuration file.
    CallerName
}

impl LimitName {
    /// A name that refundd makes itself, such as `acme.slowed`. No configuration file can hold such a name.
    #[must_use]
    pub fn derived(of: &str, what: &str) -> Self {
        LimitName(format!("{of}.{what}").into())
    }

    /// A name from the ledger. It is not checked here, because it was checked before it was written.
    #[must_use]
    pub fn stored(name: &str) -> Self {
        LimitName(name.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_only_as_it_is_written() {
        assert_eq!(RefundId::read("4711"), Some(RefundId(4711)));
        for other in ["", "0", "-1", "+4711", "00004711", " 4711", "4711 ", "47.11", "9223372036854775808"] {
            assert_eq!(RefundId::read(other), None, "{other}");
        }
    }

    #[test]
    fn a_name_holds_only_letters_that_are_safe_in_keys_and_tables() {
        for good in ["a", "acme", "acme-daily", "7bank", "a_b"] {
            assert!(ChannelName::new(good).is_ok(), "{good}");
        }
        let too_long = "x".repeat(64);
        for bad in ["", "Acme", "a{b}", "a b", "-a", "_a", "ä", &too_long] {
            assert!(ChannelName::new(bad).is_err(), "{bad}");
        }
    }
}
