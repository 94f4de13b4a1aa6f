//! One connection: TLS, where the listener has it, and then HTTP/1.1 until the caller leaves or the node stops.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use jiff::Timestamp;
use rustls::ServerConnection;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use webpki::EndEntityCert;

use super::answer_deadline::AnswerDeadline;
use super::{Bounds, OverTls, Tls};
use crate::caller::ClientNames;
use crate::certificate;
use crate::http::log_throttle::LogThrottle;
use crate::logs::chain;

/// The most bytes of a request's line and headers.
const MOST_HEADER_BYTES: usize = 16 * 1024;
/// The most bytes that a connection buffers, beside answers.
const MOST_BUFFER: usize = 64 * 1024;
/// How often a connection looks whether its client certificate has ended. The clock of the node may be set meanwhile.
const LOOK_EVERY: Duration = Duration::from_mins(1);

/// The names in the certificate of a finished handshake; `None` if the caller showed none. Every request of the connection
/// has them among its extensions.
fn client_names(session: &ServerConnection) -> Option<ClientNames> {
    let certificate = session.peer_certificates()?.first()?;
    let certificate = EndEntityCert::try_from(certificate).ok()?;
    Some(ClientNames(certificate.valid_dns_names().map(str::to_owned).collect()))
}

/// When the client certificate of a finished handshake ends, or one of its issuers; `None` if the caller showed none.
fn client_end(session: &ServerConnection) -> Option<Timestamp> {
    certificate::end_of_chain(session.peer_certificates()?, Timestamp::now())
}

/// Waits until this moment has come by the clock of the node; for ever without one.
async fn has_come(moment: Option<Timestamp>) {
    let Some(moment) = moment else { return std::future::pending().await };
    // An error means that the moment is over.
    while let Ok(left) = Duration::try_from(moment.duration_since(Timestamp::now()))
        && !left.is_zero()
    {
        sleep(left.min(LOOK_EVERY)).await;
    }
}

/// What all connections of a listener share.
#[derive(Debug)]
pub(super) struct ListenerConnections {
    tls: Option<Tls>,
    router: Router,
    bounds: Bounds,
    stop: CancellationToken,
    failed_handshakes: LogThrottle,
}

impl ListenerConnections {
    pub(super) fn new(tls: Option<Tls>, router: Router, bounds: Bounds, stop: CancellationToken) -> Self {
        ListenerConnections { tls, router, bounds, stop, failed_handshakes: LogThrottle::default() }
    }

    /// Serves one connection to its end.
    pub(super) async fn serve(&self, stream: TcpStream, peer: SocketAddr) {
        let stream = AnswerDeadline::new(stream, self.bounds.answer_timeout);
        let Some(mut tls) = self.tls.clone() else {
            return self.speak(stream, None, None, self.stop.cancelled()).await;
        };
        let acceptor = TlsAcceptor::from(Arc::clone(&tls.borrow_and_update()));
        let agreed = tokio::select! {
            () = self.stop.cancelled() => return,
            agreed = timeout(self.bounds.handshake_timeout, acceptor.accept(stream)) => agreed,
        };
        let failed = match agreed {
            Ok(Ok(stream)) => {
                let session = stream.get_ref().1;
                let (names, certificate_end) = (client_names(session), client_end(session));
                let end = async {
                    tokio::select! {
                        () = self.stop.cancelled() => {}
                        // The handshake checked the certificate, and no request does.
                        () = has_come(certificate_end) => {}
                        // An error means that no more certificates come, because the node stops.
                        _ = tls.changed() => {}
                    }
                };
                return self.speak(stream, Some(OverTls), names, end).await;
            }
            Ok(Err(error)) => chain(&error).to_string(),
            Err(_) => format!("not within {:?}", self.bounds.handshake_timeout),
        };
        if let Some(failures) = self.failed_handshakes.count() {
            tracing::warn!(
                peer = %peer.ip(), failures, error = failed,
                "Failed to agree on TLS with {failures} callers, the last from {}: {failed}", peer.ip()
            );
        }
    }

    /// Speaks HTTP/1.1. After `end` the connection ends with the answer under way.
    async fn speak<S>(
        &self,
        stream: S,
        over_tls: Option<OverTls>,
        names: Option<ClientNames>,
        end: impl Future<Output = ()>,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let router = TowerToHyperService::new(self.router.clone());
        let service = service_fn(move |mut request: Request<Incoming>| {
            if let Some(over_tls) = over_tls {
                request.extensions_mut().insert(over_tls);
            }
            if let Some(names) = &names {
                request.extensions_mut().insert(names.clone());
            }
            router.call(request)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.bounds.header_timeout)
            .max_header_size(MOST_HEADER_BYTES)
            .max_buf_size(MOST_BUFFER)
            .serve_connection(TokioIo::new(stream), service);
        let (mut connection, mut end) = (pin!(connection), pin!(end));
        let mut is_ending = false;
        loop {
            tokio::select! {
                served = connection.as_mut() => {
                    if let Err(error) = served {
                        tracing::debug!(error = %chain(&error), "An HTTP connection broke off");
                    }
                    return;
                }
                () = end.as_mut(), if !is_ending => {
                    is_ending = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}
