//! Listens, and serves each connection, with or without TLS.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::keeping::Keeping;
use super::wire::{Dated, Watched, Wire};
use super::{House, handler, wire};

/// Length of the listen queue. The callers of a test may all connect at once.
const BACKLOG: u32 = 4096;

/// Runs the bank in its thread until it closes.
pub(super) fn open(
    listen: SocketAddr,
    tls: Option<&TlsAcceptor>,
    house: &Arc<House>,
    closing: &CancellationToken,
    opened: &mpsc::Sender<io::Result<SocketAddr>>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ran = runtime.and_then(|runtime| {
        runtime.block_on(async {
            let listener = bind(listen)?;
            opened.send(listener.local_addr()).ok();
            closing.run_until_cancelled(accept(&listener, tls, house)).await;
            Ok(())
        })
    });
    if let Err(error) = ran {
        opened.send(Err(error)).ok();
    }
}

fn bind(listen: SocketAddr) -> io::Result<TcpListener> {
    let socket = if listen.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    wire::date_arrivals(&socket)?;
    socket.bind(listen)?;
    socket.listen(BACKLOG)
}

async fn accept(listener: &TcpListener, tls: Option<&TlsAcceptor>, house: &Arc<House>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(receive(stream, tls.cloned(), house.clone()));
            }
            // Most likely no file descriptor is free. Some will be free later.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Speaks TLS with a caller that begins a TLS handshake, and plain HTTP with every other caller.
async fn receive(stream: TcpStream, tls: Option<TlsAcceptor>, house: Arc<House>) {
    /// The first byte of a TLS handshake, and of no HTTP request.
    const HANDSHAKE: u8 = 0x16;
    stream.set_nodelay(true).ok();
    house.books().opened += 1;
    let wire = Wire::new();
    if let Some(tls) = tls {
        let mut first = [0];
        if stream.peek(&mut first).await.is_ok_and(|length| length == 1) && first[0] == HANDSHAKE {
            // A caller that breaks off the handshake has made no request.
            if let Ok(stream) = tls.accept(Dated::new(stream, wire.clone())).await {
                wire.expect_next();
                serve(stream, wire, house).await;
            }
            return;
        }
    }
    serve(Dated::new(stream, wire.clone()), wire, house).await;
}

async fn serve<S>(stream: S, wire: Arc<Wire>, house: Arc<House>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let io = TokioIo::new(Watched::new(stream, wire.clone()));
    let keeping = Keeping::default();
    let service = service_fn(|request| {
        let (house, wire, keeping) = (&house, &wire, &keeping);
        async move {
            keeping.begins();
            let mut answer = handler::handle(house, wire, request).await?;
            let keeps = house.books().keeps;
            if let Some(keeps) = keeps {
                keeping.answers(keeps, answer.headers_mut());
            }
            Ok::<_, handler::HangUp>(answer)
        }
    });
    // Errors are expected here: scripts break connections, and callers die.
    tokio::select! {
        _ = http1::Builder::new().serve_connection(io, service) => {}
        () = keeping.is_over() => {}
    }
    if let Some(at_us) = wire.unfinished_arrival() {
        house.books().ledger.unreadable.push(at_us);
    }
}
