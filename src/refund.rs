//! One refund: as it is saved, as it is leased, and as people see it.
//!
//! The module knows nothing of Postgres, Redis or HTTP. [`state`] has the legal moves between states.

pub mod attempt;
pub mod card;
mod code;
pub mod draft;
mod echo;
pub mod id;
pub mod inquiry;
mod money;
mod on_unknown;
mod payload;
pub mod retry;
pub mod settlement;
pub mod state;
pub mod text;
mod trace_parent;

use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;

pub use attempt::{Answer, Outcome};
pub use code::Code;
pub use echo::{EchoMismatch, ExpectedEcho};
pub use id::{CallerName, ChannelName, LimitName, ProposalId, RefundId, RequestId};
pub use money::{AmountBounds, Money, in_both_units, thousands};
pub use on_unknown::OnUnknown;
pub use payload::Payload;
pub use settlement::{Policy, Sending, Settlement};
pub use state::State;
pub use trace_parent::TraceParent;

/// A refund that a caller wants to save. Every field is checked.
#[derive(Debug, Clone, PartialEq)]
pub struct NewRefund {
    /// The caller's permanent name for the refund, unique for ever.
    pub refund_ref: String,
    pub channel: ChannelName,
    /// The bank's name for the payment that the refund gives back.
    pub payment_ref: String,
    /// More than zero.
    pub money: Money,
    /// Passed on to the channel as Postgres prints the `jsonb`; at most 16 KiB.
    pub payload: Option<Payload>,
    /// The refund is not sent before this time; `None` means at once.
    pub due_at: Option<Timestamp>,
    /// The refund fails if it is `ready` at this time, also if it was sent before.
    pub deadline_at: Option<Timestamp>,
    /// The trace that the refund belongs to.
    pub traceparent: Option<TraceParent>,
}

/// The fields of a refund that hold what may be the number of a payment card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CardFields([bool; 3]);

impl CardFields {
    const NAMES: [&str; 3] = ["refund_ref", "payment_ref", "payload"];

    /// Looks at fields; each may be missing.
    #[must_use]
    pub fn of(refund_ref: Option<&str>, payment_ref: Option<&str>, payload: Option<&Payload>) -> Self {
        let is_in = |text: Option<&str>| text.is_some_and(card::is_in);
        CardFields([is_in(refund_ref), is_in(payment_ref), payload.is_some_and(Payload::holds_card)])
    }

    /// The names of these fields.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().zip(self.0).filter(|(_, is_in)| *is_in).map(|(name, _)| name)
    }

    #[must_use]
    pub fn is_none(self) -> bool {
        self.0 == [false; 3]
    }
}

impl NewRefund {
    #[must_use]
    pub fn card_fields(&self) -> CardFields {
        CardFields::of(Some(&self.refund_ref), Some(&self.payment_ref), self.payload.as_ref())
    }
}

/// A refund under a lease of this node. From the claim on it may have been sent.
#[derive(Debug, Clone)]
pub struct Leased {
    pub id: RefundId,
    /// The number of the lease. The settler must name this number.
    pub epoch: i64,
    /// The claim of the lease. The settler must name it, too: after a failover that lost a claim, Postgres gives its number again.
    pub holder: Arc<str>,
    /// The number of this send, for the `Refundd-Attempt` header.
    pub attempt: i32,
    pub request_id: RequestId,
    /// An earlier send may have been executed.
    pub is_resend: bool,
    /// No byte of the refund can have left before this lease.
    pub is_first: bool,
    /// The values that the bank's answer may repeat.
    pub expected: ExpectedEcho,
    /// The body of the request, byte for byte the same for every attempt.
    pub body: Arc<[u8]>,
    /// The trace that the refund belongs to, and the span in it that the bank gets as the parent.
    pub traceparent: Option<TraceParent>,
}

impl Leased {
    /// How many earlier leases ended without a counted attempt. After a person's `ready` these are also the sends before it:
    /// `attempts` starts at zero then, and the epoch goes on. 0 while no byte of the refund has left: such leases say nothing of the bank.
    #[must_use]
    pub fn uncounted_leases(&self) -> u32 {
        if self.is_first {
            return 0;
        }
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
    #[serde(flatten)]
    pub money: Money,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<Box<RawValue>>,
    pub due_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_at: Option<Timestamp>,
    pub request_id: RequestId,
    pub state: State,
    /// Grows with every move and every new piece of evidence. A decision names the version that it saw.
    pub version: i32,
    /// Since this time an earlier send may have been executed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncertain_since: Option<Timestamp>,
    pub attempts: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The bank's own name for the refund.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bank_ref: Option<String>,
    pub created_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settled_at: Option<Timestamp>,
}

impl Refund {
    /// The refund for somebody who does not have its present channel: without what only its bank and the people of the
    /// channel know.
    #[must_use]
    pub fn for_another_channel(self) -> Refund {
        Refund { request_id: RequestId::HIDDEN, uncertain_since: None, reason: None, bank_ref: None, ..self }
    }
}

/// The body of the request to a channel. The fields and their order are the contract with the bank.
#[derive(Debug, Serialize)]
pub struct BankBody<'a> {
    pub refund_id: RefundId,
    pub refund_ref: &'a str,
    pub channel: &'a str,
    pub payment_ref: &'a str,
    #[serde(flatten)]
    pub money: &'a Money,
    pub payload: Option<&'a RawValue>,
    /// When the refund was saved.
    pub requested_at: Timestamp,
}
