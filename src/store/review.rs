//! Review: what a person decides.
//!
//! A decision names the version that the person saw. If the refund has moved since, nothing is changed.

use super::connections::Ask;
use super::look::read_refund;
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

const DECIDE: &str = include_str!("sql/decide.sql");

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
