//! Review: what a person sees of a refund, and what the person decides.

use jiff::Timestamp;
use serde::Serialize;
use sqlx::Row;

use super::connections::Ask;
use super::look::{read_refund, refund_columns};
use super::{Doing, Store, StoreError, timestamp};
use crate::refund::{Refund, RefundId, State};

/// One line of the journal.
#[derive(Debug, Clone, Serialize)]
pub struct Evidence {
    pub kind: String,
    pub number: i32,
    pub lease_epoch: i64,
    /// The process that made the attempt, or the person who decided.
    pub node: String,
    pub permit: Option<String>,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    pub outcome: String,
    /// Absent when the answer came too late and moved nothing.
    pub moved_to: Option<String>,
    pub status: Option<i16>,
    pub code: Option<String>,
    pub message: Option<String>,
}

/// What became of a decision.
#[derive(Debug)]
pub enum Decided {
    Done(Refund),
    /// From its state it cannot go there.
    Illegal(Refund),
    NoSuchRefund,
}

const EVIDENCE: &str = "
    select kind, number, lease_epoch, node, permit, outcome, moved_to, status, code, message,
           (extract(epoch from started_at) * 1000000)::bigint as started_us,
           (extract(epoch from finished_at) * 1000000)::bigint as finished_us
      from refundd.attempts where refund_id = $1 order by id";

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

pub(super) const STATEMENTS: &[(&str, &str)] = &[("evidence", EVIDENCE), ("decide", DECIDE)];

impl Store {
    /// Everything the journal holds about a refund, oldest first.
    pub async fn evidence(&self, id: RefundId) -> Result<Vec<Evidence>, StoreError> {
        let rows = sqlx::query(EVIDENCE).bind(id.0).all(&self.db).await.doing("read the journal")?;
        Ok(rows
            .iter()
            .map(|row| Evidence {
                kind: row.get("kind"),
                number: row.get("number"),
                lease_epoch: row.get("lease_epoch"),
                node: row.get("node"),
                permit: row.get("permit"),
                started_at: timestamp(row, "started_us"),
                finished_at: timestamp(row, "finished_us"),
                outcome: row.get("outcome"),
                moved_to: row.get("moved_to"),
                status: row.get("status"),
                code: row.get("code"),
                message: row.get("message"),
            })
            .collect())
    }

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
