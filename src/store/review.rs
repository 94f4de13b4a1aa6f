//! Review: what a person decides.
//!
//! A decision names the version that the person saw. If the refund has moved since, nothing is changed.

use super::connections::Ask;
use super::look::{read_refund, refund_columns};
use super::{Doing, Store, StoreError};
use crate::refund::{Refund, RefundId, State};

/// What a person decided about one refund.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision<'a> {
    pub id: RefundId,
    /// The version that the person saw. `None` is taken for `succeeded` alone, which nothing follows.
    pub seen: Option<i32>,
    pub next: State,
    /// The person says of every earlier send that the bank did not execute it.
    pub not_executed: bool,
    pub why: &'a str,
    pub who: &'a str,
}

/// What became of a decision.
#[derive(Debug)]
pub enum Decided {
    Done(Refund),
    /// It has another version than the one that was seen.
    Changed(Refund),
    /// It was to be sent again, an earlier send may have been executed, and nobody said that it was not.
    Unconfirmed(Refund),
    /// From its state it cannot go there.
    Illegal(Refund),
    NoSuchRefund,
}

// States that no person may leave (sending: a node holds it; ready: cancel it instead) are not listed.
// The trigger lets nothing that may have been executed become ready while uncertain_at is set.
const DECIDE: &str = concat!(
    "with moved as (
         update refundd.refunds r
            set state = $2, version = r.version + 1, reason = 'decided by ' || $4 || ': ' || $3,
                due_at = case when $2 = 'ready' then now() else r.due_at end,
                attempts = case when $2 = 'ready' then 0 else r.attempts end,
                uncertain_at = case when $2 = 'ready' and $6 then null else r.uncertain_at end,
                settled_at = case when $2 in ('succeeded', 'failed', 'cancelled') then now() end
          where r.id = $1 and (r.version = $5 or ($5::integer is null and $2 = 'succeeded'))
            and r.state in ('review', 'unknown', 'accepted', 'failed')
            and refundd.move_is_legal(r.state, $2) and not (r.state = 'unknown' and $2 = 'ready')
            and ($2 <> 'ready' or $6 or not refundd.may_have_been_executed(r.state, r.uncertain_at, r.first_sent_at, r.reason))
         returning r.*
     ), kept as (
         insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, moved_to, code, message)
         select id, channel, 'manual', coalesce($5, 0), lease_epoch, $4, 'decided', $2,
                case when $6 then 'confirmed_not_executed' else 'decided' end, left($3, 500) from moved
     )
     select ", refund_columns!(), " from moved r"
);

pub(super) const STATEMENTS: &[(&str, &str)] = &[("decide", DECIDE)];

impl Store {
    /// Moves a refund by a person's decision, and keeps in the journal who, why, and which version that person saw.
    pub async fn decide(&self, decision: &Decision<'_>) -> Result<Decided, StoreError> {
        let &Decision { id, seen, next, not_executed, why, who } = decision;
        let row = sqlx::query(DECIDE)
            .bind(id.0)
            .bind(next.as_str())
            .bind(why)
            .bind(who)
            .bind(seen)
            .bind(not_executed && next == State::Ready)
            .maybe(&self.db)
            .await
            .doing("write a decision down")?;
        if let Some(row) = &row {
            return Ok(Decided::Done(read_refund(row)?));
        }
        Ok(match self.refund(id).await? {
            None => Decided::NoSuchRefund,
            Some(refund) if seen.is_some_and(|seen| seen != refund.version) => Decided::Changed(refund),
            Some(refund)
                if next == State::Ready
                    && !not_executed
                    && refund.uncertain_since.is_some()
                    && matches!(refund.state, State::Review | State::Failed) =>
            {
                Decided::Unconfirmed(refund)
            }
            Some(refund) => Decided::Illegal(refund),
        })
    }
}
