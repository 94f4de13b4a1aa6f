//! Tests of the client on real sockets.

use std::io::ErrorKind;

use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

use super::*;
use crate::bank::slept::Slept;
use crate::channel::Networks;

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
