//! The task that sends a node's spans: from the start of the node to the end of its stop.

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::node::NodeState;
use crate::traces::{Collector, Traces};

#[derive(Debug)]
pub(super) struct Exporting {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Exporting {
    /// The node's spans go to the collector.
    pub fn start(collector: Collector, node: &mut NodeState) -> Self {
        tracing::info!("Spans go to the collector at {collector}");
        let (traces, exporter) = Traces::to(collector, &node.name);
        node.traces = traces;
        let stop = CancellationToken::new();
        let task = tokio::spawn(exporter.run(stop.clone()));
        Exporting { stop, task }
    }

    /// Sends the spans that wait, for at most [`crate::traces::Exporter::LAST`].
    pub async fn stop(self) {
        self.stop.cancel();
        let _ = self.task.await;
    }
}
