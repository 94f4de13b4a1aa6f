//! Withdraws refunds that are ready: one for its producer, or many for a person. The journal keeps who did it, and why.
//!
//! A refund in `ready` is safe to cancel: the bank provably executed none of its attempts. Many at once are stricter: of
//! each, no byte ever left.

use sqlx::Row;
use sqlx::postgres::PgRow;

use super::claim::read_money;
use super::connections::Ask;
use super::look::read_refund;
use super::named::{Statement, bind, statement};
use super::{Doing, Store, StoreError};
use crate::refund::{Money, Refund, RefundId, State};

/// Who cancels refunds, and why. The default is a producer, and reaches every channel.
#[derive(Debug, Clone, Default)]
pub struct Canceller {
    /// The channels whose refunds exist for this canceller; `None` for all.
    pub channels: Option<Vec<String>>,
    /// The name in the journal; `None` for "its producer".
    pub name: Option<String>,
    pub why: Option<String>,
    /// Whether only refunds of which no byte ever left are cancelled.
    pub never_sent: bool,
}

impl Canceller {
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
    NoSuchRefund,
}

/// A refund that somebody wants to cancel, as it stands.
#[derive(Debug, Clone)]
pub struct Waiting {
    pub id: RefundId,
    pub refund_ref: String,
    pub channel: String,
    pub state: State,
    pub money: Money,
    /// A byte of it left once. In `ready` the bank executed nothing all the same.
    pub was_sent: bool,
}

/// How much of one currency waits in a channel: the number of refunds, and their sum in minor units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingSums {
    pub currency: String,
    pub never_sent: (i64, i128),
    pub sent_before: (i64, i128),
}

const CANCEL: Statement = statement!(include_str!("sql/cancel.sql"));

const BY_REF: &str = "
    select id, refund_ref, channel, state, amount_minor, currency, first_sent_at is not null as was_sent
      from refundd.refunds where refund_ref = any($1)";

const NEVER_SENT: Statement = statement!(
    "
    select id, refund_ref, channel, state, amount_minor, currency, false as was_sent
      from refundd.refunds
     where channel = :channel and state = 'ready' and first_sent_at is null and id <= :newest
     order by due_at, id limit :most"
);

// Sums are numeric, and may be more than any one amount can be.
const SUMS: &str = "
    select currency,
           count(*) filter (where first_sent_at is null) as unsent,
           coalesce(sum(amount_minor) filter (where first_sent_at is null), 0)::text as unsent_sum,
           count(*) filter (where first_sent_at is not null) as sent,
           coalesce(sum(amount_minor) filter (where first_sent_at is not null), 0)::text as sent_sum
      from refundd.refunds where channel = $1 and state = 'ready' group by currency order by currency";

const NEWEST: &str = "select coalesce(max(id), 0) from refundd.refunds";

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("cancel", CANCEL.sql),
    ("refunds_by_ref", BY_REF),
    ("never_sent", NEVER_SENT.sql),
    ("waiting_sums", SUMS),
    ("newest_refund", NEWEST),
];

fn read_waiting(row: &PgRow) -> Result<Waiting, StoreError> {
    let id: i64 = row.get("id");
    let state: &str = row.get("state");
    Ok(Waiting {
        id: RefundId(id),
        refund_ref: row.get("refund_ref"),
        channel: row.get("channel"),
        state: state.parse().map_err(|_| StoreError::Row {
            table: "refundd.refunds",
            id,
            column: "state",
            found: state.to_owned(),
        })?,
        money: read_money(row),
        was_sent: row.get("was_sent"),
    })
}

impl Store {
    /// Cancels a refund in `ready`, as the canceller says. With `seen`, the refund must still have that version.
    pub async fn cancel(
        &self,
        id: RefundId,
        seen: Option<i32>,
        canceller: &Canceller,
    ) -> Result<Cancelled, StoreError> {
        let Canceller { channels, name: _, why, never_sent } = canceller;
        let query = bind!(
            CANCEL,
            id: vec![id.0],
            seen: seen,
            why: why,
            who: canceller.name(),
            channels: channels,
            never_sent: never_sent,
        );
        let row = query.maybe(&self.db).await.doing("cancel a refund")?;
        if let Some(row) = &row {
            return Ok(Cancelled::Now(read_refund(row)?));
        }
        let exists = |refund: &Refund| channels.as_ref().is_none_or(|names| names.contains(&refund.channel));
        Ok(match self.refund(id).await?.filter(exists) {
            None => Cancelled::NoSuchRefund,
            Some(refund) if refund.state == State::Cancelled => Cancelled::Already(refund),
            Some(refund) if seen.is_some_and(|seen| seen != refund.version) => Cancelled::Changed(refund),
            Some(refund) => Cancelled::TooLate(refund),
        })
    }

    /// Cancels those of these refunds that are ready and of which no byte ever left, in one commit. Answers them.
    pub async fn cancel_never_sent(
        &self,
        ids: &[RefundId],
        canceller: &Canceller,
    ) -> Result<Vec<Refund>, StoreError> {
        let query = bind!(
            CANCEL,
            id: ids.iter().map(|id| id.0).collect::<Vec<_>>(),
            seen: None::<i32>,
            why: canceller.why,
            who: canceller.name(),
            channels: canceller.channels,
            never_sent: true,
        );
        let rows = query.all(&self.db.patient()).await.doing("cancel refunds")?;
        rows.iter().map(read_refund).collect()
    }

    /// The refunds with these refs.
    pub async fn refunds_by_ref(&self, refs: &[String]) -> Result<Vec<Waiting>, StoreError> {
        let rows = sqlx::query(BY_REF).bind(refs).all(&self.db.patient()).await.doing("look refunds up")?;
        rows.iter().map(read_waiting).collect()
    }

    /// The refunds of a channel that are ready and of which no byte ever left, up to the refund `newest`; those that are due
    /// first come first.
    pub async fn never_sent(
        &self,
        channel: &str,
        newest: RefundId,
        most: i64,
    ) -> Result<Vec<Waiting>, StoreError> {
        let query = bind!(NEVER_SENT, channel: channel, newest: newest.0, most: most);
        let rows = query.all(&self.db.patient()).await.doing("look for refunds that were never sent")?;
        rows.iter().map(read_waiting).collect()
    }

    /// What waits in a channel, by currency.
    pub async fn waiting_sums(&self, channel: &str) -> Result<Vec<WaitingSums>, StoreError> {
        let rows = sqlx::query(SUMS).bind(channel).all(&self.db.patient()).await;
        let sum = |row: &PgRow, column| row.get::<&str, _>(column).parse().unwrap_or(i128::MAX);
        let rows = rows.doing("count what waits in a channel")?;
        Ok(rows
            .iter()
            .map(|row| WaitingSums {
                currency: row.get("currency"),
                never_sent: (row.get("unsent"), sum(row, "unsent_sum")),
                sent_before: (row.get("sent"), sum(row, "sent_sum")),
            })
            .collect())
    }

    /// The refund that was saved last; zero if there is none.
    pub async fn newest_refund(&self) -> Result<RefundId, StoreError> {
        let newest = sqlx::query_scalar(NEWEST).one(&self.db).await;
        newest.doing("look for the newest refund").map(RefundId)
    }
}
