//! A pretend bank: a real HTTP server that keeps a ledger of every arrival and behaves as it is told.
//!
//! It is naive on purpose. It pays for every request that its script lets it pay, the same key twice if
//! it is sent twice, unless it was told to remember keys; the ledger is what finds that out. It knows nothing of refundd but the contract
//! with banks: a POST to `/CHANNEL/refunds` with the headers and the body of a refund, a GET of
//! `/CHANNEL/refunds/KEY` to ask about one, and `/ledger` for people.
//!
//! With a certificate it also speaks TLS, with whoever begins so, at the same address.
//!
//! It lives in a thread of its own, so that a busy test does not delay its answers; the dates in its ledger
//! are the kernel's, and nothing delays those.

mod handler;
pub mod ledger;
pub mod pace;
pub mod script;
mod wire;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::lock::locked;

pub use ledger::{Account, Arrival, Kind, Ledger};
pub use pace::{Fullest, Stretch, Usage};
use script::Script;
pub use script::{Ending, Step};
use wire::{Dated, Watched, Wire};

/// Callers of a test knock all at once.
const BACKLOG: u32 = 4096;

/// A running pretend bank. It closes when it is dropped.
#[derive(Debug)]
pub struct PretendBank {
    address: SocketAddr,
    house: Arc<House>,
    closing: CancellationToken,
    thread: Option<JoinHandle<()>>,
    is_secure: bool,
}

/// What the bank shows to callers who speak TLS.
#[derive(Debug)]
pub struct Identity {
    /// The bank's own certificate first, then those that vouch for it.
    pub certificates: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
}

impl Identity {
    fn acceptor(self) -> io::Result<TlsAcceptor> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|config| config.with_no_client_auth().with_single_cert(self.certificates, self.key))
            .map_err(io::Error::other)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

/// What the bank's connections share.
#[derive(Debug, Default)]
struct House {
    books: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    ledger: Ledger,
    scripts: HashMap<Arc<str>, Script>,
}

impl House {
    fn books(&self) -> MutexGuard<'_, Books> {
        locked(&self.books)
    }
}

impl PretendBank {
    /// Opens on this address; port 0 is any free one. Until told otherwise it pays everything at once.
    pub fn start(listen: SocketAddr) -> io::Result<PretendBank> {
        Self::open(listen, None)
    }

    /// The same, and TLS is spoken with callers who begin a handshake.
    pub fn start_secure(listen: SocketAddr, identity: Identity) -> io::Result<PretendBank> {
        Self::open(listen, Some(identity.acceptor()?))
    }

    fn open(listen: SocketAddr, tls: Option<TlsAcceptor>) -> io::Result<PretendBank> {
        let is_secure = tls.is_some();
        let house = Arc::new(House::default());
        let closing = CancellationToken::new();
        let (opened, opening) = mpsc::channel();
        let thread = std::thread::Builder::new().name("pretend-bank".to_owned()).spawn({
            let (house, closing) = (house.clone(), closing.clone());
            move || open(listen, tls.as_ref(), &house, &closing, &opened)
        })?;
        let address = opening.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))?;
        Ok(PretendBank { address, house, closing, thread: Some(thread), is_secure })
    }

    /// Opens on a free port of this machine.
    pub fn start_here() -> io::Result<PretendBank> {
        PretendBank::start(SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    /// Opens, says where, and stays open until this is dropped.
    pub async fn serve_forever(listen: SocketAddr, opened: impl FnOnce(SocketAddr)) -> io::Result<()> {
        let bank = PretendBank::start(listen)?;
        opened(bank.address());
        std::future::pending().await
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The endpoint of a channel, for the configuration.
    #[must_use]
    pub fn endpoint(&self, channel: &str) -> String {
        let scheme = if self.is_secure { "https" } else { "http" };
        format!("{scheme}://{}/{channel}/refunds", self.address)
    }

    /// The next requests of a channel are treated so, one step each, after the steps that are still left.
    pub fn next(&self, channel: &str, steps: impl IntoIterator<Item = Step>) {
        self.rewrite(channel, |script| script.next.extend(steps));
    }

    /// All requests of a channel are treated so, once no other step is left.
    pub fn then(&self, channel: &str, step: Step) {
        self.rewrite(channel, |script| script.then = step);
    }

    /// Takes back what was said of the next requests of a channel.
    pub fn clear(&self, channel: &str) {
        self.rewrite(channel, |script| {
            script.next.clear();
            script.next_asked.clear();
        });
    }

    /// The requests about one refund are treated so, one step each, whatever else was said.
    pub fn next_for(&self, channel: &str, refund_ref: &str, steps: impl IntoIterator<Item = Step>) {
        self.rewrite(channel, |script| script.by_ref.entry(refund_ref.to_owned()).or_default().extend(steps));
    }

    /// From now on the bank recognises a key for this long, counted from its first arrival: a repeat is
    /// answered with the first result and not executed, or with a 409 while the first is still being
    /// executed. After that it is a second refund.
    pub fn remembers(&self, channel: &str, retention: Duration) {
        self.rewrite(channel, |script| script.remembers = Some(retention));
    }

    /// From now on a request that comes sooner than `gap` after the last accepted one is answered with this status.
    pub fn refuses_within(&self, channel: &str, gap: Duration, status: u16) {
        let least_us = i64::try_from(gap.as_micros()).unwrap_or(i64::MAX);
        self.rewrite(channel, |script| script.gap = Some(script::Gap { least_us, status, last_us: 0 }));
    }

    /// Who asks next is answered so, one step each; whether a step pays does not matter.
    pub fn next_asked(&self, channel: &str, steps: impl IntoIterator<Item = Step>) {
        self.rewrite(channel, |script| script.next_asked.extend(steps));
    }

    /// Whoever asks is answered so, once no other step is left; `None` is the truth.
    pub fn then_asked(&self, channel: &str, step: Option<Step>) {
        self.rewrite(channel, |script| script.then_asked = step);
    }

    /// Whoever asks within this time of a refund's last request is told that there is no such refund.
    pub fn overlooks(&self, channel: &str, span: Duration) {
        self.rewrite(channel, |script| script.overlooks = span);
    }

    /// Looks into the ledger as it is. The bank waits meanwhile, so look quickly.
    pub fn look<T>(&self, look: impl FnOnce(&Ledger) -> T) -> T {
        look(&self.house.books().ledger)
    }

    /// A copy of the ledger, to be judged at leisure.
    pub fn ledger(&self) -> Ledger {
        self.look(Ledger::clone)
    }

    /// Waits until the ledger is as `look` wants it. False when it is not so within `limit`.
    pub async fn until(&self, limit: Duration, mut look: impl FnMut(&Ledger) -> bool) -> bool {
        let started = Instant::now();
        while !self.look(&mut look) {
            if started.elapsed() > limit {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        true
    }

    /// Closes every connection and the port, and says what arrived in the end.
    #[must_use]
    pub fn close(mut self) -> Ledger {
        self.closing.cancel();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
        std::mem::take(&mut self.house.books().ledger)
    }

    fn rewrite(&self, channel: &str, change: impl FnOnce(&mut Script)) {
        change(self.house.books().scripts.entry(channel.into()).or_default());
    }
}

impl Drop for PretendBank {
    fn drop(&mut self) {
        self.closing.cancel();
    }
}

/// The bank's thread, from opening to closing.
fn open(
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
            // Out of file descriptors, most likely; some will be given back.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Speaks TLS with a caller who begins so, and plainly with every other.
async fn receive(stream: TcpStream, tls: Option<TlsAcceptor>, house: Arc<House>) {
    /// The first byte of a TLS handshake, and of no HTTP request.
    const HANDSHAKE: u8 = 0x16;
    stream.set_nodelay(true).ok();
    let wire = Wire::new();
    if let Some(tls) = tls {
        let mut first = [0];
        if stream.peek(&mut first).await.is_ok_and(|length| length == 1) && first[0] == HANDSHAKE {
            // A caller who does not trust the bank, or is cut off, has made no request.
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
    let service = service_fn(|request| handler::handle(&house, &wire, request));
    // A connection that ends badly is what scripts are for, and callers die as they please.
    http1::Builder::new().serve_connection(io, service).await.ok();
    if let Some(at_us) = wire.unfinished_arrival() {
        house.books().ledger.unreadable.push(at_us);
    }
}
