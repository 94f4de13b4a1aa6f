//! A TCP forwarder: a fixed address in front of a server that may change, on a link that may fail.
//!
//! A node reads its servers' addresses once. When another server takes over, the forwarder can lead to that server.
//! It then cuts every open connection, as a fail-over does. Or it lets them go on and leads only new connections to
//! the other server, as when a name gets another address. [`Weather`] makes the link slow, silent, closed or worse at
//! any time.
//!
//! The weather delays only answers, so the bank's ledger shows when a request left. The [`Distance`] delays both
//! directions, so the ledger then shows when a request arrived.
//!
//! The forwarder runs in its own thread, so that a busy test does not delay the traffic.

mod conversation;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;

use super::{PlaygroundError, place};

/// A TCP port of this machine that leads to a server. It closes when it is dropped.
#[derive(Debug)]
pub struct Forward {
    address: SocketAddr,
    /// All connections and the listener end when this sender is dropped.
    orders: watch::Sender<Orders>,
}

/// The server to which a forwarder leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

/// The faults of the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weather {
    Fair,
    /// Each piece of an answer is delayed by this much.
    Slow(Duration),
    /// Nothing passes, and no connection is closed. A connection that is open meanwhile stays silent for ever.
    Deaf,
    /// Like [`Weather::Deaf`], and no new connection opens: the network loses every packet.
    Dark,
    /// Open connections are reset, and new ones are refused.
    Closed,
    /// Open connections are reset. New ones are reset when the client sends its first byte.
    Resets,
    /// The next answer is rubbish, and then the connection ends.
    Garbage,
    /// Connections end after this many more bytes of answers.
    Cuts(usize),
}

/// How far away the server seems. The bytes of one connection keep their order. Bytes under way do not delay later
/// ones beyond that.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Distance {
    /// How long after a connection began its first byte is passed to the server. It stands for the round trip that
    /// sets up TCP, because this machine accepts TCP connections at once. With TLS the caller waits for it.
    pub set_up: Duration,
    /// The least time that a byte takes to the server.
    pub there: Duration,
    /// The least time that a byte takes from the server.
    pub back: Duration,
    /// The most extra time of each piece, in each direction. Chance decides how much of it applies.
    pub jitter: Duration,
}

#[derive(Debug, Clone)]
struct Orders {
    target: Target,
    weather: Weather,
    distance: Distance,
    /// Connections that began under a smaller number are cut.
    since: u64,
}

impl Forward {
    /// Opens on a free port and leads to a Unix socket. Fails when no port or thread is free.
    pub fn start(to: &Path) -> Result<Forward, PlaygroundError> {
        Self::to(Target::Unix(to.to_owned()))
    }

    /// Opens on a free port and leads to `target`. Fails when no port or thread is free.
    pub fn to(target: Target) -> Result<Forward, PlaygroundError> {
        let failed = |source| PlaygroundError::Forward { source };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, place::free_port()?));
        let listener = listen(address).map_err(failed)?;
        let (orders, receiver) = watch::channel(Orders {
            target,
            weather: Weather::Fair,
            distance: Distance::default(),
            since: 0,
        });
        let serving = move || {
            runtime.block_on(async {
                if let Ok(listener) = TcpListener::from_std(listener) {
                    accept(address, listener, receiver).await;
                }
            });
        };
        std::thread::Builder::new().name("forward".to_owned()).spawn(serving).map_err(failed)?;
        Ok(Forward { address, orders })
    }

    /// The address on which the forwarder listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Leads to this socket from now on. Open connections are cut.
    pub fn point(&self, to: &Path) {
        self.orders.send_modify(|orders| {
            orders.target = Target::Unix(to.to_owned());
            orders.since += 1;
        });
    }

    /// Leads new connections to this socket. Open connections go on.
    pub fn lead_on(&self, to: &Path) {
        self.orders.send_modify(|orders| orders.target = Target::Unix(to.to_owned()));
    }

    /// Whether new connections lead to this socket.
    pub fn leads_to(&self, to: &Path) -> bool {
        self.orders.borrow().target == Target::Unix(to.to_owned())
    }

    /// Changes the distance. The set-up time applies to new connections, the delays to all bytes from now on.
    pub fn set_distance(&self, distance: Distance) {
        self.orders.send_modify(|orders| orders.distance = distance);
    }

    /// Changes the weather, for open connections too.
    pub fn set(&self, weather: Weather) {
        self.orders.send_modify(|orders| orders.weather = weather);
    }
}

fn listen(address: SocketAddr) -> std::io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

async fn accept(address: SocketAddr, listener: TcpListener, mut orders: watch::Receiver<Orders>) {
    const AGAIN: Duration = Duration::from_millis(10);
    let mut open = Some(listener);
    loop {
        let weather = orders.borrow_and_update().weather;
        if matches!(weather, Weather::Closed | Weather::Dark) {
            drop(open.take());
            let full = if weather == Weather::Dark { full_queue(address).await.ok() } else { None };
            let changed = orders.changed().await;
            drop(full);
            if changed.is_err() {
                return;
            }
            continue;
        }
        if open.is_none() {
            open = listen(address).and_then(TcpListener::from_std).ok();
        }
        let Some(listener) = &open else {
            if orders.has_changed().is_err() {
                return;
            }
            tokio::time::sleep(AGAIN).await;
            continue;
        };
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    tokio::spawn(conversation::lead(stream, orders.clone()));
                }
                Err(_) => tokio::time::sleep(AGAIN).await,
            },
            changed = orders.changed() => if changed.is_err() {
                return;
            },
        }
    }
}

/// A listener whose queue is full, and what fills it. The kernel drops every further attempt to connect.
async fn full_queue(address: SocketAddr) -> std::io::Result<(TcpListener, Vec<TcpStream>)> {
    /// The kernel answers at once while the queue has room.
    const NO_ROOM: Duration = Duration::from_millis(50);
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let listener = socket.listen(1)?;
    let mut queued = Vec::new();
    while let Ok(connected) = tokio::time::timeout(NO_ROOM, TcpStream::connect(address)).await {
        queued.push(connected?);
    }
    Ok((listener, queued))
}

#[cfg(test)]
mod tests;
