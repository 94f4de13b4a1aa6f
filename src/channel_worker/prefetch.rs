//! Prefetches ids: a worker takes them before it has slots for them, so that a claim need not wait for Redis.
//!
//! Only the worker for sends of a channel without limits does this: such a take spends no permits, and its refunds are
//! still `ready`. A worker keeps the ids until the claim has committed, and then for a moment, until it has slots and connections.
//! Before any other wait it puts them back into the bucket, where other nodes find them. If it cannot, or if Postgres does not answer
//! the claim, they come back from their rows, as after a crash.

use std::sync::Arc;
use std::time::Duration;

use super::round::answer_of;
use super::{ChannelWorker, Work};
use crate::bucket::{Order, Purpose, Take};
use crate::channel::Channel;
use crate::crash;
use crate::limiter::Permit;
use crate::logs::chain;
use crate::refund::RefundId;

impl<W: Work> ChannelWorker<W> {
    /// The longest wait for a slot, and for a connection, with prefetched ids.
    pub(super) const KEEPS_PREFETCHED: Duration = Duration::from_millis(20);

    /// Takes ids for the next claim while this one, of `claiming` ids, commits: as many as there are slots that may be
    /// free when it ends. The future does nothing for other work, and while the bucket is empty.
    pub(super) fn prefetch(
        &self,
        channel: &Arc<Channel>,
        claiming: usize,
    ) -> impl Future<Output = Option<Take>> + Send + use<W> {
        let is_plain = W::PURPOSE == Purpose::Send && channel.limits.is_empty() && self.probe.is_none();
        // Where connections are opened for each claim, the ids would go back each time.
        let is_ready = self.waits.connecting < Self::KEEPS_PREFETCHED && !self.stop.is_cancelled();
        let asks = is_plain && is_ready && self.prefetched.is_empty() && self.depth != Some(0);
        let claiming = u32::try_from(claiming).unwrap_or(u32::MAX);
        let want = if asks { channel.max_in_flight.saturating_sub(claiming) } else { 0 };
        let (low_water, lead_time) = (self.wake_ups.low_water(), self.work.lead_time());
        let order = Order { want, low_water, lead_time, until: None };
        let (node, channel) = (self.node.clone(), Arc::clone(channel));
        async move {
            if want == 0 {
                return None;
            }
            let taken = node.bucket.take(&channel, order).await;
            node.metrics.take(&channel.name, W::PURPOSE, answer_of(&taken));
            crash::point("prefetched");
            taken.ok()
        }
    }

    /// Keeps what was prefetched.
    pub(super) fn note_prefetched(&mut self, prefetched: Option<Take>) {
        match prefetched {
            Some(Take::Granted { taken, depth, is_low, .. }) => {
                self.prefetched = taken;
                self.note_depth(depth);
                if is_low {
                    self.wake_ups.nudge(&self.channel.name);
                }
            }
            Some(Take::ClockStepped { by_us }) => self.note_clock_step(by_us),
            // The next round asks again.
            _ => {}
        }
    }

    /// Takes up to `want` of the prefetched ids; `None` if there are none.
    pub(super) fn take_prefetched(&mut self, want: u32) -> Option<Vec<(RefundId, Permit)>> {
        let rest = self.prefetched.split_off(self.prefetched.len().min(want as usize));
        Some(std::mem::replace(&mut self.prefetched, rest)).filter(|taken| !taken.is_empty())
    }

    /// Puts the prefetched ids back into the bucket.
    pub(super) async fn put_prefetched_back(&mut self) {
        if self.prefetched.is_empty() {
            return;
        }
        let ids: Vec<RefundId> = self.prefetched.drain(..).map(|(id, _)| id).collect();
        self.put_back(&ids).await;
        // This worker may go to sleep until the bucket is filled.
        self.wake_ups.filled(&self.channel.name).notify_one();
    }

    /// Puts ids that no claim has used back into the bucket, the oldest first.
    pub(super) async fn put_back(&mut self, ids: &[RefundId]) {
        let name = &self.channel.name;
        match self.node.bucket.put_back_into(name, W::PURPOSE, ids).await {
            Ok(depth) => self.depth = Some(depth),
            Err(error) => tracing::debug!(
                channel.name = %name, error = %chain(&error),
                "Failed to put ids back into the bucket; they come back from their rows",
            ),
        }
    }
}
