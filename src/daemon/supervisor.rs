//! Watches the loops: one that ends without being told to is a crash.

use std::future::Future;

use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::telemetry::chain;

/// Spawns loops and hears when one ends.
#[derive(Debug)]
pub(super) struct Supervisor {
    stop: CancellationToken,
    ended: mpsc::UnboundedSender<String>,
    heard: Mutex<mpsc::UnboundedReceiver<String>>,
    loops: TaskTracker,
}

impl Supervisor {
    pub fn new(stop: CancellationToken) -> Self {
        let (ended, heard) = mpsc::unbounded_channel();
        Supervisor { stop, ended, heard: Mutex::new(heard), loops: TaskTracker::new() }
    }

    /// Runs a loop that ends only when the node stops.
    pub fn spawn(&self, name: impl Into<String>, run: impl Future<Output = ()> + Send + 'static) {
        self.spawn_until(name, self.stop.clone(), run);
    }

    /// Runs a loop that ends only when `stop` says so.
    pub fn spawn_until(
        &self,
        name: impl Into<String>,
        stop: CancellationToken,
        run: impl Future<Output = ()> + Send + 'static,
    ) {
        self.loops.spawn(self.watched(name.into(), stop, run));
    }

    /// Runs what may end once the node stops, but is waited for apart from the loops.
    pub fn spawn_apart(
        &self,
        name: impl Into<String>,
        run: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        tokio::spawn(self.watched(name.into(), self.stop.clone(), run))
    }

    fn watched(
        &self,
        name: String,
        stop: CancellationToken,
        run: impl Future<Output = ()> + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        let ended = self.ended.clone();
        async move {
            let done = tokio::spawn(run).await;
            if let Err(error) = done {
                tracing::error!(error = %chain(&error), "The loop `{name}` crashed");
                let _ = ended.send(name);
            } else if !stop.is_cancelled() {
                tracing::error!("The loop `{name}` ended without being told to");
                let _ = ended.send(name);
            }
        }
    }

    /// The first loop that crashed; waits for it.
    pub async fn crashed(&self) -> String {
        match self.heard.lock().await.recv().await {
            Some(name) => name,
            None => std::future::pending().await,
        }
    }

    /// Waits until every loop has ended, or `enough` returns.
    pub async fn finished(&self, enough: impl Future<Output = ()>) {
        self.loops.close();
        tokio::select! {
            () = self.loops.wait() => {}
            () = enough => tracing::warn!("Stopped waiting for loops that are still busy"),
        }
    }
}
