//! Callers that are slow on purpose: with their headers, with their bodies, with reading answers, and with many
//! connections. They cost themselves their connection, and nobody else anything.

mod files;
mod shares;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use hyper::Method;
use refundd::config::Config;
use refundd::refund::State;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::dispatch::UNLIMITED;
use crate::harness::http::get;
use crate::harness::node::refund;
use crate::harness::{Scratch, TestNode, until};

/// A node with these lines in `[http]`.
async fn node_with(scratch: &Scratch, http: &str, channels: &str) -> TestNode {
    let text = scratch.file("a", channels).replace("[http]\n", &format!("[http]\n{http}\n"));
    TestNode::run(Config::parse(&text, "t.toml", &|_| None).unwrap_or_else(|error| panic!("{error}"))).await
}

/// A connection from this address of the loopback network, which takes only few bytes at a time.
async fn connect_from(own: [u8; 4], node: &TestNode) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.bind(SocketAddr::from((own, 0))).unwrap();
    socket.connect(node.daemon.address()).await.unwrap()
}

async fn connect(node: &TestNode) -> TcpStream {
    connect_from([127, 0, 0, 1], node).await
}

/// Writes a byte of `bytes` now and then until the node answers or closes; the answer, which is empty if it closed.
async fn drip(mut stream: TcpStream, bytes: &[u8]) -> String {
    let (mut answer, mut drops) = (vec![0; 4096], bytes.iter().cycle());
    let began = Instant::now();
    loop {
        assert!(began.elapsed() < Duration::from_secs(20), "the node lets a caller drip for 20 s");
        tokio::select! {
            read = stream.read(&mut answer) => {
                return String::from_utf8_lossy(&answer[..read.unwrap_or(0)]).into_owned();
            }
            () = tokio::time::sleep(Duration::from_millis(20)) => {
                let _ = stream.write_all(&[*drops.next().unwrap()]).await;
            }
        }
    }
}

pub fn post(path: &str, length: usize) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    )
}

/// Saves refunds that fill about this many bytes of a list.
pub async fn fill(scratch: &Scratch, bytes: usize) {
    let count = bytes / 16_000;
    scratch
        .sql(&format!(
            "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency, payload, due_at)
             select 'L-' || n, 'acme', 'P-1', 1250, 'EUR', to_jsonb(repeat('x', 16000)), now() + interval '1 day'
               from generate_series(1, {count}) n"
        ))
        .await;
}

#[tokio::test]
async fn headers_that_drip_cost_their_caller_the_connection() {
    let scratch = Scratch::new().await;
    let node = node_with(&scratch, "header_timeout = \"300ms\"", UNLIMITED).await;
    let began = Instant::now();
    let mut stream = connect(&node).await;
    stream.write_all(b"GET /v1/channels HTTP/1.1\r\nhost: localhost\r\nx: ").await.unwrap();
    assert_eq!(drip(stream, b"x").await, "");
    // A connection that says nothing at all is closed, too.
    assert_eq!(connect(&node).await.read(&mut [0]).await.unwrap(), 0);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    node.stop().await;
}

#[tokio::test]
async fn headers_of_more_than_16_kib_are_refused() {
    let scratch = Scratch::new().await;
    let node = node_with(&scratch, "", UNLIMITED).await;
    for (bytes, status) in [(15 * 1024, "200"), (17 * 1024, "431")] {
        let mut stream = connect(&node).await;
        let head =
            format!("GET /health/live HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "x".repeat(bytes));
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(std::str::from_utf8(&answer[9..]), Ok(status), "{bytes} bytes");
    }
    node.stop().await;
}

#[tokio::test]
async fn a_body_that_drips_is_refused_when_its_time_is_over() {
    let scratch = Scratch::new().await;
    let node = node_with(&scratch, "body_timeout = \"300ms\"", UNLIMITED).await;
    let began = Instant::now();
    for path in ["/v1/refunds", "/v1/refunds/batch"] {
        let mut stream = connect(&node).await;
        stream.write_all(post(path, 100_000).as_bytes()).await.unwrap();
        let answer = drip(stream, b"[").await;
        assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("body_timeout"), "{path}: {answer}");
    }
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    node.stop().await;
}

#[tokio::test]
async fn batches_that_drip_keep_no_other_batch_waiting() {
    let scratch = Scratch::new().await;
    let node = node_with(&scratch, "body_timeout = \"1m\"", UNLIMITED).await;
    let mut slow = Vec::new();
    for _ in 0..20 {
        let mut stream = connect(&node).await;
        stream.write_all(post("/v1/refunds/batch", 60_000_000).as_bytes()).await.unwrap();
        stream.write_all(&vec![b' '; 100_000]).await.unwrap();
        slow.push(stream);
    }
    let body = serde_json::json!([refund("R-1", "acme")]);
    let saved = tokio::time::timeout(Duration::from_secs(10), node.post("/v1/refunds/batch", &body)).await;
    assert_eq!(saved.expect("slow batches block a fast one").status, 200);
    drop(slow);
    node.stop().await;
}

#[tokio::test]
async fn a_page_is_bounded_in_bytes_and_the_next_begins_where_it_ended() {
    let scratch = Scratch::new().await;
    let node = node_with(&scratch, "", UNLIMITED).await;
    fill(&scratch, 3_000_000).await;
    let mut path = "/v1/refunds?limit=1000".to_owned();
    let mut refs = std::collections::BTreeSet::new();
    let mut pages = 0;
    loop {
        let page = node.get(&path).await;
        assert!(page.text.len() < 1_100_000, "{} bytes", page.text.len());
        pages += 1;
        let page = page.json();
        for refund in page["refunds"].as_array().unwrap() {
            assert!(refs.insert(refund["refund_ref"].to_string()), "{refund} stands on two pages");
        }
        match page["next"].as_str() {
            Some(next) => path = format!("/v1/refunds?limit=1000&after={next}"),
            None => break,
        }
    }
    assert_eq!((refs.len(), pages), (187, 3));
    node.stop().await;
}

#[tokio::test]
async fn a_caller_that_does_not_read_its_answer_is_cut() {
    let scratch = Scratch::new().await;
    let node = node_with(&scratch, "answer_timeout = \"3s\"", UNLIMITED).await;
    fill(&scratch, 1_500_000).await;
    let list = b"GET /v1/refunds?limit=1000 HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let mut dead = connect(&node).await;
    dead.write_all(list).await.unwrap();
    until("the connection is reset", async || dead.take_error().unwrap().is_some()).await;
    // Reading a little now and then does not help.
    let mut dripping = connect(&node).await;
    dripping.write_all(list).await.unwrap();
    let (began, mut bytes, mut some) = (Instant::now(), 0, [0; 500]);
    while let Ok(read @ 1..) = dripping.read(&mut some).await {
        bytes += read;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(bytes < 900_000 && began.elapsed() < Duration::from_secs(20), "{bytes} in {:?}", began.elapsed());
    // A caller that reads gets it whole.
    assert!(node.get("/v1/refunds?limit=1000").await.text.len() > 900_000);
    node.stop().await;
}

/// Each page of a list may have 1 MiB, so 60 callers that do not read want more than the 48 MiB for all of them.
#[tokio::test]
async fn callers_that_do_not_read_keep_no_refund_from_being_looked_up() {
    let scratch = Scratch::new().await;
    let node = node_with(&scratch, "answer_timeout = \"1m\"\nheader_timeout = \"1m\"", UNLIMITED).await;
    fill(&scratch, 1_500_000).await;
    let unread = join_all((0..60).map(|_| async {
        let mut stream = connect(&node).await;
        let list = "GET /v1/refunds?limit=1000 HTTP/1.1\r\nhost: localhost\r\n\r\n";
        stream.write_all(list.as_bytes()).await.unwrap();
        stream
    }))
    .await;
    until("long lists are refused", async || {
        let refused = node.get("/v1/refunds?limit=1000").await;
        refused.status == 503 && refused.text.contains("urn:refundd:problem:busy")
    })
    .await;
    for path in ["/v1/refunds?refund_ref=L-7", "/v1/refunds/1", "/v1/channels"] {
        assert_eq!(node.get(path).await.status, 200, "{path}");
    }
    assert_eq!(node.post("/v1/refunds", &refund("R-1", "acme")).await.status, 201);
    drop(unread);
    until("long lists are answered again", async || node.get("/v1/refunds?limit=1000").await.status == 200)
        .await;
    node.stop().await;
}

#[tokio::test]
async fn one_address_takes_no_more_than_its_places() {
    let scratch = Scratch::new().await;
    let node =
        node_with(&scratch, "max_connections_per_address = 3\nheader_timeout = \"1m\"", UNLIMITED).await;
    let mut places = Vec::new();
    for _ in 0..3 {
        places.push(connect_from([127, 0, 0, 9], &node).await);
    }
    let answered = async |mut stream: TcpStream| {
        let _ = stream.write_all(b"GET /health/live HTTP/1.0\r\n\r\n").await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        answer.starts_with(b"HTTP/1.0 200")
    };
    for _ in 0..5 {
        assert!(!answered(connect_from([127, 0, 0, 9], &node).await).await, "a fourth connection is served");
    }
    assert!(answered(connect_from([127, 0, 0, 10], &node).await).await, "another address is not served");
    places.pop();
    until("a place is free again", async || answered(connect_from([127, 0, 0, 9], &node).await).await).await;
    node.stop().await;
}

/// Health and metrics have their own listener, and the channels send as if nobody attacked.
#[tokio::test(flavor = "multi_thread")]
async fn slow_callers_in_all_places_delay_neither_probes_nor_channels() {
    let scratch = Scratch::new().await;
    let http = "admin_listen = \"127.0.0.1:0\"\nmax_connections = 60\nheader_timeout = \"1m\"\nbody_timeout = \"1m\"";
    let paced = "[limit.acme]\nalgorithm = \"paced\"\npermits = 20\nper = \"1s\"\n[channel.acme]\n\
                 endpoint = \"http://{bank}/acme/refunds\"\nlimits = [\"acme\"]\n";
    let node = node_with(&scratch, http, paced).await;
    fill(&scratch, 1_500_000).await;
    let slow = join_all((0..60_usize).map(|n| {
        let node = &node;
        async move {
            let mut stream = connect(node).await;
            let bytes = match n % 3 {
                0 => "GET /v1/channels HTTP/1.1\r\nx: ".to_owned(),
                1 => post("/v1/refunds", 100_000),
                _ => "GET /v1/refunds?limit=1000 HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned(),
            };
            stream.write_all(bytes.as_bytes()).await.unwrap();
            stream
        }
    }))
    .await;
    let admin = node.daemon.admin_address().unwrap();
    let began = Instant::now();
    for path in ["/health/live", "/health/ready", "/metrics"].repeat(20) {
        let (status, _) = get(admin, path).await.unwrap();
        assert_eq!(status, 200, "{path}");
    }
    assert!(began.elapsed() < Duration::from_secs(10), "60 answers in {:?}", began.elapsed());
    assert_eq!(get(admin, "/v1/channels").await.unwrap().0, 404, "only health and metrics are served there");
    scratch.insert("acme", "R-", 41).await;
    until("all are sent", async || scratch.count(State::Succeeded).await == 41).await;
    let ledger = scratch.bank.ledger();
    let at: Vec<i64> = ledger.all().iter().map(|arrival| arrival.at_us).collect();
    let took =
        Duration::from_micros(u64::try_from(at.iter().max().unwrap() - at.iter().min().unwrap()).unwrap());
    // `make slow` measures the pace; here all other tests run at the same time.
    assert!((1.9..60.0).contains(&took.as_secs_f64()), "41 refunds at 20 a second took {took:?}");
    drop(slow);
    let healthy = node.request(Method::GET, "/v1/channels", "", "").await;
    assert_eq!(healthy.status, 200);
    node.stop().await;
}
