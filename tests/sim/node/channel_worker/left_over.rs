//! The part of `ChannelWorker::claim_and_start` for permits that are left over, and `ChannelWorker::more`.

use std::sync::Arc;
use std::time::Duration;

use refundd::bucket::Purpose;
use refundd::channel::Channel;
use refundd::limiter::Permit;
use refundd::refund::RefundId;

use crate::mistake::Mistake;
use crate::world::node::CAPACITY;
use crate::world::{World, note};

/// `ChannelWorker::MOST_CLAIMS` and `ChannelWorker::MOST_CANDIDATES`.
const MOST_CLAIMS: u32 = 20;
pub(super) const MOST_CANDIDATES: usize = 100;

impl World<'_> {
    /// Permits that are left over go to the next ids in the bucket. Returns whether a permit stays without a refund.
    pub(super) async fn carry_over(
        &mut self,
        n: usize,
        purpose: Purpose,
        channel_index: usize,
        channel: &Arc<Channel>,
        left: Vec<Permit>,
        carries: bool,
    ) -> bool {
        let nth = self.nodes[n].worker(purpose, channel_index).claims;
        if left.is_empty() || !carries || nth == MOST_CLAIMS {
            return !left.is_empty();
        }
        let until = self.stage.clock.instant() + self.lead_time();
        let (count, late) = (left.len(), self.is(Mistake::LeftOverUsedLate));
        let open: Vec<Permit> = left
            .into_iter()
            .filter_map(|permit| {
                let mut span = permit.span?;
                if late {
                    span.closes += Duration::from_hours(1);
                }
                (until < span.closes).then_some(Permit { span: Some(span), ..permit })
            })
            .collect();
        if open.is_empty() {
            return true;
        }
        let candidates = open.len().saturating_mul(4usize.saturating_pow(nth)).min(MOST_CANDIDATES);
        let mut ids = self.more(n, channel_index, channel, candidates.max(open.len())).await;
        if ids.is_empty() {
            return true;
        }
        note!(
            self,
            "node {n} goes on to {ids:?} of c{channel_index} with {} permits that are left over",
            open.len()
        );
        let more = ids.split_off(ids.len().min(open.len()));
        let wasted = ids.len() < count;
        let worker = &mut self.nodes[n].send_workers[channel_index];
        worker.more = more;
        worker.taken = Some((Arc::clone(channel), ids.into_iter().zip(open).collect()));
        wasted
    }

    /// `ChannelWorker::more`.
    pub(super) async fn more(
        &mut self,
        n: usize,
        channel_index: usize,
        channel: &Channel,
        most: usize,
    ) -> Vec<RefundId> {
        if most == 0 || self.nodes[n].send_workers[channel_index].depth == Some(0) {
            return Vec::new();
        }
        let fate = self.fate();
        self.nodes[n].link.fares(fate);
        let bucket = self.nodes[n].bucket.clone();
        let Ok((ids, depth)) = bucket.more(&channel.name, u32::try_from(most).unwrap_or(u32::MAX)).await
        else {
            return Vec::new();
        };
        self.nodes[n].send_workers[channel_index].depth = Some(depth);
        if depth < u64::from(CAPACITY / 2) {
            self.nodes[n].to_feed.insert(channel_index);
        }
        ids
    }
}
