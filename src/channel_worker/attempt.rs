//! One request under its lease and its permit, with a connection in hand: the part that sends and inquiries share.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::bank::{Bank, Leave};
use crate::channel::Channel;
use crate::limiter::Permit;
use crate::node::Node;
use crate::node::holding::Word;
use crate::refund::Code;

/// What one request needs, and the claim that allows it.
#[derive(Debug)]
pub struct Attempt {
    pub(super) node: Node,
    pub(super) channel: Arc<Channel>,
    pub(super) bank: Arc<Bank>,
    /// The worker ends: a request that was not begun is handed back.
    pub(super) stop: CancellationToken,
    pub(super) permit: Permit,
    pub(super) course: Course,
    /// No first byte after this, so that the lease outlives the request.
    pub(super) send_deadline: Instant,
}

/// When things were done about one permit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Course {
    /// The claim's statement began; the lease counts from then.
    pub claiming: Instant,
    /// The claim's commit was seen.
    pub claimed: Instant,
}

impl Attempt {
    /// The evidence of a request that the node did not begin.
    pub(super) const STOPPING: (Code, &str) =
        (Code::Stopping, "the node stops, or the channel's settings changed, before the first byte");

    /// Waits for the permit to open and makes the request; `None` if the worker ends before.
    pub(super) async fn make<T>(&self, request: impl AsyncFnOnce(Leave) -> T) -> Option<T> {
        if let Some(span) = self.permit.span {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => {}
                () = tokio::time::sleep_until(span.opens.into()) => {}
            }
        }
        if self.stop.is_cancelled() {
            return None;
        }
        let closes = self.permit.span.map_or(self.send_deadline, |span| span.closes.min(self.send_deadline));
        let (leave, was_late) = Leave::until(closes);
        let (made, ()) =
            tokio::join!(request(leave), self.node.watch_leaving(&self.channel, &self.permit, was_late),);
        Some(made)
    }

    /// Counts a permit under which no byte left.
    pub(super) fn count_unused(&self, code: Code) {
        if self.permit.span.is_some() {
            self.node.metrics.permits_unused(&self.channel.name, code.as_str(), 1);
        }
    }

    /// The bank wants to be left alone: it answered a request that began at `started`.
    pub(super) fn slow_down(retry_after: Option<Duration>, started: Option<Instant>) -> Word {
        Word::Wait {
            named: retry_after.map(|wait| wait.max(Duration::from_secs(1))),
            age: started.map_or(Duration::ZERO, |at| at.elapsed()),
        }
    }
}
