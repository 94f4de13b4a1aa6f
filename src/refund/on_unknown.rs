//! What a channel does about a refund that may have been executed.

use std::time::Duration;

/// The channel's way to treat a refund that may have been executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnUnknown {
    /// A person decides.
    Review,
    /// refundd asks the bank.
    Inquire,
    /// refundd sends the refund again under the same key, as long as the bank remembers the key.
    Resend {
        /// How long the bank remembers a key, counted from the first send.
        key_retention: Duration,
    },
}

impl OnUnknown {
    /// The word for it in files and in Postgres.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            OnUnknown::Review => "review",
            OnUnknown::Inquire => "inquire",
            OnUnknown::Resend { .. } => "resend",
        }
    }

    /// How long the bank remembers a key; `None` if nothing is sent again.
    #[must_use]
    pub fn key_retention(self) -> Option<Duration> {
        match self {
            OnUnknown::Resend { key_retention } => Some(key_retention),
            OnUnknown::Review | OnUnknown::Inquire => None,
        }
    }
}
