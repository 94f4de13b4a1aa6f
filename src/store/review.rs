//! Review: what a person decides.

use super::connections::Ask;
use super::look::{read_refund, refund_columns};
use super::{Doing, Store, StoreError};
use crate::refund::{Refund, RefundId, State};

/// What became of a decision.
#[derive(Debug)]
pub enum Decided {
    Done(Refund),
    /// From its state it cannot go there.
    Illegal(Refund),
    NoSuchRefund,
}

// States that no person may leave (sending: a node holds it; ready: cancel it instead) are not listed.
const DECIDE: &str = concat!(
    "with moved as (
         update refundd.refunds r
            set state = $2, reason = 'decided by ' || $4 || ': ' || $3,
                due_at = case when $2 = 'ready' then now() else r.due_at end,
                attempts = case when $2 = 'ready' then 0 else r.attempts end,
                settled_at = case when $2 in ('succeeded', 'failed', 'cancelled') then now() end
          where r.id = $1 and r.state in ('review', 'unknown', 'accepted', 'failed')
            and refundd.move_is_legal(r.state, $2) and not (r.state = 'unknown' and $2 = 'ready')
         returning r.*
     ), kept as (
         insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, moved_to, code, message)
         select id, channel, 'manual', 0, lease_epoch, $4, 'decided', $2, 'decided', left($3, 500) from moved
     )
     select ", refund_columns!(), " from moved r"
);

pub(super) const STATEMENTS: &[(&str, &str)] = &[("decide", DECIDE)];

impl Store {
    /// Moves a refund by a person's decision, and keeps who and why in the journal.
    pub async fn decide(
        &self,
        id: RefundId,
        next: State,
        why: &str,
        who: &str,
    ) -> Result<Decided, StoreError> {
        let row = sqlx::query(DECIDE)
            .bind(id.0)
            .bind(next.as_str())
            .bind(why)
            .bind(who)
            .maybe(&self.db)
            .await
            .doing("write a decision down")?;
        if let Some(row) = &row {
            return Ok(Decided::Done(read_refund(row)?));
        }
        Ok(self.refund(id).await?.map_or(Decided::NoSuchRefund, Decided::Illegal))
    }
}
