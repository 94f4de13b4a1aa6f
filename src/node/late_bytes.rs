//! Counts requests whose first byte left after their permit had closed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::Node;
use crate::channel::Channel;
use crate::limiter::{Limit, Permit};
use crate::logs::{chain, millis};

impl Node {
    /// Waits for the moment of a late first byte, which `was_late` carries. If the permit had closed by then, the
    /// late byte is counted at once, not only when the bank answers. Ends with the request.
    pub async fn watch_leaving(
        &self,
        channel: &Arc<Channel>,
        permit: &Permit,
        mut was_late: mpsc::Receiver<Instant>,
    ) {
        // The byte may be late for the lease only, which can end before the permit closes.
        if let (Some(first_byte), Some(span)) = (was_late.recv().await, permit.span)
            && first_byte >= span.closes
        {
            self.left_late(channel, permit, first_byte - span.closes);
        }
    }

    /// Logs a first byte that left `by` after its permit closed, because this process was stalled between reading the
    /// clock and the write. Redis then counts the byte once more, at the moment it really left.
    fn left_late(&self, channel: &Arc<Channel>, permit: &Permit, by: Duration) {
        let name = &channel.name;
        let late_ms = millis(by);
        self.metrics.first_byte_late(name);
        tracing::warn!(
            channel.name = %name, late_ms, permit = permit.describe(),
            "A first byte left on channel `{name}` {late_ms} ms after its permit closed: this process was stalled; one more permit of each limit is spent",
        );
        let of_inquiries = channel.inquiry.iter().flat_map(|inquiry| inquiry.limits.iter().flatten());
        let limits: Vec<Arc<Limit>> = channel.limits.iter().chain(of_inquiries).cloned().collect();
        let (node, channel, permit) = (self.clone(), Arc::clone(channel), permit.clone());
        self.calls.spawn(async move {
            if let Err(error) = node.bucket.left_late(&channel.name, &limits, &permit).await {
                tracing::debug!(
                    channel.name = %channel.name, error = %chain(&error),
                    "A late first byte of channel `{}` could not be counted once more", channel.name,
                );
            }
        });
    }
}
