//! Reads the chains of seals beside the journal, in the order of the lines, for `refundd prove --journal`.
//!
//! This file judges nothing: `prove::chain` does. It computes no hash by SQL: the columns come as Postgres sends them,
//! and `prove::chain` makes bytes of them.
//!
//! Both are read one page at a time, up to the line that was sealed last when the walk began. Nodes go on meanwhile: they
//! add lines and seals behind that line alone.

use std::collections::BTreeMap;

use sqlx::postgres::PgRow;
use sqlx::{Row, ValueRef};

use super::connections::Ask;
use super::named::{Statement, bind, statement};
use super::{Doing, Store, StoreError};
use crate::prove::chain::{
    DroppedMonth, JournalLine, KeptMonths, LINE, SEAL, Seal, SealSpan, SealedColumn, digest,
};

/// How far the journal is sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealing {
    pub until_id: i64,
    /// The last line of all seals. It is never beyond `until_id`, unless somebody lowered that.
    pub seals_end_at: i64,
    /// How many seals were written and not yet seen. A negative number: there are more than were written.
    pub missing_seals: i64,
    pub kept: KeptMonths,
}

// To count the seals means to read the whole index. Postgres does that only if the case needs it.
const SEALING: &str = "
    select s.until_id, s.seals - case when $1 then (select count(*) from refundd.seals) else 0 end as missing_seals,
           coalesce((select max(l.to_id) from refundd.seals l), 0) as seals_end_at,
           (extract(epoch from now()) * 1000000)::bigint as now_us,
           (extract(epoch from coalesce((select r.at_least from refundd.retention r where r.evidence = 'attempts'), interval '30 days'))
               * 1000000)::bigint as kept_us
      from refundd.sealing s";

const DROPPED: &str = "
    select (extract(epoch from month_begins) * 1000000)::bigint as begins_us,
           (extract(epoch from month_ends) * 1000000)::bigint as ends_us,
           (extract(epoch from dropped_at) * 1000000)::bigint as dropped_us,
           (extract(epoch from kept) * 1000000)::bigint as kept_us, noted_later
      from refundd.dropped_months order by month_ends, dropped_at";

const SEALS: Statement = statement!(include_str!("sql/seals.sql"));

const UNSEALED: &str = "
    select count(*) as lines,
           (extract(epoch from min(finished_at) filter (where isfinite(finished_at))) * 1000000)::bigint as oldest_us
      from refundd.attempts where id > $1 and ($2::text is null or channel = $2)";

// `:most` bounds the lines that one statement reads, also where ids have wide gaps.
const END_OF_PAGE: &str = "
    select max(a.id) from (select id from refundd.attempts where id > $1 and id <= $2 order by id limit $3) a";

const LINES: Statement = statement!(
    "
    select id, refund_id, channel, kind, number, lease_epoch, node, permit, started_at, finished_at, outcome, moved_to, status, code, message,
           case when isfinite(finished_at) then (extract(epoch from finished_at) * 1000000)::bigint end as finished_us
      from refundd.attempts
     where id > :after_id and id <= :to_id and (:channel::text is null or channel = :channel or id = any(:sealed::bigint[]))
     order by id"
);

const REFS: &str = "select id, refund_ref from refundd.refunds where id = any($1)";

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("sealing", SEALING),
    ("dropped_months", DROPPED),
    ("seals", SEALS.sql),
    ("unsealed", UNSEALED),
    ("end_of_lines", END_OF_PAGE),
    ("lines", LINES.sql),
    ("refund_refs", REFS),
];

/// About how many seals one statement reads. A seal has up to 10,000 lines of 48 bytes.
const SEALS_AT_ONCE: i64 = 50;
const LINES_AT_ONCE: i64 = 10_000;

/// The bytes of these columns as Postgres sends them, in its binary format.
fn digest_of(row: &PgRow, columns: &[(&str, u32)]) -> Result<[u8; 32], sqlx::Error> {
    let mut fields = Vec::with_capacity(columns.len());
    for (name, oid) in columns {
        let value = row.try_get_raw(*name)?;
        let bytes = if value.is_null() { None } else { Some(value.as_bytes().map_err(sqlx::Error::Decode)?) };
        fields.push(SealedColumn { oid: *oid, bytes });
    }
    Ok(digest(&fields))
}

impl Store {
    /// How far the journal is sealed, and of which months lines may be missing. If it does not `count` the seals, all of them are
    /// missing still: the caller counts those that it sees.
    pub async fn sealing(&self, count: bool) -> Result<Sealing, StoreError> {
        let row = sqlx::query(SEALING).bind(count).one(&self.db.patient()).await;
        let row = row.doing("read how far the journal is sealed")?;
        Ok(Sealing {
            until_id: row.get("until_id"),
            seals_end_at: row.get("seals_end_at"),
            missing_seals: row.get("missing_seals"),
            kept: KeptMonths {
                dropped: self.dropped_months().await?,
                now_us: row.get("now_us"),
                kept_us: row.get("kept_us"),
            },
        })
    }

    /// Every month of the journal that refundd dropped.
    pub async fn dropped_months(&self) -> Result<Vec<DroppedMonth>, StoreError> {
        let rows = sqlx::query(DROPPED).all(&self.db.patient()).await;
        let rows = rows.doing("read which months of the journal were dropped")?;
        let month = |row: &PgRow| DroppedMonth {
            begins_us: row.get("begins_us"),
            ends_us: row.get("ends_us"),
            dropped_us: row.get("dropped_us"),
            kept_us: row.get("kept_us"),
            noted_later: row.get("noted_later"),
        };
        Ok(rows.iter().map(month).collect())
    }

    /// How many lines are not sealed yet, and the time of the oldest of them in microseconds since 1970.
    pub async fn unsealed_lines(
        &self,
        until_id: i64,
        channel: Option<&str>,
    ) -> Result<(i64, Option<i64>), StoreError> {
        let row = sqlx::query(UNSEALED).bind(until_id).bind(channel).one(&self.db.patient()).await;
        let row = row.doing("count the lines that are not sealed")?;
        Ok((row.get("lines"), row.get("oldest_us")))
    }

    /// The next seals that end after `after_id`, of one channel or of all. No seal ends between the last of them and
    /// the next page.
    pub async fn seals(
        &self,
        after_id: i64,
        until_id: i64,
        channel: Option<&str>,
    ) -> Result<Vec<Seal>, StoreError> {
        let query =
            bind!(SEALS, after_id: after_id, until_id: until_id, channel: channel, most: SEALS_AT_ONCE);
        let rows = query.all(&self.db.patient()).await.doing("read the seals of the journal")?;
        let before = |row: &PgRow| {
            let after_id: Option<i64> = row.get("before_after_id");
            after_id.map(|after_id| SealSpan {
                after_id,
                to_id: row.get("before_to_id"),
                sealed_us: row.get("before_sealed_us"),
            })
        };
        let seal = |row: &PgRow| {
            Ok(Seal {
                channel: row.get("channel"),
                number: row.get("number"),
                span: SealSpan {
                    after_id: row.get("after_id"),
                    to_id: row.get("to_id"),
                    sealed_us: row.get("sealed_us"),
                },
                before: before(row),
                total: row.get("total"),
                month_ends_us: row.get("month_ends_us"),
                previous: row.get("previous"),
                lines: row.get("lines"),
                hash: row.get("hash"),
                computed: digest_of(row, SEAL)?,
            })
        };
        let seals: Result<_, sqlx::Error> = rows.iter().map(seal).collect();
        seals.doing("understand a seal of the journal")
    }

    /// The next lines after `after_id`, of one channel or of all, and the id up to which this page goes. Lines with an
    /// id of `sealed` come, too, whatever channel they name now.
    pub async fn lines(
        &self,
        after_id: i64,
        until_id: i64,
        channel: Option<&str>,
        sealed: &[i64],
    ) -> Result<(i64, Vec<JournalLine>), StoreError> {
        let end = sqlx::query_scalar::<_, Option<i64>>(END_OF_PAGE)
            .bind(after_id)
            .bind(until_id)
            .bind(LINES_AT_ONCE)
            .one(&self.db.patient())
            .await
            .doing("find the next lines of the journal")?;
        let Some(to_id) = end else { return Ok((until_id, Vec::new())) };
        let query = bind!(LINES, after_id: after_id, to_id: to_id, channel: channel, sealed: sealed);
        let rows = query.all(&self.db.patient()).await.doing("read the journal")?;
        let line = |row: &PgRow| {
            Ok(JournalLine {
                id: row.get("id"),
                refund: row.get("refund_id"),
                channel: row.get("channel"),
                finished_us: row.get("finished_us"),
                digest: digest_of(row, LINE)?,
            })
        };
        let lines: Result<_, sqlx::Error> = rows.iter().map(line).collect();
        Ok((to_id, lines.doing("understand a line of the journal")?))
    }

    /// The refund refs of these refunds, as far as they exist.
    pub async fn refund_refs(&self, ids: &[i64]) -> Result<BTreeMap<i64, String>, StoreError> {
        let rows = sqlx::query(REFS).bind(ids).all(&self.db.patient()).await.doing("look refunds up")?;
        Ok(rows.iter().map(|row| (row.get("id"), row.get("refund_ref"))).collect())
    }
}
