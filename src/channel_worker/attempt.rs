//! One request under its lease and its permit, on a reserved connection: the part that sends and inquiries share.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::bank::{Bank, Reserved, SendDeadline, Slept};
use crate::channel::Channel;
use crate::limiter::Permit;
use crate::node::Node;
use crate::node::suspended::ReservedProbe;
use crate::node::suspending::BankRefusal;
use crate::refund::Code;

/// What one request needs: its channel, its permit and the times of its claim.
#[derive(Debug)]
pub struct Attempt {
    pub(super) node: Node,
    pub(super) channel: Arc<Channel>,
    pub(super) bank: Arc<Bank>,
    /// Cancelled when the worker ends: a request that has not begun is handed back.
    pub(super) stop: CancellationToken,
    pub(super) permit: Permit,
    pub(super) claim_times: ClaimTimes,
    /// How long the worker waited for connections before it took the refund.
    pub(super) connecting: Duration,
    /// The latest moment for the first byte, so that the lease outlives the request.
    pub(super) send_deadline: Instant,
    /// The breaker's probe that this request is; `None` if it is no probe.
    pub(super) probe: Option<ReservedProbe>,
}

/// When the claim of a permit began and ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClaimTimes {
    /// The claim's statement began; the lease counts from this moment.
    pub claiming: Instant,
    /// The machine's sleep before the take: the permit's times are those of that moment.
    pub slept: Slept,
    /// This node saw the claim's commit.
    pub claimed: Instant,
}

impl Attempt {
    /// The evidence for a request that the node did not begin.
    pub(super) const STOPPING: (Code, &str) =
        (Code::Stopping, "the node stops, or the channel's settings changed, before the first byte");

    /// Waits for the permit to open and makes the request; `None` if the worker ends before. A connection that will have been
    /// idle for too long is replaced meanwhile.
    pub(super) async fn make<T>(
        &self,
        mut connection: Option<Reserved>,
        request: impl AsyncFnOnce(SendDeadline, Option<Reserved>) -> T,
    ) -> Option<T> {
        if let Some(span) = self.permit.span {
            let opening = async move {
                if let Some(reserved) = connection {
                    return reserved.until(span.opens).await;
                }
                tokio::time::sleep_until(span.opens.into()).await;
                None
            };
            connection = tokio::select! {
                biased;
                () = self.stop.cancelled() => None,
                waited = opening => waited,
            };
        }
        if self.stop.is_cancelled() {
            return None;
        }
        let closes = self.permit.span.map_or(self.send_deadline, |span| span.closes.min(self.send_deadline));
        let slept = self.claim_times.slept;
        // Without a limit no count changes when the first byte is late.
        if self.permit.span.is_none() {
            return Some(request(SendDeadline::at(closes, slept), connection).await);
        }
        let (deadline, was_late) = SendDeadline::reporting(closes, slept);
        let (made, ()) = tokio::join!(
            request(deadline, connection),
            self.node.watch_leaving(&self.channel, &self.permit, was_late),
        );
        Some(made)
    }

    /// How long the refund's slot was in use before the request could begin, without the wait for its permit.
    pub(super) fn preparing(&self) -> Duration {
        let ClaimTimes { claiming, claimed, .. } = self.claim_times;
        self.connecting + claimed.saturating_duration_since(claiming)
    }

    /// Counts a permit under which no byte was sent.
    pub(super) fn count_unused(&self, code: Code) {
        if self.permit.span.is_some() {
            self.node.metrics.permits_unused(&self.channel.name, code.as_str(), 1);
        }
    }

    /// The bank asked to slow down.
    pub(super) fn slow_down(retry_after: Option<Duration>) -> BankRefusal {
        BankRefusal::Wait { named: retry_after.map(|wait| wait.max(Duration::from_secs(1))) }
    }
}
