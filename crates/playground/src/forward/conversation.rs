//! One conversation through a forwarder, under whatever weather there is.

use std::future::pending;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::{Distance, Orders, Target, Weather};

/// What nobody who speaks Postgres, Redis or HTTP says.
const RUBBISH: &[u8] = b"\x00\xff\x16 the line is noisy tonight \xfe\r\n";
/// How long one that went deaf is kept, as a host that is gone keeps nobody waiting for ever.
const DEAF_FOR: Duration = Duration::from_mins(1);

/// So many pieces may be under way in one direction; more than any conversation has.
const ROOM: usize = 1024;

/// How a conversation ends.
enum End {
    Plain,
    Reset,
    Deaf,
}

pub(super) async fn lead(mut client: TcpStream, mut orders: watch::Receiver<Orders>) {
    client.set_nodelay(true).ok();
    let began = orders.borrow_and_update().clone();
    let end = match began.weather {
        Weather::Deaf => End::Deaf,
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
        End::Deaf => keep(orders).await,
    }
}

async fn converse(
    client: &mut TcpStream,
    mut server: impl AsyncRead + AsyncWrite + Unpin,
    since: u64,
    orders: &mut watch::Receiver<Orders>,
) -> End {
    let opens = Instant::now() + orders.borrow().distance.set_up;
    let (asked, answered) = (orders.clone(), orders.clone());
    let end = {
        let (mut from_client, mut to_client) = client.split();
        let (mut from_server, mut to_server) = tokio::io::split(&mut server);
        tokio::select! {
            biased;
            end = called_off(orders, since) => end,
            () = carry(|line| questions(&mut from_client, line, asked), &mut to_server, opens) => End::Plain,
            () = carry(|line| answers(&mut from_server, line, answered), &mut to_client, opens) => End::Plain,
        }
    };
    if let End::Deaf = end {
        // The server, too, hears nothing of an end.
        keep(orders.clone()).await;
        return End::Plain;
    }
    end
}

/// Returns when the weather or another server ends a conversation.
async fn called_off(orders: &mut watch::Receiver<Orders>, since: u64) -> End {
    loop {
        if orders.changed().await.is_err() {
            return End::Plain;
        }
        let now = orders.borrow_and_update();
        match now.weather {
            Weather::Deaf => return End::Deaf,
            Weather::Closed | Weather::Resets => return End::Reset,
            _ if now.since > since => return End::Plain,
            Weather::Fair | Weather::Slow(_) | Weather::Garbage | Weather::Cuts(_) => {}
        }
    }
}

/// A way from one end to the other: what is put on it arrives in order, each piece at its time.
struct Line {
    pieces: mpsc::Sender<(Instant, Vec<u8>)>,
    /// Nothing arrives before what was put on it earlier.
    last: Instant,
}

impl Line {
    /// False when nobody is at the other end any more.
    async fn put(&mut self, piece: &[u8], way: Duration, jitter: Duration) -> bool {
        let arrives = Instant::now() + way + jitter.mul_f64(fastrand::f64());
        self.last = self.last.max(arrives);
        self.pieces.send((self.last, piece.to_vec())).await.is_ok()
    }
}

/// Lets `fill` put pieces on a line, and hands them over when they arrive. Returns when all have arrived that ever
/// will, or nobody takes them.
async fn carry<F: Future<Output = ()>>(
    fill: impl FnOnce(Line) -> F,
    to: &mut (impl AsyncWrite + Unpin),
    opens: Instant,
) {
    let (pieces, mut arriving) = mpsc::channel(ROOM);
    let filled = fill(Line { pieces, last: opens });
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

/// Passes questions on.
async fn questions(client: &mut (impl AsyncRead + Unpin), mut line: Line, orders: watch::Receiver<Orders>) {
    let mut piece = vec![0; 16 * 1024];
    loop {
        let Ok(length @ 1..) = client.read(&mut piece).await else { return };
        let Distance { there, jitter, .. } = orders.borrow().distance;
        if !line.put(&piece[..length], there, jitter).await {
            return;
        }
    }
}

/// Passes answers on, as the weather lets it.
async fn answers(server: &mut (impl AsyncRead + Unpin), mut line: Line, orders: watch::Receiver<Orders>) {
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
            Weather::Fair | Weather::Deaf | Weather::Closed | Weather::Resets => (whole, true),
        };
        if !line.put(passed, back, jitter).await || !goes_on {
            return;
        }
    }
}

/// Holds both ends, and listens to neither.
async fn keep(mut orders: watch::Receiver<Orders>) {
    let dropped = async { while orders.changed().await.is_ok() {} };
    tokio::time::timeout(DEAF_FOR, dropped).await.ok();
}
