//! Codes: refundd's short names for the result of an attempt, such as `timeout`.
//!
//! The journal, logs and metrics show the text. Decisions match on the enum.
//!
//! A few codes are not here. The statements in `store` write codes of their own, such as `lease_lapsed`, for
//! attempts that ended without an answer.

use std::fmt;

/// The reason for the outcome of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    Succeeded,
    Accepted,
    Pending,
    Rejected,
    NotFound,
    SlowDown,
    Unauthorised,
    /// 401 to a token that the bank took before: the bank ended it early.
    TokenRefused,
    /// No access token can be had.
    TokenFailed,
    /// A rule of the channel decided.
    ChannelRule,
    /// A status that says nothing about the refund, such as 500.
    BankTrouble,
    Redirect,
    /// A status or a status text that neither the table nor a rule of the channel knows.
    Unmapped,
    /// A 2xx whose body is no whole JSON.
    Unreadable,
    /// A 2xx without a body, and without headers that announce an empty body.
    EmptyUnframed,
    /// A 2xx without a status and without the reference that the channel's `bank_ref` names.
    NoBankRef,
    /// A refusal without JSON, such as a proxy's page.
    NoJson,
    /// A 404 to an inquiry without a JSON object.
    NotJson,
    /// A 404 to an inquiry without the bank's own text for "not found".
    Other404,
    /// A "not found" to an inquiry that a cache had stored before the inquiry: it says nothing about the present.
    StoredAnswer,
    /// An answer to an inquiry without a status in the place that the channel names.
    NoStatus,
    /// The answer repeats another amount, currency or id than was sent.
    EchoDiffers,
    /// The answer has another bank reference than an earlier answer.
    BankRefDiffers,
    /// The answer has a bank reference that belongs to another refund.
    BankRefTaken,
    /// Bytes left, and no whole answer came in time.
    Timeout,
    /// Bytes left, and the connection ended before the answer.
    AnswerLost,
    /// The connection ended within the answer's body.
    AnswerCut,
    /// No byte left within the time-out.
    WriteTimeout,
    /// The permit or the lease ran out before the first byte.
    PermitLapsed,
    /// The node stops, or the channel's settings changed, before the first byte.
    Stopping,
    /// The request id does not fit into a header.
    NoKey,
    /// The channel has no inquiry.
    NoInquiry,
    /// The inquiry's url cannot be used.
    NoAddress,
    /// The connection was lost before the first byte.
    ConnectionLost,
    /// Connections are open, and other requests use all of them.
    ConnectionsUsedUp,
    DnsFailed,
    /// The name leads only to addresses that the channel must not connect to.
    AddressRefused,
    ConnectFailed,
    TlsFailed,
    HttpFailed,
    ConnectTimeout,
    /// The other end closed a connection before it was used.
    ConnectClosed,
}

impl Code {
    /// The text in the journal, logs and metrics. It never changes: queries and alerts name it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Code::Succeeded => "succeeded",
            Code::Accepted => "accepted",
            Code::Pending => "pending",
            Code::Rejected => "rejected",
            Code::NotFound => "not_found",
            Code::SlowDown => "asked_to_wait",
            Code::Unauthorised => "unauthorised",
            Code::TokenRefused => "token_refused",
            Code::TokenFailed => "token_failed",
            Code::ChannelRule => "channel_rule",
            Code::BankTrouble => "bank_trouble",
            Code::Redirect => "redirect",
            Code::Unmapped => "unmapped",
            Code::Unreadable => "unreadable",
            Code::EmptyUnframed => "empty_unframed",
            Code::NoBankRef => "no_bank_ref",
            Code::NoJson => "no_json",
            Code::NotJson => "not_json",
            Code::Other404 => "other_404",
            Code::StoredAnswer => "stored_answer",
            Code::NoStatus => "no_word",
            Code::EchoDiffers => "echo_differs",
            Code::BankRefDiffers => "bank_ref_differs",
            Code::BankRefTaken => "bank_ref_taken",
            Code::Timeout => "timeout",
            Code::AnswerLost => "answer_lost",
            Code::AnswerCut => "answer_cut",
            Code::WriteTimeout => "write_timeout",
            Code::PermitLapsed => "permit_lapsed",
            Code::Stopping => "stopping",
            Code::NoKey => "no_key",
            Code::NoInquiry => "no_inquiry",
            Code::NoAddress => "no_address",
            Code::ConnectionLost => "connection_lost",
            Code::ConnectionsUsedUp => "connections_used_up",
            Code::DnsFailed => "dns_failed",
            Code::AddressRefused => "address_refused",
            Code::ConnectFailed => "connect_failed",
            Code::TlsFailed => "tls_failed",
            Code::HttpFailed => "http_failed",
            Code::ConnectTimeout => "connect_timeout",
            Code::ConnectClosed => "connect_closed",
        }
    }

    /// Whether the answer cannot be about the refund in the request, whatever else the answer says.
    #[must_use]
    pub const fn is_mixed_up(self) -> bool {
        matches!(self, Code::EchoDiffers | Code::BankRefDiffers | Code::BankRefTaken)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
