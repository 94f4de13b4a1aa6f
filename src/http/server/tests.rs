//! Checks how a server stops.

use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::*;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";

struct Served {
    stream: TcpStream,
    began: Arc<Notify>,
    go_on: Arc<Notify>,
    stop: CancellationToken,
    server: JoinHandle<()>,
}

/// A server whose only handler signals that it began, and answers after `go_on`.
async fn served(grace: Duration) -> Served {
    let (began, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (signal, wait) = (Arc::clone(&began), Arc::clone(&go_on));
    let handler = async move || {
        signal.notify_one();
        wait.notified().await;
        "done"
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let stop = CancellationToken::new();
    let router = Router::new().route("/", get(handler));
    let server = tokio::spawn(serve(listener, None, router, Bounds::default(), stop.clone(), grace));
    Served { stream, began, go_on, stop, server }
}

#[tokio::test]
async fn stopping_waits_for_the_answer_under_way() {
    let mut served = served(Duration::from_mins(1)).await;
    served.stream.write_all(REQUEST).await.unwrap();
    served.began.notified().await;
    served.stop.cancel();
    served.go_on.notify_one();
    let mut answer = String::new();
    served.stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("done"), "{answer}");
    served.server.await.unwrap();
}

#[tokio::test]
async fn stopping_cuts_what_does_not_finish_in_time() {
    let mut served = served(Duration::from_millis(20)).await;
    served.stream.write_all(REQUEST).await.unwrap();
    served.began.notified().await;
    served.stop.cancel();
    served.server.await.unwrap();
    let mut answer = Vec::new();
    let read = served.stream.read_to_end(&mut answer).await;
    assert!(read.is_err() || answer.is_empty(), "{answer:?}");
}

#[tokio::test]
async fn an_idle_connection_does_not_delay_the_stop() {
    let mut served = served(Duration::from_mins(1)).await;
    served.stream.write_all(REQUEST).await.unwrap();
    served.began.notified().await;
    served.go_on.notify_one();
    let mut answer = [0; 512];
    assert_ne!(served.stream.read(&mut answer).await.unwrap(), 0);
    served.stop.cancel();
    served.server.await.unwrap();
}
