//! Connects to Postgres, also when the first address of its name is silent, or accepts connections and then hangs.
//!
//! sqlx tries the addresses of a name one after the other, without a bound for each, and stays with the first one that
//! accepts. So after half a second further tries begin beside the first: one for each address, a quarter of a second
//! apart. The first session that is open is used. sqlx takes no open socket, and it must know the name, because TLS checks
//! the name. So sqlx connects to a Unix socket of this process, which passes the bytes on to one address.
//!
//! A name with one address, and a first address that answers in time, need none of this.

use std::fs::{DirBuilder, remove_dir_all};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Once;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{Either, select};
use futures_util::stream::FuturesUnordered;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{Connection, Error};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, copy};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::time::{sleep, timeout};

use crate::eyeballs;

/// The time for the first try alone.
const SECOND_TRY: Duration = Duration::from_millis(500);
/// The longest time until sqlx connects to the Unix socket.
const ACCEPT: Duration = Duration::from_secs(5);
/// The longest time for the bytes of one side after the end of the other. An address that hangs never ends by itself.
const LAST_BYTES: Duration = Duration::from_secs(1);

/// Opens a connection. The caller limits its time.
pub(super) async fn connect(options: &PgConnectOptions) -> Result<PgConnection, Error> {
    let direct = Box::pin(PgConnection::connect_with(options));
    let relayed_later = Box::pin(async {
        sleep(SECOND_TRY).await;
        relayed(options).await
    });
    tokio::select! {
        connection = direct => match connection {
            // The server at the first address is broken, and another one may work.
            Err(error @ (Error::Io(_) | Error::Tls(_) | Error::Protocol(_))) => {
                Box::pin(relayed(options)).await.ok_or(error)
            }
            other => other,
        },
        Some(connection) = relayed_later => Ok(connection),
    }
}

/// Connects to any address of the name. `None` if the name has one address only, or if no address gives a session: then
/// the first try says why.
async fn relayed(options: &PgConnectOptions) -> Option<PgConnection> {
    let (host, port) = (options.get_host(), options.get_port());
    if options.get_socket().is_some() || host.starts_with('/') {
        return None;
    }
    let addresses: Vec<_> = tokio::net::lookup_host((host, port)).await.ok()?.collect();
    if addresses.len() < 2 {
        return None;
    }
    let mut pause = Duration::ZERO;
    let mut tries = FuturesUnordered::new();
    for address in addresses {
        let before = pause;
        tries.push(async move {
            sleep(before).await;
            relayed_to(address, options).await
        });
        pause += eyeballs::NEXT_AFTER;
    }
    while let Some(tried) = tries.next().await {
        if tried.is_some() {
            return tried;
        }
    }
    None
}

async fn relayed_to(address: SocketAddr, options: &PgConnectOptions) -> Option<PgConnection> {
    let mut postgres = TcpStream::connect(address).await.ok()?;
    postgres.set_nodelay(true).ok()?;
    let (folder, listener) = listen(options.get_port()).inspect_err(log_once).ok()?;
    let options = options.clone().socket(&folder.0);
    tokio::spawn(async move {
        let accepted = timeout(ACCEPT, listener.accept()).await;
        drop((listener, folder));
        if let Ok(Ok((mut sqlx, _))) = accepted {
            pass_on(&mut sqlx, &mut postgres).await;
        }
    });
    PgConnection::connect_with(&options).await.ok()
}

/// Passes bytes on, both ways, until one side has ended and the other had time for its last bytes.
async fn pass_on(sqlx: &mut UnixStream, postgres: &mut TcpStream) {
    let (mut from_sqlx, mut to_sqlx) = sqlx.split();
    let (mut from_postgres, mut to_postgres) = postgres.split();
    let up = pin!(pass(&mut from_sqlx, &mut to_postgres));
    let down = pin!(pass(&mut from_postgres, &mut to_sqlx));
    let _ = match select(up, down).await {
        Either::Left(((), down)) => timeout(LAST_BYTES, down).await,
        Either::Right(((), up)) => timeout(LAST_BYTES, up).await,
    };
}

/// Passes bytes on to their end. A failure ends them as well; the user of the connection sees why.
async fn pass(from: &mut (impl AsyncRead + Unpin), to: &mut (impl AsyncWrite + Unpin)) {
    let _ = copy(from, to).await;
    let _ = to.shutdown().await;
}

/// Opens a Unix socket in a folder of its own, under the name by which sqlx looks for it.
fn listen(port: u16) -> io::Result<(Folder, UnixListener)> {
    let folder = Folder::new()?;
    let listener = UnixListener::bind(folder.0.join(format!(".s.PGSQL.{port}")))?;
    Ok((folder, listener))
}

/// Logs the first such failure of this process: each new connection meets it again.
fn log_once(error: &io::Error) {
    static LOGGED: Once = Once::new();
    LOGGED.call_once(|| {
        tracing::warn!(
            "A silent first address of Postgres cannot be passed over, because that needs a Unix socket in {}: {error}; let this user \
             write there, in a container by `tmpfs: [/tmp]`, or set TMPDIR to another folder with a short path",
            std::env::temp_dir().display()
        );
    });
}

/// A folder that only this user can open, until it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("refundd-{:016x}", fastrand::u64(..)));
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;

    /// The user's end and the relay's end of a Unix socket, and of TCP the relay's end and the server's end.
    async fn ends() -> (UnixStream, UnixStream, TcpStream, TcpStream) {
        let (user, sqlx) = UnixStream::pair().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let postgres = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        (user, sqlx, postgres, server)
    }

    #[tokio::test]
    async fn a_connection_to_an_address_that_hangs_ends_with_its_user() {
        let (mut user, mut sqlx, mut postgres, mut server) = ends().await;
        user.write_all(b"hello").await.unwrap();
        drop(user);
        timeout(Duration::from_mins(1), pass_on(&mut sqlx, &mut postgres)).await.unwrap();
        let mut came = Vec::new();
        server.read_to_end(&mut came).await.unwrap();
        assert_eq!(came, b"hello");
    }

    #[tokio::test]
    async fn the_last_bytes_of_a_server_reach_the_user() {
        let (mut user, mut sqlx, mut postgres, mut server) = ends().await;
        // More than the sockets hold.
        let sent = vec![7; 20_000_000];
        let serve = async {
            server.write_all(&sent).await.unwrap();
            drop(server);
        };
        let read = async {
            let mut came = Vec::new();
            user.read_to_end(&mut came).await.unwrap();
            drop(user);
            came.len()
        };
        let ((), (), came) = tokio::join!(serve, pass_on(&mut sqlx, &mut postgres), read);
        assert_eq!(came, sent.len());
    }
}
