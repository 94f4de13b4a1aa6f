//! Reads which refunds are due, for the feeder, the due poller and recovery.
//!
//! Nothing here locks or changes a row.

use sqlx::Row;

use super::connections::Ask;
use super::{Doing, Store, StoreError};
use crate::refund::{ChannelName, RefundId};

// Walks two indexes: refunds in `ready`, and refunds in `unknown` that may be sent again although the bank may have
// executed them. The latter go first, however long the backlog is: the bank remembers their request ids for a limited
// time.
const DUE: &str = "
    select id from (
        (select 1 as rank, due_at, id from refundd.refunds
          where channel = $1 and state = 'ready' and due_at <= now() and (deadline_at is null or deadline_at > now())
          order by due_at, id limit $2)
        union all
        (select 0 as rank, r.due_at, r.id from refundd.channels c join refundd.refunds r on r.channel = c.channel
          where c.channel = $1 and c.resend_within is not null
            and r.channel = $1 and r.state = 'unknown' and r.inquire_at is null and r.due_at <= now()
            and refundd.is_where_it_was_sent(r.sent_to, c.address, r.channel, false)
            and refundd.may_be_resent(r.first_sent_at, r.attempts, r.deadline_at, c.resend_within, c.most_sends)
          order by r.due_at, r.id limit $2)) due
     order by rank, due_at, id limit $2";

// A bucket has the order of DUE. So a due row that belongs before the head of its bucket and is not in the bucket was
// left behind. The statement reads many buckets at once; most have no such row.
const LEFT_BEFORE: &str = "
    select bucket.channel, found.id
      from unnest($1::text[], $2::bigint[]) as bucket (channel, head)
      join refundd.refunds h on h.id = bucket.head
      join refundd.channels c on c.channel = bucket.channel
     cross join lateral (
        (select 1 as rank, r.due_at, r.id from refundd.refunds r
          where r.channel = bucket.channel and r.state = 'ready' and r.due_at <= now() and (r.deadline_at is null or r.deadline_at > now())
            and h.state <> 'unknown' and (r.due_at, r.id) < (h.due_at, h.id)
          order by r.due_at, r.id limit $3)
        union all
        (select 0 as rank, r.due_at, r.id from refundd.refunds r
          where c.resend_within is not null
            and r.channel = bucket.channel and r.state = 'unknown' and r.inquire_at is null and r.due_at <= now()
            and (h.state <> 'unknown' or (r.due_at, r.id) < (h.due_at, h.id))
            and refundd.is_where_it_was_sent(r.sent_to, c.address, r.channel, false)
            and refundd.may_be_resent(r.first_sent_at, r.attempts, r.deadline_at, c.resend_within, c.most_sends)
          order by r.due_at, r.id limit $3)
        order by rank, due_at, id limit $3) found
     order by bucket.channel, found.rank, found.due_at, found.id";

const CHANNELS_WITH_DUE: &str = include_str!("sql/channels_with_due.sql");

pub(super) const STATEMENTS: &[(&str, &str)] =
    &[("due", DUE), ("left_before", LEFT_BEFORE), ("channels_with_due", CHANNELS_WITH_DUE)];

impl Store {
    /// The next due refunds of a channel: first those to send again, then the others; the oldest `due_at` first.
    pub async fn due(&self, channel: &ChannelName, limit: u32) -> Result<Vec<RefundId>, StoreError> {
        let ids: Vec<i64> = sqlx::query_scalar(DUE)
            .bind(channel.as_str())
            .bind(i64::from(limit))
            .all(&self.db)
            .await
            .doing("read due refunds")?;
        Ok(ids.into_iter().map(RefundId).collect())
    }

    /// Due refunds that belong before the heads of these buckets, for each channel that has any.
    pub async fn left_before(
        &self,
        heads: &[(&ChannelName, RefundId)],
        limit: u32,
    ) -> Result<Vec<(ChannelName, Vec<RefundId>)>, StoreError> {
        let rows = sqlx::query(LEFT_BEFORE)
            .bind(heads.iter().map(|(channel, _)| channel.as_str()).collect::<Vec<_>>())
            .bind(heads.iter().map(|(_, head)| head.0).collect::<Vec<i64>>())
            .bind(i64::from(limit))
            .all(&self.db)
            .await
            .doing("read refunds left behind")?;
        let mut left: Vec<(ChannelName, Vec<RefundId>)> = Vec::new();
        for row in &rows {
            let (channel, id): (&str, i64) = (row.get("channel"), row.get("id"));
            match left.last_mut() {
                Some((last, ids)) if last.as_str() == channel => ids.push(RefundId(id)),
                _ => {
                    // It is the name of a given channel, so it is valid.
                    let Ok(channel) = ChannelName::new(channel) else { continue };
                    left.push((channel, vec![RefundId(id)]));
                }
            }
        }
        Ok(left)
    }

    /// The channels with a due refund.
    pub async fn channels_with_due(&self) -> Result<Vec<String>, StoreError> {
        sqlx::query_scalar(CHANNELS_WITH_DUE).all(&self.db).await.doing("look for due refunds")
    }
}
