//! A listener that other hosts reach: it neither starts nor goes on without TLS and callers.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::process::Command;

use refundd::caller::token::Token;
use rustix::process::Signal;
use rustls::version::{TLS12, TLS13};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{CallerTables, TWO_CHANNELS, ask_on};
use crate::cli::{file, text};
use crate::harness::certificates::Issued;
use crate::harness::{NodeProcess, Scratch, until};
use crate::listener_tls::{connect, tls};

const SHOP: &str = "may = [\"look\"]\nchannels = [\"acme\"]";

/// An address of this machine that is not a loopback address. A machine without any listens on all of its addresses.
fn outer_address() -> IpAddr {
    let everywhere = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    // It names the way to an address that nobody has, and sends nothing.
    let way = UdpSocket::bind((everywhere, 0)).and_then(|socket| {
        socket.connect("203.0.113.9:9")?;
        Ok(socket.local_addr()?.ip())
    });
    way.ok().filter(|ip| !ip.is_loopback()).unwrap_or(everywhere)
}

/// Where a listener of `address` is reached.
fn reached(address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() { SocketAddr::from(([127, 0, 0, 1], address.port())) } else { address }
}

/// A file that listens at `address`, with these further lines of `[http]`.
fn listening(scratch: &Scratch, address: SocketAddr, lines: &str, channels: &str) -> String {
    let http = format!("[http]\nlisten = \"{address}\"\n{lines}");
    scratch.file("a", channels).replace("[http]\nlisten = \"127.0.0.1:0\"\n", &http)
}

/// The first bytes that come back for a GET in clear text.
async fn in_clear_text(address: SocketAddr) -> Vec<u8> {
    let Ok(mut stream) = TcpStream::connect(address).await else { return Vec::new() };
    stream
        .write_all(b"GET /v1/refunds HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    answer
}

/// The status of a GET by TLS; `None` if there is no answer.
async fn by_tls(address: SocketAddr, client: &TlsConnector, token: Option<&Token>) -> Option<u16> {
    let stream = connect(address, client, "localhost").await.ok()?;
    ask_on(stream, token, "GET /v1/refunds", "").await.ok().map(|(status, _)| status)
}

fn lines_with(node: &NodeProcess, words: &str) -> usize {
    node.log().iter().filter(|line| line.contains(words)).count()
}

#[tokio::test]
async fn a_node_beyond_loopback_does_not_start_without_tls_or_without_callers() {
    let (scratch, ours, mut callers) = (Scratch::new().await, Issued::new(), CallerTables::new());
    callers.caller("shop", SHOP);
    let secure = tls(&ours.identity(&["localhost"]), None);
    let admin = "admin_listen = \"127.0.0.1:0\"\n";
    for ip in [outer_address(), IpAddr::V4(Ipv4Addr::UNSPECIFIED)] {
        let free = TcpListener::bind((ip, 0)).unwrap().local_addr().unwrap();
        for (what, lines, channels) in [
            ("neither", String::new(), TWO_CHANNELS.to_owned()),
            ("TLS alone", secure.clone(), TWO_CHANNELS.to_owned()),
            ("callers alone", String::new(), callers.with_channels(TWO_CHANNELS)),
        ] {
            let config = file(&listening(&scratch, free, &format!("{admin}{lines}"), &channels));
            let output = Command::new("timeout")
                .args(["30", env!("CARGO_BIN_EXE_refundd"), "--config"])
                .arg(config.path())
                .arg("run")
                .output()
                .unwrap();
            let said = text(&output);
            assert_eq!(output.status.code(), Some(1), "{ip} with {what}: {said}");
            assert!(
                said.contains("is reached from other hosts") && said.contains("[caller.NAME]"),
                "{what}: {said}"
            );
            assert!(TcpStream::connect(reached(free)).await.is_err(), "{ip} with {what} is served");
        }
    }
}

#[tokio::test]
async fn no_reload_takes_tls_or_callers_from_a_listener_beyond_loopback() {
    let (scratch, ours, mut callers) = (Scratch::new().await, Issued::new(), CallerTables::new());
    let token = callers.caller("shop", SHOP);
    let secure = format!("admin_listen = \"127.0.0.1:0\"\n{}", tls(&ours.identity(&["localhost"]), None));
    let (outer, inner) = (SocketAddr::new(outer_address(), 0), SocketAddr::from(([127, 0, 0, 1], 0)));
    let with_callers = callers.with_channels(TWO_CHANNELS);
    let mut node = NodeProcess::spawn_file(&listening(&scratch, outer, &secure, &with_callers), []);
    node.wait_for_line("HTTP on");
    let address = reached(node.address().unwrap().parse().unwrap());
    let client = ours.client(None, &[&TLS12, &TLS13]);
    let stays_closed = async || {
        assert_eq!(by_tls(address, &client, Some(&token)).await, Some(200));
        assert_eq!(by_tls(address, &client, None).await, Some(401));
        let answer = in_clear_text(address).await;
        assert!(!answer.starts_with(b"HTTP"), "{}", String::from_utf8_lossy(&answer));
    };
    stays_closed().await;
    for (count, (what, text)) in [
        ("no callers", listening(&scratch, outer, &secure, TWO_CHANNELS)),
        ("no TLS", listening(&scratch, outer, "admin_listen = \"127.0.0.1:0\"\n", &with_callers)),
        // The file is good by itself, but the process goes on listening where it is.
        ("another address and no callers", listening(&scratch, inner, "", TWO_CHANNELS)),
    ]
    .into_iter()
    .enumerate()
    {
        node.rewrite(&text);
        node.signal(Signal::HUP);
        until(what, async || lines_with(&node, "was not taken over") == count + 1).await;
        stays_closed().await;
    }
    // With callers the file is taken over, and TLS stays until the next start.
    node.rewrite(&listening(&scratch, inner, "", &with_callers));
    node.signal(Signal::HUP);
    node.wait_for_line("take effect only at a restart");
    stays_closed().await;
    node.signal(Signal::TERM);
    assert!(node.wait().success());
}

#[tokio::test]
async fn a_reload_does_not_lead_a_listener_from_loopback_to_other_hosts() {
    let (scratch, ours, mut callers) = (Scratch::new().await, Issued::new(), CallerTables::new());
    callers.caller("shop", SHOP);
    let outer = TcpListener::bind((outer_address(), 0)).unwrap().local_addr().unwrap();
    let mut node = NodeProcess::start(&scratch, "a", TWO_CHANNELS);
    let address: SocketAddr = node.address().unwrap().parse().unwrap();
    node.rewrite(&listening(&scratch, outer, "", TWO_CHANNELS));
    node.signal(Signal::HUP);
    node.wait_for_line("was not taken over");
    assert!(in_clear_text(address).await.starts_with(b"HTTP/1.1 200"));
    assert!(TcpStream::connect(reached(outer)).await.is_err());
    let secure = format!("admin_listen = \"127.0.0.1:0\"\n{}", tls(&ours.identity(&["localhost"]), None));
    node.rewrite(&listening(&scratch, outer, &secure, &callers.with_channels(TWO_CHANNELS)));
    node.signal(Signal::HUP);
    node.wait_for_line("take effect only at a restart");
    assert!(TcpStream::connect(reached(outer)).await.is_err());
    assert!(in_clear_text(address).await.starts_with(b"HTTP/1.1 401"), "the callers are in force at once");
}
