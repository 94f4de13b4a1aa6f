//! The journal of attempts: what it holds about a refund, and how long.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use sqlx::Row;

use super::connections::Ask;
use super::{Doing, Store, StoreError, micros, timestamp};
use crate::refund::{Refund, RefundId};

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

/// What became of the oldest months.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turned {
    /// Nothing was left for the next call because somebody was using it.
    pub done: bool,
    /// Tables that were dropped.
    pub dropped: i32,
    /// The month that ended then is old enough and stays, and so do those after it: it has evidence of this refund,
    /// which did not end.
    pub held: Option<(Timestamp, RefundId)>,
}

const EVIDENCE: &str = "
    select kind, number, lease_epoch, node, permit, outcome, moved_to, status, code, message,
           (extract(epoch from started_at) * 1000000)::bigint as started_us,
           (extract(epoch from finished_at) * 1000000)::bigint as finished_us
      from refundd.attempts where refund_id = $1 order by id";

const SINCE: &str = "select (extract(epoch from refundd.attempts_since()) * 1000000)::bigint as since_us";

const TURN: &str = "
    select done, dropped, (extract(epoch from held_until) * 1000000)::bigint as held_us, held_by
      from refundd.turn_attempts($1 * interval '1 microsecond')";

pub(super) const STATEMENTS: &[(&str, &str)] =
    &[("evidence", EVIDENCE), ("journal_since", SINCE), ("turn_attempts", TURN)];

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

    /// From when on the journal is whole; `None` while nothing of it was dropped.
    pub async fn journal_since(&self) -> Result<Option<Timestamp>, StoreError> {
        let row = sqlx::query(SINCE).one(&self.db).await.doing("ask how far the journal goes back")?;
        Ok(timestamp(&row, "since_us"))
    }

    /// What happened to this refund before then may be missing from its evidence, for it was saved earlier.
    /// Asked after the evidence was read: what is dropped in between is not missing from that.
    pub async fn forgotten_before(&self, refund: &Refund) -> Result<Option<Timestamp>, StoreError> {
        Ok(self.journal_since().await?.filter(|since| refund.created_at < *since))
    }

    /// Makes the tables of the journal's next months, and drops those that ended longer than `keep` ago, if that is
    /// said, and hold nothing of a refund that did not end. What stands in the way is left for the next call.
    pub async fn turn_attempts(&self, keep: Option<Duration>) -> Result<Turned, StoreError> {
        let row = sqlx::query(TURN)
            .bind(keep.map(micros))
            .one(&self.db.patient())
            .await
            .doing("turn to the journal's next months")?;
        let held_by = row.get::<Option<i64>, _>("held_by").map(RefundId);
        Ok(Turned {
            done: row.get("done"),
            dropped: row.get("dropped"),
            held: timestamp(&row, "held_us").zip(held_by),
        })
    }
}
