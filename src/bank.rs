//! The bank: exactly one request to one channel, a refund or an inquiry, and what came of it.
//!
//! Whether any byte of a request may have left is a fact kept by the [`door`] every byte passes, not a
//! guess from an error's text. What an answer means is [`verdict`]'s and [`finding`]'s business.
//!
//! The two must not be mixed up: of a refund, "nothing was written" proves that nothing was executed; of
//! an inquiry it proves nothing at all.

mod client;
mod connect;
mod door;
pub mod finding;
mod kernel;
mod pool;
pub mod verdict;

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, Method};

use crate::channel::{Channel, Inquiry};
use crate::refund::inquiry::{Asked, Finding, Found};
use crate::refund::{Answer, Code, Leased, Outcome};
use client::{Client, Heard, Letter};
pub use door::Leave;
pub use pool::{Pool, Reading, Reserved, Unreachable, Want};

/// What one send came to, and when its first byte was written, if one was.
#[derive(Debug)]
pub struct Sent {
    pub answer: Answer,
    pub started: Option<Instant>,
}

/// What one inquiry came to, and when its first byte was written, if one was.
#[derive(Debug)]
pub struct Told {
    pub found: Found,
    pub started: Option<Instant>,
}

/// Why a channel's client could not be made.
#[derive(Debug, thiserror::Error)]
pub enum BankError {
    #[error("read the host of endpoint `{0}`")]
    Endpoint(String),
    #[error(
        "find the system's CA certificates for `{0}`: none is installed; on Debian and Ubuntu install ca-certificates"
    )]
    NoRoots(String),
    #[error("use the authorization of channel `{0}` as a header: it holds bytes that no header may hold")]
    Authorization(String),
}

/// One channel's bank.
#[derive(Debug)]
pub struct Bank {
    channel: Channel,
    path: hyper::Uri,
    sends: Client,
    asks: Option<(Arc<Inquiry>, Client)>,
}

impl Bank {
    pub fn new(channel: &Channel) -> Result<Self, BankError> {
        let bad = |address: &str| BankError::Endpoint(address.to_owned());
        let path = path_of(&channel.endpoint).ok_or_else(|| bad(&channel.endpoint.to_string()))?;
        let asks = match &channel.inquiry {
            None => None,
            Some(inquiry) => {
                let address = inquiry.url_of("key").map_err(|_| bad(&inquiry.url))?;
                Some((Arc::clone(inquiry), Client::new(channel, &address)?))
            }
        };
        let sends = Client::new(channel, &channel.endpoint)?;
        Ok(Bank { channel: channel.clone(), path, sends, asks })
    }

    /// The connections that refunds are sent on.
    pub fn connections(&self) -> &Pool {
        &self.sends.pool
    }

    /// Those that the bank is asked on; `None` where it cannot be asked.
    pub fn connections_to_ask(&self) -> Option<&Pool> {
        self.asks.as_ref().map(|(_, client)| &client.pool)
    }

    /// POSTs one refund on a connection reserved for it. The first byte leaves while `leave` lasts, or not at all.
    pub async fn send(&self, refund: &Leased, leave: Leave, reserved: Option<Reserved>) -> Sent {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        // A UUID fits into any header; should that ever fail, nothing leaves without its key.
        let Ok(key) = HeaderValue::from_str(&refund.request_id.to_string()) else {
            let answer =
                Answer::new(Outcome::Review, Code::NoKey, "the request id does not fit into a header");
            return Sent { answer, started: None };
        };
        headers.insert("idempotency-key", key);
        headers.insert("refundd-attempt", HeaderValue::from(refund.attempt));
        let body = Bytes::from_owner(Arc::clone(&refund.body));
        let letter = Letter { method: Method::POST, path: self.path.clone(), headers, body };
        let (answer, started) = match self.sends.call(&letter, &leave, reserved).await {
            Heard::Answer { status, headers, body, first_byte } => {
                let channel = &self.channel;
                let answer = verdict::verdict(channel, &refund.owed, status, &headers, &body);
                (answer, Some(first_byte))
            }
            Heard::Lost { code, message, first_byte } => {
                (Answer::new(Outcome::Unknown, code, message), Some(first_byte))
            }
            // The way to the bank is the channel's trouble, not this refund's.
            Heard::Unwritten { code, message } => (Answer::new(Outcome::HandedBack, code, message), None),
            Heard::TooLate => (Answer::new(Outcome::HandedBack, Code::PermitLapsed, TOO_LATE), None),
        };
        Sent { answer, started }
    }

    /// Asks what became of one refund, on a connection reserved for that. The first byte leaves while `leave` lasts, or not at all.
    pub async fn inquire(&self, asked: &Asked, leave: Leave, reserved: Option<Reserved>) -> Told {
        let untold =
            |finding, code, message: &str| Told { found: Found::new(finding, code, message), started: None };
        let Some((inquiry, client)) = &self.asks else {
            return untold(Finding::HandedBack, Code::NoInquiry, "the channel has no inquiry");
        };
        let path = inquiry.url_of(&asked.request_id.to_string()).ok().as_ref().and_then(path_of);
        let Some(path) = path else {
            return untold(Finding::Nothing, Code::NoAddress, "the inquiry's url cannot be used");
        };
        let letter = Letter { method: Method::GET, path, headers: HeaderMap::new(), body: Bytes::new() };
        let (found, started) = match client.call(&letter, &leave, reserved).await {
            Heard::Answer { status, headers, body, first_byte } => {
                let bank_ref = self.channel.bank_ref.as_deref();
                (finding::finding(inquiry, bank_ref, &asked.owed, status, &headers, &body), Some(first_byte))
            }
            Heard::Lost { code, message, first_byte } => {
                (Found::new(Finding::Nothing, code, &message), Some(first_byte))
            }
            Heard::Unwritten { code, message } => (Found::new(Finding::HandedBack, code, &message), None),
            Heard::TooLate => (Found::new(Finding::HandedBack, Code::PermitLapsed, TOO_LATE), None),
        };
        Told { found, started }
    }
}

const TOO_LATE: &str = "the permit's span was over before the first byte";

/// What stands in the request's first line.
fn path_of(address: &hyper::Uri) -> Option<hyper::Uri> {
    address.path_and_query().map_or("/", |path| path.as_str()).parse().ok()
}
