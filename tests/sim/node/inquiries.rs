//! `DuePoller` of inquiries: it chooses the refunds that the bank is asked about.

use refundd::bucket::{End, Purpose};
use refundd::limiter::Permit;

use crate::mistake::Mistake;
use crate::violation::{Checked, taken};
use crate::world::World;
use crate::world::node::{CAPACITY, Fill};

impl World<'_> {
    /// Whether node `n` can make inquiries on a channel.
    pub fn asks_about(&self, n: usize, channel_index: usize) -> bool {
        self.channel(n, channel_index).inquiry.is_some()
    }

    /// Whether an inquiry about a refund of a channel is due now.
    pub fn wants_to_ask(&self, channel_index: usize) -> bool {
        let now = self.stage.postgres_now();
        self.rows
            .values()
            .any(|row| row.channel_index == channel_index && row.inquire_us.is_some_and(|at| at <= now))
    }

    /// `DuePoller::find_due` for one channel, up to the fill.
    pub async fn poll_inquiries(&mut self, n: usize, channel_index: usize) -> Checked<bool> {
        if !self.asks_about(n, channel_index) {
            return Ok(false);
        }
        self.nodes[n].inquiry_workers[channel_index].next_inquiry_poll = self.now() + 1_000_000;
        let fate = self.fate();
        self.nodes[n].link.fares(fate);
        let channel = self.channel(n, channel_index).name.clone();
        let bucket = self.nodes[n].bucket.clone();
        if self.is(Mistake::AskWithoutAPermit) {
            self.take_without_a_permit(n, channel_index, &channel).await?;
            return Ok(true);
        }
        let depths = bucket.depths(Purpose::Inquire, std::slice::from_ref(&channel)).await;
        let [Ok(depth)] = depths.as_slice() else {
            return Ok(true);
        };
        if *depth >= u64::from(CAPACITY / 2) || !self.wants_to_ask(channel_index) {
            return Ok(true);
        }
        self.stage.tell_time().await;
        let ids = taken(self.nodes[n].store.due_inquiries(&channel, CAPACITY).await)?;
        if !ids.is_empty() {
            self.nodes[n].fills.push(Fill { purpose: Purpose::Inquire, channel, ids, end: End::Back });
        }
        Ok(true)
    }

    async fn take_without_a_permit(
        &mut self,
        n: usize,
        channel_index: usize,
        channel: &refundd::refund::ChannelName,
    ) -> Checked<()> {
        self.stage.tell_time().await;
        let ids = taken(self.nodes[n].store.due_inquiries(channel, CAPACITY).await)?;
        if let Some(asking) = self.limited(n, Purpose::Inquire, channel_index).filter(|_| !ids.is_empty()) {
            let permit = Permit { numbers: Vec::new(), span: None };
            let taken = ids.into_iter().map(|id| (id, permit.clone())).collect();
            self.nodes[n].inquiry_workers[channel_index].taken = Some((asking, taken));
        }
        Ok(())
    }
}
