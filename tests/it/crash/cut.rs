//! A conversation with the bank that is cut at any byte: by the bank's ledger nothing is lost and nothing is paid
//! twice.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use playground::bank::Step;
use refundd::refund::State;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::{Death, judge};
use crate::harness::{Scratch, TestNode, within};

const PATIENT: &str = r#"
[channel.acme]
endpoint = "http://{bank}/acme/refunds"
limits = []
max_in_flight = 32
timeout = "5s"
"#;

async fn all_are_over(scratch: &Scratch, count: i64) {
    within(Duration::from_mins(4), "all are over", async || {
        let over = "select count(*) from refundd.refunds where state in ('succeeded', 'review')";
        scratch.number(over).await == count
    })
    .await;
}

/// The rows' states, in the order in which they were saved.
async fn states(scratch: &Scratch) -> Vec<State> {
    let states: Vec<String> = sqlx::query_scalar("select state from refundd.refunds order by id")
        .fetch_all(&mut scratch.connect().await)
        .await
        .unwrap();
    states.iter().map(|state| state.parse().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_cut_at_any_byte_proves_nothing() {
    answers_are_cut(false).await;
}

/// Each time the bank ends the connection without TLS's own word for an end.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_cut_at_any_byte_over_tls_proves_nothing() {
    answers_are_cut(true).await;
}

async fn answers_are_cut(secure: bool) {
    const MORE_THAN_AN_ANSWER: u32 = 250;
    let scratch = Scratch::over(secure).await;
    for bytes in 0..MORE_THAN_AN_ANSWER {
        let cut = Step::pays().cut_after(bytes as usize);
        scratch.bank.next_for("acme", &format!("R-{}", bytes + 1), [cut]);
    }
    let node = TestNode::start(&scratch, "a", PATIENT).await;
    scratch.insert("acme", "R-", MORE_THAN_AN_ANSWER).await;
    all_are_over(&scratch, i64::from(MORE_THAN_AN_ANSWER)).await;
    let states = states(&scratch).await;
    let whole = states.iter().position(|state| *state == State::Succeeded).expect("a whole answer");
    println!("answers cut at {whole} of {whole} bytes");
    assert!(whole > 60, "an answer has more than {whole} bytes");
    assert!(states[whole..].iter().all(|state| *state == State::Succeeded), "{states:?}");
    judge("answers", &scratch, false, &Death::default()).await;
    node.stop().await;
}

/// Stands before the bank and lets so many bytes of each request through, one more for each connection that
/// carries one; then it hangs up. Answers how many bytes each had sent, once `count` have come.
async fn cut_requests(bank: SocketAddr, listener: TcpListener, count: usize, secure: bool) -> Vec<usize> {
    let allowed = Arc::new(AtomicUsize::new(0));
    let mut seen = JoinSet::new();
    let mut bytes = Vec::new();
    while bytes.len() < count {
        tokio::select! {
            accepted = listener.accept() => {
                seen.spawn(cut_one(bank, accepted.unwrap().0, Arc::clone(&allowed), secure));
            }
            // One that is opened ahead and never used is no request.
            Some(one) = seen.join_next() => bytes.extend(one.unwrap()),
        }
    }
    bytes.sort_unstable();
    bytes
}

async fn cut_one(
    bank: SocketAddr,
    mut caller: TcpStream,
    allowed: Arc<AtomicUsize>,
    secure: bool,
) -> Option<usize> {
    let mut onwards = TcpStream::connect(bank).await.unwrap();
    let (mut said, mut passed) = (Vec::new(), 0);
    let (mut piece, mut heard) = ([0; 4096], [0; 4096]);
    // Both ways, until the first byte of a request is there.
    let begins = loop {
        tokio::select! {
            read = caller.read(&mut piece) => match read {
                Ok(length @ 1..) => said.extend_from_slice(&piece[..length]),
                Ok(0) | Err(_) => return None,
            },
            read = onwards.read(&mut heard) => match read {
                Ok(length @ 1..) => caller.write_all(&heard[..length]).await.ok()?,
                Ok(0) | Err(_) => return None,
            },
        }
        if let Some(begins) = request_begins(&said, secure) {
            break begins;
        }
        onwards.write_all(&said[passed..]).await.unwrap();
        passed = said.len();
    };
    let through = allowed.fetch_add(1, Ordering::Relaxed);
    while said.len() < begins + through && !is_whole(&said[begins..], secure) {
        match caller.read(&mut piece).await {
            Ok(length @ 1..) => said.extend_from_slice(&piece[..length]),
            Ok(0) | Err(_) => break,
        }
    }
    said.truncate(begins + through);
    onwards.write_all(&said[passed..]).await.unwrap();
    if is_whole(&said[begins..], secure) {
        // The bank handles it at its leisure, and its answer is lost.
        tokio::spawn(async move { onwards.read_to_end(&mut Vec::new()).await });
    } else {
        onwards.shutdown().await.unwrap();
        onwards.read_to_end(&mut Vec::new()).await.ok();
    }
    Some(said.len() - begins)
}

/// Where the request begins in what a caller said; `None` before its first byte. Over TLS 1.3 a caller's first
/// sealed record ends the handshake, and the next one is the request.
fn request_begins(said: &[u8], secure: bool) -> Option<usize> {
    let (mut at, mut shaken) = (0, !secure);
    while !shaken {
        shaken = *said.get(at)? == SEALED;
        at = record_end(said, at)?;
    }
    (said.len() > at).then_some(at)
}

/// The type of a TLS record that holds what nobody on the way can read.
const SEALED: u8 = 23;

/// Where the TLS record that begins here is over, if all of it is there.
fn record_end(said: &[u8], at: usize) -> Option<usize> {
    let length = said.get(at + 3..at + 5)?;
    let end = at + 5 + usize::from(u16::from_be_bytes([length[0], length[1]]));
    (said.len() >= end).then_some(end)
}

fn is_whole(request: &[u8], secure: bool) -> bool {
    if secure {
        // The client writes head and body at once; if not, the bank would not have been paid through below.
        return record_end(request, 0).is_some();
    }
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length =
        head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
    length == Some(body.len())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_cut_at_any_byte_is_never_sent_again() {
    requests_are_cut(false).await;
}

/// Any write to the connection counts as a first byte there, also one of which the bank can read nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_cut_at_any_byte_over_tls_is_never_sent_again() {
    requests_are_cut(true).await;
}

async fn requests_are_cut(secure: bool) {
    const MORE_THAN_A_REQUEST: u32 = 640;
    let scratch = Scratch::over(secure).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let channels = scratch.secured(PATIENT).replace("{bank}", &listener.local_addr().unwrap().to_string());
    let count = MORE_THAN_A_REQUEST as usize;
    let cutting = tokio::spawn(cut_requests(scratch.bank.address(), listener, count, secure));
    let node = TestNode::start(&scratch, "a", &channels).await;
    scratch.insert("acme", "R-", MORE_THAN_A_REQUEST).await;
    all_are_over(&scratch, i64::from(MORE_THAN_A_REQUEST)).await;
    // Every refund had one connection, and was on none after that.
    let bytes = cutting.await.unwrap();
    let whole = *bytes.last().unwrap();
    println!("requests cut at {whole} of {whole} bytes");
    assert!(whole > 300, "a request has more than {whole} bytes");
    assert!((0..whole).all(|cut| bytes.binary_search(&cut).is_ok()), "{bytes:?}");
    assert!(states(&scratch).await.iter().all(|state| *state == State::Review));
    let one_was_paid =
        scratch.bank.until(Duration::from_mins(1), |l| l.all().iter().any(|arrival| arrival.paid)).await;
    assert!(one_was_paid, "the bank never had a whole request");
    judge("requests", &scratch, false, &Death::default()).await;
    node.stop().await;
}
