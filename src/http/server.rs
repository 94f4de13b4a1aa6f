//! The HTTP server: accepts connections and serves a router on them until the node stops.
//!
//! It does not know the routes. It has an accept loop of its own, because the server must set three bounds for each
//! connection: the time for the headers, the number of connections, and the wait for last answers when stopping.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::telemetry::chain;

/// A caller that has not sent its headers after this time is cut off. The bound also ends idle connections.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// The most connections at the same time, unless the configuration has another number. Further connections wait in
/// the kernel's queue.
pub const MOST_CONNECTIONS: u32 = 1024;

/// Serves until `stop` is cancelled. Then lets requests under way finish for at most `grace`, and cuts the others.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    most_connections: u32,
    stop: CancellationToken,
    grace: Duration,
) {
    let connections = Arc::new(Semaphore::new(most_connections as usize));
    let graceful = GracefulShutdown::new();
    let tasks = TaskTracker::new();
    let cut = CancellationToken::new();
    loop {
        // Wait for room before accepting: a connection that is not accepted costs the node nothing.
        let accepted = async {
            let room = Arc::clone(&connections).acquire_owned().await;
            (accept(&listener).await, room)
        };
        let (stream, room) = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accepted => accepted,
        };
        let connection = graceful.watch(
            http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router.clone())),
        );
        let cut = cut.clone();
        tasks.spawn(async move {
            let _room = room;
            tokio::select! {
                () = cut.cancelled() => {}
                served = connection => if let Err(error) = served {
                    tracing::debug!(error = %chain(&error), "An HTTP connection broke off");
                },
            }
        });
    }
    drop(listener);
    tasks.close();
    if timeout(grace, graceful.shutdown()).await.is_err() {
        let connections = tasks.len();
        tracing::warn!(connections, "Cut {connections} HTTP connections that did not finish in time");
    }
    cut.cancel();
    tasks.wait().await;
}

/// The next connection. It tries again after a failure: a lack of descriptors or memory passes.
async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Answers are written at once and are small. Nagle's algorithm would only delay them.
                let _ = stream.set_nodelay(true);
                return stream;
            }
            Err(error) => {
                tracing::warn!(error = %chain(&error), "Accepting a connection failed");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
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
        let server = tokio::spawn(serve(listener, router, MOST_CONNECTIONS, stop.clone(), grace));
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
}
