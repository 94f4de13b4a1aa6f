//! Banks that speak TLS: which certificates refundd takes, which one it shows, and what a refusal costs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use playground::{Authority, Identity, PretendBank};
use refundd::config::Config;
use refundd::refund::State;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::harness::{Scratch, TestNode, until};

const ACME: &str = "[channel.acme]\nendpoint = \"http://{bank}/acme/refunds\"\nlimits = []\n\
                    retry = { base = \"10ms\", cap = \"20ms\", sends = 3 }\n";
const TLS_12: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS12];
const TLS_13: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS13];
const HERE: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

/// A channel with an inquiry and these further lines; `{bank}` is the bank's address.
fn acme(authority: &Authority, more: &str) -> String {
    format!(
        "[limit.acme]\npermits = 1000\nper = \"1h\"\n[channel.acme]\nendpoint = \"https://{{bank}}/acme/refunds\"\nlimits = [\"acme\"]\n\
         ca_file = \"{}\"\ninquiry = {{ url = \"https://{{bank}}/acme/refunds/{{request_id}}\" }}\n{more}",
        authority.file().display()
    )
}

fn shows((certificate, key): &(std::path::PathBuf, std::path::PathBuf)) -> String {
    format!(
        "client_certificate_file = \"{}\"\nclient_key_file = \"{}\"\n",
        certificate.display(),
        key.display()
    )
}

/// A bank that demands a client certificate of this authority.
fn demanding(
    identity: Identity,
    clients: &Authority,
    versions: &[&'static rustls::SupportedProtocolVersion],
    delay: Duration,
) -> PretendBank {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let inner = WebPkiClientVerifier::builder_with_provider(clients.roots().unwrap(), Arc::clone(&provider));
    let verifier = Arc::new(SlowVerifier { inner: inner.build().unwrap(), delay });
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(identity.certificates, identity.key)
        .unwrap();
    PretendBank::start_demanding(SocketAddr::from(HERE), config).unwrap()
}

/// Checks client certificates after a while, as a bank does that asks another server about them.
#[derive(Debug)]
struct SlowVerifier {
    inner: Arc<dyn ClientCertVerifier>,
    delay: Duration,
}

impl ClientCertVerifier for SlowVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        #[expect(clippy::disallowed_methods, reason = "the bank's thread does nothing else meanwhile")]
        std::thread::sleep(self.delay);
        self.inner.verify_client_cert(certificate, others, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// Waits until the channel says why its bank is unreachable, and checks that this cost nothing.
async fn costs_nothing(scratch: &Scratch, node: TestNode, why: &str) {
    scratch.insert("acme", "R-", 3).await;
    let mut page = String::new();
    let mut says = async || {
        page = node.get("/v1/channels").await.text;
        page.contains(why)
    };
    let began = std::time::Instant::now();
    while !says().await {
        assert!(began.elapsed() < Duration::from_secs(30), "no `{why}` in {page}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(scratch.count(State::Ready).await, 3);
    assert_eq!(scratch.number("select count(*) from refundd.attempts").await, 0);
    assert_eq!(scratch.number("select count(*) from refundd.permits").await, 0);
    let ledger = scratch.bank.ledger();
    assert!(ledger.all().is_empty() && ledger.unreadable().is_empty(), "{ledger:?}");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bank_is_paid_through_if_the_channels_own_roots_vouch_for_it() {
    let scratch = Scratch::over(true).await;
    let node = TestNode::start(&scratch, "a", ACME).await;
    scratch.insert("acme", "R-", 20).await;
    until("all are paid", async || scratch.count(State::Succeeded).await == 20).await;
    let ledger = scratch.bank.ledger();
    assert_eq!(ledger.all().len(), 20);
    assert!(ledger.repeated().is_empty() && ledger.unreadable().is_empty(), "{ledger:?}");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bank_whose_certificate_ended_or_names_another_or_has_another_authority_is_sent_nothing() {
    let (authority, stranger) = (Authority::new().unwrap(), Authority::new().unwrap());
    for (identity, why) in [
        (authority.expired_identity().unwrap(), "expired"),
        (authority.identity_of("another.example").unwrap(), "not valid for name"),
        (stranger.identity().unwrap(), "invalid peer certificate"),
    ] {
        let mut scratch = Scratch::new().await;
        scratch.bank = PretendBank::start_secure(SocketAddr::from(HERE), identity).unwrap();
        let node = TestNode::start(&scratch, "a", &acme(&authority, "")).await;
        costs_nothing(&scratch, node, why).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bank_that_speaks_only_tls_1_1_is_sent_nothing() {
    let (scratch, authority) = (Scratch::new().await, Authority::new().unwrap());
    let listener = TcpListener::bind(SocketAddr::from(HERE)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            // The record of a ServerHello of version 3.2, with a random number, no session and the cipher AES128-SHA.
            let mut hello = vec![0x16, 3, 2, 0, 42, 2, 0, 0, 38, 3, 2];
            hello.extend([7; 32]);
            hello.extend([0, 0, 0x2f, 0]);
            let mut asked = [0; 1024];
            if stream.read(&mut asked).await.is_ok_and(|length| length > 0) {
                stream.write_all(&hello).await.ok();
                stream.read_to_end(&mut Vec::new()).await.ok();
            }
        }
    });
    let channels = acme(&authority, "").replace("{bank}", &address.to_string());
    let node = TestNode::start(&scratch, "a", &channels).await;
    costs_nothing(&scratch, node, "agree on TLS").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bank_that_demands_a_client_certificate_is_paid_through_with_the_right_one() {
    let authority = Authority::new().unwrap();
    let files = authority.client_files("refundd").unwrap();
    for versions in [TLS_12, TLS_13] {
        let mut scratch = Scratch::new().await;
        scratch.bank = demanding(authority.identity().unwrap(), &authority, versions, Duration::ZERO);
        scratch.bank.next("acme", [playground::bank::Step::pending().decided_after(Duration::ZERO)]);
        let node = TestNode::start(&scratch, "a", &acme(&authority, &shows(&files))).await;
        scratch.insert("acme", "R-", 5).await;
        until("all are sent", async || {
            scratch.count(State::Succeeded).await + scratch.count(State::Accepted).await == 5
        })
        .await;
        scratch.sql("update refundd.refunds set inquire_at = now() where state = 'accepted'").await;
        until("the bank was asked about the one it only accepted", async || {
            scratch.count(State::Succeeded).await == 5
        })
        .await;
        assert!(scratch.bank.ledger().repeated().is_empty());
        node.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_certificate_that_is_missing_or_refused_spends_no_permit() {
    let (authority, stranger) = (Authority::new().unwrap(), Authority::new().unwrap());
    let wrong = shows(&stranger.client_files("refundd").unwrap());
    for (versions, more, why) in [
        (TLS_12, "", "agree on TLS"),
        (TLS_12, wrong.as_str(), "agree on TLS"),
        (TLS_13, "", "the channel has no `client_certificate_file`"),
        (TLS_13, wrong.as_str(), "it refuses the one in `client_certificate_file`"),
    ] {
        let mut scratch = Scratch::new().await;
        scratch.bank = demanding(authority.identity().unwrap(), &authority, versions, Duration::ZERO);
        let node = TestNode::start(&scratch, "a", &acme(&authority, more)).await;
        costs_nothing(&scratch, node, why).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_certificate_refused_after_our_first_byte_makes_the_refund_unknown_under_tls_1_3() {
    let (authority, stranger) = (Authority::new().unwrap(), Authority::new().unwrap());
    let wrong = shows(&stranger.client_files("refundd").unwrap());
    let late = Duration::from_secs(1);
    for (versions, permits) in [(TLS_13, 1), (TLS_12, 0)] {
        let mut scratch = Scratch::new().await;
        scratch.bank = demanding(authority.identity().unwrap(), &authority, versions, late);
        let node = TestNode::start(&scratch, "a", &acme(&authority, &wrong)).await;
        scratch.insert("acme", "R-", 1).await;
        if permits > 0 {
            until("nobody knows what became of it", async || scratch.count(State::Unknown).await == 1).await;
            let code = "select code from refundd.attempts";
            assert_eq!(scratch.text(code).await, "answer_lost");
            let message = scratch.text("select message from refundd.attempts").await;
            assert!(message.contains("received fatal alert"), "{message}");
        } else {
            until("the handshake fails", async || {
                node.get("/v1/channels").await.text.contains("agree on TLS")
            })
            .await;
            assert_eq!(scratch.count(State::Ready).await, 1);
        }
        assert_eq!(scratch.number("select count(*) from refundd.permits").await, permits);
        assert!(scratch.bank.ledger().all().is_empty(), "the bank read no request");
        node.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_takes_a_new_client_certificate_from_the_same_files() {
    let (authority, stranger) = (Authority::new().unwrap(), Authority::new().unwrap());
    let files = stranger.client_files("refundd").unwrap();
    let mut scratch = Scratch::new().await;
    scratch.bank = demanding(authority.identity().unwrap(), &authority, TLS_13, Duration::ZERO);
    let text = scratch.file("a", &acme(&authority, &shows(&files)));
    let config = || Config::parse(&text, "test.toml", &|_| None).unwrap();
    let node = TestNode::run(config()).await;
    scratch.insert("acme", "R-", 3).await;
    until("the bank refuses the certificate", async || {
        node.get("/v1/channels").await.text.contains("it refuses the one")
    })
    .await;
    let right = authority.client_files("refundd").unwrap();
    std::fs::copy(right.0, &files.0).unwrap();
    std::fs::copy(right.1, &files.1).unwrap();
    let done = node.daemon.reload(config()).await.unwrap();
    assert_eq!(done.changed.len(), 1);
    until("all are paid", async || scratch.count(State::Succeeded).await == 3).await;
    node.stop().await;
}
