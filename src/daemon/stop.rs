//! Stops a node in order.

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::Daemon;
use crate::logs::millis;
use crate::traces::Exporter;

/// The result of a stop.
#[derive(Debug, Default)]
pub struct Stopped {
    /// The ids of refunds under this node's lease, if Postgres answers. A refund becomes `unknown` when its lease ends.
    pub still_leased: Vec<i64>,
}

impl Daemon {
    /// The longest wait for loops that end.
    const LOOPS: Duration = Duration::from_secs(40);
    /// How much longer than the slowest channel's time-outs to wait for calls to banks.
    const SPARE: Duration = Duration::from_secs(2);
    /// The longest wait for outcomes to be written, those of inquiries included.
    const OUTCOMES: Duration = Duration::from_secs(19);
    /// The longest wait for the settler to log the outcomes that are not written.
    const LOG_OUTCOMES: Duration = Duration::from_secs(1);
    /// The longest wait for HTTP connections to end.
    const CONNECTIONS: Duration = Duration::from_secs(6);
    /// The longest wait for each of the last three statements.
    const STATEMENT: Duration = Duration::from_secs(3);

    /// The time after which [`Daemon::stop`] has ended, whatever fails.
    pub fn longest_stop(&self) -> Duration {
        let bounds = [
            Self::LOOPS,
            self.workers.longest_call(),
            Self::SPARE,
            Self::OUTCOMES,
            Self::LOG_OUTCOMES,
            Self::CONNECTIONS,
        ];
        bounds.iter().sum::<Duration>() + Exporter::LAST + Self::STATEMENT * 3
    }

    /// Stops in order: takes no more refunds, lets requests in flight finish and settles them. The result names the
    /// refunds that stay leased. When `hurry` is cancelled, the waits for loops, requests and outcomes end a second
    /// later.
    pub async fn stop(self, hurry: CancellationToken) -> Stopped {
        let longest = self.workers.longest_call();
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
        self.listeners.stop_callers();
        self.node.stop.cancel();
        self.workers.stop();
        let in_flight = self.node.requests.len();
        tracing::info!(
            calls = in_flight,
            "Stopping: taking no more refunds; {in_flight} calls to banks are under way"
        );
        self.supervisor.finished(bounded(Self::LOOPS)).await;
        self.node.calls.close();
        tokio::select! {
            () = self.node.calls.wait() => {}
            () = bounded(longest + Self::SPARE) => {
                tracing::warn!(
                    calls = self.node.requests.len(),
                    "Stopped waiting for calls to banks, and for what follows from calls, that are still under way"
                );
            }
        }
        // The workers own the last senders of the settler's channel. Once they are dropped, the settler writes the
        // outcomes that it still has, and ends.
        drop(self.workers);
        let (settler, calls, unwritten) = (self.settler, &self.node.calls, self.unwritten);
        let written = async move {
            let _ = settler.await;
            // Its last commit may have begun to look for late answers that contradict their refunds. An inquiry may still try to write
            // that the bank has a refund.
            calls.wait().await;
        };
        let given_up = async {
            bounded(Self::OUTCOMES).await;
            tokio::time::timeout(Self::LOG_OUTCOMES, unwritten.log()).await.ok().flatten()
        };
        tokio::select! {
            () = written => {}
            left = given_up => if let Some(left) = left {
                tracing::warn!(
                    outcomes = left,
                    "Stopped waiting for outcomes to be written; {left} outcomes of sends may be unwritten. Lines before this one have each that a bank may know"
                );
            } else {
                tracing::warn!("Stopped waiting for outcomes; the settler named none that is unwritten");
            },
        }
        // Until here `admin_listen` answers: a node that stops slowly is no node that is gone, and its last counts are read.
        self.listeners.stop_signal().cancel();
        tokio::select! {
            () = self.listeners.finished() => {}
            () = bounded(Self::CONNECTIONS) => {}
        }
        if let Some(exporting) = self.exporting {
            exporting.stop().await;
        }
        let mut stopped = Stopped::default();
        // Unknown while Postgres does not answer.
        let mut left_count = None;
        if let Ok(Ok(left)) =
            tokio::time::timeout(Self::STATEMENT, self.node.store.leased_by(&self.node.name)).await
        {
            for (id, channel) in left {
                tracing::warn!(
                    refund.id = %id,
                    channel.name = channel,
                    "Refund {id} is left under this node's lease; it becomes unknown when the lease ends"
                );
                stopped.still_leased.push(id);
            }
            left_count = Some(stopped.still_leased.len());
            let _ = tokio::time::timeout(Self::STATEMENT, self.node.store.leave(&self.node.name)).await;
            let _ =
                tokio::time::timeout(Self::STATEMENT, self.node.store.leave_shares(&self.node.name)).await;
        } else {
            tracing::warn!(
                "Postgres does not answer; refunds under this node's lease become unknown when their leases end"
            );
        }
        tracing::info!(duration_ms = millis(began.elapsed()), left = left_count, "Stopped");
        stopped
    }
}
