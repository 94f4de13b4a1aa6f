//! Handshakes that get no answer: of an old version, in clear text, or too slow.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{OURS, node_with, tls};
use crate::harness::Scratch;
use crate::harness::certificates::Issued;

/// rustls cannot offer TLS 1.1, so this `ClientHello` is written by hand.
#[tokio::test]
async fn tls_1_1_is_refused() {
    let (scratch, ours) = (Scratch::new().await, Issued::new());
    let node = node_with(&scratch, &tls(&ours.identity(OURS), None)).await;
    let mut hello = vec![3, 2]; // TLS 1.1
    hello.extend([7; 32]); // random
    hello.extend([0, 0, 4, 0xc0, 0x09, 0xc0, 0x13, 1, 0]); // no session, two suites of ECDHE, no compression
    // P-256, uncompressed points, ECDSA with SHA-256: all but the version fits.
    let extensions = [0, 10, 0, 4, 0, 2, 0, 23, 0, 11, 0, 2, 1, 0, 0, 13, 0, 4, 0, 2, 4, 3];
    hello.extend([0, u8::try_from(extensions.len()).unwrap()]);
    hello.extend(extensions);
    let length = u8::try_from(hello.len()).unwrap();
    let mut record = vec![22, 3, 1, 0, length + 4, 1, 0, 0, length];
    record.extend(hello);
    let mut stream = TcpStream::connect(node.daemon.address()).await.unwrap();
    stream.write_all(&record).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    // An alert: fatal, protocol_version.
    assert_eq!((answer[0], &answer[5..]), (21, &[2, 70][..]), "{answer:?}");
    node.stop().await;
}

#[tokio::test]
async fn clear_text_and_handshakes_that_drip_get_no_answer() {
    let (scratch, ours) = (Scratch::new().await, Issued::new());
    let node =
        node_with(&scratch, &(tls(&ours.identity(OURS), None) + "handshake_timeout = \"300ms\"\n")).await;
    let mut plain = TcpStream::connect(node.daemon.address()).await.unwrap();
    plain.write_all(b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    let began = Instant::now();
    let mut dripping = TcpStream::connect(node.daemon.address()).await.unwrap();
    // A record that is announced with 512 bytes and never arrives.
    dripping.write_all(&[22, 3, 1, 2, 0, 1]).await.unwrap();
    assert_eq!(dripping.read(&mut [0; 64]).await.unwrap_or(0), 0);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    node.stop().await;
}
