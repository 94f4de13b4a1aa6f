//! Which refunds are due: what the feeder and the scout ask.

use super::connections::Ask;
use super::{Doing, Store, StoreError};
use crate::refund::{ChannelName, RefundId};

const DUE: &str = "
    select id from refundd.refunds
     where channel = $1 and state = 'ready' and due_at <= now() and (deadline_at is null or deadline_at > now())
     order by due_at, id limit $2";

// The line is in order of due time, so a row due before its head that is not in line was left behind.
const DUE_BEFORE: &str = "
    select id from refundd.refunds
     where channel = $1 and state = 'ready' and due_at <= now() and (deadline_at is null or deadline_at > now())
       and (due_at, id) < (select h.due_at, h.id from refundd.refunds h where h.id = $2)
     order by due_at, id limit $3";

// Jumps from channel to channel through the index; channels with nothing ready cost nothing.
const CHANNELS_WITH_DUE: &str = "
    with recursive lane as (
        (select channel, due_at from refundd.refunds where state = 'ready' order by channel, due_at, id limit 1)
        union all
        select next.channel, next.due_at
          from lane, lateral (
              select r.channel, r.due_at from refundd.refunds r
               where r.state = 'ready' and r.channel > lane.channel
               order by r.channel, r.due_at, r.id limit 1) next
    )
    select channel from lane where due_at <= now()";

pub(super) const STATEMENTS: &[(&str, &str)] =
    &[("due", DUE), ("due_before", DUE_BEFORE), ("channels_with_due", CHANNELS_WITH_DUE)];

impl Store {
    /// The next due refunds of a channel, the longest due first.
    pub async fn due(&self, channel: &ChannelName, limit: u32) -> Result<Vec<RefundId>, StoreError> {
        let ids: Vec<i64> = sqlx::query_scalar(DUE)
            .bind(channel.as_str())
            .bind(i64::from(limit))
            .all(&self.db)
            .await
            .doing("read due refunds")?;
        Ok(ids.into_iter().map(RefundId).collect())
    }

    /// Due refunds that should stand before `head` in line.
    pub async fn due_before(
        &self,
        channel: &ChannelName,
        head: RefundId,
        limit: u32,
    ) -> Result<Vec<RefundId>, StoreError> {
        let ids: Vec<i64> = sqlx::query_scalar(DUE_BEFORE)
            .bind(channel.as_str())
            .bind(head.0)
            .bind(i64::from(limit))
            .all(&self.db)
            .await
            .doing("read refunds left behind")?;
        Ok(ids.into_iter().map(RefundId).collect())
    }

    /// The channels in which anything is due.
    pub async fn channels_with_due(&self) -> Result<Vec<String>, StoreError> {
        sqlx::query_scalar(CHANNELS_WITH_DUE).all(&self.db).await.doing("look for due refunds")
    }
}
