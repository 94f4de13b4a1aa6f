//! Settling: outcomes back into rows, many in one commit, each under its lease's epoch.

use std::time::Instant;

use super::connections::Ask;
use super::{Doing, Store, StoreError, micros};
use crate::refund::{Answer, ChannelName, RefundId, Settlement};

/// One send that is over: where its refund goes, and the evidence.
#[derive(Debug, Clone)]
pub struct Settled {
    pub id: RefundId,
    pub epoch: i64,
    pub channel: ChannelName,
    /// The number of the send.
    pub attempt: i32,
    /// When its first byte was written; `None` if none was.
    pub started: Option<Instant>,
    /// No byte of the refund may have left before this send.
    pub is_first: bool,
    /// The permits it spent, described.
    pub permit: Option<String>,
    pub answer: Answer,
    pub settlement: Settlement,
}

const SETTLE: &str = include_str!("sql/settle.sql");

const FREE: &str = "select id from refundd.refunds where id = any($1) for update skip locked";

pub(super) const STATEMENTS: &[(&str, &str)] = &[("settle", SETTLE), ("free", FREE)];

impl Store {
    /// Those of some refunds whose rows nobody else holds.
    pub async fn free(&self, ids: &[RefundId]) -> Result<Vec<RefundId>, StoreError> {
        let ids: Vec<i64> = ids.iter().map(|id| id.0).collect();
        let free: Vec<i64> = sqlx::query_scalar(FREE)
            .bind(ids)
            .all(&self.db)
            .await
            .doing("look which refunds somebody else holds")?;
        Ok(free.into_iter().map(RefundId).collect())
    }

    /// Settles sends of this process; answers the refunds that moved. The others' leases were over, or,
    /// `again`, they were settled by a try whose commit was not seen.
    pub async fn settle(
        &self,
        node: &str,
        settled: &[Settled],
        again: bool,
    ) -> Result<Vec<RefundId>, StoreError> {
        use crate::refund::State;
        let reason = |s: &Settled| match s.settlement.next {
            State::Succeeded => None,
            State::Ready if !s.settlement.counted => None,
            _ => Some(format!("{}: {}", s.answer.code, s.answer.message)),
        };
        let ids: Vec<i64> = sqlx::query_scalar(SETTLE)
            .bind(settled.iter().map(|s| s.id.0).collect::<Vec<i64>>())
            .bind(settled.iter().map(|s| s.epoch).collect::<Vec<i64>>())
            .bind(settled.iter().map(|s| s.channel.as_str()).collect::<Vec<_>>())
            .bind(settled.iter().map(|s| s.settlement.next.as_str()).collect::<Vec<_>>())
            .bind(settled.iter().map(|s| micros(s.settlement.wait)).collect::<Vec<i64>>())
            .bind(settled.iter().map(|s| s.settlement.counted).collect::<Vec<bool>>())
            .bind(settled.iter().map(reason).collect::<Vec<Option<String>>>())
            .bind(settled.iter().map(|s| s.attempt).collect::<Vec<i32>>())
            .bind(
                settled
                    .iter()
                    .map(|s| s.started.map(|at| micros(at.elapsed())))
                    .collect::<Vec<Option<i64>>>(),
            )
            .bind(settled.iter().map(|s| s.answer.outcome.journal_word()).collect::<Vec<_>>())
            .bind(
                settled
                    .iter()
                    .map(|s| s.answer.status.and_then(|c| i16::try_from(c).ok()))
                    .collect::<Vec<Option<i16>>>(),
            )
            .bind(settled.iter().map(|s| s.answer.code.as_str()).collect::<Vec<_>>())
            .bind(settled.iter().map(|s| s.answer.message.as_str()).collect::<Vec<_>>())
            .bind(settled.iter().map(|s| s.permit.clone()).collect::<Vec<Option<String>>>())
            .bind(node)
            .bind(again)
            .bind(settled.iter().map(|s| s.is_first).collect::<Vec<bool>>())
            .bind(settled.iter().map(|s| s.settlement.inquire_in.map(micros)).collect::<Vec<Option<i64>>>())
            .bind(settled.iter().map(|s| s.answer.bank_ref.clone()).collect::<Vec<Option<String>>>())
            .all(&self.db)
            .await
            .doing("settle refunds")?;
        Ok(ids.into_iter().map(RefundId).collect())
    }
}
