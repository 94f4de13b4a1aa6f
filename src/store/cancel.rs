//! Withdraws refunds that are ready: one for its producer, or many for a person. The journal keeps who did it, and why.
//!
//! A refund in `ready` is safe to cancel: the bank provably executed none of its attempts. Many at once are stricter: of
//! each, no byte ever left.

use super::connections::Ask;
use super::look::{read_refund, refund_columns};
use super::named::{Statement, bind, column, statement};
use super::{Doing, Store, StoreError};
use crate::caller::Names;
use crate::refund::{Refund, RefundId, State};

/// Who cancels refunds, and why.
#[derive(Debug, Clone)]
pub struct Canceller {
    /// The channels whose refunds exist for this canceller.
    pub channels: Names,
    /// The name in the journal; `None` for "its producer".
    pub name: Option<String>,
    pub why: Option<String>,
    /// Whether only refunds of which no byte ever left are cancelled.
    pub never_sent: bool,
}

impl Canceller {
    /// The producer of the refunds, who gives no reason.
    pub fn producer(channels: Names) -> Canceller {
        Canceller { channels, name: None, why: None, never_sent: false }
    }

    fn name(&self) -> &str {
        self.name.as_deref().unwrap_or("its producer")
    }
}

/// The result of a request to cancel a refund.
#[derive(Debug)]
pub enum Cancelled {
    /// The refund is cancelled now.
    Now(Refund),
    /// An earlier call cancelled the refund.
    Already(Refund),
    /// The refund may have been sent, or it is settled.
    TooLate(Refund),
    /// The refund has another version than the caller named.
    Changed(Refund),
    /// The refund is ready, and was not at each try to cancel it. Another try may cancel it.
    Moving(Refund),
    NoSuchRefund,
}

const CANCEL: Statement = statement!(include_str!("sql/cancel.sql"), refund_columns!());

pub(super) const STATEMENTS: &[(&str, &str)] = &[("cancel", CANCEL.sql)];

impl Store {
    /// How many times a cancellation is repeated for a refund that was not ready at the try, and is ready at the look after it.
    const MOST_REPEATS: u32 = 3;

    /// Cancels a refund in `ready`, as the canceller says. With `seen`, the refund must still have that version.
    pub async fn cancel(
        &self,
        id: RefundId,
        seen: Option<i32>,
        canceller: &Canceller,
    ) -> Result<Cancelled, StoreError> {
        let Canceller { channels, name: _, why, never_sent } = canceller;
        let exists = |refund: &Refund| channels.has(&refund.channel);
        let mut repeats = 0;
        loop {
            let query = bind!(
                CANCEL,
                id: vec![id.0],
                seen: vec![seen],
                why: why,
                who: canceller.name(),
                channels: channels.these(),
                never_sent: never_sent,
            );
            let row = query.maybe(&self.db).await.doing("cancel a refund")?;
            if let Some(row) = &row {
                return Ok(Cancelled::Now(read_refund(row)?));
            }
            match self.refund(id).await?.filter(exists) {
                None => return Ok(Cancelled::NoSuchRefund),
                Some(refund) if refund.state == State::Cancelled => return Ok(Cancelled::Already(refund)),
                Some(refund) if seen.is_some_and(|seen| seen != refund.version) => {
                    return Ok(Cancelled::Changed(refund));
                }
                // It was sending at the try. Or a byte of it may have left before, which this look does not show.
                Some(refund) if refund.state == State::Ready && repeats < Self::MOST_REPEATS => repeats += 1,
                Some(refund) if refund.state == State::Ready => {
                    let stays = *never_sent && self.progress(id).await?.is_some_and(|now| now.may_have_left);
                    return Ok(if stays { Cancelled::TooLate(refund) } else { Cancelled::Moving(refund) });
                }
                Some(refund) => return Ok(Cancelled::TooLate(refund)),
            }
        }
    }

    /// Cancels those of these refunds that are ready and of which no byte ever left, in one commit. Answers them. A refund that is
    /// named with the version that a person saw stays if it has another one.
    pub async fn cancel_never_sent(
        &self,
        refunds: &[(RefundId, Option<i32>)],
        canceller: &Canceller,
    ) -> Result<Vec<Refund>, StoreError> {
        let query = bind!(
            CANCEL,
            id: column(refunds, |(id, _)| id.0),
            seen: column(refunds, |(_, seen)| *seen),
            why: canceller.why,
            who: canceller.name(),
            channels: canceller.channels.these(),
            never_sent: true,
        );
        let rows = query.all(&self.db.patient()).await.doing("cancel refunds")?;
        rows.iter().map(read_refund).collect()
    }
}
