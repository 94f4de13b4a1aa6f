//! Carries one connection through a forwarder, in both directions, and applies weather and distance to it.

use std::future::pending;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest, Ready};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::{Distance, Orders, Target, Weather};

/// Bytes that are valid in neither Postgres's, Redis's nor HTTP's protocol.
const RUBBISH: &[u8] = b"\x00\xff\x16 the line is noisy tonight \xfe\r\n";
/// How long a silent connection is kept open. A host that is gone does not keep its callers waiting for ever either.
const DEAF_FOR: Duration = Duration::from_mins(1);
/// How long the server's side of a silent connection stays open after the client closed its own. A process may open
/// only so many files: with a whole minute, two minutes of torture held 16,766 of them, and with ten seconds a flood
/// went from 9,500 to 18,200 in six seconds.
const GIVEN_UP_FOR: Duration = Duration::from_secs(3);

/// How many pieces may be under way in one direction. No connection needs more.
const ROOM: usize = 1024;

/// How a connection ends.
enum End {
    Plain,
    Reset,
    Deaf,
}

pub(super) async fn lead(mut client: TcpStream, mut orders: watch::Receiver<Orders>) {
    client.set_nodelay(true).ok();
    let began = orders.borrow_and_update().clone();
    let end = match began.weather {
        Weather::Deaf | Weather::Dark => End::Deaf,
        Weather::Closed => End::Reset,
        Weather::Resets => {
            client.readable().await.ok();
            End::Reset
        }
        Weather::Fair | Weather::Slow(_) | Weather::Garbage | Weather::Cuts(_) => match &began.target {
            Target::Unix(path) => match UnixStream::connect(path).await {
                Ok(server) => converse(&mut client, server, began.since, &mut orders).await,
                Err(_) => End::Plain,
            },
            Target::Tcp(address) => match TcpStream::connect(address).await {
                Ok(server) => {
                    server.set_nodelay(true).ok();
                    converse(&mut client, server, began.since, &mut orders).await
                }
                Err(_) => End::Plain,
            },
        },
    };
    match end {
        End::Plain => {}
        End::Reset => {
            client.set_zero_linger().ok();
        }
        End::Deaf => keep(&client, orders).await,
    }
}

async fn converse(
    client: &mut TcpStream,
    mut server: impl AsyncRead + AsyncWrite + Unpin,
    since: u64,
    orders: &mut watch::Receiver<Orders>,
) -> End {
    let opens = Instant::now() + orders.borrow().distance.set_up;
    let (there, back) = (orders.clone(), orders.clone());
    let end = {
        let (mut from_client, mut to_client) = client.split();
        let (mut from_server, mut to_server) = tokio::io::split(&mut server);
        tokio::select! {
            biased;
            end = called_off(orders, since) => end,
            () = carry(|pipe| questions(&mut from_client, pipe, there), &mut to_server, opens) => End::Plain,
            () = carry(|pipe| answers(&mut from_server, pipe, back), &mut to_client, opens) => End::Plain,
        }
    };
    if let End::Deaf = end {
        // The server does not learn that the connection is over either.
        keep(client, orders.clone()).await;
        return End::Plain;
    }
    end
}

/// Waits until the weather or another target ends the connection.
async fn called_off(orders: &mut watch::Receiver<Orders>, since: u64) -> End {
    loop {
        if orders.changed().await.is_err() {
            return End::Plain;
        }
        let now = orders.borrow_and_update();
        match now.weather {
            Weather::Deaf | Weather::Dark => return End::Deaf,
            Weather::Closed | Weather::Resets => return End::Reset,
            _ if now.since > since => return End::Plain,
            Weather::Fair | Weather::Slow(_) | Weather::Garbage | Weather::Cuts(_) => {}
        }
    }
}

/// One direction of a connection. Pieces arrive in order, each at its time.
struct Pipe {
    pieces: mpsc::Sender<(Instant, Vec<u8>)>,
    /// When the last piece arrives. A later piece does not arrive before this time.
    last: Instant,
}

impl Pipe {
    /// Sends a piece. Returns false when the other end is gone.
    async fn put(&mut self, piece: &[u8], way: Duration, jitter: Duration) -> bool {
        let arrives = Instant::now() + way + jitter.mul_f64(fastrand::f64());
        self.last = self.last.max(arrives);
        self.pieces.send((self.last, piece.to_vec())).await.is_ok()
    }
}

/// Runs `fill`, which puts pieces into a pipe, and writes each piece to `to` when it arrives. Returns when all pieces
/// have arrived, or when `to` is closed.
async fn carry<F: Future<Output = ()>>(
    fill: impl FnOnce(Pipe) -> F,
    to: &mut (impl AsyncWrite + Unpin),
    opens: Instant,
) {
    let (pieces, mut arriving) = mpsc::channel(ROOM);
    let filled = fill(Pipe { pieces, last: opens });
    let handed_over = async {
        while let Some((arrives, piece)) = arriving.recv().await {
            if arrives > Instant::now() {
                tokio::time::sleep_until(arrives).await;
            }
            if to.write_all(&piece).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = handed_over => {}
        () = async { filled.await; pending().await } => {}
    }
}

/// Reads what the client sends and puts it into the pipe to the server.
async fn questions(client: &mut (impl AsyncRead + Unpin), mut pipe: Pipe, orders: watch::Receiver<Orders>) {
    let mut piece = vec![0; 16 * 1024];
    loop {
        let Ok(length @ 1..) = client.read(&mut piece).await else { return };
        let Distance { there, jitter, .. } = orders.borrow().distance;
        if !pipe.put(&piece[..length], there, jitter).await {
            return;
        }
    }
}

/// Reads what the server sends and puts it into the pipe to the client, as the weather allows.
async fn answers(server: &mut (impl AsyncRead + Unpin), mut pipe: Pipe, orders: watch::Receiver<Orders>) {
    let mut piece = vec![0; 16 * 1024];
    let mut said = 0;
    loop {
        let Ok(length @ 1..) = server.read(&mut piece).await else { return };
        let (weather, Distance { back, jitter, .. }) = {
            let orders = orders.borrow();
            (orders.weather, orders.distance)
        };
        let whole = &piece[..length];
        let (passed, goes_on) = match weather {
            Weather::Garbage => (RUBBISH, false),
            Weather::Cuts(after) if said + length >= after => {
                (&whole[..after.saturating_sub(said)], after > said + length)
            }
            Weather::Cuts(_) => {
                said += length;
                (whole, true)
            }
            Weather::Slow(by) => {
                tokio::time::sleep(by).await;
                (whole, true)
            }
            Weather::Fair | Weather::Deaf | Weather::Dark | Weather::Closed | Weather::Resets => {
                (whole, true)
            }
        };
        if !pipe.put(passed, back, jitter).await || !goes_on {
            return;
        }
    }
}

/// Waits for `DEAF_FOR`, or for `GIVEN_UP_FOR` after the client closed the connection, or until the forwarder is
/// dropped. Meanwhile the caller keeps its sockets open and unread.
async fn keep(client: &TcpStream, mut orders: watch::Receiver<Orders>) {
    let dropped = async { while orders.changed().await.is_ok() {} };
    let given_up = async {
        closed(client).await;
        tokio::time::sleep(GIVEN_UP_FOR).await;
    };
    tokio::select! {
        () = dropped => {}
        () = given_up => {}
        () = tokio::time::sleep(DEAF_FOR) => {}
    }
}

/// Waits until the other end has closed the connection. Reads nothing: bytes that wait stay where they are.
async fn closed(client: &TcpStream) {
    const LOOK: Duration = Duration::from_millis(500);
    while !client.ready(Interest::READABLE).await.is_ok_and(Ready::is_read_closed) {
        tokio::time::sleep(LOOK).await;
    }
}
