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
use std::sync::Once;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{Connection, Error};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpStream, UnixListener};
use tokio::time::{sleep, timeout};

use crate::eyeballs;

/// The time for the first try alone.
const SECOND_TRY: Duration = Duration::from_millis(500);
/// The longest time until sqlx connects to the Unix socket.
const ACCEPT: Duration = Duration::from_secs(5);

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
            // The end of one side ends the other. The user of the connection sees why.
            let _ = copy_bidirectional(&mut sqlx, &mut postgres).await;
        }
    });
    PgConnection::connect_with(&options).await.ok()
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
