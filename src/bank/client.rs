//! The client of one address of a bank: makes one request and returns the result of the call.
//!
//! It follows no redirects, uses no proxies and sends no request twice. The size of an answer and the time for it are
//! bounded. It does not know what an answer means, only which statuses need no body.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, HOST, HeaderName, HeaderValue, USER_AGENT,
};
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Version};
use secrecy::ExposeSecret;

use super::BankError;
use super::connect::Dialer;
use super::door::{Passed, SendDeadline};
use super::outcome::refusals;
use super::pool::{Pool, Reserved, Unreachable};
use super::secrets::ClientSecrets;
use super::settings::ConnectionSettings;
use super::signing::Signer;
use crate::channel::{Authorization, Channel};
use crate::crash;
use crate::logs::chain;
use crate::refund::Code;

/// One request, without the headers that all requests of the client share. It has no `Debug`: some banks want a key in
/// the path's query, and the body has the refund.
pub struct BankRequest {
    pub method: Method,
    pub path: hyper::Uri,
    pub headers: HeaderMap,
    pub body: Bytes,
}

#[derive(Debug)]
pub enum CallResult {
    /// The bank's whole answer. Only its head, if the body did not come whole and the status is enough.
    Answer { status: u16, headers: HeaderMap, body: Bytes, first_byte: Instant },
    /// The request may have reached the bank, and no whole answer came.
    Lost { code: Code, message: String, first_byte: Instant },
    /// No byte of the request was written.
    Unwritten { code: Code, message: String },
    /// The send deadline passed before the first byte; no byte was written.
    TooLate,
}

/// The client of one address.
#[derive(Debug)]
pub struct Client {
    pub pool: Pool,
    pub secrets: ClientSecrets,
    headers: HeaderMap,
    signer: Option<Signer>,
    timeout: Duration,
    is_status_enough: bool,
    /// The statuses that are enough if the body is too long.
    refusals: Vec<u16>,
}

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

impl Client {
    /// The longest body that is read, in bytes; a longer answer counts as cut off.
    const LONGEST_ANSWER: usize = 64 * 1024;

    /// Prepares the client of `address`, which gets this `Authorization` header.
    pub fn new(
        settings: &ConnectionSettings,
        address: &hyper::Uri,
        authorization: Option<&Authorization>,
    ) -> Result<Self, BankError> {
        let bad = || BankError::endpoint(address);
        let dialer = Dialer::new(settings, address)?;
        let authority = address.authority().ok_or_else(bad)?;
        // Room for the headers of one request, so that a copy of the map does not grow.
        let mut headers = HeaderMap::with_capacity(12);
        // Credentials in the URL never leave as a header; the configuration check refuses such a URL.
        let host = authority.as_str().rsplit('@').next().unwrap_or_default();
        headers.insert(HOST, HeaderValue::from_str(host).map_err(|_| bad())?);
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        // A compressed answer could not be read, and its refund would be unknown.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("refundd/", env!("CARGO_PKG_VERSION"))));
        if let Some(Authorization(secret)) = authorization {
            let mut value = HeaderValue::from_str(secret.expose_secret())
                .map_err(|_| BankError::Authorization(settings.owner.clone()))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let pool = Pool::new(dialer, settings.most, settings.idle_timeout);
        let secrets = ClientSecrets::of(address, authorization);
        let timeout = settings.timeout;
        let (signer, is_status_enough, refusals) = (None, false, Vec::new());
        Ok(Client { pool, secrets, headers, signer, timeout, is_status_enough, refusals })
    }

    /// The same client for the requests of this channel. It signs them if the channel has keys for that.
    pub fn of_channel(self, channel: &Channel, address: &hyper::Uri) -> Self {
        let signer = channel.signing.as_ref().map(|keys| Signer::new(keys, address));
        Client { signer, refusals: refusals(&channel.answer_rules), ..self }
    }

    /// The same client, for a server whose status says all: an answer whose body does not come whole counts, without the body.
    pub fn for_the_status(self) -> Self {
        Client { is_status_enough: true, ..self }
    }

    /// Makes one request on the connection reserved for it, or on another if none is. No first byte leaves after `deadline`.
    /// A connection that is dead, was idle for too long or is no longer trusted is replaced once, if no byte was written on it.
    pub async fn call(
        &self,
        request: &BankRequest,
        deadline: &SendDeadline,
        mut reserved: Option<Reserved>,
    ) -> CallResult {
        let mut may_replace = true;
        loop {
            let connection = match reserved.take() {
                Some(reserved) => reserved,
                None => match Box::pin(self.pool.replace(deadline.closes)).await {
                    Ok(other) => other,
                    Err(Unreachable { code, message, .. }) => return CallResult::Unwritten { code, message },
                },
            };
            match self.exchange(connection, request, deadline).await {
                (_, Retry::OnAnother) if may_replace => may_replace = false,
                (result, _) => return result,
            }
        }
    }

    async fn exchange(
        &self,
        mut reserved: Reserved,
        request: &BankRequest,
        deadline: &SendDeadline,
    ) -> (CallResult, Retry) {
        if Instant::now() >= deadline.closes {
            // The connection stays open for the next permit.
            return (CallResult::TooLate, Retry::No);
        }
        let lost = || CallResult::Unwritten {
            code: Code::ConnectionLost,
            message: "the connection was lost or given up before the first byte".to_owned(),
        };
        // The bank may be closing it at this moment, or its answers may be about other refunds.
        if reserved.is_outdated() {
            return (lost(), Retry::OnAnother);
        }
        let Some(connection) = reserved.connection() else { return (lost(), Retry::OnAnother) };
        // A connection that was just used needs a moment before it takes the next request. The door stays shut
        // meanwhile. If the bank answered early, the rest of the previous request must not leave under this permit.
        match tokio::time::timeout_at(deadline.closes.into(), connection.sender.ready()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => {
                reserved.died();
                return (lost(), Retry::OnAnother);
            }
            Err(_) => {
                reserved.close();
                return (CallResult::TooLate, Retry::No);
            }
        }
        let mut http_request = Request::new(Full::new(request.body.clone()));
        *http_request.method_mut() = request.method.clone();
        *http_request.uri_mut() = request.path.clone();
        let mut headers = self.headers.clone();
        headers.extend(request.headers.iter().map(|(name, value)| (name.clone(), value.clone())));
        if let Some(signer) = &self.signer
            && signer.sign(&request.method, &request.path, &mut headers, &request.body, now()).is_err()
        {
            let message = "the name of a signing key does not fit into a header".to_owned();
            return (CallResult::Unwritten { code: Code::NoKey, message }, Retry::No);
        }
        *http_request.headers_mut() = headers;

        connection.door.open(deadline.clone());
        let mut cut_off = None;
        let answered = tokio::time::timeout(self.timeout, async {
            let response = connection.sender.send_request(http_request).await?;
            let (head, body) = response.into_parts();
            if self.is_status_enough || self.refusals.contains(&head.status.as_u16()) {
                cut_off = Some((head.status.as_u16(), head.headers.clone()));
            }
            let body = Limited::new(body, Self::LONGEST_ANSWER).collect().await;
            Ok::<_, hyper::Error>((
                Response::from_parts(head, ()),
                body.map(http_body_util::Collected::to_bytes),
            ))
        })
        .await;
        crash::point("answered");
        // The door passes no more bytes of this request now, so its record is final.
        let is_whole = matches!(answered, Ok(Ok((_, Ok(_)))));
        let passed = if is_whole { connection.door.answered() } else { connection.door.shut() };
        // Of a refusal only a body that is too long may be missing: one that was cut might have named another refund.
        let is_too_long = matches!(&answered, Ok(Ok((_, Err(error)))) if error.is::<LengthLimitError>());
        let cut_off = cut_off.filter(|_| is_too_long || self.is_status_enough && !is_whole);
        if let (Some((status, headers)), Passed::Yes { first_byte }) = (cut_off, passed) {
            // The server answers, although no further request may go on this connection.
            reserved.answered(true, None);
            return (CallResult::Answer { status, headers, body: Bytes::new(), first_byte }, Retry::No);
        }
        match (answered, passed) {
            (Ok(Ok((response, Ok(body)))), Passed::Yes { first_byte }) => {
                let keep_alive = response.headers().get(KEEP_ALIVE).and_then(|value| value.to_str().ok());
                reserved.answered(is_last(&response), keep_alive);
                let (head, ()) = response.into_parts();
                let (status, headers) = (head.status.as_u16(), head.headers);
                (CallResult::Answer { status, headers, body, first_byte }, Retry::No)
            }
            (_, Passed::TooLate) => {
                reserved.close();
                (CallResult::TooLate, Retry::No)
            }
            (Ok(_), Passed::Nothing) => {
                reserved.died();
                (lost(), Retry::OnAnother)
            }
            (Err(_), Passed::Nothing) => {
                reserved.close();
                let message = "the time-out passed before the first byte".to_owned();
                (CallResult::Unwritten { code: Code::WriteTimeout, message }, Retry::No)
            }
            (Err(_), Passed::Yes { first_byte }) => {
                let ends = reserved.connection().and_then(|connection| connection.ends);
                let from = ends.map_or_else(String::new, |ends| format!(" from {}", ends.peer.ip()));
                reserved.unanswered(Code::Timeout, first_byte);
                let message = format!("no whole answer{from} within {:?}", self.timeout);
                (CallResult::Lost { code: Code::Timeout, message, first_byte }, Retry::No)
            }
            (Ok(Err(error)), Passed::Yes { first_byte }) => {
                reserved.unanswered(Code::AnswerLost, first_byte);
                // hyper's own text does not name the cause.
                let message = chain(&error).to_string();
                (CallResult::Lost { code: Code::AnswerLost, message, first_byte }, Retry::No)
            }
            (Ok(Ok((response, Err(error)))), Passed::Yes { first_byte }) => {
                if is_too_long {
                    reserved.close();
                } else {
                    reserved.unanswered(Code::AnswerCut, first_byte);
                }
                let message = format!("after status {}: {}", response.status(), chain(&*error));
                (CallResult::Lost { code: Code::AnswerCut, message, first_byte }, Retry::No)
            }
        }
    }
}

/// Seconds since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "the receiver compares a signature's time with its own clock; refundd compares it with nothing"
)]
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Whether no other request may go on the connection after this answer. The bank closes it, or a proxy gave up waiting for
/// the bank. Such a proxy may still send the bank's late answer, which would count for the next request.
fn is_last(response: &Response<()>) -> bool {
    let says = |option: &str| {
        let mut said = response.headers().get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
        said.any(|value| value.split(',').any(|part| part.trim().eq_ignore_ascii_case(option)))
    };
    let gave_up = matches!(response.status(), StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT);
    gave_up || says("close") || (response.version() == Version::HTTP_10 && !says("keep-alive"))
}

/// Whether another connection may carry a request of which no byte was written. Both tries together are still one
/// request.
#[derive(Debug, Clone, Copy)]
enum Retry {
    No,
    OnAnother,
}

#[cfg(test)]
mod tests;
