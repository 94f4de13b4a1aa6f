//! The bank: makes one request to one channel, a refund or an inquiry, and returns its result. The receiver of webhooks is
//! reached by the same client ([`webhook`]).
//!
//! Every byte of a request passes the [`door`], and the door records whether a byte may have left. No code guesses
//! that from the text of an error. [`outcome`] and [`inquiry_outcome`] read what an answer means.
//!
//! Sends and inquiries prove different things. If no byte of a refund was written, the bank did not execute the
//! refund. If no byte of an inquiry was written, nothing is proved about its refund.

mod client;
mod connect;
mod dial_error;
mod door;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod inquiry_outcome;
mod json;
mod kernel;
mod lookup;
pub mod outcome;
mod pool;
mod secrets;
mod settings;
mod signing;
mod slept;
mod tls;
mod token;
pub mod trial;
mod webhook;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, PRAGMA};
use hyper::{HeaderMap, Method};

use crate::channel::{Channel, Inquiry};
use crate::refund::inquiry::{InquiryAnswer, InquiryOutcome, LeasedInquiry};
use crate::refund::{Answer, Code, Leased, Outcome, TraceParent};
use client::{BankRequest, CallResult, Client};
pub use door::SendDeadline;
pub use pool::{AddressTimes, Pool, Reserved, Unreachable, Want};
pub use secrets::{Asked, Secrets, has_short_secret};
use settings::ConnectionSettings;
pub use slept::Slept;
pub use tls::refresh_system_roots;
pub use token::Tokens;
use token::{BankToken, RefusedToken};
pub use webhook::{NotDelivered, Webhook, WebhookKey, WebhookTarget};

/// The result of one send.
#[derive(Debug)]
pub struct Sent {
    pub answer: Answer,
    /// When its first byte was written; `None` if no byte was.
    pub started: Option<Instant>,
}

/// The result of one inquiry.
#[derive(Debug)]
pub struct SentInquiry {
    pub answer: InquiryAnswer,
    /// When its first byte was written; `None` if no byte was.
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
    #[error("prepare TLS for {owner}")]
    Tls { owner: String, source: tls::TlsError },
    #[error("use the authorization of {0} as a header: it holds bytes that no header may hold")]
    Authorization(String),
}

impl BankError {
    /// Names the address without its query, where some banks want a key.
    fn endpoint(address: &hyper::Uri) -> Self {
        BankError::Endpoint(address.to_string().split('?').next().unwrap_or_default().to_owned())
    }
}

/// One channel's bank.
pub struct Bank {
    channel: Channel,
    path: hyper::Uri,
    sends: Client,
    /// `None` for a channel that needs no tokens.
    tokens: Option<Tokens>,
    /// `None` for a channel without an inquiry.
    inquiry: Option<(Arc<Inquiry>, Client)>,
}

/// Without the paths and their queries, where some banks want a key.
impl std::fmt::Debug for Bank {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bank").field("channel", &self.channel).finish_non_exhaustive()
    }
}

impl Bank {
    pub fn new(channel: &Channel) -> Result<Self, BankError> {
        let path = path_of(&channel.endpoint).ok_or_else(|| BankError::endpoint(&channel.endpoint))?;
        let settings = ConnectionSettings::of(channel);
        let inquiry = match &channel.inquiry {
            None => None,
            Some(inquiry) => {
                let address = inquiry.url_of("key").map_err(|_| BankError::endpoint(&channel.endpoint))?;
                let client = Client::new(&settings, &address, channel.inquiry_authorization())?;
                Some((Arc::clone(inquiry), client.of_channel(channel, &address)))
            }
        };
        let sends = Client::new(&settings, &channel.endpoint, channel.authorization.as_ref())?
            .of_channel(channel, &channel.endpoint);
        let tokens = Tokens::of(channel)?;
        Ok(Bank { channel: channel.clone(), path, sends, tokens, inquiry })
    }

    /// The connections that refunds are sent on.
    pub fn connections(&self) -> &Pool {
        &self.sends.pool
    }

    /// The connections for inquiries; `None` for a channel without an inquiry.
    pub fn inquiry_connections(&self) -> Option<&Pool> {
        self.inquiry.as_ref().map(|(_, client)| &client.pool)
    }

    /// The tokens that sends carry; `None` if they carry none.
    pub fn tokens(&self) -> Option<&Tokens> {
        self.tokens.as_ref()
    }

    /// The tokens that inquiries carry; `None` if they carry none.
    pub fn inquiry_tokens(&self) -> Option<&Tokens> {
        self.tokens.as_ref().filter(|_| self.channel.inquires_with_token())
    }

    /// POSTs one refund on the connection reserved for it. No first byte leaves after `deadline`.
    pub async fn send(&self, refund: &Leased, deadline: SendDeadline, reserved: Option<Reserved>) -> Sent {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        // A UUID always fits into a header. If that ever fails, no request leaves without its key.
        let request_id = refund.request_id.to_string();
        let Ok(key) = HeaderValue::from_str(&request_id) else {
            let answer =
                Answer::new(Outcome::Review, Code::NoKey, "the request id does not fit into a header");
            return Sent { answer, started: None };
        };
        headers.insert("idempotency-key", key);
        headers.insert("refundd-attempt", HeaderValue::from(refund.attempt));
        // No signature covers this header: proxies on the way may put spans of their own into it.
        let parent = refund.traceparent.and_then(|parent| HeaderValue::try_from(parent.to_string()).ok());
        headers.extend(parent.map(|parent| (HeaderName::from_static(TraceParent::HEADER), parent)));
        let token = match carried(self.tokens(), &mut headers, &deadline).await {
            Ok(token) => token,
            Err(Unreachable { code, message, .. }) => {
                return Sent { answer: Answer::new(Outcome::HandedBack, code, message), started: None };
            }
        };
        let body = Bytes::from_owner(Arc::clone(&refund.body));
        let request = BankRequest { method: Method::POST, path: self.path.clone(), headers, body };
        let (answer, started) = match self.sends.call(&request, &deadline, reserved).await {
            CallResult::Answer { status, headers, body, first_byte } => {
                let header = token.as_deref().map(|token| &token.header);
                let secrets = self.sends.secrets.with(header, &request_id);
                let asked = Asked { expected: &refund.expected, secrets };
                let mut answer = outcome::read_answer(&self.channel, asked, status, &headers, &body);
                if answer.names_another {
                    self.sends.pool.distrust(first_byte);
                } else if let Some(refused) = refused(self.tokens(), token.as_deref(), status)
                    && answer.outcome == Outcome::Unauthorised
                {
                    refused.explain(&mut answer.code, &mut answer.message);
                }
                (answer, Some(first_byte))
            }
            CallResult::Lost { code, message, first_byte } => {
                (Answer::new(Outcome::Unknown, code, message), Some(first_byte))
            }
            // A bank that cannot be reached is a fault of the channel, not of this refund.
            CallResult::Unwritten { code, message } => {
                (Answer::new(Outcome::HandedBack, code, message), None)
            }
            CallResult::TooLate => (Answer::new(Outcome::HandedBack, Code::PermitLapsed, TOO_LATE), None),
        };
        Sent { answer, started }
    }

    /// Asks the bank what became of one refund, on the connection reserved for the inquiry. No first byte leaves
    /// after `deadline`.
    pub async fn inquire(
        &self,
        leased: &LeasedInquiry,
        deadline: SendDeadline,
        reserved: Option<Reserved>,
    ) -> SentInquiry {
        let unsent = |outcome, code, message: &str| SentInquiry {
            answer: InquiryAnswer::new(outcome, code, message),
            started: None,
        };
        let Some((inquiry, client)) = &self.inquiry else {
            return unsent(InquiryOutcome::HandedBack, Code::NoInquiry, "the channel has no inquiry");
        };
        let request_id = leased.request_id.to_string();
        let path = inquiry.url_of(&request_id).ok().as_ref().and_then(path_of);
        let Some(path) = path else {
            return unsent(InquiryOutcome::Nothing, Code::NoAddress, "the inquiry's url cannot be used");
        };
        let mut headers = HeaderMap::new();
        // HTTP lets a gateway store answers to a GET, also a 404. A stored "not found" may be older than the refund.
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-store"));
        headers.insert(PRAGMA, HeaderValue::from_static("no-cache"));
        let token = match carried(self.inquiry_tokens(), &mut headers, &deadline).await {
            Ok(token) => token,
            Err(Unreachable { code, message, .. }) => {
                return unsent(InquiryOutcome::HandedBack, code, &message);
            }
        };
        let request = BankRequest { method: Method::GET, path, headers, body: Bytes::new() };
        let (answer, started) = match client.call(&request, &deadline, reserved).await {
            CallResult::Answer { status, headers, body, first_byte } => {
                let reference_at = self.channel.reference_at();
                let header = token.as_deref().map(|token| &token.header);
                let secrets = client.secrets.with(header, &request_id);
                let mut answer = inquiry_outcome::read_inquiry_answer(
                    inquiry,
                    &self.channel.answer_rules,
                    reference_at,
                    Asked { expected: &leased.expected, secrets },
                    status,
                    &headers,
                    &body,
                );
                if answer.names_another {
                    client.pool.distrust(first_byte);
                } else if let Some(refused) = refused(self.inquiry_tokens(), token.as_deref(), status)
                    && answer.outcome == InquiryOutcome::Unauthorised
                {
                    refused.explain(&mut answer.code, &mut answer.message);
                }
                (answer, Some(first_byte))
            }
            CallResult::Lost { code, message, first_byte } => {
                (InquiryAnswer::new(InquiryOutcome::Nothing, code, message), Some(first_byte))
            }
            CallResult::Unwritten { code, message } => {
                (InquiryAnswer::new(InquiryOutcome::HandedBack, code, message), None)
            }
            CallResult::TooLate => {
                (InquiryAnswer::new(InquiryOutcome::HandedBack, Code::PermitLapsed, TOO_LATE), None)
            }
        };
        SentInquiry { answer, started }
    }
}

const TOO_LATE: &str = "the permit's span was over before the first byte";

/// The token that a request carries, in its headers too; `None` if it carries none. A worker gets a token before it takes
/// permits, so a new one is seldom needed here.
async fn carried(
    tokens: Option<&Tokens>,
    headers: &mut HeaderMap,
    deadline: &SendDeadline,
) -> Result<Option<Arc<BankToken>>, Unreachable> {
    let Some(tokens) = tokens else { return Ok(None) };
    let token = tokio::time::timeout_at(deadline.closes.into(), tokens.good_until(Instant::now()));
    let token = Box::pin(token).await.unwrap_or_else(|_| {
        Err(Unreachable {
            code: Code::TokenFailed,
            message: "get a token before the permit's span was over".to_owned(),
            retry_in: Duration::ZERO,
        })
    })?;
    headers.insert(AUTHORIZATION, token.header.clone());
    Ok(Some(token))
}

/// Notes the status of an answer for the token that its request carried. `None` if the bank did not refuse the token.
fn refused(tokens: Option<&Tokens>, token: Option<&BankToken>, status: u16) -> Option<RefusedToken> {
    let (tokens, token) = tokens.zip(token)?;
    tokens.answered(token, status)
}

/// The path and the query, as the request's first line names them.
fn path_of(address: &hyper::Uri) -> Option<hyper::Uri> {
    address.path_and_query().map_or("/", |path| path.as_str()).parse().ok()
}
