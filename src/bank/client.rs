//! One address of a bank: exactly one request, and what was heard.
//!
//! No redirects, no proxies, no retries, a bounded answer in bounded time. Nothing here knows what an
//! answer means.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{ACCEPT, AUTHORIZATION, CONNECTION, HOST, HeaderValue, USER_AGENT};
use hyper::{HeaderMap, Method, Request, Response, Version};
use secrecy::ExposeSecret;

use super::BankError;
use super::connect::Dialer;
use super::door::{Leave, Passed};
use super::pool::{Pool, Reserved};
use crate::channel::Channel;
use crate::crash;
use crate::refund::Code;

/// A request, but for what all of them have.
#[derive(Debug, Clone)]
pub struct Letter {
    pub method: Method,
    pub path: hyper::Uri,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// What became of one request.
#[derive(Debug)]
pub enum Heard {
    /// A whole answer.
    Answer { status: u16, headers: HeaderMap, body: Bytes, first_byte: Instant },
    /// It may have reached the bank, and no whole answer came.
    Lost { code: Code, message: String, first_byte: Instant },
    /// Not one byte of it was written.
    Unwritten { code: Code, message: String },
    /// The permit's span was over before the first byte.
    TooLate,
}

/// The client of one address.
#[derive(Debug)]
pub struct Client {
    pub pool: Pool,
    headers: HeaderMap,
    timeout: Duration,
}

impl Client {
    /// More of an answer than this is not read.
    const LONGEST_ANSWER: usize = 64 * 1024;

    pub fn new(channel: &Channel, address: &hyper::Uri) -> Result<Self, BankError> {
        let bad = || BankError::Endpoint(address.to_string());
        let dialer = Dialer::new(address, channel.roots.as_ref(), channel.connect_timeout)?;
        let authority = address.authority().ok_or_else(bad)?;
        let mut headers = HeaderMap::new();
        // Credentials in the url never leave as a header; the config check refuses them.
        let host = authority.as_str().rsplit('@').next().unwrap_or_default();
        headers.insert(HOST, HeaderValue::from_str(host).map_err(|_| bad())?);
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("refundd/", env!("CARGO_PKG_VERSION"))));
        if let Some(secret) = &channel.authorization {
            let mut value = HeaderValue::from_str(secret.expose_secret())
                .map_err(|_| BankError::Authorization(channel.name.to_string()))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let pool = Pool::new(dialer, channel.max_in_flight as usize);
        Ok(Client { pool, headers, timeout: channel.timeout })
    }

    /// Makes one request on a connection that was reserved for it. The first byte leaves while `leave` lasts, or not
    /// at all. A connection that turns out dead is replaced once, if not one byte was written on it.
    pub async fn call(&self, letter: &Letter, leave: &Leave, reserved: Option<Reserved>) -> Heard {
        if let Some(reserved) = reserved {
            match self.exchange(reserved, letter, leave).await {
                (Heard::Unwritten { .. }, Retry::OnAnother) => {}
                (heard, _) => return heard,
            }
        }
        match self.pool.replace(leave.closes).await {
            Ok(other) => self.exchange(other, letter, leave).await.0,
            Err(unreachable) => Heard::Unwritten { code: unreachable.code, message: unreachable.message },
        }
    }

    async fn exchange(&self, mut reserved: Reserved, letter: &Letter, leave: &Leave) -> (Heard, Retry) {
        if Instant::now() >= leave.closes {
            // The connection is kept, so that the next permit finds it ready.
            return (Heard::TooLate, Retry::No);
        }
        let lost = || Heard::Unwritten {
            code: Code::ConnectionLost,
            message: "the connection was lost before the first byte".to_owned(),
        };
        let Some(connection) = reserved.connection() else { return (lost(), Retry::OnAnother) };
        // One that was just used needs a moment until it takes the next request. The door stays shut meanwhile: what
        // is left of the request before, if the bank answered early, must not pass under this permit.
        match tokio::time::timeout_at(leave.closes.into(), connection.sender.ready()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => {
                reserved.died();
                return (lost(), Retry::OnAnother);
            }
            Err(_) => {
                reserved.close();
                return (Heard::TooLate, Retry::No);
            }
        }
        let mut request = Request::new(Full::new(letter.body.clone()));
        *request.method_mut() = letter.method.clone();
        *request.uri_mut() = letter.path.clone();
        let mut headers = self.headers.clone();
        headers.extend(letter.headers.clone());
        *request.headers_mut() = headers;

        connection.door.open(leave.clone());
        let answered = tokio::time::timeout(self.timeout, async {
            let response = connection.sender.send_request(request).await?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, Self::LONGEST_ANSWER).collect().await;
            Ok::<_, hyper::Error>((
                Response::from_parts(head, ()),
                body.map(http_body_util::Collected::to_bytes),
            ))
        })
        .await;
        crash::point("answered");
        // From here on nothing more of this request can leave, so what the door saw is final.
        let passed = connection.door.shut();
        match (answered, passed) {
            (Ok(Ok((response, Ok(body)))), Passed::Yes { first_byte }) => {
                reserved.answered(is_last(&response));
                let (head, ()) = response.into_parts();
                let (status, headers) = (head.status.as_u16(), head.headers);
                (Heard::Answer { status, headers, body, first_byte }, Retry::No)
            }
            (_, Passed::TooLate) => {
                reserved.close();
                (Heard::TooLate, Retry::No)
            }
            (Ok(_), Passed::Nothing) => {
                reserved.died();
                (lost(), Retry::OnAnother)
            }
            (Err(_), Passed::Nothing) => {
                reserved.close();
                let message = "the time-out passed before the first byte".to_owned();
                (Heard::Unwritten { code: Code::WriteTimeout, message }, Retry::No)
            }
            (Err(_), Passed::Yes { first_byte }) => {
                reserved.close();
                let message = format!("no whole answer within {:?}", self.timeout);
                (Heard::Lost { code: Code::Timeout, message, first_byte }, Retry::No)
            }
            (Ok(Err(error)), Passed::Yes { first_byte }) => {
                reserved.close();
                (Heard::Lost { code: Code::AnswerLost, message: error.to_string(), first_byte }, Retry::No)
            }
            (Ok(Ok((response, Err(error)))), Passed::Yes { first_byte }) => {
                reserved.close();
                let message = format!("after status {}: {error}", response.status());
                (Heard::Lost { code: Code::AnswerCut, message, first_byte }, Retry::No)
            }
        }
    }
}

/// Whether the bank closes the connection after this answer.
fn is_last(response: &Response<()>) -> bool {
    let says = |word: &str| {
        let mut said = response.headers().get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
        said.any(|value| value.split(',').any(|part| part.trim().eq_ignore_ascii_case(word)))
    };
    says("close") || (response.version() == Version::HTTP_10 && !says("keep-alive"))
}

/// Whether a request of which nothing was written may be tried on another connection; that is still
/// one request.
#[derive(Debug, Clone, Copy)]
enum Retry {
    No,
    OnAnother,
}
