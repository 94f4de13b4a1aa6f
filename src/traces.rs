//! Traces: spans of what a node does for a refund or a caller, for a collector of OpenTelemetry. Off by default.
//!
//! No loop waits for a span: [`Traces`] puts it into a bounded queue, and drops it if the queue is full. The [`Exporter`] sends
//! the queue to the collector. A collector that hangs or is away costs spans and nothing else.
//!
//! The rows and the journal are the evidence of what happened. A span is not.

mod exporter;
mod protobuf;
mod span;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use jiff::Timestamp;
use tokio::sync::mpsc;

use crate::refund::TraceParent;
pub use exporter::{Collector, Exporter};
use span::TraceSpan;
pub use span::{Attribute, SpanKind};

/// Takes spans. Cheap to clone; takes none where no collector is configured.
#[derive(Debug, Clone, Default)]
pub struct Traces(Option<Queue>);

#[derive(Debug, Clone)]
struct Queue {
    spans: mpsc::Sender<TraceSpan>,
    lost: Arc<AtomicU64>,
}

impl Traces {
    /// The spans that wait for the exporter; about 300 bytes each.
    const MOST_WAITING: usize = 2048;

    /// Takes spans for a collector. The exporter sends them, in a task of its own.
    #[must_use]
    pub fn to(collector: Collector, node: &str) -> (Traces, Exporter) {
        let (spans, waiting) = mpsc::channel(Self::MOST_WAITING);
        let lost = Arc::new(AtomicU64::new(0));
        let exporter = Exporter::new(collector, node, waiting, Arc::clone(&lost));
        (Traces(Some(Queue { spans, lost })), exporter)
    }

    /// Begins a span under its parent. Without a parent it is the first of the trace `own_trace`. `None` where spans go
    /// nowhere, and for a parent whose caller records nothing.
    pub fn begin(
        &self,
        name: &'static str,
        kind: SpanKind,
        parent: Option<TraceParent>,
        own_trace: impl FnOnce() -> u128,
    ) -> Option<OpenSpan> {
        let queue = self.0.as_ref().filter(|_| parent.is_none_or(|parent| parent.is_sampled))?.clone();
        let span = TraceSpan {
            name,
            kind,
            trace_id: parent.map_or_else(own_trace, |parent| parent.trace_id),
            id: fastrand::u64(1..),
            parent_id: parent.map(|parent| parent.span_id),
            began: Timestamp::now(),
            ended: Timestamp::MIN,
            values: Vec::new(),
            error: None,
        };
        Some(OpenSpan { queue, span, since: Instant::now() })
    }
}

/// A span that has not ended. A dropped one is not recorded.
#[derive(Debug)]
pub struct OpenSpan {
    queue: Queue,
    span: TraceSpan,
    since: Instant,
}

impl OpenSpan {
    /// The number that the spans below this one name as their parent.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.span.id
    }

    /// Ends the span now. `error` names what went wrong.
    pub fn end(mut self, values: Vec<(&'static str, Attribute)>, error: Option<&'static str>) {
        self.span.ended = self.span.began.saturating_add(self.since.elapsed()).unwrap_or(self.span.began);
        self.span.values = values;
        self.span.error = error;
        if self.queue.spans.try_send(self.span).is_err() {
            self.queue.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}
