//! Recovery: leases that lapsed, refunds nobody can be asked about, deadlines that passed.

use sqlx::Row;

use super::connections::Ask;
use super::{Doing, Store, StoreError};
use crate::refund::RefundId;

/// A refund whose lease lapsed: it may have been sent.
#[derive(Debug)]
pub struct Lapsed {
    pub id: RefundId,
    pub channel: String,
    /// Who held the lease.
    pub node: String,
}

// Never straight back to ready. The journal gets the attempt that its node could not write.
const LAPSE: &str = "
    with late as (
        select id, lease_node from refundd.refunds
         where state = 'sending' and lease_until < now()
         order by lease_until limit $1 for update skip locked
    ), moved as (
        update refundd.refunds r
           set state = 'unknown', reason = 'lease_lapsed: ' || late.lease_node || ' did not settle in time',
               lease_node = null, lease_until = null
          from late where r.id = late.id
        returning r.id, r.channel, r.attempts, r.lease_epoch, late.lease_node as node
    ), kept as (
        insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, moved_to, code, message)
        select id, channel, 'send', attempts, lease_epoch, node, 'unknown', 'unknown', 'lease_lapsed',
               'the node did not settle before its lease was over; the request may have been made'
          from moved
    )
    select id, channel, node from moved";

const TO_REVIEW: &str = "
    update refundd.refunds r set state = 'review'
      from (select id from refundd.refunds where state = $1 and ($1 = 'unknown' or due_at <= now())
             limit $2 for update skip locked) stuck
     where r.id = stuck.id
    returning r.id, r.channel";

const PAST_DEADLINE: &str = "
    update refundd.refunds r set state = 'failed', settled_at = now(), reason = 'deadline_passed'
      from (select id from refundd.refunds where state = 'ready' and deadline_at <= now()
             order by deadline_at limit $1 for update skip locked) late
     where r.id = late.id
    returning r.id, r.channel";

const LEASED_BY: &str = "select id, channel from refundd.refunds where state = 'sending' and left(lease_node, length($1) + 1) = $1 || '/' order by id";

pub(super) const STATEMENTS: &[(&str, &str)] =
    &[("lapse", LAPSE), ("to_review", TO_REVIEW), ("past_deadline", PAST_DEADLINE), ("leased_by", LEASED_BY)];

impl Store {
    /// Moves refunds whose lease lapsed to `unknown`.
    pub async fn lapse_leases(&self, limit: u32) -> Result<Vec<Lapsed>, StoreError> {
        let rows =
            sqlx::query(LAPSE).bind(i64::from(limit)).all(&self.db).await.doing("look for lapsed leases")?;
        Ok(rows
            .iter()
            .map(|row| Lapsed {
                id: RefundId(row.get("id")),
                channel: row.get("channel"),
                node: row.get("node"),
            })
            .collect())
    }

    /// The refunds that a process still holds.
    pub async fn leased_by(&self, node: &str) -> Result<Vec<(i64, String)>, StoreError> {
        let rows =
            sqlx::query(LEASED_BY).bind(node).all(&self.db).await.doing("look for leases of this node")?;
        Ok(rows.iter().map(|row| (row.get("id"), row.get("channel"))).collect())
    }

    /// Shows a person the `unknown` refunds. No bank can be asked in this version, so that is all of them.
    pub async fn show_unknown(&self, limit: u32) -> Result<Vec<(RefundId, String)>, StoreError> {
        self.to_review("unknown", limit).await
    }

    /// Shows a person the `accepted` refunds whose bank did not tell in time.
    pub async fn show_accepted(&self, limit: u32) -> Result<Vec<(RefundId, String)>, StoreError> {
        self.to_review("accepted", limit).await
    }

    async fn to_review(&self, from: &str, limit: u32) -> Result<Vec<(RefundId, String)>, StoreError> {
        let rows = sqlx::query(TO_REVIEW)
            .bind(from)
            .bind(i64::from(limit))
            .all(&self.db)
            .await
            .doing("show refunds to a person")?;
        Ok(rows.iter().map(|row| (RefundId(row.get("id")), row.get("channel"))).collect())
    }

    /// Fails ready refunds whose deadline passed; nothing of them was executed.
    pub async fn fail_past_deadline(&self, limit: u32) -> Result<Vec<(RefundId, String)>, StoreError> {
        let rows = sqlx::query(PAST_DEADLINE)
            .bind(i64::from(limit))
            .all(&self.db)
            .await
            .doing("look for passed deadlines")?;
        Ok(rows.iter().map(|row| (RefundId(row.get("id")), row.get("channel"))).collect())
    }
}
