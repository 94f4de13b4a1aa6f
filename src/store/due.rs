//! Which refunds are due: what the feeder and the due poller read.

use sqlx::Row;

use super::connections::Ask;
use super::{Doing, Store, StoreError};
use crate::refund::{ChannelName, RefundId};

// Two walks along two indexes: what is ready, and what may be sent again although it may have been executed.
// The latter goes first, however long the backlog: it may be sent again only while the bank remembers its key.
const DUE: &str = "
    select id from (
        (select 1 as turn, due_at, id from refundd.refunds
          where channel = $1 and state = 'ready' and due_at <= now() and (deadline_at is null or deadline_at > now())
          order by due_at, id limit $2)
        union all
        (select 0 as turn, r.due_at, r.id from refundd.channels c join refundd.refunds r on r.channel = c.channel
          where c.channel = $1 and c.resend_within is not null
            and r.channel = $1 and r.state = 'unknown' and r.inquire_at is null and r.due_at <= now()
            and refundd.is_where_it_was_sent(r.sent_to, c.address, r.channel, false)
            and refundd.may_be_resent(r.first_sent_at, r.attempts, r.deadline_at, c.resend_within, c.most_sends)
          order by r.due_at, r.id limit $2)) due
     order by turn, due_at, id limit $2";

// A line is in that order, so a row that belongs before its head and is not in line was left behind. Many lines at
// once; most have nothing before their heads.
const LEFT_BEFORE: &str = "
    select asked.channel, found.id
      from unnest($1::text[], $2::bigint[]) as asked (channel, head)
      join refundd.refunds h on h.id = asked.head
      join refundd.channels c on c.channel = asked.channel
     cross join lateral (
        (select 1 as turn, r.due_at, r.id from refundd.refunds r
          where r.channel = asked.channel and r.state = 'ready' and r.due_at <= now() and (r.deadline_at is null or r.deadline_at > now())
            and h.state <> 'unknown' and (r.due_at, r.id) < (h.due_at, h.id)
          order by r.due_at, r.id limit $3)
        union all
        (select 0 as turn, r.due_at, r.id from refundd.refunds r
          where c.resend_within is not null
            and r.channel = asked.channel and r.state = 'unknown' and r.inquire_at is null and r.due_at <= now()
            and (h.state <> 'unknown' or (r.due_at, r.id) < (h.due_at, h.id))
            and refundd.is_where_it_was_sent(r.sent_to, c.address, r.channel, false)
            and refundd.may_be_resent(r.first_sent_at, r.attempts, r.deadline_at, c.resend_within, c.most_sends)
          order by r.due_at, r.id limit $3)
        order by turn, due_at, id limit $3) found
     order by asked.channel, found.turn, found.due_at, found.id";

const CHANNELS_WITH_DUE: &str = include_str!("sql/channels_with_due.sql");

pub(super) const STATEMENTS: &[(&str, &str)] =
    &[("due", DUE), ("left_before", LEFT_BEFORE), ("channels_with_due", CHANNELS_WITH_DUE)];

impl Store {
    /// The next due refunds of a channel: those that are sent again, then the others, the longest due first.
    pub async fn due(&self, channel: &ChannelName, limit: u32) -> Result<Vec<RefundId>, StoreError> {
        let ids: Vec<i64> = sqlx::query_scalar(DUE)
            .bind(channel.as_str())
            .bind(i64::from(limit))
            .all(&self.db)
            .await
            .doing("read due refunds")?;
        Ok(ids.into_iter().map(RefundId).collect())
    }

    /// Due refunds that should stand before the heads of these lines, for each channel that has any.
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
                    // One of those asked about, so it is a name.
                    let Ok(channel) = ChannelName::new(channel) else { continue };
                    left.push((channel, vec![RefundId(id)]));
                }
            }
        }
        Ok(left)
    }

    /// The channels in which anything is due.
    pub async fn channels_with_due(&self) -> Result<Vec<String>, StoreError> {
        sqlx::query_scalar(CHANNELS_WITH_DUE).all(&self.db).await.doing("look for due refunds")
    }
}
