//! `DuePoller` of inquiries: which refunds the bank is asked about.

use refundd::bucket::{End, Errand as Line};
use refundd::limiter::Permit;

use super::Food;
use crate::laws::{Lawful, taken};
use crate::world::{CAPACITY, World};
use crate::zoo::Mistake;

impl World<'_> {
    pub fn asks_about(&self, n: usize, lane: usize) -> bool {
        self.channel(n, lane).inquiry.is_some()
    }

    /// Whether a row of a channel is to be asked about now.
    pub fn wants_to_ask(&self, lane: usize) -> bool {
        let now = self.stage.postgres_now();
        self.rows.values().any(|row| row.lane == lane && row.inquire_us.is_some_and(|at| at <= now))
    }

    /// `DuePoller::find_due`, up to the fill, for one channel.
    pub async fn look_out(&mut self, n: usize, lane: usize) -> Lawful<bool> {
        if !self.asks_about(n, lane) {
            return Ok(false);
        }
        self.nodes[n].desks[lane].look_out = self.now() + 1_000_000;
        let fate = self.fate();
        self.nodes[n].link.fares(fate);
        let channel = self.channel(n, lane).name.clone();
        let bucket = self.nodes[n].bucket.clone();
        if self.is(Mistake::AskWithoutAPermit) {
            self.take_without_a_permit(n, lane, &channel).await?;
            return Ok(true);
        }
        let Ok(lines) = bucket.look_for(Line::Inquire, std::slice::from_ref(&channel)).await else {
            return Ok(true);
        };
        if lines[0].depth >= u64::from(CAPACITY / 2) || !self.wants_to_ask(lane) {
            return Ok(true);
        }
        self.stage.tell_time().await;
        let ids = taken(self.nodes[n].store.due_inquiries(&channel, CAPACITY).await)?;
        if !ids.is_empty() {
            self.nodes[n].food.push(Food { line: Line::Inquire, channel, ids, end: End::Back });
        }
        Ok(true)
    }

    async fn take_without_a_permit(
        &mut self,
        n: usize,
        lane: usize,
        channel: &refundd::refund::ChannelName,
    ) -> Lawful<()> {
        self.stage.tell_time().await;
        let ids = taken(self.nodes[n].store.due_inquiries(channel, CAPACITY).await)?;
        if let Some(asking) = self.limited(n, Line::Inquire, lane).filter(|_| !ids.is_empty()) {
            let permit = Permit { numbers: Vec::new(), span: None };
            let taken = ids.into_iter().map(|id| (id, permit.clone())).collect();
            self.nodes[n].desks[lane].taken = Some((asking, taken));
        }
        Ok(())
    }
}
