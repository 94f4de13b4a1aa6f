//! Watches the loops. A loop that panics, or ends before its stop signal, has crashed.
//!
//! It restarts no loop: the caller ends the process.

use std::future::Future;

use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::logs::chain;

/// Spawns loops and reports the first crash.
#[derive(Debug)]
pub(super) struct Supervisor {
    stop: CancellationToken,
    /// Carries the names of crashed loops.
    crashes: mpsc::UnboundedSender<String>,
    crash_receiver: Mutex<mpsc::UnboundedReceiver<String>>,
    loops: TaskTracker,
}

impl Supervisor {
    pub fn new(stop: CancellationToken) -> Self {
        let (crashes, receiver) = mpsc::unbounded_channel();
        Supervisor { stop, crashes, crash_receiver: Mutex::new(receiver), loops: TaskTracker::new() }
    }

    /// Runs a loop that must not end before the node stops.
    pub fn spawn(&self, name: impl Into<String>, run: impl Future<Output = ()> + Send + 'static) {
        self.spawn_until(name, self.stop.clone(), run);
    }

    /// Runs a loop that must not end before `stop` is cancelled.
    pub fn spawn_until(
        &self,
        name: impl Into<String>,
        stop: CancellationToken,
        run: impl Future<Output = ()> + Send + 'static,
    ) {
        self.loops.spawn(self.watched(name.into(), stop, run));
    }

    /// Runs a task that must not end before `stop` is cancelled. [`Supervisor::finished`] does not wait for it: the
    /// caller awaits the handle.
    pub fn spawn_apart(
        &self,
        name: impl Into<String>,
        stop: CancellationToken,
        run: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        tokio::spawn(self.watched(name.into(), stop, run))
    }

    fn watched(
        &self,
        name: String,
        stop: CancellationToken,
        run: impl Future<Output = ()> + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        let crashes = self.crashes.clone();
        async move {
            let done = tokio::spawn(run).await;
            if let Err(error) = done {
                tracing::error!(error = %chain(&error), "The loop `{name}` crashed");
                let _ = crashes.send(name);
            } else if !stop.is_cancelled() {
                tracing::error!("The loop `{name}` ended before its stop signal");
                let _ = crashes.send(name);
            }
        }
    }

    /// Waits until a loop crashes, and returns its name.
    pub async fn crashed(&self) -> String {
        match self.crash_receiver.lock().await.recv().await {
            Some(name) => name,
            None => std::future::pending().await,
        }
    }

    /// Waits until every loop has ended, or until `enough` returns.
    pub async fn finished(&self, enough: impl Future<Output = ()>) {
        self.loops.close();
        tokio::select! {
            () = self.loops.wait() => {}
            () = enough => tracing::warn!("Stopped waiting for loops that are still busy"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The HTTP server ends at a signal of its own, a moment before the node's.
    #[tokio::test]
    async fn a_loop_that_ends_at_its_own_stop_signal_has_not_crashed() {
        let supervisor = Supervisor::new(CancellationToken::new());
        let own = CancellationToken::new();
        let served = supervisor.spawn_apart("http", own.clone(), own.clone().cancelled_owned());
        own.cancel();
        served.await.unwrap();
        assert!(supervisor.crash_receiver.lock().await.try_recv().is_err());
        supervisor.spawn_apart("http", CancellationToken::new(), async {}).await.unwrap();
        assert_eq!(supervisor.crashed().await, "http");
    }
}
