//! One address of a bank: exactly one request, and what was heard.
//!
//! No redirects, no proxies, no retries, a bounded answer in bounded time. Nothing here knows what an
//! answer means.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{ACCEPT, AUTHORIZATION, HOST, HeaderValue, USER_AGENT};
use hyper::{HeaderMap, Method, Request, Response};
use secrecy::ExposeSecret;

use super::BankError;
use super::connect::{Connection, Dialer};
use super::door::Passed;
use crate::channel::Channel;
use crate::crash;

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
    Lost { code: &'static str, message: String, first_byte: Instant },
    /// Not one byte of it was written.
    Unwritten { code: &'static str, message: String },
    /// The permit's span was over before the first byte.
    TooLate,
}

/// The client of one address: its connections, kept while they are fresh.
#[derive(Debug)]
pub struct Client {
    dialer: Dialer,
    headers: HeaderMap,
    timeout: Duration,
    most_idle: usize,
    idle: Arc<Mutex<Idle>>,
}

/// Connections that lie idle, and since when.
#[derive(Debug, Default)]
struct Idle {
    connections: Vec<(Connection, Instant)>,
    /// A task looks after those that nobody will use any more.
    is_swept: bool,
}

impl Client {
    /// Some servers close idle connections after 5 s; before that we do, because a request that meets
    /// the closing may be lost, and then nobody knows.
    const IDLE_FOR: Duration = Duration::from_secs(4);
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
        let most_idle = channel.max_in_flight as usize;
        Ok(Client { dialer, headers, timeout: channel.timeout, most_idle, idle: Arc::default() })
    }

    /// Makes sure a connection stands ready, so that opening one does not eat into a permit's span.
    pub async fn warm_up(&self) {
        if self.fresh_idle().map(|connection| self.put_back(connection)).is_none()
            && let Ok(connection) = self.dialer.dial().await
        {
            self.put_back(connection);
        }
    }

    /// Makes one request. The first byte leaves before `closes`, or not at all. A connection that went
    /// stale while it lay idle is replaced once, if not one byte was written on it.
    pub async fn call(&self, letter: &Letter, closes: Instant) -> Heard {
        if let Some(reused) = self.fresh_idle() {
            match self.exchange(reused, letter, closes).await {
                (Heard::Unwritten { .. }, Retry::OnAnother) => {}
                (heard, _) => return heard,
            }
        }
        match self.dialer.dial().await {
            Ok(connection) => self.exchange(connection, letter, closes).await.0,
            Err(error) => Heard::Unwritten { code: error.code(), message: error.to_string() },
        }
    }

    async fn exchange(&self, mut connection: Connection, letter: &Letter, closes: Instant) -> (Heard, Retry) {
        if Instant::now() >= closes {
            // Dialling took too long. The connection is kept, so that the next permit finds it ready.
            self.put_back(connection);
            return (Heard::TooLate, Retry::No);
        }
        let mut request = Request::new(Full::new(letter.body.clone()));
        *request.method_mut() = letter.method.clone();
        *request.uri_mut() = letter.path.clone();
        let mut headers = self.headers.clone();
        headers.extend(letter.headers.clone());
        *request.headers_mut() = headers;

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
        let unwritten = |code, message: &str| Heard::Unwritten { code, message: message.to_owned() };
        match (answered, passed) {
            (Ok(Ok((response, Ok(body)))), Passed::Yes { first_byte }) => {
                self.put_back(connection);
                let (head, ()) = response.into_parts();
                let (status, headers) = (head.status.as_u16(), head.headers);
                (Heard::Answer { status, headers, body, first_byte }, Retry::No)
            }
            (_, Passed::TooLate) => (Heard::TooLate, Retry::No),
            (Ok(_), Passed::Nothing) => (
                unwritten("connection_lost", "the connection was lost before the first byte"),
                Retry::OnAnother,
            ),
            (Err(_), Passed::Nothing) => {
                (unwritten("write_timeout", "the time-out passed before the first byte"), Retry::No)
            }
            (Err(_), Passed::Yes { first_byte }) => {
                let message = format!("no whole answer within {:?}", self.timeout);
                (Heard::Lost { code: "timeout", message, first_byte }, Retry::No)
            }
            (Ok(Err(error)), Passed::Yes { first_byte }) => {
                (Heard::Lost { code: "answer_lost", message: error.to_string(), first_byte }, Retry::No)
            }
            (Ok(Ok((response, Err(error)))), Passed::Yes { first_byte }) => {
                let message = format!("after status {}: {error}", response.status());
                (Heard::Lost { code: "answer_cut", message, first_byte }, Retry::No)
            }
        }
    }

    fn fresh_idle(&self) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((connection, since)) = idle.connections.pop() {
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
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.connections.len() < self.most_idle {
            idle.connections.push((connection, Instant::now()));
            if !std::mem::replace(&mut idle.is_swept, true) {
                tokio::spawn(sweep(Arc::clone(&self.idle)));
            }
        }
    }
}

/// Closes what lay idle for too long, until nothing lies there: a channel that sends now and then on each of many
/// nodes would else keep a connection open on all of them.
async fn sweep(idle: Arc<Mutex<Idle>>) {
    loop {
        tokio::time::sleep(Client::IDLE_FOR).await;
        let mut idle = idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.connections.retain(|(_, since)| since.elapsed() < Client::IDLE_FOR);
        if idle.connections.is_empty() {
            idle.is_swept = false;
            return;
        }
    }
}

/// Whether a request of which nothing was written may be tried on another connection; that is still
/// one request.
#[derive(Debug, Clone, Copy)]
enum Retry {
    No,
    OnAnother,
}
