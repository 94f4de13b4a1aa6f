//! Stops a node in order.

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::Daemon;
use crate::telemetry::millis;

/// The result of a stop.
#[derive(Debug, Default)]
pub struct Stopped {
    /// The ids of refunds still under this node's lease; a refund becomes `unknown` when its lease ends.
    pub still_leased: Vec<i64>,
}

impl Daemon {
    /// Stops in order: takes no more refunds, lets requests in flight finish and settles them. The result names the
    /// refunds that stay leased. When `hurry` is cancelled, the waits for loops, requests and outcomes end a second
    /// later.
    pub async fn stop(self, hurry: CancellationToken) -> Stopped {
        let longest =
            self.config().channels.values().map(|c| c.timeout + c.connect_timeout).max().unwrap_or_default();
        let bounded = |limit: Duration| {
            let hurry = hurry.clone();
            async move {
                tokio::select! {
                    () = tokio::time::sleep(limit) => {}
                    () = async { hurry.cancelled().await; tokio::time::sleep(Duration::from_secs(1)).await } => {}
                }
            }
        };
        let began = Instant::now();
        self.listeners.stop_signal().cancel();
        self.node.stop.cancel();
        self.workers.stop();
        let in_flight = self.node.calls.len();
        tracing::info!(
            calls = in_flight,
            "Stopping: taking no more refunds; {in_flight} calls to banks are under way"
        );
        self.supervisor.finished(bounded(Duration::from_secs(40))).await;
        self.node.calls.close();
        tokio::select! {
            () = self.node.calls.wait() => {}
            () = bounded(longest + Duration::from_secs(2)) => {
                tracing::warn!(calls = self.node.calls.len(), "Stopped waiting for calls that are still under way");
            }
        }
        // The workers own the last senders of the settler's channel. Once they are dropped, the settler writes the
        // outcomes that it still has, and ends.
        drop(self.workers);
        let mut settler = self.settler;
        tokio::select! {
            _ = &mut settler => {}
            () = bounded(Duration::from_secs(20)) => tracing::warn!("Stopped waiting for outcomes to be written"),
        }
        tokio::select! {
            () = self.listeners.finished() => {}
            () = bounded(Duration::from_secs(6)) => {}
        }
        if let Some(exporting) = self.exporting {
            exporting.stop().await;
        }
        let mut stopped = Stopped::default();
        if let Ok(Ok(left)) =
            tokio::time::timeout(Duration::from_secs(3), self.node.store.leased_by(&self.node.name)).await
        {
            for (id, channel) in left {
                tracing::warn!(
                    refund.id = id,
                    channel.name = channel,
                    "Refund {id} is left under this node's lease; it becomes unknown when the lease ends"
                );
                stopped.still_leased.push(id);
            }
            let _ =
                tokio::time::timeout(Duration::from_secs(3), self.node.store.leave(&self.node.name)).await;
            let _ =
                tokio::time::timeout(Duration::from_secs(3), self.node.store.leave_shares(&self.node.name))
                    .await;
        } else {
            tracing::warn!(
                "Postgres does not answer; refunds under this node's lease become unknown when their leases end"
            );
        }
        tracing::info!(duration_ms = millis(began.elapsed()), left = stopped.still_leased.len(), "Stopped");
        stopped
    }
}
