//! The journal of attempts: the evidence about a refund, and how long the journal keeps it.
//!
//! Other statements write the journal, each in the commit of the outcome; this file reads it and drops old months.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use sqlx::Row;
use sqlx::postgres::PgRow;

use super::connections::Ask;
use super::{Doing, Store, StoreError, micros, timestamp};
use crate::caller::Names;
use crate::refund::{Refund, RefundId};

/// One line of the journal.
#[derive(Debug, Clone, Serialize)]
pub struct Evidence {
    /// The channel of the attempt. A refund that was moved has lines of several.
    pub channel: String,
    pub kind: EvidenceKind,
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

/// What a line says of the first byte of its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstByte {
    /// It left, or the kernel may have taken it.
    Left(Timestamp),
    NotSent,
    /// The node died or could not reach Postgres, and recovery wrote the line.
    NobodyKnows,
}

impl Evidence {
    pub fn first_byte(&self) -> FirstByte {
        match self.started_at {
            Some(at) => FirstByte::Left(at),
            None if self.kind == EvidenceKind::Send && self.outcome == "unknown" => FirstByte::NobodyKnows,
            None => FirstByte::NotSent,
        }
    }

    /// Whether a reader with these channels may read the whole line. The two lines of a move name both channels.
    #[must_use]
    pub fn is_open_to(&self, channels: &Names) -> bool {
        let is_move = self.kind == EvidenceKind::Manual
            && matches!(self.code.as_deref(), Some("moved_out" | "moved_in"));
        is_move || channels.has(&self.channel)
    }

    /// As a reader with these channels may see the line. A line from before a move is about a bank that the reader may not
    /// have: its message may name that bank's hosts and addresses, and its permit names that channel's limits.
    #[must_use]
    pub fn shown_to(self, channels: &Names) -> Self {
        if self.is_open_to(channels) { self } else { Evidence { message: None, permit: None, ..self } }
    }
}

/// What wrote a line of the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EvidenceKind {
    Send,
    Inquiry,
    /// A person's decision, cancellation or move.
    Manual,
    Recovery,
}

impl EvidenceKind {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            EvidenceKind::Send => "send",
            EvidenceKind::Inquiry => "inquiry",
            EvidenceKind::Manual => "manual",
            EvidenceKind::Recovery => "recovery",
        }
    }

    fn read(text: &str) -> Option<EvidenceKind> {
        [EvidenceKind::Send, EvidenceKind::Inquiry, EvidenceKind::Manual, EvidenceKind::Recovery]
            .into_iter()
            .find(|kind| kind.as_str() == text)
    }
}

/// The result of one rotation of the journal's months.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rotation {
    /// False if a table was in use, so that the next call has work left.
    pub done: bool,
    /// How many months were dropped.
    pub dropped: i32,
    /// The end of the oldest month that is old enough to be dropped and stays, and the refund that keeps it: the
    /// month has evidence of the refund, and the refund did not end. Later months stay, too.
    pub kept_month: Option<(Timestamp, RefundId)>,
}

const EVIDENCE: &str = "
    select channel, kind, number, lease_epoch, node, permit, outcome, moved_to, status, code, message,
           (extract(epoch from started_at) * 1000000)::bigint as started_us,
           (extract(epoch from finished_at) * 1000000)::bigint as finished_us
      from refundd.attempts where refund_id = $1 order by id";

const SINCE: &str = "select (extract(epoch from refundd.attempts_since()) * 1000000)::bigint as since_us";

// As in ledger.rs; months are made in any case.
const ROTATE: &str = "
    select done, dropped, (extract(epoch from held_until) * 1000000)::bigint as held_us, held_by
      from refundd.turn_attempts(case when $2::bigint is null or now() < timestamptz 'epoch' + $2 * interval '1 microsecond' + interval '10 seconds'
                                      then $1 * interval '1 microsecond' end)";

const MAKE: &str = "select done from refundd.turn_attempts(null)";

pub(super) const STATEMENTS: &[(&str, &str)] =
    &[("evidence", EVIDENCE), ("journal_since", SINCE), ("rotate_attempts", ROTATE), ("make_months", MAKE)];

pub(super) fn read_evidence(row: &PgRow, refund: RefundId) -> Result<Evidence, StoreError> {
    let kind: &str = row.get("kind");
    let bad = || StoreError::Row {
        table: "refundd.attempts",
        id: refund.0,
        column: "kind",
        found: kind.to_owned(),
    };
    Ok(Evidence {
        channel: row.get("channel"),
        kind: EvidenceKind::read(kind).ok_or_else(bad)?,
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
}

impl Store {
    /// All evidence of the journal about a refund, oldest first.
    pub async fn evidence(&self, id: RefundId) -> Result<Vec<Evidence>, StoreError> {
        let rows =
            sqlx::query(EVIDENCE).bind(id.0).all(&self.db.patient()).await.doing("read the journal")?;
        rows.iter().map(|row| read_evidence(row, id)).collect()
    }

    /// The time from which on the journal is complete; `None` while no month was dropped.
    pub async fn journal_since(&self) -> Result<Option<Timestamp>, StoreError> {
        let row = sqlx::query(SINCE).one(&self.db).await.doing("read since when the journal is complete")?;
        Ok(timestamp(&row, "since_us"))
    }

    /// The time before which evidence of this refund may be missing; `None` if the journal is complete since the
    /// refund was saved. Call it after [`Store::evidence`]: if a month is dropped in between, that answer still has
    /// its evidence.
    pub async fn forgotten_before(&self, refund: &Refund) -> Result<Option<Timestamp>, StoreError> {
        Ok(self.journal_since().await?.filter(|since| refund.created_at < *since))
    }

    /// Makes the tables of the journal's next months. With `keep`, it also drops the months that ended longer than
    /// `keep` ago and have no evidence of a refund that did not end. Tables that are in use wait for the next call.
    /// It drops nothing while the clock witness has not confirmed Postgres's clock.
    pub async fn rotate_attempts(&self, keep: Option<Duration>) -> Result<Rotation, StoreError> {
        let witnessed_us = self.witnessed_us();
        let row = sqlx::query(ROTATE)
            .bind(keep.filter(|_| witnessed_us.is_ok()).map(micros))
            .bind(witnessed_us.unwrap_or_default())
            .one(&self.db.patient())
            .await
            .doing("rotate the journal's months")?;
        let refund = row.get::<Option<i64>, _>("held_by").map(RefundId);
        Ok(Rotation {
            done: row.get("done"),
            dropped: row.get("dropped"),
            kept_month: timestamp(&row, "held_us").zip(refund),
        })
    }

    /// Makes the tables of the journal's next months and drops none, in a few seconds at most. False if a table was in use, so that the
    /// next call has work left.
    pub async fn make_months(&self) -> Result<bool, StoreError> {
        sqlx::query_scalar(MAKE).one(&self.db).await.doing("make the journal's next months")
    }
}
