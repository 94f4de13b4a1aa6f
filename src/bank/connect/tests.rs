//! TLS sessions that a bank resumes after its certificate has ended.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{HandshakeKind, ServerConfig, SupportedProtocolVersion};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::channel::Roots;

type Identity = (CertificateDer<'static>, PrivateKeyDer<'static>);

/// Seconds since the beginning of 1970.
fn now() -> u64 {
    u64::try_from(Timestamp::now().as_second()).unwrap()
}

/// A certificate that ends so many seconds after the beginning of 1970, and its key.
fn identity_until(end: u64) -> Identity {
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.not_after = date_time_ymd(1970, 1, 1) + Duration::from_secs(end);
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap().der().clone();
    (certificate, PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())))
}

/// A bank's side, which resumes the sessions of `before`.
fn showing(
    (certificate, key): Identity,
    version: &'static SupportedProtocolVersion,
    before: Option<&ServerConfig>,
) -> Arc<ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[version]).unwrap();
    let mut config = builder.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
    if let Some(before) = before {
        config.session_storage = Arc::clone(&before.session_storage);
    }
    Arc::new(config)
}

/// A bank that was given a short certificate, and what it counts.
#[derive(Clone)]
struct Bank {
    shows: Arc<Mutex<Arc<ServerConfig>>>,
    accepted: Arc<AtomicUsize>,
    resumed: Arc<AtomicUsize>,
}

impl Bank {
    async fn serve(self, listener: TcpListener) {
        while let Ok((stream, _)) = listener.accept().await {
            self.accepted.fetch_add(1, Ordering::Relaxed);
            let (config, resumed) = (self.shows.lock().unwrap().clone(), Arc::clone(&self.resumed));
            tokio::spawn(async move {
                let Ok(mut stream) = TlsAcceptor::from(config).accept(stream).await else { return };
                if stream.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed) {
                    resumed.fetch_add(1, Ordering::Relaxed);
                }
                // The connection stays open until the client hangs up.
                let _ = stream.read(&mut [0]).await;
            });
        }
    }
}

async fn a_session_ends_with_its_certificate(version: &'static SupportedProtocolVersion) {
    for seconds in [8, 16, 32] {
        if is_resumed_until_the_end(version, seconds).await {
            return;
        }
    }
    panic!("this machine is too slow: each certificate ended before both sessions were resumed");
}

/// Tries it with a certificate that ends after so many seconds. `false` if it ended before both dialers had a session to resume.
async fn is_resumed_until_the_end(version: &'static SupportedProtocolVersion, seconds: u64) -> bool {
    let end = now() + seconds;
    let (short, long) = (identity_until(end), identity_until(end + 86_400));
    let roots = Roots(vec![short.0.clone(), long.0.clone()].into());
    let first = showing(short, version, None);
    let bank = Bank {
        shows: Arc::new(Mutex::new(Arc::clone(&first))),
        accepted: Arc::default(),
        resumed: Arc::default(),
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint: hyper::Uri = format!("https://{}/", listener.local_addr().unwrap()).parse().unwrap();
    tokio::spawn(bank.clone().serve(listener));
    let settings = ConnectionSettings {
        owner: "channel `acme`".to_owned(),
        roots: Some(roots),
        client_identity: None,
        networks: Networks::default(),
        connect_timeout: Duration::from_secs(5),
        idle_timeout: Duration::from_secs(4),
        timeout: Duration::from_secs(5),
        most: 1,
    };
    let [one, other] = [(), ()].map(|()| Dialer::new(&settings, &endpoint).unwrap());
    let mut open = Vec::new();
    for dialer in [&one, &other] {
        let before = bank.resumed.load(Ordering::Relaxed);
        while bank.resumed.load(Ordering::Relaxed) == before {
            let dialled = dialer.dial().await;
            if now() >= end {
                return false;
            }
            open.push(dialled.unwrap());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    while now() <= end {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let before = bank.accepted.load(Ordering::Relaxed);
    let error = one.dial().await.unwrap_err().to_string();
    assert!(error.contains("agree on TLS") && error.contains("expired"), "{error}");
    // A bank that renewed its certificate in time goes on with old sessions as well.
    *bank.shows.lock().unwrap() = showing(long, version, Some(&first));
    let renewed = other.dial().await.unwrap();
    assert!(renewed.certificates_end.unwrap() > Timestamp::now());
    assert_eq!(bank.accepted.load(Ordering::Relaxed) - before, 4, "each dial resumed at first");
    true
}

#[tokio::test]
async fn a_session_of_tls_1_2_is_not_resumed_after_the_certificate_that_it_rests_on_has_ended() {
    a_session_ends_with_its_certificate(&rustls::version::TLS12).await;
}

#[tokio::test]
async fn a_session_of_tls_1_3_is_not_resumed_after_the_certificate_that_it_rests_on_has_ended() {
    a_session_ends_with_its_certificate(&rustls::version::TLS13).await;
}
