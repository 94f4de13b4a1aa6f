//! TLS on our listener: real handshakes with good and bad certificates on both sides, and new certificates by SIGHUP.

mod credential;
mod handshakes;

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::routing::get;
use jiff::Timestamp;
use refundd::caller::ClientNames;
use refundd::config::Config;
use refundd::http::server::{self, Bounds};
use rustix::process::Signal;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::version::{TLS12, TLS13};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::dispatch::UNLIMITED;
use crate::harness::certificates::{Identity, Issued, certificates};
use crate::harness::{NodeProcess, Scratch, TestNode, until};

pub const OURS: &[&str] = &["localhost", "127.0.0.1", "refundd.internal"];

/// The lines of `[http]` for a listener with this certificate, and for callers of this authority, if they need one.
pub fn tls(own: &Identity, callers: Option<&Issued>) -> String {
    let callers = callers
        .map_or_else(String::new, |callers| format!(", client_ca_file = \"{}\"", callers.ca().display()));
    let (certificate, key) = (own.certificate.display(), own.key.display());
    format!("tls = {{ certificate_file = \"{certificate}\", key_file = \"{key}\"{callers} }}\n")
}

fn with_http(scratch: &Scratch, lines: &str) -> String {
    scratch.file("a", UNLIMITED).replace("[http]\n", &format!("[http]\n{lines}"))
}

async fn node_with(scratch: &Scratch, lines: &str) -> TestNode {
    let config = Config::parse(&with_http(scratch, lines), "t.toml", &|_| None);
    TestNode::run(config.unwrap_or_else(|error| panic!("{error}"))).await
}

pub async fn connect(
    address: SocketAddr,
    client: &TlsConnector,
    name: &str,
) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await.unwrap();
    client.connect(ServerName::try_from(name.to_owned()).unwrap(), stream).await
}

/// One GET on an open connection; the answer, or the error that came instead.
async fn ask(stream: &mut TlsStream<TcpStream>, path: &str, host: &str) -> std::io::Result<String> {
    let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = vec![0; 16_384];
    let read = stream.read(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer[..read]).into_owned())
}

/// A handshake and a GET.
async fn call(address: SocketAddr, client: &TlsConnector, name: &str) -> std::io::Result<String> {
    let mut stream = connect(address, client, name).await?;
    ask(&mut stream, "/health/live", name).await
}

#[tokio::test]
async fn callers_are_served_over_tls_1_2_and_1_3() {
    let (scratch, ours, theirs) = (Scratch::new().await, Issued::new(), Issued::new());
    let lines = tls(&ours.identity(OURS), Some(&theirs)) + "hosts = [\"refundd.internal\"]\n";
    let node = node_with(&scratch, &lines).await;
    for version in [&TLS12, &TLS13] {
        let client = ours.client(Some(&theirs.identity(&["shop.internal"])), &[version]);
        let mut stream = connect(node.daemon.address(), &client, "refundd.internal").await.unwrap();
        assert_eq!(stream.get_ref().1.protocol_version(), Some(version.version));
        for _ in 0..2 {
            let answer = ask(&mut stream, "/health/live", "refundd.internal").await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        }
        // Names that no file has are refused: a web page may have pointed its own name here.
        let answer = ask(&mut stream, "/health/live", "evil.example").await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 421"), "{answer}");
    }
    node.stop().await;
}

#[tokio::test]
async fn a_client_refuses_our_certificate_if_it_is_expired_or_of_another_name_or_authority() {
    let (scratch, ours, others) = (Scratch::new().await, Issued::new(), Issued::new());
    for (own, name, why) in [
        (ours.expired(OURS), "localhost", "Expired"),
        (ours.identity(&["other.internal"]), "localhost", "NotValidForName"),
        (others.identity(OURS), "localhost", "BadSignature"),
    ] {
        let node = node_with(&scratch, &tls(&own, None)).await;
        let refused =
            call(node.daemon.address(), &ours.client(None, &[&TLS12, &TLS13]), name).await.unwrap_err();
        let said = format!("{refused:?}");
        // Both authorities have the same name, so the signature is what fails.
        assert!(said.contains(why), "{why}: {said}");
        node.stop().await;
    }
}

#[tokio::test]
async fn a_caller_without_a_good_certificate_gets_no_answer() {
    let (scratch, ours, theirs, strangers) =
        (Scratch::new().await, Issued::new(), Issued::new(), Issued::new());
    let node = node_with(&scratch, &tls(&ours.identity(OURS), Some(&theirs))).await;
    let good = theirs.identity(&["shop.internal"]);
    for version in [&TLS12, &TLS13] {
        for (what, shown) in [
            ("none", None),
            ("expired", Some(theirs.expired(&["old.internal"]))),
            ("of another authority", Some(strangers.identity(&["shop.internal"]))),
            ("of our own authority", Some(ours.identity(&["shop.internal"]))),
        ] {
            let client = ours.client(shown.as_ref(), &[version]);
            let answer = call(node.daemon.address(), &client, "localhost").await;
            let said = format!("{answer:?}");
            assert!(answer.is_err() && said.contains("AlertReceived"), "{what}, {version:?}: {said}");
        }
        let answer = call(node.daemon.address(), &ours.client(Some(&good), &[version]), "localhost").await;
        assert!(answer.unwrap().starts_with("HTTP/1.1 200"));
    }
    node.stop().await;
}

#[tokio::test]
async fn a_connection_ends_when_the_client_certificate_that_opened_it_ends() {
    let (scratch, ours, theirs) = (Scratch::new().await, Issued::new(), Issued::new());
    let lines = tls(&ours.identity(OURS), Some(&theirs)) + "header_timeout = \"1m\"\n";
    let node = node_with(&scratch, &lines).await;
    let open = async |shown: Identity| {
        let client = ours.client(Some(&shown), &[&TLS13]);
        connect(node.daemon.address(), &client, "localhost").await.unwrap()
    };
    let mut lasting = open(theirs.identity(&["shop.internal"])).await;
    let end = Timestamp::now().as_second() + 15;
    let mut ending = open(theirs.ending(&["desk.internal"], end.unsigned_abs())).await;
    for stream in [&mut lasting, &mut ending] {
        assert!(ask(stream, "/health/live", "localhost").await.unwrap().starts_with("HTTP/1.1 200"));
    }
    until("the connection ends", async || {
        !matches!(ask(&mut ending, "/health/live", "localhost").await, Ok(answer) if !answer.is_empty())
    })
    .await;
    assert!(Timestamp::now().as_second() >= end, "it ended before its certificate");
    assert!(ask(&mut lasting, "/health/live", "localhost").await.unwrap().starts_with("HTTP/1.1 200"));
    node.stop().await;
}

/// What requests carry decides who the caller is, so a handler sees the checked names and nothing that a caller wrote.
#[tokio::test]
async fn the_names_of_a_checked_certificate_reach_every_request() {
    let (ours, theirs) = (Issued::new(), Issued::new());
    let answer = async |request: Request| match request.extensions().get::<ClientNames>() {
        Some(names) => names.0.join(" "),
        None => "nobody".to_owned(),
    };
    let text = |callers| {
        let servers = "[postgres]\nurl = \"postgres://localhost/p\"\n[redis]\nurl = \"redis://localhost\"\n";
        format!("{servers}[http]\n{}", tls(&ours.identity(OURS), callers))
    };
    for (callers, shown, names) in [
        (
            Some(&theirs),
            Some(theirs.identity(&["shop.internal", "127.0.0.9", "*.desk.internal"])),
            "shop.internal *.desk.internal",
        ),
        (None, None, "nobody"),
        // A certificate that nobody asked for is not checked, and counts for nothing.
        (None, Some(theirs.identity(&["shop.internal"])), "nobody"),
    ] {
        let config =
            Config::parse(&text(callers), "t.toml", &|_| None).unwrap_or_else(|error| panic!("{error}"));
        let (_sender, tls) = watch::channel(config.http.tls.unwrap().server());
        let listener = server::listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let router = Router::new().route("/who", get(answer));
        let grace = Duration::from_secs(5);
        let served =
            tokio::spawn(server::serve(listener, Some(tls), router, Bounds::default(), stop.clone(), grace));
        let mut stream =
            connect(address, &ours.client(shown.as_ref(), &[&TLS13]), "localhost").await.unwrap();
        for _ in 0..2 {
            let answer = ask(&mut stream, "/who", "localhost").await.unwrap();
            assert!(answer.ends_with(&format!("\r\n\r\n{names}")), "{names}: {answer}");
        }
        stop.cancel();
        served.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn new_certificates_count_after_sighup_and_bad_ones_never() {
    let (scratch, ours, theirs) = (Scratch::new().await, Issued::new(), Issued::new());
    let own = ours.identity(OURS);
    // The open connection carries nothing while the node reads bad files.
    let file =
        |callers: &Issued| with_http(&scratch, &(tls(&own, Some(callers)) + "header_timeout = \"1m\"\n"));
    let mut node = NodeProcess::spawn_file(&file(&theirs), []);
    node.wait_for_line("HTTP on");
    let address: SocketAddr = node.address().unwrap().parse().unwrap();
    let client = ours.client(Some(&theirs.identity(&["shop.internal"])), &[&TLS12, &TLS13]);
    let presented = async || -> CertificateDer<'static> {
        let stream = connect(address, &client, "localhost").await.unwrap();
        stream.get_ref().1.peer_certificates().unwrap()[0].clone()
    };
    let first = certificates(&own.certificate).remove(0);
    assert_eq!(presented().await, first);
    let mut open = connect(address, &client, "localhost").await.unwrap();
    assert!(ask(&mut open, "/health/live", "localhost").await.unwrap().starts_with("HTTP/1.1 200"));

    // Bad ones: half a certificate, a key that does not belong to it, a key that others can read.
    let good = std::fs::read(&own.certificate).unwrap();
    std::fs::write(&own.certificate, &good[..good.len() / 2]).unwrap();
    node.signal(Signal::HUP);
    node.wait_for_line("must hold `-----BEGIN CERTIFICATE-----`");
    std::fs::write(&own.certificate, &good).unwrap();
    let key = std::fs::read(&own.key).unwrap();
    std::fs::copy(ours.identity(&["other.internal"]).key, &own.key).unwrap();
    node.signal(Signal::HUP);
    node.wait_for_line("is not the key of the first certificate");
    std::fs::write(&own.key, &key).unwrap();
    let mode = |mode| {
        std::fs::set_permissions(&own.key, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    mode(0o640);
    node.signal(Signal::HUP);
    node.wait_for_line("chmod 600");
    mode(0o600);
    assert_eq!(presented().await, first, "a bad file replaced the good certificate");
    assert!(ask(&mut open, "/health/live", "localhost").await.unwrap().starts_with("HTTP/1.1 200"));

    let second = ours.identity(&["localhost", "second.internal"]);
    second.replace(&own);
    node.signal(Signal::HUP);
    node.wait_for_line("The certificates of the HTTP listener changed");
    assert_eq!(presented().await, certificates(&second.certificate).remove(0));
    // The connections of before end, because their callers' certificates may not be good any more.
    until("the old connection ends", async || {
        !matches!(ask(&mut open, "/health/live", "localhost").await, Ok(answer) if !answer.is_empty())
    })
    .await;

    // Callers of the old authority are refused once the file names another.
    let others = Issued::new();
    node.rewrite(&file(&others));
    node.signal(Signal::HUP);
    until("the old callers are refused", async || call(address, &client, "localhost").await.is_err()).await;
    let client = ours.client(Some(&others.identity(&["shop.internal"])), &[&TLS13]);
    assert!(call(address, &client, "localhost").await.unwrap().starts_with("HTTP/1.1 200"));
    node.signal(Signal::TERM);
    assert!(node.wait().success());
}
