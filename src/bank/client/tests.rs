//! Tests of the client on real sockets.

use std::io::{ErrorKind, Read, Write};
use std::sync::{Arc, Mutex, mpsc};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::bank::pool::Want;
use crate::bank::slept::Slept;
use crate::channel::{AnswerRule, Networks, RuleOutcome};
use crate::config::Config;

/// The client of this listener.
fn client(listener: &TcpListener, idle_timeout: Duration, timeout: Duration) -> Client {
    let settings = ConnectionSettings {
        owner: "channel `acme`".to_owned(),
        roots: None,
        client_identity: None,
        networks: Networks::default(),
        connect_timeout: Duration::from_secs(5),
        idle_timeout,
        timeout,
        most: 2,
    };
    let address = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
    Client::new(&settings, &address, None).unwrap()
}

fn post(body: Bytes) -> BankRequest {
    BankRequest { method: Method::POST, path: "/".parse().unwrap(), headers: HeaderMap::new(), body }
}

fn deadline() -> SendDeadline {
    SendDeadline::at(Instant::now() + Duration::from_secs(10), Slept::now())
}

/// Without the reset the kernel goes on sending what it has of the request for as long as the bank keeps its end.
#[tokio::test]
async fn a_request_that_was_given_up_ends_with_a_reset_and_its_rest_does_not_arrive() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = client(&listener, Duration::from_secs(4), Duration::from_millis(200));
    // More than both sockets' buffers take.
    let request = post(vec![b'x'; 32 << 20].into());
    let deadline = deadline();
    let (accepted, result) = tokio::join!(listener.accept(), client.call(&request, &deadline, None));
    assert!(matches!(result, CallResult::Lost { code: Code::Timeout, .. }), "{result:?}");
    let (mut bank, _) = accepted.unwrap();
    let (mut buffer, mut arrived) = (vec![0; 1 << 16], 0);
    let end = loop {
        match bank.read(&mut buffer).await {
            Ok(0) => break None,
            Ok(length) => arrived += length,
            Err(error) => break Some(error.kind()),
        }
    };
    assert_eq!(end, Some(ErrorKind::ConnectionReset), "after {arrived} bytes");
    assert!(arrived < request.body.len(), "{arrived}");
}

/// As while this process is frozen: nobody gives the request up.
#[tokio::test]
async fn the_kernel_ends_a_connection_whose_bytes_the_bank_does_not_take_within_the_time_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = client(&listener, Duration::from_secs(4), Duration::from_millis(500));
    let want = Want { most: 1, need: 1, until: Instant::now() };
    let (accepted, reserved) = tokio::join!(listener.accept(), client.pool.reserve(want));
    let _reads_nothing = accepted.unwrap();
    let mut reserved = reserved.unwrap().remove(0);
    let connection = reserved.connection().unwrap();
    connection.door.open(deadline());
    // More than both sockets' buffers take.
    let body = Full::new(Bytes::from(vec![b'x'; 32 << 20]));
    let sending = connection.sender.send_request(Request::new(body));
    let ended = tokio::time::timeout(Duration::from_secs(30), sending).await;
    assert!(ended.expect("the kernel ends it").is_err());
}

/// Answers requests, and notes on which of its connections each came.
fn serve(listener: TcpListener, status: u16) -> Arc<Mutex<Vec<usize>>> {
    let came_on = Arc::default();
    let notes = Arc::clone(&came_on);
    tokio::spawn(async move {
        for number in 1.. {
            let Ok((stream, _)) = listener.accept().await else { return };
            tokio::spawn(answering(stream, number, status, Arc::clone(&notes)));
        }
    });
    came_on
}

async fn answering(mut stream: TcpStream, number: usize, status: u16, came_on: Arc<Mutex<Vec<usize>>>) {
    let mut buffer = [0; 4096];
    let answer = format!("HTTP/1.1 {status} Any\r\ncontent-length: 2\r\n\r\n{{}}");
    while stream.read(&mut buffer).await.is_ok_and(|length| length > 0) {
        came_on.lock().unwrap().push(number);
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn a_connection_that_was_idle_for_too_long_when_the_first_byte_is_due_is_replaced() {
    const IDLE: Duration = Duration::from_millis(150);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = client(&listener, IDLE, Duration::from_secs(5));
    let came_on = serve(listener, 200);
    let want = Want { most: 1, need: 1, until: Instant::now() };
    let reserved = client.pool.reserve(want).await.unwrap().pop();
    // A claim that takes longer than the connection may be idle.
    tokio::time::sleep(IDLE).await;
    let result = client.call(&post(Bytes::new()), &deadline(), reserved).await;
    assert!(matches!(result, CallResult::Answer { status: 200, .. }), "{result:?}");
    assert_eq!(*came_on.lock().unwrap(), [2]);
}

/// Such a proxy may send the bank's late answer on that connection, and it would count for the next request.
#[tokio::test]
async fn no_request_goes_on_a_connection_after_a_proxy_gave_up_waiting_for_the_bank() {
    const LONG: Duration = Duration::from_mins(1);
    for (status, wanted) in [(408, [1_usize, 2]), (504, [1, 2]), (500, [1, 1])] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = client(&listener, LONG, LONG);
        let came_on = serve(listener, status);
        for _ in 0..2 {
            let result = client.call(&post(Bytes::new()), &deadline(), None).await;
            assert!(matches!(result, CallResult::Answer { status: got, .. } if got == status), "{result:?}");
        }
        assert_eq!(*came_on.lock().unwrap(), wanted, "{status}");
    }
}

/// Token requests and webhooks reserve no connection. The pool hands one out whose end this side has not seen yet.
#[tokio::test]
async fn a_request_without_a_reserved_connection_gets_another_when_its_own_died_before_the_first_byte() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = client(&listener, Duration::from_secs(4), Duration::from_secs(5));
    let listener = listener.into_std().unwrap();
    listener.set_nonblocking(false).unwrap();
    let (close, closing) = mpsc::channel::<()>();
    let (tell, closed) = mpsc::channel();
    // A thread of its own: the closing must not let this side's tasks run.
    let bank = std::thread::spawn(move || {
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().unwrap();
            // The rest stays unread. So the end of the connection is a reset, and no byte can be written after it.
            stream.read_exact(&mut [0]).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").unwrap();
            let _ = closing.recv();
            drop(stream);
            let _ = tell.send(());
        }
    });
    let (request, deadline) = (post(Bytes::new()), deadline());
    let first = client.call(&request, &deadline, None).await;
    assert!(matches!(first, CallResult::Answer { status: 200, .. }), "{first:?}");
    close.send(()).unwrap();
    closed.recv().unwrap();
    let second = client.call(&request, &deadline, None).await;
    assert!(matches!(second, CallResult::Answer { status: 200, .. }), "{second:?}");
    drop(close);
    bank.join().unwrap();
}

#[tokio::test]
async fn header_names_leave_with_capitals() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = client(&listener, Duration::from_secs(4), Duration::from_secs(5));
    let mut request = post(Bytes::new());
    request.headers.insert("idempotency-key", HeaderValue::from_static("k-1"));
    let bank = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut came = Vec::new();
        while !came.ends_with(b"\r\n\r\n") {
            assert!(stream.read_buf(&mut came).await.unwrap() > 0);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
        String::from_utf8(came).unwrap()
    };
    let deadline = deadline();
    let (came, result) = tokio::join!(bank, client.call(&request, &deadline, None));
    assert!(matches!(result, CallResult::Answer { status: 200, .. }), "{result:?}");
    for name in ["Host", "Accept-Encoding", "User-Agent", "Idempotency-Key"] {
        assert!(came.contains(&format!("\r\n{name}: ")), "{came}");
    }
}

#[tokio::test]
async fn a_lost_answer_names_its_cause() {
    let status = "after status 200 OK: ";
    for (answer, code, begins) in [
        ("", Code::AnswerLost, ""),
        ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{", Code::AnswerCut, status),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = client(&listener, Duration::from_secs(4), Duration::from_secs(5));
        let bank = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
            stream.write_all(answer.as_bytes()).await.unwrap();
            // Closing it is a reset then.
            stream.set_zero_linger().unwrap();
        };
        let (request, deadline) = (post(Bytes::new()), deadline());
        let ((), result) = tokio::join!(bank, client.call(&request, &deadline, None));
        let CallResult::Lost { code: found, message, .. } = &result else { panic!("{result:?}") };
        assert_eq!(*found, code, "{message}");
        assert!(message.starts_with(begins) && message.contains("reset by peer"), "{message}");
    }
}

/// Only the part up to the bound is read, and nothing else is wrong with such an answer.
#[tokio::test]
async fn a_refusal_with_a_page_that_is_too_long_counts_unless_a_rule_gives_its_status_a_meaning() {
    let page = "x".repeat(Client::LONGEST_ANSWER + 1);
    let config = Config::of_tables("[channel.acme]\nendpoint = \"http://localhost/\"\nlimits = []\n");
    let rule = |status, body: Option<(&str, &str)>, outcome| AnswerRule {
        status,
        body: body.map(|(pointer, text)| (pointer.to_owned(), text.to_owned())),
        outcome,
    };
    let answer_rules = vec![
        rule(401, Some(("/code", "7")), RuleOutcome::SlowDown),
        rule(407, None, RuleOutcome::Rejected),
        rule(425, None, RuleOutcome::SlowDown),
    ];
    let channel = Channel { answer_rules, ..config.channels.values().next().unwrap().as_ref().clone() };
    for (status, sent, counts) in [
        (429, page.len(), true),
        (403, page.len(), true),
        (425, page.len(), true),
        (401, page.len(), false),
        (407, page.len(), false),
        (500, page.len(), false),
        (200, page.len(), false),
        (429, 1, false),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = client(&listener, Duration::from_secs(4), Duration::from_secs(30))
            .of_channel(&channel, &channel.endpoint);
        let bank = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
            let head = format!("HTTP/1.1 {status} Any\r\ncontent-length: {}\r\n\r\n", page.len());
            stream.write_all(head.as_bytes()).await.unwrap();
            // The client hangs up as soon as the page is too long.
            let _ = stream.write_all(&page.as_bytes()[..sent]).await;
        };
        let (request, deadline) = (post(Bytes::new()), deadline());
        let ((), result) = tokio::join!(bank, client.call(&request, &deadline, None));
        match &result {
            CallResult::Answer { status: came, body, .. } => {
                assert!(counts && *came == status && body.is_empty(), "{status} {sent}: {result:?}");
            }
            CallResult::Lost { code: Code::AnswerCut, .. } => assert!(!counts, "{status} {sent}"),
            _ => panic!("{status} {sent}: {result:?}"),
        }
        // None is idle: the connection is not used again.
        assert!(client.pool.lead(Instant::now() + Duration::from_millis(500), 1) > Duration::ZERO);
    }
}

#[tokio::test]
async fn a_server_whose_answer_is_cut_off_after_its_status_is_one_that_answers() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = client(&listener, Duration::from_secs(4), Duration::from_secs(5)).for_the_status();
    let bank = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
        stream.write_all(b"HTTP/1.1 202 Accepted\r\ncontent-length: 9\r\n\r\n{").await.unwrap();
    };
    let (request, deadline) = (post(Bytes::new()), deadline());
    let ((), result) = tokio::join!(bank, client.call(&request, &deadline, None));
    assert!(matches!(result, CallResult::Answer { status: 202, .. }), "{result:?}");
    // None is idle: the old one is not used again.
    assert!(client.pool.lead(Instant::now() + Duration::from_millis(500), 1) > Duration::ZERO);
    assert!(client.pool.is_proven(), "its next connection is no trial");
}
