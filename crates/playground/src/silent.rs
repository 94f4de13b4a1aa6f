//! An address at which nobody answers.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// A listener whose queue is full, so that the kernel answers no further connection.
#[derive(Debug)]
pub struct Silent {
    pub address: SocketAddr,
    listener: TcpListener,
    queued: Vec<TcpStream>,
}

impl Silent {
    pub async fn open() -> io::Result<Silent> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let listener = socket.listen(1)?;
        let address = listener.local_addr()?;
        let mut queued = Vec::new();
        while let Ok(connected) =
            tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(address)).await
        {
            queued.push(connected?);
        }
        Ok(Silent { address, listener, queued })
    }

    /// From now on it accepts every connection, and still says nothing. Also returns how many it accepted of others.
    pub fn accept(self) -> Arc<AtomicUsize> {
        let Silent { listener, queued, .. } = self;
        let accepted = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&accepted);
        tokio::spawn(async move {
            let own = queued.len();
            let mut kept = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                kept.push(stream);
                count.store(kept.len().saturating_sub(own), Ordering::Relaxed);
            }
        });
        accepted
    }
}
