//! The task that sends a node's spans: from the start of the node to the end of its stop.

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::node::Node;
use crate::traces::{Collector, Traces};

#[derive(Debug)]
pub(super) struct Exporting {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Exporting {
    /// From now on the node's spans go to the collector. Clones of the node that were made before send none.
    pub fn start(collector: Collector, node: &mut Node) -> Self {
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
