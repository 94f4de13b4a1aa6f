//! Spans that are dropped are counted, and the log tells their number.

use std::io;
use std::sync::{Arc, Mutex};

use refundd::traces::{Collector as Place, SpanKind, Traces};
use tokio_util::sync::CancellationToken;

use super::collector::Collector;
use crate::harness::until;

/// What this thread logs.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn has(&self, words: &str) -> bool {
        String::from_utf8_lossy(&self.0.lock().unwrap()).contains(words)
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// More spans than the queue has room for. Nobody takes one meanwhile, because the test has one thread.
fn too_many(traces: &Traces) {
    for _ in 0..2_500 {
        traces.begin("refundd.send", SpanKind::Client, None, || 1).unwrap().end(Vec::new(), None);
    }
}

#[tokio::test]
async fn spans_for_which_the_queue_has_no_room_are_told_while_the_collector_is_well_and_at_the_stop() {
    let log = Log::default();
    let writer = log.clone();
    let lines = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _logging = tracing::subscriber::set_default(lines);
    let collector = Collector::start().await;
    let place = Place { authority: collector.address.clone(), path: String::new() };
    let (traces, exporter) = Traces::to(place, "a");
    let stop = CancellationToken::new();
    let sending = async {
        too_many(&traces);
        until("the log tells of them", async || log.has("Dropped 452 spans")).await;
        until("the others arrive", async || collector.spans().len() == 2_048).await;
        // The next line about them comes in a minute.
        too_many(&traces);
        stop.cancel();
    };
    tokio::join!(exporter.run(stop.clone()), sending);
    assert!(log.has("Stopping: dropped "), "{}", String::from_utf8_lossy(&log.0.lock().unwrap()));
}
