//! Saves refunds: one statement for any number of them, safe to repeat.
//!
//! A repeated save saves nothing twice: it compares the refund with the saved one of the same ref.

use sqlx::Row;

use super::connections::Ask;
use super::look::{read_refund, refund_columns};
use super::{Doing, Store, StoreError};
use crate::refund::{NewRefund, Refund, RefundId};

/// The result of one refund of a save.
#[derive(Debug)]
pub enum Saved {
    /// The refund is saved now.
    Created(Refund),
    /// An earlier call saved it with the same content. The value is its present row.
    Same(Refund),
    /// Its ref names a saved refund with other content.
    Conflict { id: RefundId },
    /// No node runs its channel.
    NoSuchChannel,
    /// Its channel's backlog is at its bound.
    Full { max_backlog: i64 },
}

const SAVE: &str = include_str!("sql/save.sql");

// `due_at` and `deadline_at` may differ in a repeated save. Amount, currency, channel, payment and payload may not.
const COMPARE: &str = concat!(
    "select a.nth, (a.channel, a.payment_ref, a.amount_minor, a.currency) is not distinct from
                   (r.channel, r.payment_ref, r.amount_minor, r.currency)
                   and a.payload::jsonb is not distinct from r.payload as is_same, ",
    refund_columns!(),
    "  from unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::bigint[], $8::bigint[])
              with ordinality as a (refund_ref, channel, payment_ref, amount_minor, currency, payload, due_us, deadline_us, nth) join refundd.refunds r on r.refund_ref = a.refund_ref
      where a.nth = any($9) and r.refund_ref = any($1) order by a.nth"
);

pub(super) const STATEMENTS: &[(&str, &str)] = &[("save", SAVE), ("compare", COMPARE)];

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
        let columns = Columns::of(refunds);
        let db = if refunds.len() > Self::A_HANDFUL { self.db.patient() } else { self.db.clone() };
        let rows = columns.bind(sqlx::query(SAVE)).bind(lock_timeout).all(&db).await.doing("save refunds")?;
        let mut saved = Vec::with_capacity(refunds.len());
        let mut elsewhere = Vec::new();
        for row in &rows {
            saved.push(if row.get::<Option<i64>, _>("id").is_some() {
                Some(Saved::Created(read_refund(row)?))
            } else {
                elsewhere.push(row.get::<i64, _>("nth"));
                None
            });
        }
        // A refund that was not inserted may be saved already. Then its row decides, even if its channel is full.
        if !elsewhere.is_empty() {
            let compared = columns
                .bind(sqlx::query(COMPARE))
                .bind(&elsewhere)
                .all(&db)
                .await
                .doing("compare refunds")?;
            for row in &compared {
                let refund = read_refund(row)?;
                let same = row.get::<bool, _>("is_same");
                if let Some(place) =
                    usize::try_from(row.get::<i64, _>("nth") - 1).ok().and_then(|nth| saved.get_mut(nth))
                {
                    *place = Some(if same { Saved::Same(refund) } else { Saved::Conflict { id: refund.id } });
                }
            }
        }
        let refused = saved.into_iter().zip(&rows).map(|(saved, row)| {
            saved.unwrap_or_else(|| {
                if row.get("runs") {
                    Saved::Full { max_backlog: row.get::<Option<i64>, _>("max_backlog").unwrap_or(0) }
                } else {
                    Saved::NoSuchChannel
                }
            })
        });
        Ok(refused.collect())
    }
}

type Query<'q> = sqlx::query::Query<'q, sqlx::Postgres, sqlx::postgres::PgArguments>;

/// Refunds as columns, for `unnest`.
struct Columns<'a> {
    refund_refs: Vec<&'a str>,
    channels: Vec<&'a str>,
    payment_refs: Vec<&'a str>,
    amounts: Vec<i64>,
    currencies: Vec<&'a str>,
    payloads: Vec<Option<String>>,
    due: Vec<Option<i64>>,
    deadlines: Vec<Option<i64>>,
}

impl<'a> Columns<'a> {
    fn of(refunds: &'a [NewRefund]) -> Self {
        Columns {
            refund_refs: refunds.iter().map(|r| r.refund_ref.as_str()).collect(),
            channels: refunds.iter().map(|r| r.channel.as_str()).collect(),
            payment_refs: refunds.iter().map(|r| r.payment_ref.as_str()).collect(),
            amounts: refunds.iter().map(|r| r.money.amount_minor).collect(),
            currencies: refunds.iter().map(|r| r.money.currency.as_str()).collect(),
            payloads: refunds.iter().map(|r| r.payload.as_ref().map(ToString::to_string)).collect(),
            due: refunds.iter().map(|r| r.due_at.map(jiff::Timestamp::as_microsecond)).collect(),
            deadlines: refunds.iter().map(|r| r.deadline_at.map(jiff::Timestamp::as_microsecond)).collect(),
        }
    }

    fn bind<'q>(&'q self, query: Query<'q>) -> Query<'q> {
        query
            .bind(&self.refund_refs)
            .bind(&self.channels)
            .bind(&self.payment_refs)
            .bind(&self.amounts)
            .bind(&self.currencies)
            .bind(&self.payloads)
            .bind(&self.due)
            .bind(&self.deadlines)
    }
}
