//! The decisions of people about refunds.
//!
//! A decision names the version that the person saw. If the refund has another version now, the decision changes
//! nothing. The function `refundd.decide` moves the refund and writes the journal: no other statement can move a
//! refund that waits for a person. Where one person is not enough, `refundd.propose` keeps the decision, and
//! `proposals.rs` has the second person's answer.

use sqlx::Row;

use super::connections::Ask;
use super::look::{read_refund, refund_columns};
use super::named::{Statement, bind, statement};
use super::proposals::{Proposal, proposal_columns, read_proposal};
use super::{Doing, Store, StoreError};
use crate::refund::{Refund, RefundId, State};

/// A person's decision about one refund.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision<'a> {
    pub id: RefundId,
    /// The version that the person saw.
    pub seen: i32,
    /// The state that the person chose.
    pub next: State,
    /// The person confirms that the bank executed none of the earlier sends.
    pub not_executed: bool,
    pub why: &'a str,
    pub who: &'a str,
}

/// The bank's reference of a refund that has succeeded, as a person read it. It takes the place of one that a person noted before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotedReference<'a> {
    pub id: RefundId,
    /// The version that the person saw.
    pub seen: i32,
    pub reference: &'a str,
    pub why: &'a str,
    pub who: &'a str,
}

/// The result of a decision.
#[derive(Debug)]
pub enum Decided {
    /// The refund moved.
    Done(Refund),
    /// The refund waits for another person's approval, as it did if the same person proposed the same before.
    Proposed(Refund, Proposal),
    /// The refund has another version than the person saw.
    Changed(Refund),
    /// The person chose `ready`, the bank may have executed an earlier send, and the person did not confirm that it
    /// did not.
    Unconfirmed(Refund),
    /// The refund cannot move from its state to the chosen state.
    Illegal(Refund),
    /// The person chose `ready`, and the refund was reopened after it was cancelled. Programs were told that it is never sent.
    WasCancelled(Refund),
    NoSuchRefund,
}

const DECIDE: Statement = statement!(concat!(
    "select ",
    refund_columns!(),
    " from refundd.decide(:id, :next, :why, :who, :seen, :not_executed) r"
));

const DECIDE_AND_NOTE: Statement = statement!(concat!(
    "select ",
    refund_columns!(),
    ", refundd.note_bank_ref(r.id, :reference, :who) as is_noted",
    " from refundd.decide(:id, :next, :why, :who, :seen, false) r"
));

const IS_TAKEN: &str = "
    select exists (select from refundd.refunds r join refundd.refunds o on o.channel = r.channel and o.id <> r.id
                    where r.id = $1 and o.bank_ref = $2)";

const PROPOSE: Statement = statement!(concat!(
    "select ",
    proposal_columns!("p"),
    " from refundd.propose(:id, :next, :why, :who, :seen, :not_executed) p"
));

const NOTE_BANK_REF: Statement =
    statement!("select refundd.note_bank_ref(:id, :reference, :who, :seen, :why) as is_noted");

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("decide", DECIDE.sql),
    ("decide_and_note", DECIDE_AND_NOTE.sql),
    ("is_taken", IS_TAKEN),
    ("propose", PROPOSE.sql),
    ("note_bank_ref", NOTE_BANK_REF.sql),
];

impl Store {
    /// Moves a refund by a person's decision, or keeps the decision as a proposal where a second person must approve it. The
    /// journal keeps the person's name, the reason and the version that the person saw.
    pub async fn decide(&self, decision: &Decision<'_>) -> Result<Decided, StoreError> {
        let &Decision { id, seen, next, not_executed, why, who } = decision;
        let query = bind!(
            DECIDE,
            id: id.0,
            next: next.as_str(),
            why: why,
            who: who,
            seen: seen,
            not_executed: not_executed && next == State::Ready,
        );
        let row = query.maybe(&self.db).await.doing("write a decision")?;
        if let Some(row) = &row {
            return Ok(Decided::Done(read_refund(row)?));
        }
        self.propose_or_refuse(decision).await
    }

    /// Moves a refund to `succeeded` as [`Store::decide`] does, and writes down the bank's reference in the same commit. Answers, too,
    /// whether the refund has this reference now: one that the bank gave stays. `None` if another refund of the channel has the
    /// reference: then nothing was changed.
    pub async fn decide_and_note(
        &self,
        decision: &Decision<'_>,
        reference: &str,
    ) -> Result<Option<(Decided, bool)>, StoreError> {
        let &Decision { id, seen, next, not_executed: _, why, who } = decision;
        let query = bind!(
            DECIDE_AND_NOTE,
            id: id.0,
            next: next.as_str(),
            why: why,
            who: who,
            seen: seen,
            reference: reference,
        );
        match query.maybe(&self.db).await.doing("write a decision with its bank reference") {
            Ok(Some(row)) => return Ok(Some((Decided::Done(read_refund(&row)?), row.get("is_noted")))),
            Ok(None) => {}
            Err(error) if error.is_taken_reference() => return Ok(None),
            Err(error) => return Err(error),
        }
        // A proposal keeps no reference, so the index refuses none.
        let query = sqlx::query_scalar(IS_TAKEN).bind(id.0).bind(reference);
        let is_taken: bool = query.one(&self.db).await.doing("look up a bank reference")?;
        Ok(if is_taken { None } else { Some((self.propose_or_refuse(decision).await?, false)) })
    }

    /// What becomes of a decision that moved nothing.
    async fn propose_or_refuse(&self, decision: &Decision<'_>) -> Result<Decided, StoreError> {
        let &Decision { id, seen, next, not_executed, .. } = decision;
        let proposal = self.propose(decision).await?;
        Ok(match (self.refund(id).await?, proposal) {
            (None, _) => Decided::NoSuchRefund,
            (Some(refund), Some(proposal)) => Decided::Proposed(refund, proposal),
            (Some(refund), None) if seen != refund.version => Decided::Changed(refund),
            (Some(refund), None)
                if next == State::Ready
                    && !not_executed
                    && refund.uncertain_since.is_some()
                    && matches!(refund.state, State::Review | State::Failed) =>
            {
                Decided::Unconfirmed(refund)
            }
            // With the confirmation, the database refuses this move for one reason only.
            (Some(refund), None)
                if next == State::Ready
                    && not_executed
                    && matches!(refund.state, State::Review | State::Failed) =>
            {
                Decided::WasCancelled(refund)
            }
            (Some(refund), None) => Decided::Illegal(refund),
        })
    }

    /// Writes down the bank's reference of a refund that has succeeded. False if the refund has changed, or has one of the bank: that one
    /// stays.
    pub async fn note_bank_ref(&self, noted: &NotedReference<'_>) -> Result<bool, StoreError> {
        let &NotedReference { id, seen, reference, why, who } = noted;
        let query = bind!(
            NOTE_BANK_REF,
            id: id.0,
            reference: reference,
            who: who,
            seen: seen,
            why: why,
        );
        let row = query.one(&self.db).await.doing("write down a bank reference")?;
        Ok(row.get("is_noted"))
    }

    /// Keeps a decision for a second person. `None` if the decision is not allowed, or if one person is enough.
    async fn propose(&self, decision: &Decision<'_>) -> Result<Option<Proposal>, StoreError> {
        let &Decision { id, seen, next, not_executed, why, who } = decision;
        let query = bind!(
            PROPOSE,
            id: id.0,
            next: next.as_str(),
            why: why,
            who: who,
            seen: seen,
            not_executed: not_executed && next == State::Ready,
        );
        let row = query.maybe(&self.db).await.doing("write a proposal")?;
        row.as_ref().map(read_proposal).transpose()
    }
}
