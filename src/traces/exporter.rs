//! Sends spans to a collector by OTLP over HTTP: `POST /v1/traces`.
//!
//! It tries each batch once. What a collector does not take within [`Exporter::PATIENCE`] is dropped and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::protobuf;
use super::span::TraceSpan;
use crate::failing::Failing;
use crate::logs::chain;

/// Where spans go: a collector of OpenTelemetry on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collector {
    /// Host and port.
    pub authority: String,
    /// The path before `/v1/traces`; usually empty.
    pub path: String,
}

impl std::fmt::Display for Collector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "http://{}{}/v1/traces", self.authority, self.path)
    }
}

#[derive(Debug, thiserror::Error)]
enum ExportError {
    #[error("connect")]
    Connect(#[source] std::io::Error),
    #[error("write the request")]
    Request(#[source] hyper::http::Error),
    #[error("send the spans")]
    Exchange(#[source] hyper::Error),
    #[error("get the spans taken: the collector answered {0}")]
    Refused(StatusCode),
    #[error("get an answer in time")]
    TooSlow,
}

/// Sends the spans of one node.
#[derive(Debug)]
pub struct Exporter {
    collector: Collector,
    node: String,
    spans: mpsc::Receiver<TraceSpan>,
    /// The spans that were dropped, and of which no line of the log has told yet.
    lost: Arc<AtomicU64>,
    failing: Failing,
    /// When the log last reported spans that were dropped while the collector took others.
    logged_at: Option<Instant>,
}

impl Exporter {
    /// The most spans of one request.
    const BATCH: usize = 1024;
    /// How long a span waits for others of its batch.
    const GATHER: Duration = Duration::from_millis(500);
    /// For one request.
    const PATIENCE: Duration = Duration::from_secs(5);
    /// For all that is left when the node stops.
    pub const LAST: Duration = Duration::from_secs(1);
    /// How often the log tells, at most, of spans that are dropped while the collector takes others.
    const TELL_EVERY: Duration = Duration::from_mins(1);

    pub(super) fn new(
        collector: Collector,
        node: &str,
        spans: mpsc::Receiver<TraceSpan>,
        lost: Arc<AtomicU64>,
    ) -> Self {
        Exporter {
            collector,
            node: node.to_owned(),
            spans,
            lost,
            failing: Failing::default(),
            logged_at: None,
        }
    }

    /// Sends spans until `stop` is cancelled, and then those that are left, for at most [`Exporter::LAST`]. Logs how many were
    /// dropped.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut batch = Vec::with_capacity(Self::BATCH);
        tokio::select! {
            () = self.send_all(&mut batch) => {} // every sender is gone
            () = stop.cancelled() => {}
        }
        self.spans.close();
        // A request that was under way is cut off, and its spans are sent again: collectors know a span by its number.
        let _ = tokio::time::timeout(Self::LAST, async {
            while self.spans.recv_many(&mut batch, Self::BATCH).await > 0 || !batch.is_empty() {
                self.export(&mut batch).await;
            }
        })
        .await;
        let left = batch.len() + self.spans.len();
        let lost = self.lost.swap(0, Ordering::Relaxed) + left as u64;
        if lost > 0 {
            tracing::warn!(lost, "Stopping: dropped {lost} spans for the collector at {}", self.collector);
        }
    }

    async fn send_all(&mut self, batch: &mut Vec<TraceSpan>) {
        while self.spans.recv_many(batch, Self::BATCH).await > 0 {
            let full_by = Instant::now() + Self::GATHER;
            while batch.len() < Self::BATCH {
                let more = self.spans.recv_many(batch, Self::BATCH - batch.len());
                if !matches!(tokio::time::timeout_at(full_by, more).await, Ok(1..)) {
                    break;
                }
            }
            self.export(batch).await;
        }
    }

    /// Sends a batch once and empties it. Logs the first failure and the recovery, and nothing between. While nothing fails, it
    /// logs spans for which the queue had no room.
    async fn export(&mut self, batch: &mut Vec<TraceSpan>) {
        let body = protobuf::request(&self.node, batch);
        let sent = tokio::time::timeout(Self::PATIENCE, post(&self.collector, body)).await;
        let sent = sent.unwrap_or(Err(ExportError::TooSlow));
        let count = batch.len();
        batch.clear();
        if sent.is_err() {
            self.lost.fetch_add(count as u64, Ordering::Relaxed);
        }
        let Exporter { collector, lost, failing, logged_at, .. } = self;
        failing.note(
            &sent,
            |error| tracing::warn!(error = %chain(error), "The collector at {collector} takes no spans; they are dropped"),
            || {
                let lost = lost.swap(0, Ordering::Relaxed);
                tracing::info!(lost, "The collector at {collector} takes spans again; {lost} were dropped");
            },
        );
        if !failing.is_failing() && logged_at.is_none_or(|at| at.elapsed() >= Self::TELL_EVERY) {
            let lost = lost.swap(0, Ordering::Relaxed);
            if lost > 0 {
                *logged_at = Some(Instant::now());
                tracing::warn!(
                    lost,
                    "Dropped {lost} spans since the last such line: more come than the collector at {collector} takes"
                );
            }
        }
    }
}

async fn post(collector: &Collector, body: Vec<u8>) -> Result<(), ExportError> {
    let stream = TcpStream::connect(&collector.authority).await.map_err(ExportError::Connect)?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(ExportError::Exchange)?;
    let request = Request::post(format!("{}/v1/traces", collector.path))
        .header(HOST, &collector.authority)
        .header(CONTENT_TYPE, "application/x-protobuf")
        .body(Full::new(Bytes::from(body)))
        .map_err(ExportError::Request)?;
    let exchange = async {
        let answer = sender.send_request(request).await.map_err(ExportError::Exchange)?;
        if answer.status().is_success() { Ok(()) } else { Err(ExportError::Refused(answer.status())) }
    };
    tokio::pin!(exchange);
    // The connection makes progress only while it is polled, and may end before the answer is read.
    tokio::select! {
        biased;
        done = &mut exchange => done,
        _ = connection => exchange.await,
    }
}
