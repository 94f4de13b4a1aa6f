//! Saves refunds: one statement for any number of them, safe to repeat.
//!
//! A repeated save saves nothing twice: it compares the refund with the saved one of the same ref.

use std::sync::Arc;

use jiff::Timestamp;
use sqlx::Row;

use super::connections::{Ask, Connections};
use super::differences::Differences;
use super::look::{read_refund, refund_columns};
use super::named::{Statement, bind, column, statement};
use super::{Doing, Store, StoreError};
use crate::refund::{AmountBounds, CardFields, Money, NewRefund, Payload, Refund, RefundId, State};

/// The result of one refund of a save.
#[derive(Debug)]
pub enum Saved {
    /// The refund is saved now.
    Created(Refund),
    /// An earlier call saved it with the same content. The value is its present row.
    Same(Refund),
    /// Its ref names a saved refund with other content, which is in this channel now.
    Conflict { id: RefundId, channel: String, differs: Differences },
    /// No node runs its channel.
    NoSuchChannel,
    /// Its channel's backlog is at its bound.
    Full { max_backlog: i64 },
    /// Its amount is above the bound of its channel that the nodes have published; says what is wrong with the amount.
    AboveBound(String),
    /// These fields hold card numbers, and the settings of its channel that the nodes have published accept none.
    CardNumbers(CardFields),
}

/// What a save does with one refund, without the refund.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SaveResult {
    New,
    Same { state: State },
    Conflict { id: RefundId, differs: Differences },
    NoSuchChannel,
    Full { max_backlog: i64 },
    AboveBound(String),
    CardNumbers(CardFields),
}

impl Saved {
    #[must_use]
    pub fn result(&self) -> SaveResult {
        match self {
            Saved::Created(_) => SaveResult::New,
            Saved::Same(refund) => SaveResult::Same { state: refund.state },
            Saved::Conflict { id, differs, .. } => SaveResult::Conflict { id: *id, differs: differs.clone() },
            Saved::NoSuchChannel => SaveResult::NoSuchChannel,
            Saved::Full { max_backlog } => SaveResult::Full { max_backlog: *max_backlog },
            Saved::AboveBound(why) => SaveResult::AboveBound(why.clone()),
            Saved::CardNumbers(fields) => SaveResult::CardNumbers(*fields),
        }
    }
}

const SAVE: Statement = statement!(include_str!("sql/save.sql"), refund_columns!());

// `due_at`, `deadline_at` and `traceparent` may differ in a repeated save. Amount, currency, payment and payload may not. A refund that was
// moved is also the same under the channel that it was saved for: its producer does not know of the move. By SQL a payload may be JSON null,
// which every other way saves as no payload.
const COMPARE: Statement = statement!(concat!(
    "select a.nth, a.channel = r.channel or a.channel is not distinct from r.saved_channel as same_channel,
            nullif(a.payload::jsonb, 'null') is not distinct from nullif(r.payload, 'null') as same_payload, ",
    refund_columns!(),
    "  from unnest(:nth::bigint[], :refund_ref::text[], :channel::text[], :payment_ref::text[], :amount_minor::bigint[],
                   :currency::text[], :payload::text[])
            as a (nth, refund_ref, channel, payment_ref, amount_minor, currency, payload)
          join refundd.refunds r on r.refund_ref = a.refund_ref
      where r.refund_ref = any(:refund_ref) order by a.nth"
));

pub(super) const STATEMENTS: &[(&str, &str)] = &[("save", SAVE.sql), ("compare", COMPARE.sql)];

impl Store {
    const A_HANDFUL: usize = 100;

    /// Saves refunds in one commit. The results have the order of `refunds`.
    pub async fn save(&self, refunds: &[NewRefund]) -> Result<Vec<Saved>, StoreError> {
        self.save_waiting(refunds, "3s").await
    }

    /// Like [`Store::save`], but fails after 20 ms where another transaction is saving one of the refunds: see
    /// [`StoreError::is_a_lock`].
    pub async fn save_unless_locked(&self, refunds: &[NewRefund]) -> Result<Vec<Saved>, StoreError> {
        self.save_waiting(refunds, "20ms").await
    }

    async fn save_waiting(
        &self,
        refunds: &[NewRefund],
        lock_timeout: &str,
    ) -> Result<Vec<Saved>, StoreError> {
        let query = bind!(
            SAVE,
            refund_ref: column(refunds, |r| r.refund_ref.as_str()),
            channel: column(refunds, |r| r.channel.as_str()),
            payment_ref: column(refunds, |r| r.payment_ref.as_str()),
            amount_minor: column(refunds, |r| r.money.amount_minor),
            currency: column(refunds, |r| r.money.currency.as_str()),
            payload: column(refunds, |r| r.payload.as_ref().map(Payload::as_str)),
            due_us: column(refunds, |r| r.due_at.map(Timestamp::as_microsecond)),
            deadline_us: column(refunds, |r| r.deadline_at.map(Timestamp::as_microsecond)),
            traceparent: column(refunds, |r| r.traceparent.map(|parent| parent.to_string())),
            holds_card: column(refunds, |r| !r.card_fields().is_none()),
            lock_timeout: lock_timeout,
        );
        let db = self.db_for(refunds);
        let rows = query.all(&db).await.doing("save refunds")?;
        let mut saved = Vec::with_capacity(refunds.len());
        let mut elsewhere: Vec<(i64, &NewRefund)> = Vec::new();
        for (row, refund) in rows.iter().zip(refunds) {
            saved.push(if row.get::<Option<i64>, _>("id").is_some() {
                Some(Saved::Created(read_refund(row)?))
            } else {
                elsewhere.push((row.get("nth"), refund));
                None
            });
        }
        // A refund that was not inserted may be saved already. Then its row decides, even if its channel is full.
        if !elsewhere.is_empty() {
            for (nth, found) in self.compare(&db, &elsewhere).await? {
                saved[nth] = Some(found);
            }
        }
        let refused = saved.into_iter().zip(&rows).zip(refunds).map(|((saved, row), refund)| {
            saved.unwrap_or_else(|| {
                if !row.get::<bool, _>("runs") {
                    Saved::NoSuchChannel
                } else if let Some(why) = above_bound(row.get("bounds"), &refund.money) {
                    Saved::AboveBound(why)
                } else if row.get::<bool, _>("is_card_broken") {
                    Saved::CardNumbers(refund.card_fields())
                } else {
                    Saved::Full { max_backlog: row.get::<Option<i64>, _>("max_backlog").unwrap_or(0) }
                }
            })
        });
        Ok(refused.collect())
    }

    /// The refunds among these that an earlier call saved with the same content: the place of each, and its present row.
    pub async fn saved_before(&self, refunds: &[NewRefund]) -> Result<Vec<(usize, Refund)>, StoreError> {
        let numbered: Vec<(i64, &NewRefund)> = (1..).zip(refunds).collect();
        let compared = self.compare(&self.db_for(refunds), &numbered).await?;
        let same = |(nth, saved)| if let Saved::Same(refund) = saved { Some((nth, refund)) } else { None };
        Ok(compared.into_iter().filter_map(same).collect())
    }

    /// The connections for a statement about so many refunds.
    fn db_for(&self, refunds: &[NewRefund]) -> Connections {
        if refunds.len() > Self::A_HANDFUL { self.db.patient() } else { self.db.clone() }
    }

    /// Compares refunds, each with its number from 1, with those saved under the same refs. Answers the place of each that
    /// is saved, and whether it is the same.
    pub(super) async fn compare(
        &self,
        db: &Connections,
        refunds: &[(i64, &NewRefund)],
    ) -> Result<Vec<(usize, Saved)>, StoreError> {
        let query = bind!(
            COMPARE,
            nth: column(refunds, |(nth, _)| *nth),
            refund_ref: column(refunds, |(_, r)| r.refund_ref.as_str()),
            channel: column(refunds, |(_, r)| r.channel.as_str()),
            payment_ref: column(refunds, |(_, r)| r.payment_ref.as_str()),
            amount_minor: column(refunds, |(_, r)| r.money.amount_minor),
            currency: column(refunds, |(_, r)| r.money.currency.as_str()),
            payload: column(refunds, |(_, r)| r.payload.as_ref().map(Payload::as_str)),
        );
        let rows = query.all(db).await.doing("compare refunds")?;
        let compared = rows.iter().map(|row| {
            let refund = read_refund(row)?;
            let nth: i64 = row.get("nth");
            let sent =
                refunds.binary_search_by_key(&nth, |(number, _)| *number).ok().map(|place| refunds[place].1);
            let [same_channel, same_payload] = ["same_channel", "same_payload"].map(|column| row.get(column));
            let differs = sent
                .map(|sent| Differences::between(&refund, sent, same_channel, same_payload))
                .unwrap_or_default();
            let nth = usize::try_from(nth - 1).unwrap_or(0);
            let saved = if differs.is_none() {
                Saved::Same(refund)
            } else {
                Saved::Conflict { id: refund.id, channel: refund.channel, differs }
            };
            Ok((nth, saved))
        });
        compared.collect()
    }
}

/// What is wrong with an amount by the published bounds of its channel, a JSON object; `None` without bounds, and within them.
pub(super) fn above_bound(bounds: Option<&str>, money: &Money) -> Option<String> {
    let bounds = serde_json::from_str(bounds?).ok()?;
    AmountBounds(Arc::new(bounds)).problem("the channel", money)
}
