//! What is owed: one refund, as it is saved, as it is leased, and as people look at it.
//!
//! Nothing here knows Postgres, Redis or HTTP. Which states a refund may move between is [`state`]'s
//! business.

pub mod attempt;
mod code;
pub mod draft;
pub mod id;
pub mod inquiry;
mod owed;
pub mod retry;
pub mod settlement;
pub mod state;

use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;

pub use attempt::{Answer, Outcome};
pub use code::Code;
pub use id::{ChannelName, LimitName, RefundId, RequestId};
pub use owed::{Mismatch, Owed};
pub use settlement::{OnUnknown, Policy, Sending, Settlement};
pub use state::State;

/// A refund that a caller asks us to save; every field has been checked.
#[derive(Debug, Clone, PartialEq)]
pub struct NewRefund {
    /// The caller's permanent name for it, unique for ever.
    pub refund_ref: String,
    pub channel: ChannelName,
    /// The payment it gives back, as the bank knows it.
    pub payment_ref: String,
    /// Minor units of `currency`, above zero.
    pub amount_minor: i64,
    /// ISO 4217 code.
    pub currency: String,
    /// Passed on to the channel as it is; at most 16 KiB.
    pub payload: Option<serde_json::Value>,
    /// Not before this time; `None` is at once.
    pub due_at: Option<Timestamp>,
    /// If it cannot be sent by then it fails.
    pub deadline_at: Option<Timestamp>,
}

/// A refund under a lease of this node: from here on it may have been sent.
#[derive(Debug, Clone)]
pub struct Leased {
    pub id: RefundId,
    /// Which lease this is; settling must name it.
    pub epoch: i64,
    /// The number of this send, for the `Refundd-Attempt` header.
    pub attempt: i32,
    pub request_id: RequestId,
    /// An earlier send may have been executed.
    pub is_resend: bool,
    /// No byte of it may have left before this lease.
    pub is_first: bool,
    pub owed: Owed,
    /// The body the bank gets, byte for byte the same on every attempt.
    pub body: Arc<[u8]>,
}

impl Leased {
    /// How many leases before this one came to nothing that counts as an attempt.
    #[must_use]
    pub fn in_vain(&self) -> u32 {
        u32::try_from(self.epoch - i64::from(self.attempt)).unwrap_or(0)
    }
}

/// A refund as people and programs see it.
#[derive(Debug, Clone, Serialize)]
pub struct Refund {
    pub id: RefundId,
    pub refund_ref: String,
    pub channel: String,
    pub payment_ref: String,
    pub amount_minor: i64,
    pub currency: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<Box<RawValue>>,
    pub due_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_at: Option<Timestamp>,
    pub request_id: RequestId,
    pub state: State,
    /// One more with every change of state; a decision names the one it saw.
    pub version: i32,
    /// An earlier send may have been executed, since then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncertain_since: Option<Timestamp>,
    pub attempts: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub created_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settled_at: Option<Timestamp>,
}

/// The body of the request to a channel. Its fields and their order are the contract with the bank.
#[derive(Debug, Serialize)]
pub struct BankBody<'a> {
    pub refund_id: RefundId,
    pub refund_ref: &'a str,
    pub channel: &'a str,
    pub payment_ref: &'a str,
    pub amount_minor: i64,
    pub currency: &'a str,
    pub payload: Option<&'a RawValue>,
    /// When the refund was saved.
    pub requested_at: Timestamp,
}
