//! TLS to a bank: which certificates are trusted, which one is shown, and whether the bank asked for one.
//!
//! A resumed session rests on the certificates of an earlier handshake. rustls checks their dates in that handshake only, and
//! each resumption may prolong the session. So the dialer checks them again ([`outlives_its_certificate`]).

use std::cell::Cell;
use std::io;
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::pki_types::ServerName;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::certificate;
use crate::channel::{ClientIdentity, Roots};
use crate::lock::Lock;

/// Why a channel cannot speak TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("find root certificates: none are installed")]
    NoRoots,
    #[error("use the client certificate")]
    ClientCertificate(#[source] rustls::Error),
    #[error("choose the versions of TLS")]
    Library(#[source] rustls::Error),
}

/// The system's roots as they were read last.
#[derive(Clone)]
struct System {
    roots: Arc<RootCertStore>,
    /// Channels without certificates of their own share it.
    config: Arc<ClientConfig>,
    /// How often other roots were read since the first time.
    changes: u64,
}

/// `None` until a channel needs the roots. A store without any is not kept: they may be installed.
static SYSTEM: Mutex<Option<System>> = Mutex::new(None);

/// TLS for one channel: with its own roots and no others, or with the system's.
pub(super) fn connector(
    roots: Option<&Roots>,
    identity: Option<&ClientIdentity>,
) -> Result<TlsConnector, TlsError> {
    let trusted = match roots {
        None => {
            let system = system()?;
            if identity.is_none() {
                return Ok(system.config.into());
            }
            system.roots
        }
        Some(own) => {
            let mut store = RootCertStore::empty();
            store.add_parsable_certificates(own.0.iter().cloned());
            Arc::new(store)
        }
    };
    Ok(config(trusted, identity)?.into())
}

fn system() -> Result<System, TlsError> {
    let mut kept = SYSTEM.locked();
    if let Some(system) = &*kept {
        return Ok(system.clone());
    }
    let system = read_system(0)?;
    Ok(kept.insert(system).clone())
}

/// Reads the system's roots again, if a channel uses them. Answers a number that differs after the roots have changed.
/// If there are none any more, the old ones stay.
pub fn refresh_system_roots() -> u64 {
    let mut kept = SYSTEM.locked();
    let Some(system) = &mut *kept else { return 0 };
    if let Ok(now) = read_system(system.changes + 1)
        && now.roots.roots != system.roots.roots
    {
        *system = now;
    }
    system.changes
}

fn read_system(changes: u64) -> Result<System, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(TlsError::NoRoots);
    }
    let roots = Arc::new(roots);
    Ok(System { config: config(Arc::clone(&roots), None)?, roots, changes })
}

fn config(
    trusted: Arc<RootCertStore>,
    identity: Option<&ClientIdentity>,
) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = certificate::provider();
    let shown = identity.map(|ClientIdentity { certificates, key }| {
        CertifiedKey::from_der(certificates.to_vec(), key.clone_key(), &provider).map(Arc::new)
    });
    let shown = shown.transpose().map_err(TlsError::ClientCertificate)?;
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Library)?
        .with_root_certificates(trusted)
        .with_client_cert_resolver(Arc::new(Shown(shown)));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// TLS to one server.
pub(super) struct Secure {
    /// Its configuration keeps the sessions that may be resumed.
    connector: Mutex<TlsConnector>,
    name: ServerName<'static>,
}

impl Secure {
    pub fn new(connector: TlsConnector, name: ServerName<'static>) -> Secure {
        Secure { connector: Mutex::new(connector), name }
    }

    /// Makes a handshake, which resumes a session if there is one.
    pub async fn shake_hands(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let connector = self.connector.locked().clone();
        connector.connect(self.name.clone(), stream).await
    }

    /// Forgets all sessions. The configuration may be shared with other channels, so it is not changed but replaced.
    pub fn forget_sessions(&self) {
        let mut connector = self.connector.locked();
        let mut config = ClientConfig::clone(connector.config());
        config.resumption = Resumption::default();
        *connector = Arc::new(config).into();
    }
}

/// Whether the session was resumed after the server's certificate had ended.
pub(super) fn outlives_its_certificate(session: &ClientConnection) -> bool {
    let own = session.peer_certificates().and_then(|chain| chain.get(..1));
    let end = own.and_then(certificate::first_end);
    session.handshake_kind() == Some(HandshakeKind::Resumed) && end.is_some_and(|end| end < Timestamp::now())
}

tokio::task_local! {
    /// Whether the server of the handshake that this task makes has asked for a client certificate.
    static IS_CERTIFICATE_REQUESTED: Cell<bool>;
}

/// Makes a handshake, and returns whether the server asked for a client certificate in it.
///
/// TLS sessions are resumed only under one configuration, so all handshakes of a channel share their resolver. The task
/// tells which handshake the resolver works for.
pub(super) async fn watching<T>(handshake: impl Future<Output = T>) -> (T, bool) {
    IS_CERTIFICATE_REQUESTED
        .scope(Cell::new(false), async {
            let done = handshake.await;
            (done, IS_CERTIFICATE_REQUESTED.with(Cell::get))
        })
        .await
}

/// The client certificate of a channel; `None` if it has none to show.
#[derive(Debug)]
struct Shown(Option<Arc<CertifiedKey>>);

impl ResolvesClientCert for Shown {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        IS_CERTIFICATE_REQUESTED.try_with(|is_requested| is_requested.set(true)).ok();
        self.0.clone()
    }

    fn has_certs(&self) -> bool {
        self.0.is_some()
    }
}
