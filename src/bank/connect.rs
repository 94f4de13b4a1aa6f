//! Opens connections to a bank: DNS, TCP, TLS, HTTP/1.1. It writes no byte of any request.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use super::door::{Door, Guarded};
use super::kernel::Ends;
use super::{BankError, eyeballs};
use crate::channel::Roots;
use crate::refund::Code;

/// An HTTP/1.1 connection to a bank, and the door that its bytes pass through.
#[derive(Debug)]
pub struct Connection {
    pub sender: SendRequest<Full<Bytes>>,
    pub door: Door,
    /// The connection's two addresses; `None` if the socket cannot name them.
    pub ends: Option<Ends>,
    /// When the connection was seen to be closed; empty while it is open.
    pub ended: Arc<OnceLock<Instant>>,
    /// How long DNS, TCP and TLS took together.
    pub set_up: Duration,
    /// How long TCP's connect took: about one round trip.
    pub tcp_connect: Duration,
    /// How many requests were answered on the connection.
    pub answered: u32,
}

/// Why no connection could be opened. No byte of any request was written.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    #[error("find the address of {host}: {source}")]
    Dns { host: String, source: io::Error },
    #[error("connect to {host}: {source}")]
    Tcp { host: String, source: io::Error },
    #[error("agree on TLS with {host}: {source}")]
    Tls { host: String, source: io::Error },
    #[error("speak HTTP with {host}: {source}")]
    Http { host: String, source: hyper::Error },
    #[error("connect to {host} within {limit:?}")]
    TimedOut { host: String, limit: Duration },
    #[error("keep a connection to {host} open: it was closed before any request")]
    Closed { host: String },
}

impl DialError {
    pub fn code(&self) -> Code {
        match self {
            DialError::Dns { .. } => Code::DnsFailed,
            DialError::Tcp { .. } => Code::ConnectFailed,
            DialError::Tls { .. } => Code::TlsFailed,
            DialError::Http { .. } => Code::HttpFailed,
            DialError::TimedOut { .. } => Code::ConnectTimeout,
            DialError::Closed { .. } => Code::ConnectClosed,
        }
    }
}

/// Opens connections to one address.
pub struct Dialer {
    host: String,
    port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    limit: Duration,
}

impl std::fmt::Debug for Dialer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dialer").field("host", &self.host).field("port", &self.port).finish_non_exhaustive()
    }
}

impl Dialer {
    pub fn new(endpoint: &hyper::Uri, roots: Option<&Roots>, limit: Duration) -> Result<Self, BankError> {
        let bad = || BankError::endpoint(endpoint);
        let host = endpoint.host().ok_or_else(bad)?.trim_start_matches('[').trim_end_matches(']').to_owned();
        let secure = endpoint.scheme_str() == Some("https");
        let port = endpoint.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let tls = if secure {
            let name = ServerName::try_from(host.clone()).map_err(|_| bad())?;
            let connector = match roots {
                Some(roots) => own_connector(roots),
                None => system_connector(),
            };
            let connector = connector.ok_or_else(|| BankError::NoRoots(host.clone()))?;
            Some((connector, name))
        } else {
            None
        };
        Ok(Dialer { host, port, tls, limit })
    }

    /// The error for a connection that the other end closed before its first request.
    pub fn closed(&self) -> DialError {
        DialError::Closed { host: self.host.clone() }
    }

    /// The longest time for opening one connection: the channel's `connect_timeout`.
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// Opens one connection within [`Dialer::limit`].
    pub async fn dial(&self) -> Result<Connection, DialError> {
        tokio::time::timeout(self.limit, self.dial_unbounded())
            .await
            .unwrap_or_else(|_| Err(DialError::TimedOut { host: self.host.clone(), limit: self.limit }))
    }

    async fn dial_unbounded(&self) -> Result<Connection, DialError> {
        let began = Instant::now();
        let host = || self.host.clone();
        let addresses = tokio::net::lookup_host((self.host.as_str(), self.port))
            .await
            .map_err(|source| DialError::Dns { host: host(), source })?;
        let tcp = |source| DialError::Tcp { host: host(), source };
        let (stream, tcp_connect) = eyeballs::connect(addresses).await.map_err(tcp)?;
        stream.set_nodelay(true).map_err(tcp)?;
        let ends = stream.local_addr().and_then(|local| Ok(Ends { local, peer: stream.peer_addr()? }));
        let made = Made { began, tcp_connect, ends: ends.ok() };
        match &self.tls {
            None => self.speak(stream, made).await,
            Some((connector, name)) => {
                let stream = connector
                    .connect(name.clone(), stream)
                    .await
                    .map_err(|source| DialError::Tls { host: host(), source })?;
                self.speak(stream, made).await
            }
        }
    }

    async fn speak<S>(&self, stream: S, made: Made) -> Result<Connection, DialError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let door = Door::new();
        let (sender, connection) =
            handshake(TokioIo::new(Guarded::new(stream, door.clone(), self.tls.is_none())))
                .await
                .map_err(|source| DialError::Http { host: self.host.clone(), source })?;
        let ended = Arc::new(OnceLock::new());
        // The task ends with the connection. An error of the connection reaches the request that waits on it.
        tokio::spawn({
            let ended = Arc::clone(&ended);
            async move {
                let _ = connection.await;
                let _ = ended.set(Instant::now());
            }
        });
        let Made { began, tcp_connect, ends } = made;
        Ok(Connection { sender, door, ends, ended, set_up: began.elapsed(), tcp_connect, answered: 0 })
    }
}

/// A connection before its HTTP handshake: what was measured so far.
struct Made {
    began: Instant,
    tcp_connect: Duration,
    ends: Option<Ends>,
}

/// TLS with the system's roots, read once; `None` if the system has none.
fn system_connector() -> Option<TlsConnector> {
    static CONFIG: OnceLock<Option<Arc<ClientConfig>>> = OnceLock::new();
    CONFIG
        .get_or_init(|| {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() { None } else { trusting(roots) }
        })
        .clone()
        .map(TlsConnector::from)
}

/// TLS with a channel's own roots and no others.
fn own_connector(own: &Roots) -> Option<TlsConnector> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(own.0.iter().cloned());
    trusting(roots).map(TlsConnector::from)
}

fn trusting(roots: RootCertStore) -> Option<Arc<ClientConfig>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .ok()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Some(Arc::new(config))
}
