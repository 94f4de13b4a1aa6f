//! Opens connections to a bank: DNS, TCP, TLS, HTTP/1.1. It writes no byte of any request.
//!
//! An address that accepts a connection and then fails, or does not answer, is avoided by the next dials.

mod connection;
mod progress;

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hyper::client::conn::http1::Builder;
use hyper_util::rt::TokioIo;
use rustls::ProtocolVersion;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::BankError;
use super::dial_error::{DialError, DialStage};
use super::door::{Door, Guarded};
use super::kernel::{self, Ends};
use super::lookup::Lookups;
use super::settings::ConnectionSettings;
use super::tls::{self, Secure, TlsError};
use crate::certificate;
use crate::channel::{Networks, WhyNot};
use crate::eyeballs::{self, Avoided};
pub use connection::Connection;
use progress::DialProgress;

/// Opens connections to one address.
pub struct Dialer {
    host: String,
    port: u16,
    tls: Option<Secure>,
    /// Whether there is a client certificate to show.
    has_certificate: bool,
    networks: Networks,
    avoided: Avoided,
    limit: Duration,
    /// After so long the kernel gives up bytes that the bank has not acknowledged.
    unacknowledged: Duration,
}

impl std::fmt::Debug for Dialer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dialer").field("host", &self.host).field("port", &self.port).finish_non_exhaustive()
    }
}

impl Dialer {
    /// How long after the time of the handshake the bank may refuse a client certificate unnoticed.
    const REFUSAL_MARGIN: Duration = Duration::from_millis(20);

    /// Prepares connections to `endpoint`.
    pub fn new(settings: &ConnectionSettings, endpoint: &hyper::Uri) -> Result<Self, BankError> {
        let bad = || BankError::endpoint(endpoint);
        let host = endpoint.host().ok_or_else(bad)?.trim_start_matches('[').trim_end_matches(']').to_owned();
        let secure = endpoint.scheme_str() == Some("https");
        let port = endpoint.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let tls = if secure {
            let name = ServerName::try_from(host.clone()).map_err(|_| bad())?;
            let connector = tls::connector(settings.roots.as_ref(), settings.client_identity.as_ref());
            let connector = connector.map_err(|error| match error {
                TlsError::NoRoots => BankError::NoRoots(host.clone()),
                source => BankError::Tls { owner: settings.owner.clone(), source },
            })?;
            Some(Secure::new(connector, name))
        } else {
            None
        };
        let has_certificate = settings.client_identity.is_some();
        let (networks, avoided) = (settings.networks.clone(), Avoided::default());
        let (limit, unacknowledged) = (settings.connect_timeout, settings.timeout);
        Ok(Dialer { host, port, tls, has_certificate, networks, avoided, limit, unacknowledged })
    }

    /// Prepares connections in clear text.
    #[cfg(test)]
    pub fn plain(endpoint: &hyper::Uri, limit: Duration) -> Self {
        let host = endpoint.host().unwrap_or_default().to_owned();
        let port = endpoint.port_u16().unwrap_or(80);
        let (networks, avoided) = (Networks::default(), Avoided::default());
        Dialer {
            host,
            port,
            tls: None,
            has_certificate: false,
            networks,
            avoided,
            limit,
            unacknowledged: limit,
        }
    }

    /// The error for a connection that the other end closed before its first request.
    pub fn closed(&self, connection: &Connection) -> DialError {
        self.avoid(connection);
        DialError::Closed { host: self.host.clone() }
    }

    /// Lets the next dials try the address of this connection after the others.
    pub fn avoid(&self, connection: &Connection) {
        if let Some(ends) = connection.ends {
            self.avoided.failed(ends.peer);
        }
    }

    /// The longest time for opening one connection: the channel's `connect_timeout`.
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// Opens one connection within [`Dialer::limit`].
    pub async fn dial(&self) -> Result<Connection, DialError> {
        let progress = DialProgress::default();
        let dialled = tokio::time::timeout(self.limit, self.dial_unbounded(&progress))
            .await
            .unwrap_or_else(|_| Err(self.timed_out(progress.stage())));
        if let (Err(_), Some(address)) = (&dialled, progress.address()) {
            self.avoided.failed(address);
        }
        dialled
    }

    fn timed_out(&self, stage: DialStage) -> DialError {
        DialError::TimedOut { stage, host: self.host.clone(), limit: self.limit }
    }

    async fn dial_unbounded(&self, progress: &DialProgress) -> Result<Connection, DialError> {
        let began = Instant::now();
        loop {
            let (stream, made) = self.connect(began, progress).await?;
            let Some(secure) = &self.tls else { return self.speak(stream, made).await };
            let shaking = Instant::now();
            let (stream, was_asked) = tls::watching(secure.shake_hands(stream)).await;
            let stream = stream.map_err(|source| DialError::Tls { host: self.host.clone(), source })?;
            let handshake = shaking.elapsed();
            let session = stream.get_ref().1;
            if tls::outlives_its_certificate(session) {
                // The next handshake looks at what the bank shows now: perhaps its certificate was renewed long ago.
                secure.forget_sessions();
                continue;
            }
            let is_early = session.protocol_version() == Some(ProtocolVersion::TLSv1_3);
            let certificates_end = session.peer_certificates().and_then(certificate::first_end);
            let connection = self.speak(stream, made).await?;
            if was_asked && is_early {
                self.wait_for_refusal(&connection, handshake + Self::REFUSAL_MARGIN).await?;
            }
            let set_up = began.elapsed();
            return Ok(Connection { set_up, handshake: Some(handshake), certificates_end, ..connection });
        }
    }

    /// Opens a TCP connection.
    async fn connect(&self, began: Instant, progress: &DialProgress) -> Result<(TcpStream, Made), DialError> {
        let addresses = self.lookup().await?;
        progress.found();
        let addresses = self.usable(addresses)?;
        let tcp = |source| DialError::Tcp { host: self.host.clone(), source };
        let connecting = eyeballs::connect_avoiding(addresses, &self.avoided, self.limit);
        let (stream, tcp_connect) = connecting.await.map_err(tcp)?;
        stream.set_nodelay(true).map_err(tcp)?;
        // However the socket ends, also by the death of this process, the kernel drops the bytes that the bank has not acknowledged
        // and sends a reset. Otherwise it would send them again for up to minutes, and the bank could execute a given-up request.
        stream.set_zero_linger().map_err(tcp)?;
        // While this process is frozen, nobody ends the socket. Then the kernel does.
        kernel::drop_unacknowledged_after(&stream, self.unacknowledged).map_err(tcp)?;
        if let Ok(peer) = stream.peer_addr() {
            progress.reached(peer);
        }
        let ends = stream.local_addr().and_then(|local| Ok(Ends { local, peer: stream.peer_addr()? }));
        Ok((stream, Made { began, tcp_connect, ends: ends.ok() }))
    }

    /// The addresses of the host as DNS names them now, each with the reason if the channel may not connect to it.
    pub async fn addresses(&self) -> Result<Vec<(IpAddr, Option<WhyNot>)>, DialError> {
        let found = tokio::time::timeout(self.limit, self.lookup()).await;
        let mut addresses = found.unwrap_or_else(|_| Err(self.timed_out(DialStage::Dns)))?;
        addresses.dedup();
        Ok(addresses.into_iter().map(|ip| (ip, self.networks.refusal(&self.host, ip))).collect())
    }

    async fn lookup(&self) -> Result<Vec<IpAddr>, DialError> {
        let found = Lookups::of_process().find(&self.host).await;
        found.map_err(|source| DialError::Dns { host: self.host.clone(), source })
    }

    /// The addresses that the channel may connect to.
    fn usable(&self, found: Vec<IpAddr>) -> Result<Vec<SocketAddr>, DialError> {
        let (mut usable, mut refused) = (Vec::new(), None);
        for ip in found {
            match self.networks.refusal(&self.host, ip) {
                None => usable.push(SocketAddr::new(ip, self.port)),
                Some(why) => refused = Some((ip, why)),
            }
        }
        match refused {
            Some((ip, why)) if usable.is_empty() => {
                Err(DialError::AddressRefused { host: self.host.clone(), ip, why })
            }
            _ => Ok(usable),
        }
    }

    /// Waits whether the bank, which asked for a client certificate, refuses what it got.
    ///
    /// In TLS 1.3 the handshake is over here before the bank has seen the certificate. A refusal arrives about one round
    /// trip later, and the handshake took at least one. A request that was sent meanwhile would be lost, and its refund
    /// unknown. If the bank takes longer to refuse, only that tells.
    async fn wait_for_refusal(&self, connection: &Connection, trial: Duration) -> Result<(), DialError> {
        let over = Instant::now() + trial;
        while Instant::now() < over {
            if connection.sender.is_closed() {
                let has = if self.has_certificate {
                    "it refuses the one in `client_certificate_file`"
                } else {
                    "the channel has no `client_certificate_file`"
                };
                return Err(DialError::CertificateRefused { host: self.host.clone(), has });
            }
            tokio::time::sleep(Duration::from_millis(1).max(trial / 20)).await;
        }
        Ok(())
    }

    /// Speaks HTTP over a stream that has no socket. For [`crate::fuzzing`].
    #[cfg(any(test, feature = "fuzzing"))]
    pub async fn speak_over<S>(&self, stream: S) -> Result<Connection, DialError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        self.speak(stream, Made { began: Instant::now(), tcp_connect: Duration::ZERO, ends: None }).await
    }

    async fn speak<S>(&self, stream: S, made: Made) -> Result<Connection, DialError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let door = Door::new();
        let stream = TokioIo::new(Guarded::new(stream, door.clone(), self.tls.is_none()));
        // HTTP ignores the case of names. But a gateway that looks for `Idempotency-Key` as it is written would lose the key.
        let handshake = Builder::new().title_case_headers(true).handshake(stream).await;
        let (sender, connection) =
            handshake.map_err(|source| DialError::Http { host: self.host.clone(), source })?;
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
        let set_up = began.elapsed();
        let (handshake, certificates_end) = (None, None);
        Ok(Connection {
            sender,
            door,
            ends,
            ended,
            set_up,
            tcp_connect,
            handshake,
            certificates_end,
            answered: 0,
            renew_at: Connection::end_of_life(),
        })
    }
}

/// A connection before its HTTP handshake: what was measured so far.
struct Made {
    began: Instant,
    tcp_connect: Duration,
    ends: Option<Ends>,
}

#[cfg(test)]
mod tests;
