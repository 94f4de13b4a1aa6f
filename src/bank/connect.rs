//! Dialling a bank: DNS, TCP, TLS, HTTP/1.1. Nothing of any request is written here.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::BankError;
use super::door::{Door, Guarded};
use crate::channel::Roots;

/// An HTTP/1.1 connection to a bank, and the door its bytes pass.
#[derive(Debug)]
pub struct Connection {
    pub sender: SendRequest<Full<Bytes>>,
    pub door: Door,
}

/// Why there is no connection. Not one byte of any request was written.
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
}

impl DialError {
    pub fn code(&self) -> &'static str {
        match self {
            DialError::Dns { .. } => "dns_failed",
            DialError::Tcp { .. } => "connect_failed",
            DialError::Tls { .. } => "tls_failed",
            DialError::Http { .. } => "http_failed",
            DialError::TimedOut { .. } => "connect_timeout",
        }
    }
}

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
        let bad = || BankError::Endpoint(endpoint.to_string());
        let host = endpoint.host().ok_or_else(bad)?.trim_start_matches('[').trim_end_matches(']').to_owned();
        let secure = endpoint.scheme_str() == Some("https");
        let port = endpoint.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let tls = if secure {
            let name = ServerName::try_from(host.clone()).map_err(|_| bad())?;
            let connector = match roots {
                Some(roots) => own_connector(roots),
                None => system_connector(),
            };
            let connector = connector.ok_or_else(|| BankError::NoRoots(endpoint.to_string()))?;
            Some((connector, name))
        } else {
            None
        };
        Ok(Dialer { host, port, tls, limit })
    }

    /// Makes one connection, within the channel's `connect_timeout`.
    pub async fn dial(&self) -> Result<Connection, DialError> {
        tokio::time::timeout(self.limit, self.dial_unbounded())
            .await
            .unwrap_or_else(|_| Err(DialError::TimedOut { host: self.host.clone(), limit: self.limit }))
    }

    async fn dial_unbounded(&self) -> Result<Connection, DialError> {
        let host = || self.host.clone();
        let addresses = tokio::net::lookup_host((self.host.as_str(), self.port))
            .await
            .map_err(|source| DialError::Dns { host: host(), source })?;
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in addresses {
            match TcpStream::connect(address).await {
                Ok(stream) => {
                    stream.set_nodelay(true).map_err(|source| DialError::Tcp { host: host(), source })?;
                    return match &self.tls {
                        None => self.speak(stream).await,
                        Some((connector, name)) => {
                            let stream = connector
                                .connect(name.clone(), stream)
                                .await
                                .map_err(|source| DialError::Tls { host: host(), source })?;
                            self.speak(stream).await
                        }
                    };
                }
                Err(error) => last = error,
            }
        }
        Err(DialError::Tcp { host: host(), source: last })
    }

    async fn speak<S>(&self, stream: S) -> Result<Connection, DialError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let door = Door::new();
        let (sender, connection) =
            handshake(TokioIo::new(Guarded::new(stream, door.clone(), self.tls.is_none())))
                .await
                .map_err(|source| DialError::Http { host: self.host.clone(), source })?;
        // Ends with the connection; what went wrong reaches the request that waits for it.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(Connection { sender, door })
    }
}

/// TLS with the system's roots, read once; `None` where there are none.
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
