//! Settles sends: writes many outcomes in one commit, each under the epoch of its lease.
//!
//! An outcome whose lease is over settles nothing. The journal keeps it as evidence, and a trigger keeps a refund from being sent again if
//! the outcome says that the bank has it. An outcome whose refund a failover lost becomes an event: its id may name another refund.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::Row;

use super::connections::Ask;
use super::named::{Statement, bind, column, statement};
use super::{Doing, Store, StoreError, micros};
use crate::bucket::Purpose;
use crate::refund::{Answer, ChannelName, Money, RefundId, RequestId, Settlement, State};

/// One finished send: the next state of its refund, and the evidence.
#[derive(Debug, Clone)]
pub struct Settled {
    pub id: RefundId,
    /// The caller's name for the refund. After a failover that lost the refund, another one has its id.
    pub refund_ref: String,
    /// What was sent, and under which key: the event of a lost refund has both.
    pub money: Money,
    pub request_id: RequestId,
    pub epoch: i64,
    pub holder: Arc<str>,
    pub channel: ChannelName,
    /// The number of the send.
    pub attempt: i32,
    /// When the send wrote its first byte; `None` if it wrote none.
    pub started: Option<Instant>,
    /// Whether this is the first send of the refund: no byte of it may have left before.
    pub is_first: bool,
    /// The numbers of the spent permits, as the journal writes them.
    pub permit: Option<String>,
    pub answer: Answer,
    pub settlement: Settlement,
    /// From the first byte to the end of the answer; zero if no byte left.
    pub duration: Duration,
    /// The wait before the first byte.
    pub waited: Duration,
}

/// What one commit made of its outcomes. The outcome of any other refund came after its lease was over.
#[derive(Debug, Default)]
pub struct SettledBatch {
    /// The refunds that moved.
    pub moved: Vec<RefundId>,
    /// The refunds that Postgres does not have any more, with their refs. Each outcome of theirs is an event.
    pub lost: Vec<(RefundId, String)>,
}

impl SettledBatch {
    /// Whether Postgres does not have the refund of this outcome any more.
    pub fn has_lost(&self, one: &Settled) -> bool {
        self.lost.iter().any(|(id, refund_ref)| *id == one.id && *refund_ref == one.refund_ref)
    }
}

/// A request to a bank whose answer moved no refund.
#[derive(Debug, Clone, Copy)]
pub struct LateAnswer {
    pub id: RefundId,
    pub purpose: Purpose,
    /// The number of the attempt, or of the inquiry.
    pub number: i32,
}

impl Settled {
    /// The reason in the row, for people; `None` for a success, and for a send that uses up no attempt.
    fn reason(&self) -> Option<String> {
        match self.settlement.next {
            State::Succeeded => None,
            State::Ready if !self.settlement.counted => None,
            _ => Some(format!("{}: {}", self.answer.code, self.answer.message)),
        }
    }
}

const SETTLE: Statement = statement!(include_str!("sql/settle.sql"));

// An outcome without a row waits for nobody: a failover lost its refund.
const FREE: &str = "
    select id from (select r.id from refundd.refunds r where r.id = any($1) for update skip locked) unlocked
     union all
    select t.id from unnest($1::bigint[]) t (id) where (select true from refundd.refunds r where r.id = t.id) is null";

// A trigger wrote them in the commits of these answers.
const DIFFERING: &str = "
    select distinct on (e.refund_id, t.kind, t.number) e.refund_id, e.channel, e.reason
      from refundd.events e join unnest($1::bigint[], $2::text[], $3::integer[]) as t (id, kind, number)
        on e.refund_id = t.id and e.after ->> t.kind = t.number::text
     where e.kind = 'late_answer_differs' and e.refund_id = any($1) order by e.refund_id, t.kind, t.number, e.event_id desc";

pub(super) const STATEMENTS: &[(&str, &str)] =
    &[("settle", SETTLE.sql), ("free", FREE), ("late_answers_that_differ", DIFFERING)];

impl Store {
    /// The refunds among `ids` whose rows no other transaction has locked, and those that have no row.
    pub async fn free(&self, ids: &[RefundId]) -> Result<Vec<RefundId>, StoreError> {
        let ids: Vec<i64> = ids.iter().map(|id| id.0).collect();
        let free: Vec<i64> = sqlx::query_scalar(FREE)
            .bind(ids)
            .all(&self.db)
            .await
            .doing("look for refunds without a lock")?;
        Ok(free.into_iter().map(RefundId).collect())
    }

    /// Those of these answers that came late and contradict their refund: with the channel and the contradiction.
    pub async fn late_answers_that_differ(
        &self,
        answers: &[LateAnswer],
    ) -> Result<Vec<(RefundId, String, String)>, StoreError> {
        let kind = |answer: &LateAnswer| match answer.purpose {
            Purpose::Send => "attempt",
            Purpose::Inquire => "inquiry",
        };
        let rows = sqlx::query(DIFFERING)
            .bind(column(answers, |answer| answer.id.0))
            .bind(column(answers, kind))
            .bind(column(answers, |answer| answer.number))
            .all(&self.db)
            .await;
        let rows = rows.doing("look for late answers that differ")?;
        Ok(rows
            .iter()
            .map(|row| (RefundId(row.get("refund_id")), row.get("channel"), row.get("reason")))
            .collect())
    }

    /// Settles sends of this node. With `again`, an earlier try whose commit the node did not see may have settled them.
    pub async fn settle(
        &self,
        node: &str,
        settled: &[Settled],
        again: bool,
    ) -> Result<SettledBatch, StoreError> {
        let query = bind!(
            SETTLE,
            node: node,
            again: again,
            id: column(settled, |s| s.id.0),
            refund_ref: column(settled, |s| s.refund_ref.as_str()),
            request_id: column(settled, |s| s.request_id.0),
            amount_minor: column(settled, |s| s.money.amount_minor),
            currency: column(settled, |s| s.money.currency.as_str()),
            epoch: column(settled, |s| s.epoch),
            holder: column(settled, |s| &*s.holder),
            channel: column(settled, |s| s.channel.as_str()),
            next: column(settled, |s| s.settlement.next.as_str()),
            wait_us: column(settled, |s| micros(s.settlement.wait)),
            counted: column(settled, |s| s.settlement.counted),
            reason: column(settled, Settled::reason),
            number: column(settled, |s| s.attempt),
            started_ago_us: column(settled, |s| s.started.map(|at| micros(at.elapsed()))),
            outcome: column(settled, |s| s.answer.outcome.journal_outcome()),
            status: column(settled, |s| s.answer.status.and_then(|status| i16::try_from(status).ok())),
            code: column(settled, |s| s.answer.code.as_str()),
            message: column(settled, |s| s.answer.message.as_str()),
            permit: column(settled, |s| s.permit.as_deref()),
            is_first: column(settled, |s| s.is_first),
            inquire_us: column(settled, |s| s.settlement.inquire_in.map(micros)),
            bank_ref: column(settled, |s| s.answer.bank_ref.as_deref()),
        );
        let rows = query.all(&self.db).await.doing("settle refunds")?;
        let mut batch = SettledBatch::default();
        for row in &rows {
            let id = RefundId(row.get("id"));
            match row.get::<Option<String>, _>("lost_ref") {
                None => batch.moved.push(id),
                Some(refund_ref) => batch.lost.push((id, refund_ref)),
            }
        }
        Ok(batch)
    }
}
