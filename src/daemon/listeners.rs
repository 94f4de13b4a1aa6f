//! The addresses on which a node serves HTTP: one for callers and, where the configuration names it, one for health and
//! metrics alone. Each has its own connections, so callers cannot keep a probe or a scraper out.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use futures_util::future::join_all;
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::supervisor::Supervisor;
use crate::config::Http;
use crate::http::server::{self, Bounds};
use crate::http::{Api, admin_router, router};

/// How long requests under way may go on after the stop signal.
const GRACE: Duration = Duration::from_secs(5);
/// Connections for health and metrics.
const ADMIN_CONNECTIONS: u32 = 64;

/// The sockets, before anybody is served.
pub(super) struct Bound {
    listener: TcpListener,
    address: SocketAddr,
    admin: Option<(TcpListener, SocketAddr)>,
}

/// The servers of a running node.
#[derive(Debug)]
pub(super) struct Listeners {
    pub address: SocketAddr,
    pub admin_address: Option<SocketAddr>,
    /// Where new certificates go; `None` without TLS.
    tls: Option<watch::Sender<Arc<ServerConfig>>>,
    stop: CancellationToken,
    /// Stops the server for callers alone.
    stop_callers: CancellationToken,
    servers: Vec<JoinHandle<()>>,
}

/// Takes the addresses of the configuration.
///
/// # Errors
/// When an address is taken or does not belong to this host.
pub(super) fn bind(http: &Http) -> anyhow::Result<Bound> {
    let bind = |key: &str, address: SocketAddr| {
        let listener = server::listen(address).map_err(|error| {
            let way_out = if error.kind() == ErrorKind::AddrInUse {
                "; another program listens there, perhaps another node: choose another port"
            } else {
                ""
            };
            anyhow!("[http] {key} = \"{address}\": failed to listen there: {error}{way_out}")
        })?;
        let address = listener.local_addr().context("failed to read the address listened on")?;
        anyhow::Ok((listener, address))
    };
    let (listener, address) = bind("listen", http.listen)?;
    let admin = http.admin_listen.map(|admin| bind("admin_listen", admin)).transpose()?;
    Ok(Bound { listener, address, admin })
}

impl Bound {
    /// Serves from now on.
    pub(super) fn serve(self, api: &Api, http: &Http, supervisor: &Supervisor) -> Listeners {
        let stop = CancellationToken::new();
        let stop_callers = stop.child_token();
        let bounds = Bounds {
            connections: http.max_connections.unwrap_or(Bounds::default().connections),
            connections_per_address: http.max_connections_per_address,
            handshake_timeout: http.handshake_timeout,
            header_timeout: http.header_timeout,
            answer_timeout: http.answer_timeout,
        };
        let (admin_listener, admin_address) = self.admin.unzip();
        let (tls, for_callers) = http.tls.as_ref().map(|tls| watch::channel(tls.server())).unzip();
        let callers = server::serve(
            self.listener,
            for_callers,
            router(api.clone()),
            bounds,
            stop_callers.clone(),
            GRACE,
        );
        let mut servers = vec![supervisor.spawn_apart("http", stop_callers.clone(), callers)];
        if let Some(listener) = admin_listener {
            let bounds = Bounds { connections: ADMIN_CONNECTIONS, connections_per_address: None, ..bounds };
            let admin = server::serve(listener, None, admin_router(api), bounds, stop.clone(), GRACE);
            servers.push(supervisor.spawn_apart("http-admin", stop.clone(), admin));
        }
        Listeners { address: self.address, admin_address, tls, stop, stop_callers, servers }
    }
}

impl Listeners {
    /// Stops the servers when it is cancelled.
    pub(super) fn stop_signal(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Stops the server for callers. Health and metrics are still answered on an address of their own, if there is one.
    pub(super) fn stop_callers(&self) {
        self.stop_callers.cancel();
    }

    /// Takes over the certificates of a new configuration, if they changed. Turning TLS on or off needs a restart.
    pub(super) fn take_over(&self, old: &Http, new: &Http) {
        if let (Some(sender), Some(tls)) = (&self.tls, &new.tls)
            && old.tls != new.tls
        {
            sender.send_replace(tls.server());
            tracing::info!("The certificates of the HTTP listener changed: {tls}");
        }
    }

    /// Waits until all connections have ended.
    pub(super) async fn finished(self) {
        join_all(self.servers).await;
    }
}
