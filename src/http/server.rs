//! The HTTP server: accepts connections and serves a router on them until the node stops.
//!
//! It does not know the routes. It has an accept loop of its own, because connections have bounds: their number, in all and
//! for each address; the time for TLS; the time for headers and their size; the time for taking an answer; and the
//! wait for last answers when stopping. The time and the size of a body are bounded where bodies are read.

mod address_connections;
mod answer_deadline;
mod connection;
#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::address_connections::AddressConnections;
use self::connection::ListenerConnections;
use super::log_throttle::LogThrottle;
use crate::logs::chain;

/// The kernel keeps at most twice as many bytes of an answer for each connection.
const SEND_BUFFER: u32 = 64 * 1024;
/// Connections that wait in the kernel until they are accepted.
const BACKLOG: u32 = 1024;

/// What one listener grants to its callers.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// The most connections at the same time. Further connections wait in the kernel's queue.
    pub connections: u32,
    /// The most connections of one address at the same time; `None` for no bound. Further ones are closed.
    pub connections_per_address: Option<u32>,
    /// The time for agreeing on TLS.
    pub handshake_timeout: Duration,
    /// The time for the headers of a request. It also ends idle connections.
    pub header_timeout: Duration,
    /// The time for taking an answer, from the moment when the kernel can keep no more of it.
    pub answer_timeout: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds {
            connections: 1024,
            connections_per_address: None,
            handshake_timeout: Duration::from_secs(5),
            header_timeout: Duration::from_secs(5),
            answer_timeout: Duration::from_secs(30),
        }
    }
}

/// Listens on an address.
///
/// # Errors
/// When the address is taken or does not belong to this host.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    // Accepted sockets inherit it. Otherwise the kernel would keep megabytes for each caller that does not read.
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// A request that came by TLS has it among its extensions.
#[derive(Debug, Clone, Copy)]
pub struct OverTls;

/// How a listener speaks TLS. A new value counts for new connections, and the others end with the answer under way.
pub type Tls = watch::Receiver<Arc<ServerConfig>>;

/// Serves until `stop` is cancelled, by TLS if `tls` is given. Then lets requests under way finish for at most `grace`,
/// and cuts the others.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Tls>,
    router: Router,
    bounds: Bounds,
    stop: CancellationToken,
    grace: Duration,
) {
    let room = Arc::new(Semaphore::new(bounds.connections as usize));
    let by_address = AddressConnections::new(bounds.connections_per_address);
    let refusals = LogThrottle::default();
    let connections = Arc::new(ListenerConnections::new(tls, router, bounds, stop.clone()));
    let tasks = TaskTracker::new();
    let cut = CancellationToken::new();
    loop {
        // Wait for room before accepting: a connection that is not accepted costs the node nothing.
        let accepted = async {
            let room = Arc::clone(&room).acquire_owned().await;
            (accept(&listener).await, room)
        };
        let ((stream, peer), room) = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accepted => accepted,
        };
        let Some(admitted) = by_address.admit(peer.ip()) else {
            if let Some(refused) = refusals.count() {
                tracing::warn!(
                    peer = %peer.ip(), refused,
                    "Closed {refused} connections of addresses that have as many as they may, the last from {}", peer.ip()
                );
            }
            continue;
        };
        let (connections, cut) = (Arc::clone(&connections), cut.clone());
        tasks.spawn(async move {
            let _counted = (room, admitted);
            tokio::select! {
                () = cut.cancelled() => {}
                () = connections.serve(stream, peer) => {}
            }
        });
    }
    drop(listener);
    tasks.close();
    if timeout(grace, tasks.wait()).await.is_err() {
        let connections = tasks.len();
        tracing::warn!(connections, "Cut {connections} HTTP connections that did not finish in time");
    }
    cut.cancel();
    tasks.wait().await;
}

/// The next connection. It tries again after a failure: a lack of descriptors or memory passes.
async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // Answers are written at once and are small. Nagle's algorithm would only delay them.
                let _ = stream.set_nodelay(true);
                return (stream, peer);
            }
            Err(error) => {
                tracing::warn!(error = %chain(&error), "Accepting a connection failed");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}
