//! A pretend bank: a real HTTP server that follows a script and keeps a ledger of every request.
//!
//! It is naive on purpose. It pays for every request that its script pays for. It pays the same key twice if the key
//! arrives twice, unless a test told it to remember keys. The ledger then shows the double payment. It knows nothing
//! of refundd but the contract with banks: a POST to `/CHANNEL/refunds` sends a refund, a GET of
//! `/CHANNEL/refunds/KEY` is an inquiry, and `/ledger` is for people. So are `PUT /CHANNEL/next` and `PUT /CHANNEL/then`, which
//! order the bank to misbehave.
//!
//! With a certificate it also speaks TLS at the same address, when the caller begins a TLS handshake.
//!
//! It runs in its own thread, so that a busy test does not delay its answers. The kernel dates the arrivals, so a
//! busy machine does not delay the dates.

mod gate;
mod handler;
mod keeping;
pub mod ledger;
mod listener;
mod orders;
pub mod pace;
mod says;
pub mod script;
pub mod signature;
mod tokens;
mod wire;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::lock::locked;
use keeping::Keeps;
pub use ledger::{Account, Arrival, Kind, Ledger, hash_of};
pub use pace::{Fullest, Stretch, Usage};
pub use says::BankSays;
use script::Script;
pub use script::{Ending, Step};
use tokens::TokenServer;
pub use wire::now_us;

/// A running pretend bank. It closes its connections and its port when it is dropped.
#[derive(Debug)]
pub struct PretendBank {
    address: SocketAddr,
    house: Arc<House>,
    closing: CancellationToken,
    thread: Option<JoinHandle<()>>,
    is_secure: bool,
}

/// The certificate and the key that the bank shows to TLS callers.
#[derive(Debug)]
pub struct Identity {
    /// The bank's own certificate first, then the certificates that signed it.
    pub certificates: Vec<CertificateDer<'static>>,
    /// The private key of the bank's own certificate.
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

/// The state that all connections of the bank share.
#[derive(Debug, Default)]
struct House {
    books: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    ledger: Ledger,
    scripts: HashMap<Arc<str>, Script>,
    tokens: TokenServer,
    /// `None` keeps connections for ever, and says nothing of it.
    keeps: Option<Keeps>,
    /// How many connections were opened.
    opened: usize,
}

impl House {
    fn books(&self) -> MutexGuard<'_, Books> {
        locked(&self.books)
    }
}

impl PretendBank {
    /// Opens a bank on this address; port 0 means any free port. Without a script the bank pays every request at
    /// once.
    pub fn start(listen: SocketAddr) -> io::Result<PretendBank> {
        Self::open(listen, None)
    }

    /// Like [`PretendBank::start`], and the bank speaks TLS with callers that begin a handshake.
    pub fn start_secure(listen: SocketAddr, identity: Identity) -> io::Result<PretendBank> {
        Self::open(listen, Some(identity.acceptor()?))
    }

    /// Like [`PretendBank::start_secure`], with other rules for TLS: versions, or the client certificates it demands.
    pub fn start_demanding(listen: SocketAddr, mut tls: ServerConfig) -> io::Result<PretendBank> {
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        Self::open(listen, Some(TlsAcceptor::from(Arc::new(tls))))
    }

    fn open(listen: SocketAddr, tls: Option<TlsAcceptor>) -> io::Result<PretendBank> {
        let is_secure = tls.is_some();
        let house = Arc::new(House::default());
        let closing = CancellationToken::new();
        let (opened, opening) = mpsc::channel();
        let thread = std::thread::Builder::new().name("pretend-bank".to_owned()).spawn({
            let (house, closing) = (house.clone(), closing.clone());
            move || listener::open(listen, tls.as_ref(), &house, &closing, &opened)
        })?;
        let address = opening.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))?;
        Ok(PretendBank { address, house, closing, thread: Some(thread), is_secure })
    }

    /// Opens a bank on a free port of this machine.
    pub fn start_here() -> io::Result<PretendBank> {
        PretendBank::start(SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    /// Opens a bank, passes its address to `opened`, and never returns. The bank closes when the future is dropped.
    pub async fn serve_forever(listen: SocketAddr, opened: impl FnOnce(SocketAddr)) -> io::Result<()> {
        let bank = PretendBank::start(listen)?;
        opened(bank.address());
        std::future::pending().await
    }

    /// The address on which the bank listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The endpoint of a channel, for the configuration.
    #[must_use]
    pub fn endpoint(&self, channel: &str) -> String {
        let scheme = if self.is_secure { "https" } else { "http" };
        format!("{scheme}://{}/{channel}/refunds", self.address)
    }

    /// The next sends of a channel follow these steps, one step each, after the steps that are still left.
    pub fn next(&self, channel: &str, steps: impl IntoIterator<Item = Step>) {
        self.rewrite(channel, |script| script.next.extend(steps));
    }

    /// All sends of a channel follow this step when no other step is left.
    pub fn then(&self, channel: &str, step: Step) {
        self.rewrite(channel, |script| script.then = step);
    }

    /// Removes the steps for the next sends and the next inquiries of a channel.
    pub fn clear(&self, channel: &str) {
        self.rewrite(channel, |script| {
            script.next.clear();
            script.next_inquiries.clear();
        });
    }

    /// The next sends of one refund follow these steps, one step each, before all other steps.
    pub fn next_for(&self, channel: &str, refund_ref: &str, steps: impl IntoIterator<Item = Step>) {
        self.rewrite(channel, |script| script.by_ref.entry(refund_ref.to_owned()).or_default().extend(steps));
    }

    /// From now on the bank recognises a key for this long after the key's first arrival. It does not execute a
    /// repeat: the answer is the first result, or 409 while the first request is still being executed. After this
    /// time a repeat is a second refund.
    pub fn remembers(&self, channel: &str, retention: Duration) {
        self.rewrite(channel, |script| script.remembers = Some(retention));
    }

    /// From now on the bank answers with this status when a send arrives sooner than `gap` after the last accepted
    /// send.
    pub fn refuses_within(&self, channel: &str, gap: Duration, status: u16) {
        let least_us = i64::try_from(gap.as_micros()).unwrap_or(i64::MAX);
        self.rewrite(channel, |script| script.gap = Some(script::Gap { least_us, status, last_us: 0 }));
    }

    /// The next inquiries of a channel are answered by these steps, one step each. `Step::pays` has no effect here.
    pub fn next_inquiries(&self, channel: &str, steps: impl IntoIterator<Item = Step>) {
        self.rewrite(channel, |script| script.next_inquiries.extend(steps));
    }

    /// All inquiries of a channel are answered by this step when no other step is left; `None` answers from the
    /// ledger.
    pub fn then_inquiries(&self, channel: &str, step: Option<Step>) {
        self.rewrite(channel, |script| script.then_inquiries = step);
    }

    /// An inquiry within `span` of a refund's last send is answered with 404, as if the bank did not know the refund.
    pub fn overlooks(&self, channel: &str, span: Duration) {
        self.rewrite(channel, |script| script.overlooks = span);
    }

    /// From now on the bank answers 401 to requests that none of these keys has signed, each given with its name.
    pub fn demands_signatures(&self, channel: &str, keys: &[(&str, &[u8])]) {
        let keys = keys.iter().map(|(id, key)| ((*id).to_owned(), key.to_vec())).collect();
        self.rewrite(channel, |script| script.signed_by = Some(keys));
    }

    /// From now on `/token` gives this client tokens that live for `life` and begin with `prefix`. The client's id and
    /// secret are given as a form codes them.
    pub fn issues_tokens(&self, client_id: &str, client_secret: &str, life: Duration, prefix: &str) {
        let login = format!("{}:{client_secret}", client_id.replace('@', "%40"));
        self.house.books().tokens =
            TokenServer { login, life, prefix: prefix.to_owned(), ..TokenServer::default() };
    }

    /// From now on the bank answers 401 to requests of a channel without a good token.
    pub fn demands_tokens(&self, channel: &str) {
        self.rewrite(channel, |script| script.demands_tokens = true);
    }

    /// The next requests for tokens are answered by these steps, one step each.
    pub fn next_tokens(&self, steps: impl IntoIterator<Item = Step>) {
        self.house.books().tokens.next.extend(steps);
    }

    /// Ends all tokens that were given out.
    pub fn revokes_tokens(&self) {
        self.house.books().tokens.good.clear();
    }

    /// From now on the bank closes a connection that has been idle for so long after an answer. Its answers carry
    /// `Keep-Alive: timeout=` with this number.
    pub fn keeps(&self, idle: Duration, announced_s: u64) {
        self.house.books().keeps = Some(Keeps { idle, announced_s });
    }

    /// How many connections were opened.
    pub fn opened(&self) -> usize {
        self.house.books().opened
    }

    /// How many requests for tokens came.
    pub fn token_requests(&self) -> usize {
        self.house.books().tokens.asked
    }

    /// Reads the ledger in place. The bank waits meanwhile, so `look` must be quick.
    pub fn look<T>(&self, look: impl FnOnce(&Ledger) -> T) -> T {
        look(&self.house.books().ledger)
    }

    /// A copy of the ledger.
    pub fn ledger(&self) -> Ledger {
        self.look(Ledger::clone)
    }

    /// Waits until `look` returns true for the ledger. Returns false after `limit`.
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

    /// Closes every connection and the port, and returns the ledger.
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
