//! An address that stays while the server behind it changes.
//!
//! A node is given its Redis's url once. When another server takes over, the forwarder is pointed at
//! that one, and every conversation with the old one is cut, as a fail-over cuts it.
//!
//! It lives in a thread of its own, so that a busy test does not delay what passes through it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;

use super::PlaygroundError;

/// A TCP port of this machine that leads to a Unix socket. It closes when it is dropped.
#[derive(Debug)]
pub struct Forward {
    address: SocketAddr,
    /// Whoever holds the other ends leaves when this one is gone.
    target: watch::Sender<PathBuf>,
}

impl Forward {
    /// Opens on a free port.
    pub fn start(to: &Path) -> Result<Forward, PlaygroundError> {
        let failed = |source| PlaygroundError::Forward { source };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (target, targets) = watch::channel(to.to_owned());
        let serving = move || {
            runtime.block_on(async {
                if let Ok(listener) = TcpListener::from_std(listener) {
                    accept(&listener, targets).await;
                }
            });
        };
        std::thread::Builder::new().name("forward".to_owned()).spawn(serving).map_err(failed)?;
        Ok(Forward { address, target })
    }

    /// As the redis crate takes it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Leads to this socket from now on. Conversations that are under way are cut.
    pub fn point(&self, to: &Path) {
        self.target.send_replace(to.to_owned());
    }

    /// Where it leads.
    pub fn leads_to(&self, to: &Path) -> bool {
        *self.target.borrow() == to
    }
}

async fn accept(listener: &TcpListener, mut targets: watch::Receiver<PathBuf>) {
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    tokio::spawn(lead(stream, targets.clone()));
                }
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
            },
            changed = targets.changed() => if changed.is_err() {
                return;
            },
        }
    }
}

async fn lead(mut stream: TcpStream, mut targets: watch::Receiver<PathBuf>) {
    stream.set_nodelay(true).ok();
    let target = targets.borrow_and_update().clone();
    let conversation = async {
        let mut server = UnixStream::connect(target).await?;
        copy_bidirectional(&mut stream, &mut server).await
    };
    tokio::select! {
        // A server that dies ends it, and so does a word that another one has taken over.
        _ = conversation => {}
        _ = targets.changed() => {}
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixListener;

    use super::*;

    /// Answers every byte with its own letter.
    fn server(folder: &Path, letter: u8) -> PathBuf {
        let socket = folder.join(char::from(letter).to_string());
        let listener = UnixListener::bind(&socket).unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    while stream.read_u8().await.is_ok() {
                        stream.write_all(&[letter]).await.unwrap();
                    }
                });
            }
        });
        socket
    }

    async fn ask(stream: &mut TcpStream) -> std::io::Result<u8> {
        stream.write_all(b"?").await?;
        stream.read_u8().await
    }

    #[tokio::test]
    async fn pointing_elsewhere_cuts_what_is_under_way_and_keeps_the_address() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (server(folder.path(), b'a'), server(folder.path(), b'b'));
        let forward = Forward::start(&a).unwrap();
        let address = forward.address;
        let mut old = TcpStream::connect(address).await.unwrap();
        assert_eq!(ask(&mut old).await.unwrap(), b'a');
        forward.point(&b);
        assert!(forward.leads_to(&b));
        assert!(matches!(old.read(&mut [0]).await, Ok(0) | Err(_)), "the old conversation is over");
        let mut new = TcpStream::connect(address).await.unwrap();
        assert_eq!(ask(&mut new).await.unwrap(), b'b');
        forward.point(&folder.path().join("nobody"));
        let mut vain = TcpStream::connect(address).await.unwrap();
        assert!(ask(&mut vain).await.is_err(), "nobody is there");
        drop(forward);
        let gone = async { while TcpStream::connect(address).await.is_ok() {} };
        tokio::time::timeout(std::time::Duration::from_secs(10), gone).await.unwrap();
    }
}
