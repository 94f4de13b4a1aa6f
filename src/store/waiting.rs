//! Looks at refunds that somebody wants to cancel or to move with many others: which of them go, and why the others stay.
//!
//! It changes nothing. Postgres decides again about each refund in the commit that cancels or moves it.

use sqlx::Row;
use sqlx::postgres::PgRow;

use super::claim::read_money;
use super::connections::Ask;
use super::named::{Statement, bind, statement};
use super::{Doing, Store, StoreError, read_state};
use crate::caller::Names;
use crate::refund::{Money, RefundId, State};

/// Which refunds somebody looks at, and what for.
#[derive(Debug, Clone)]
pub struct BulkLook {
    /// The channel that the refunds leave, and the one they move to; `None` for a cancellation.
    pub moves: Option<(String, String)>,
    /// The channels whose refunds exist for the one who looks.
    pub channels: Names,
}

impl BulkLook {
    fn source(&self) -> Option<&str> {
        self.moves.as_ref().map(|(from, _)| from.as_str())
    }

    fn target(&self) -> Option<&str> {
        self.moves.as_ref().map(|(_, to)| to.as_str())
    }
}

/// A refund that somebody wants to cancel or to move, as it stands.
#[derive(Debug, Clone)]
pub struct Waiting {
    pub id: RefundId,
    pub refund_ref: String,
    pub channel: String,
    pub state: State,
    pub version: i32,
    pub money: Money,
    /// Why it stays; `None` if it may go.
    pub stays: Option<Stays>,
}

/// Why a refund is not cancelled or moved with others, as `refundd.why_it_stays` says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stays {
    /// It may have been sent, a person decides about it, or it has ended.
    State(State),
    /// A byte of it left once. In `ready` the bank executed nothing all the same.
    SentBefore,
    OtherChannel,
    DeadlinePassed,
    /// The channel that it would move to has a lower `max_amount_minor`, or none for the currency.
    AmountTooHigh,
    /// The channel that it would move to takes no such numbers.
    CardNumber,
}

impl Stays {
    fn read(code: &str) -> Option<Stays> {
        Some(match code {
            "sent_before" => Stays::SentBefore,
            "other_channel" => Stays::OtherChannel,
            "deadline_passed" => Stays::DeadlinePassed,
            "amount_too_high" => Stays::AmountTooHigh,
            "card_number" => Stays::CardNumber,
            state => Stays::State(state.parse().ok()?),
        })
    }

    /// The name for programs.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Stays::State(state) => state.as_str(),
            Stays::SentBefore => "sent_before",
            Stays::OtherChannel => "other_channel",
            Stays::DeadlinePassed => "deadline_passed",
            Stays::AmountTooHigh => "amount_too_high",
            Stays::CardNumber => "card_number",
        }
    }
}

/// The `ready` refunds of a channel in one currency that go, or that stay for one reason: their number, and their sum in minor
/// units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingSum {
    pub currency: String,
    pub stays: Option<Stays>,
    pub refunds: u64,
    pub sum: i128,
    /// The refunds of a sum that goes, if somebody asked for them; those that are due first come first.
    pub ids: Vec<RefundId>,
}

const BY_REF: Statement = statement!(
    "
    select r.id, r.refund_ref, r.channel, r.state, r.version, r.amount_minor, r.currency, refundd.why_it_stays(r, :from_channel, t) as stays
      from refundd.refunds r left join refundd.channels t on t.channel = :to_channel
     where r.refund_ref = any(:refund_ref) and (:channels::text[] is null or r.channel = any(:channels))"
);

const NEVER_SENT: Statement = statement!(
    "
    select r.id, r.refund_ref, r.channel, r.state, r.version, r.amount_minor, r.currency, null::text as stays
      from refundd.refunds r left join refundd.channels t on t.channel = :to_channel
     where r.channel = :channel and r.state = 'ready' and r.first_sent_at is null and r.id <= :newest
       and refundd.why_it_stays(r, :channel, t) is null
     order by r.due_at, r.id limit :most"
);

const STILL_NEVER_SENT: Statement = statement!(
    "
    select r.id from refundd.refunds r left join refundd.channels t on t.channel = :to_channel
     where r.id = any(:id) and refundd.why_it_stays(r, :channel, t) is null"
);

const NEVER_SENT_AMONG: &str =
    "select count(*) from refundd.refunds where id = any($1) and state = 'ready' and first_sent_at is null";

// One part for each index that has the refunds of a channel that have not ended.
const STAYING: Statement = statement!(
    "
    select (open.r).id, (open.r).refund_ref, (open.r).channel, (open.r).state, (open.r).version, (open.r).amount_minor, (open.r).currency,
           open.stays
      from (select r, refundd.why_it_stays(r, :channel, t) as stays
              from (select r from refundd.refunds r where r.channel = :channel and r.state = 'ready' and r.id <= :newest
                    union all
                    select r from refundd.refunds r where r.channel = :channel and r.state = 'sending' and r.id <= :newest
                    union all
                    select r from refundd.refunds r
                     where r.channel = :channel and r.state in ('accepted', 'unknown', 'review') and r.id <= :newest) all_open (r)
              left join refundd.channels t on t.channel = :to_channel) open
     where open.stays is not null order by (open.r).id limit :most"
);

// Sums are numeric, and may be more than any one amount can be.
const SUMS: Statement = statement!(
    "
    select w.currency, w.stays, count(*) as refunds, sum(w.amount_minor)::text as sum,
           array_agg(w.id order by w.due_at, w.id) filter (where :with_ids and w.stays is null) as ids
      from (select r.id, r.due_at, r.currency, r.amount_minor, refundd.why_it_stays(r, :channel, t) as stays
              from refundd.refunds r left join refundd.channels t on t.channel = :to_channel
             where r.channel = :channel and r.state = 'ready' and (:newest::bigint is null or r.id <= :newest)) w
     group by w.currency, w.stays order by w.currency, w.stays nulls first"
);

const NEWEST: &str = "select coalesce(max(id), 0) from refundd.refunds";

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("refunds_by_ref", BY_REF.sql),
    ("never_sent", NEVER_SENT.sql),
    ("still_never_sent", STILL_NEVER_SENT.sql),
    ("never_sent_among", NEVER_SENT_AMONG),
    ("staying", STAYING.sql),
    ("waiting_sums", SUMS.sql),
    ("newest_refund", NEWEST),
];

fn stays_of(row: &PgRow, id: i64) -> Result<Option<Stays>, StoreError> {
    let Some(code) = row.get::<Option<&str>, _>("stays") else { return Ok(None) };
    let bad = || StoreError::Row { table: "refundd.refunds", id, column: "stays", found: code.to_owned() };
    Stays::read(code).map(Some).ok_or_else(bad)
}

fn read(row: &PgRow) -> Result<Waiting, StoreError> {
    let id: i64 = row.get("id");
    Ok(Waiting {
        id: RefundId(id),
        refund_ref: row.get("refund_ref"),
        channel: row.get("channel"),
        state: read_state(row, id)?,
        version: row.get("version"),
        money: read_money(row),
        stays: stays_of(row, id)?,
    })
}

impl Store {
    /// The refunds with these refs, and whether they may go.
    pub async fn refunds_by_ref(&self, refs: &[String], look: &BulkLook) -> Result<Vec<Waiting>, StoreError> {
        let query = bind!(
            BY_REF,
            refund_ref: refs,
            from_channel: look.source(),
            to_channel: look.target(),
            channels: look.channels.these(),
        );
        let rows = query.all(&self.db.patient()).await.doing("look refunds up")?;
        rows.iter().map(read).collect()
    }

    /// The refunds of a channel that may go, up to the refund `newest`; those that are due first come first.
    pub async fn never_sent(
        &self,
        channel: &str,
        look: &BulkLook,
        newest: RefundId,
        most: i64,
    ) -> Result<Vec<Waiting>, StoreError> {
        let query =
            bind!(NEVER_SENT, channel: channel, to_channel: look.target(), newest: newest.0, most: most);
        let rows = query.all(&self.db.patient()).await.doing("look for refunds that were never sent")?;
        rows.iter().map(read).collect()
    }

    /// Those of these refunds that are in the channel and may go.
    pub async fn still_never_sent(
        &self,
        channel: &str,
        look: &BulkLook,
        ids: &[RefundId],
    ) -> Result<Vec<RefundId>, StoreError> {
        let ids: Vec<i64> = ids.iter().map(|id| id.0).collect();
        let query = bind!(STILL_NEVER_SENT, channel: channel, to_channel: look.target(), id: ids);
        let rows = query.all(&self.db.patient()).await.doing("look for refunds that were never sent")?;
        Ok(rows.iter().map(|row| RefundId(row.get("id"))).collect())
    }

    /// How many of these refunds wait, in whatever channel, and were never sent.
    pub async fn never_sent_among(&self, ids: &[RefundId]) -> Result<u64, StoreError> {
        let ids: Vec<i64> = ids.iter().map(|id| id.0).collect();
        let count: i64 = sqlx::query_scalar(NEVER_SENT_AMONG)
            .bind(&ids)
            .one(&self.db.patient())
            .await
            .doing("look for refunds that were never sent")?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    /// The refunds of a channel that have not ended and may not go, up to the refund `newest`, in the order of their ids.
    pub async fn staying(
        &self,
        channel: &str,
        look: &BulkLook,
        newest: RefundId,
        most: i64,
    ) -> Result<Vec<Waiting>, StoreError> {
        let query = bind!(STAYING, channel: channel, to_channel: look.target(), newest: newest.0, most: most);
        let rows = query.all(&self.db.patient()).await.doing("look for refunds that stay in a channel")?;
        rows.iter().map(read).collect()
    }

    /// What waits in a channel, by currency, and by whether it may go; up to the refund `newest`, if one is given. `with_ids`
    /// names the refunds that go, too.
    pub async fn waiting_sums(
        &self,
        channel: &str,
        look: &BulkLook,
        newest: Option<RefundId>,
        with_ids: bool,
    ) -> Result<Vec<WaitingSum>, StoreError> {
        let query = bind!(
            SUMS,
            channel: channel,
            to_channel: look.target(),
            newest: newest.map(|id| id.0),
            with_ids: with_ids,
        );
        let rows = query.all(&self.db.patient()).await.doing("count what waits in a channel")?;
        let sum = |row: &PgRow| {
            Ok(WaitingSum {
                currency: row.get("currency"),
                stays: stays_of(row, 0)?,
                refunds: u64::try_from(row.get::<i64, _>("refunds")).unwrap_or(0),
                sum: row.get::<&str, _>("sum").parse().unwrap_or(i128::MAX),
                ids: row.get::<Option<Vec<i64>>, _>("ids").into_iter().flatten().map(RefundId).collect(),
            })
        };
        rows.iter().map(sum).collect()
    }

    /// The refund that was saved last; zero if there is none.
    pub async fn newest_refund(&self) -> Result<RefundId, StoreError> {
        let newest = sqlx::query_scalar(NEWEST).one(&self.db).await;
        newest.doing("look for the newest refund").map(RefundId)
    }
}
