//! The bank: exactly one request to one channel, and what came of it.
//!
//! No redirects, no proxies, no retries of the client's own, a bounded answer in bounded time. Whether
//! any byte of a request may have left is a fact kept by the [`door`] every byte passes, not a guess
//! from an error's text. What an answer means is [`verdict`]'s business.
//!
//! A connection that went stale while it lay idle is replaced once by a fresh one, but only when the
//! door saw not one byte of the request; that is still one request.

mod connect;
mod door;
pub mod verdict;

use std::sync::Mutex;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use hyper::{HeaderMap, Method, Request, Response};
use secrecy::ExposeSecret;

use crate::channel::Channel;
use crate::crash;
use crate::refund::{Answer, Leased, Outcome};
use connect::{Connection, Dialer};
use door::Passed;

/// What one request came to, and when its first byte was written, if one was.
#[derive(Debug)]
pub struct Sent {
    pub answer: Answer,
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

/// One channel's client: its connections, kept while they are fresh.
#[derive(Debug)]
pub struct Bank {
    dialer: Dialer,
    path: hyper::Uri,
    headers: HeaderMap,
    timeout: Duration,
    channel: Channel,
    idle: Mutex<Vec<(Connection, Instant)>>,
}

impl Bank {
    /// Some servers close idle connections after 5 s; before that we do, because a request that meets
    /// the closing may be lost, and then nobody knows.
    const IDLE_FOR: Duration = Duration::from_secs(4);
    /// More of an answer than this is not read.
    const LONGEST_ANSWER: usize = 64 * 1024;

    pub fn new(channel: &Channel) -> Result<Self, BankError> {
        let bad = || BankError::Endpoint(channel.endpoint.to_string());
        let dialer = Dialer::new(&channel.endpoint, channel.connect_timeout)?;
        let authority = channel.endpoint.authority().ok_or_else(bad)?;
        let mut headers = HeaderMap::new();
        // Credentials in the endpoint's url never leave as a header; the config check refuses them.
        let host = authority.as_str().rsplit('@').next().unwrap_or_default();
        headers.insert(HOST, HeaderValue::from_str(host).map_err(|_| bad())?);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("refundd/", env!("CARGO_PKG_VERSION"))));
        if let Some(secret) = &channel.authorization {
            let mut value = HeaderValue::from_str(secret.expose_secret())
                .map_err(|_| BankError::Authorization(channel.name.to_string()))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let path =
            channel.endpoint.path_and_query().map_or("/", |p| p.as_str()).parse().map_err(|_| bad())?;
        let timeout = channel.timeout;
        Ok(Bank { dialer, path, headers, timeout, channel: channel.clone(), idle: Mutex::default() })
    }

    /// Makes sure a connection stands ready, so that opening one does not eat into a permit's span.
    pub async fn warm_up(&self) {
        if self.fresh_idle().map(|connection| self.put_back(connection)).is_none()
            && let Ok(connection) = self.dialer.dial().await
        {
            self.put_back(connection);
        }
    }

    /// POSTs one refund. The first byte leaves before `closes`, or not at all.
    pub async fn send(&self, refund: &Leased, closes: Instant) -> Sent {
        let reused = self.fresh_idle();
        let is_reused = reused.is_some();
        let first = match reused {
            Some(connection) => self.exchange(connection, refund, closes).await,
            None => self.dial_and_exchange(refund, closes).await,
        };
        match first {
            // It was closed while it lay idle; nothing was written.
            Exchange::Unsent(_) if is_reused => match self.dial_and_exchange(refund, closes).await {
                Exchange::Over(sent) | Exchange::Unsent(sent) => sent,
            },
            Exchange::Over(sent) | Exchange::Unsent(sent) => sent,
        }
    }

    async fn dial_and_exchange(&self, refund: &Leased, closes: Instant) -> Exchange {
        match self.dialer.dial().await {
            Ok(connection) => self.exchange(connection, refund, closes).await,
            Err(error) => Exchange::Over(Sent {
                answer: Answer::new(Outcome::NotExecuted, error.code(), error.to_string()),
                started: None,
            }),
        }
    }

    async fn exchange(&self, mut connection: Connection, refund: &Leased, closes: Instant) -> Exchange {
        if Instant::now() >= closes {
            // Dialling took too long. The connection is kept, so that the next permit finds it ready.
            self.put_back(connection);
            return Exchange::Over(Sent { answer: too_late(), started: None });
        }
        let mut request = Request::new(Full::new(Bytes::from_owner(std::sync::Arc::clone(&refund.body))));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.path.clone();
        *request.headers_mut() = self.headers.clone();
        // A UUID fits into any header; should that ever fail, nothing leaves without its key.
        let Ok(key) = HeaderValue::from_str(&refund.request_id.to_string()) else {
            let answer = Answer::new(Outcome::Review, "no_key", "the request id does not fit into a header");
            return Exchange::Over(Sent { answer, started: None });
        };
        request.headers_mut().insert("idempotency-key", key);
        request.headers_mut().insert("refundd-attempt", HeaderValue::from(refund.attempt));

        connection.door.open(closes);
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
        let unknown = |code, message: String| {
            Exchange::Over(Sent {
                answer: Answer::new(Outcome::Unknown, code, message),
                started: passed.first_byte(),
            })
        };
        match (answered, passed) {
            (Ok(Ok((response, Ok(body)))), Passed::Yes { .. }) => {
                let answer = verdict::verdict(
                    &self.channel.verdicts,
                    response.status().as_u16(),
                    response.headers(),
                    &body,
                );
                self.put_back(connection);
                Exchange::Over(Sent { answer, started: passed.first_byte() })
            }
            (_, Passed::TooLate) => Exchange::Over(Sent { answer: too_late(), started: None }),
            (Ok(_), Passed::Nothing) => Exchange::Unsent(Sent {
                answer: Answer::new(
                    Outcome::NotExecuted,
                    "connection_lost",
                    "the connection was lost before the first byte",
                ),
                started: None,
            }),
            (Err(_), Passed::Nothing) => Exchange::Over(Sent {
                answer: Answer::new(
                    Outcome::NotExecuted,
                    "write_timeout",
                    "the time-out passed before the first byte",
                ),
                started: None,
            }),
            (Err(_), Passed::Yes { .. }) => {
                unknown("timeout", format!("no whole answer within {:?}", self.timeout))
            }
            (Ok(Err(error)), Passed::Yes { .. }) => unknown("answer_lost", error.to_string()),
            (Ok(Ok((response, Err(error)))), Passed::Yes { .. }) => {
                unknown("answer_cut", format!("after status {}: {error}", response.status()))
            }
        }
    }

    fn fresh_idle(&self) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        while let Some((connection, since)) = idle.pop() {
            if since.elapsed() < Self::IDLE_FOR && connection.sender.is_ready() {
                return Some(connection);
            }
        }
        None
    }

    fn put_back(&self, connection: Connection) {
        if connection.sender.is_closed() {
            return;
        }
        let mut idle = self.idle.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if idle.len() < self.channel.max_in_flight as usize {
            idle.push((connection, Instant::now()));
        }
    }
}

fn too_late() -> Answer {
    Answer::new(Outcome::HandedBack, "permit_lapsed", "the permit's span was over before the first byte")
}

enum Exchange {
    Over(Sent),
    /// Provably nothing was written, and another connection may be tried.
    Unsent(Sent),
}
