//! Reads for the page: what a limit and a channel did in the last minutes, the refunds that wait for a person, and the nodes.
//!
//! Every statement reads a bounded part: a span of time, a number of rows, or the rows of living nodes. The page keeps
//! each result for a while, so viewers do not add up.

use jiff::Timestamp;
use sqlx::Row;
use sqlx::postgres::PgRow;

use super::connections::Ask;
use super::journal::{Evidence, read_evidence};
use super::look::{read_refund, refund_columns};
use super::named::{Statement, bind, statement};
use super::node_report::ReportedBank;
use super::{Doing, Store, StoreError, timestamp};
use crate::caller::Names;
use crate::refund::{Refund, RefundId};

/// The permits of one second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PermitSecond {
    /// Seconds since 1970, by Redis's clock.
    pub second: i64,
    /// Permits spent for refunds.
    pub refunds: u64,
    /// Permits granted to other services.
    pub others: u64,
}

/// Attempts of a channel that ended in one second and in the same way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerSecond {
    /// Seconds since 1970, by Postgres's clock.
    pub second: i64,
    /// `send` or `inquiry`.
    pub kind: String,
    pub outcome: String,
    pub status: Option<i16>,
    pub code: Option<String>,
    pub count: u64,
}

/// Which refunds in review to list, the lowest id first.
#[derive(Debug, Clone)]
pub struct ReviewFilter {
    pub channel: Option<String>,
    /// The channels whose refunds exist for the one who asks.
    pub channels: Names,
    /// Only refunds with a higher id.
    pub after: Option<RefundId>,
    pub most: u32,
}

/// One node, as its liveness row shows it.
#[derive(Debug, Clone, Default)]
pub struct NodeRow {
    pub name: String,
    pub version: String,
    pub bucket: String,
    pub channels: i32,
    pub config_digest: String,
    pub started_at: Option<Timestamp>,
    pub seen_at: Option<Timestamp>,
    /// Whether its last heartbeat is within 4 s of Postgres's clock.
    pub lives: bool,
    /// Why Redis does not answer it or refuses.
    pub redis_trouble: Option<String>,
}

/// What one living node reports of a channel and its bank.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BankOfNode {
    pub node: String,
    pub channel: String,
    pub report: ReportedBank,
}

const PERMIT_SECONDS: &str = "
    select extract(epoch from date_trunc('second', window_start))::bigint as second,
           count(refund_id) as refunds, count(*) - count(refund_id) as others
      from refundd.permits
     where limit_name = any($1) and window_start >= timestamptz 'epoch' + $2 * interval '1 second'
       and window_start < timestamptz 'epoch' + $3 * interval '1 second'
     group by 1 order by 1";

const ANSWER_SECONDS: &str = "
    select extract(epoch from date_trunc('second', finished_at))::bigint as second, kind, outcome, status, code, count(*) as n
      from refundd.attempts
     where channel = $1 and kind in ('send', 'inquiry')
       and finished_at >= timestamptz 'epoch' + $2 * interval '1 second'
       and finished_at < timestamptz 'epoch' + $3 * interval '1 second'
     group by 1, 2, 3, 4, 5 order by 1, 2, 3, 4, 5";

// The windows of a limit are numbered, so the highest number of the newest window is its count.
const NEWEST_WINDOW: &str = "
    select (extract(epoch from window_start) * 1000000)::bigint as opens_us, ordinal
      from refundd.permits where limit_name = $1 and window_start <= now() + interval '1 second'
     order by window_start desc, ordinal desc limit 1";

// Walks the index from channel to channel and takes a page of each. To sort all refunds in review takes seconds when there are
// hundreds of thousands.
const REVIEW_PAGE: Statement = statement!(concat!(
    "select ",
    refund_columns!(),
    "  from (with recursive waiting as (
             (select w.channel from refundd.refunds w where w.state = 'review' order by w.channel limit 1)
             union all
             select (select w.channel from refundd.refunds w where w.state = 'review' and w.channel > waiting.channel
                      order by w.channel limit 1)
               from waiting where waiting.channel is not null)
         select waiting.channel from waiting
          where waiting.channel is not null and (:channel::text is null or waiting.channel = :channel)
            and (:channels::text[] is null or waiting.channel = any(:channels))) c
      cross join lateral (select * from refundd.refunds w where w.state = 'review' and w.channel = c.channel and w.id > :after
                           order by w.id limit :most) r
     order by r.id limit :most"
));

// The last attempts of each refund, oldest first.
const EVIDENCE_OF: &str = "
    select a.* from unnest($1::bigint[]) as i (id)
     cross join lateral (
        select refund_id, id, channel, kind, number, lease_epoch, node, permit, outcome, moved_to, status, code, message,
               (extract(epoch from started_at) * 1000000)::bigint as started_us,
               (extract(epoch from finished_at) * 1000000)::bigint as finished_us
          from refundd.attempts where refund_id = i.id order by id desc limit $2) a
     order by a.refund_id, a.id";

// Living nodes in the order in which they lead, as in `sql/heartbeat.sql`.
const NODES: &str = "
    select split_part(node, '#', 1) as name, version, bucket, cardinality(channels) as channels, config_digest,
           (extract(epoch from started_at) * 1000000)::bigint as started_us,
           (extract(epoch from seen_at) * 1000000)::bigint as seen_us,
           seen_at between now() - interval '4 seconds' and now() + interval '4 seconds' as lives, standing ->> 'redis' as redis_trouble
      from refundd.nodes
     order by seen_at between now() - interval '4 seconds' and now() + interval '4 seconds' desc, nullif(started_at, seen_at) nulls last, node";

// A newer node may report its banks in another form than an object.
const BANKS: &str = "
    select split_part(n.node, '#', 1) as node, b.key as channel, b.value as report
      from refundd.nodes n
     cross join jsonb_each(case when jsonb_typeof(n.standing -> 'banks') = 'object' then n.standing -> 'banks' else '{}' end) b
     where n.seen_at between now() - interval '4 seconds' and now() + interval '4 seconds'
       and (b.key = $1 or ($1::text is null
            and b.value ?| array['unreachable', 'unreachable_to_ask', 'blocked', 'permits_lapse', 'lateness_too_small']))
     order by b.key, n.started_at, n.node";

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("permit_seconds", PERMIT_SECONDS),
    ("answer_seconds", ANSWER_SECONDS),
    ("newest_window", NEWEST_WINDOW),
    ("review_page", REVIEW_PAGE.sql),
    ("evidence_of", EVIDENCE_OF),
    ("nodes", NODES),
    ("banks", BANKS),
];

impl Store {
    /// The permits of limits together, second by second, in `[from, to)`: seconds since 1970. Seconds without permits are
    /// left out.
    pub async fn permit_seconds(
        &self,
        limits: &[String],
        from: i64,
        to: i64,
    ) -> Result<Vec<PermitSecond>, StoreError> {
        let query = sqlx::query(PERMIT_SECONDS).bind(limits).bind(from).bind(to);
        let rows = query.all(&self.db.patient()).await.doing("read the permits of the last minutes")?;
        let count = |row: &PgRow, column| u64::try_from(row.get::<i64, _>(column)).unwrap_or(0);
        Ok(rows
            .iter()
            .map(|row| PermitSecond {
                second: row.get("second"),
                refunds: count(row, "refunds"),
                others: count(row, "others"),
            })
            .collect())
    }

    /// How a channel's attempts ended, second by second, in `[from, to)`: seconds since 1970.
    pub async fn answer_seconds(
        &self,
        channel: &str,
        from: i64,
        to: i64,
    ) -> Result<Vec<AnswerSecond>, StoreError> {
        let query = sqlx::query(ANSWER_SECONDS).bind(channel).bind(from).bind(to);
        let rows = query.all(&self.db.patient()).await.doing("read the attempts of the last minutes")?;
        Ok(rows
            .iter()
            .map(|row| AnswerSecond {
                second: row.get("second"),
                kind: row.get("kind"),
                outcome: row.get("outcome"),
                status: row.get("status"),
                code: row.get("code"),
                count: u64::try_from(row.get::<i64, _>("n")).unwrap_or(0),
            })
            .collect())
    }

    /// When the newest window of a limit opened, in microseconds since 1970, and its highest permit; `None` without
    /// permits.
    pub async fn newest_window(&self, limit: &str) -> Result<Option<(i64, i32)>, StoreError> {
        let row = sqlx::query(NEWEST_WINDOW).bind(limit).maybe(&self.db).await;
        let row = row.doing("read the newest permit of a limit")?;
        Ok(row.map(|row| (row.get("opens_us"), row.get("ordinal"))))
    }

    /// Refunds that wait for a person, the lowest id first.
    pub async fn in_review(&self, filter: &ReviewFilter) -> Result<Vec<Refund>, StoreError> {
        let query = bind!(
            REVIEW_PAGE,
            channel: filter.channel,
            channels: filter.channels.these(),
            after: filter.after.map_or(0, |id| id.0),
            most: i64::from(filter.most),
        );
        let rows = query.all(&self.db.patient()).await.doing("list the refunds in review")?;
        rows.iter().map(read_refund).collect()
    }

    /// The last `most` attempts of each of these refunds, oldest first, each with its refund.
    pub async fn evidence_of(
        &self,
        refunds: &[RefundId],
        most: u32,
    ) -> Result<Vec<(RefundId, Evidence)>, StoreError> {
        let ids: Vec<i64> = refunds.iter().map(|id| id.0).collect();
        let query = sqlx::query(EVIDENCE_OF).bind(ids).bind(i64::from(most));
        let rows = query.all(&self.db).await.doing("read the journal of several refunds")?;
        let read = |row: &PgRow| {
            let id = RefundId(row.get("refund_id"));
            Ok((id, read_evidence(row, id)?))
        };
        rows.iter().map(read).collect()
    }

    /// All nodes that have a row; of those that live, the first leads.
    pub async fn nodes(&self) -> Result<Vec<NodeRow>, StoreError> {
        let rows = sqlx::query(NODES).all(&self.db).await.doing("list the nodes")?;
        let read = |row: &PgRow| NodeRow {
            name: row.get("name"),
            version: row.get("version"),
            bucket: row.get("bucket"),
            channels: row.get("channels"),
            config_digest: row.get("config_digest"),
            started_at: timestamp(row, "started_us"),
            seen_at: timestamp(row, "seen_us"),
            lives: row.get("lives"),
            redis_trouble: row.get("redis_trouble"),
        };
        Ok(rows.iter().map(read).collect())
    }

    /// What the living nodes see of a channel's bank; without a channel, of all banks with which something is wrong.
    pub async fn banks(&self, channel: Option<&str>) -> Result<Vec<BankOfNode>, StoreError> {
        let rows = sqlx::query(BANKS).bind(channel).all(&self.db.patient()).await;
        let rows = rows.doing("read what nodes see of banks")?;
        let read = |row: &PgRow| BankOfNode {
            node: row.get("node"),
            channel: row.get("channel"),
            report: ReportedBank::read(&row.get("report")),
        };
        Ok(rows.iter().map(read).collect())
    }
}
