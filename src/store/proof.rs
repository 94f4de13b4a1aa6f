//! Reads the ledger in order of time, and compares the journal with it, for `refundd prove`.
//!
//! This file judges no rule: `prove` does.
//!
//! Ledger and journal may have many millions of rows, so each is read one page at a time, while nodes go on sending.
//! Nodes add rows only at the end, and old rows are dropped only at the beginning: `proof` notices a day that is dropped
//! meanwhile.

mod provable;

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::civil::Date;
use sqlx::Row;

use super::connections::Ask;
use super::named::{Statement, bind, statement};
use super::{Doing, Store, StoreError};
use crate::prove::{Opening, Period};
pub use provable::Provable;

/// The question to the journal about one limit.
#[derive(Debug, Clone)]
pub struct JournalQuery<'a> {
    /// The names of the limit's permits: its own, and those of its shares.
    pub names: &'a [String],
    /// The period of the permits.
    pub permits: Period,
    /// The period of the requests: each first byte in it needs a permit.
    pub requests: Period,
    /// The channels whose sends need a permit of this limit.
    pub sends_of: &'a [String],
    /// The channels whose inquiries need a permit of this limit.
    pub inquiries_of: &'a [String],
}

/// The result of comparing the journal with the ledger for one limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JournalCheck {
    /// First bytes that name a permit of the period, also one that the ledger does not have for that refund.
    pub first_bytes: u64,
    /// First bytes of requests that need a permit of this limit, without such a permit.
    pub without: Offence,
    /// First bytes under a permit that the ledger does not have for that refund.
    pub unknown: Offence,
    /// First bytes under a permit that was used before.
    pub again: Offence,
}

impl JournalCheck {
    /// First bytes whose permit the ledger has for their refund.
    #[must_use]
    pub fn under_permits(&self) -> u64 {
        self.first_bytes.saturating_sub(self.unknown.count)
    }
}

/// First bytes that break a rule: how many, and one of their refunds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Offence {
    pub count: u64,
    pub refund: Option<i64>,
}

impl Offence {
    fn add(&mut self, count: i64, refund: Option<i64>) {
        self.count += u64::try_from(count).unwrap_or(0);
        self.refund = self.refund.or(refund);
    }
}

/// The size of a page: openings of permits in the ledger, ids in the journal.
const PAGE: i64 = 10_000;

const NOW: &str = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint";

const OLDEST: &str = "
    select min(o.at_us)
      from unnest($1::text[]) n (name)
      cross join lateral (select (extract(epoch from min(window_start)) * 1000000)::bigint as at_us
                            from refundd.permits where limit_name = n.name) o";

// Nothing is proven of a day that lies far ahead. A forged one might not be countable in microseconds.
const AGREED_DAYS: &str = "
    select to_char(day, 'YYYY-MM-DD') as day, (extract(epoch from begins_at) * 1000000)::bigint as begins_us
      from refundd.zone_days
     where zone = $1 and begins_at > timestamptz 'epoch' and begins_at < now() + interval '7 days'";

// The first name is the limit's own, and the others are those of its shares. The inner limit lets the statement read each
// name's part of the index no further than one page.
const OPENINGS: Statement = statement!(
    "
    select o.at_us, sum(o.refunds)::bigint as refunds, sum(o.others)::bigint as others, max(o.top) as top,
           coalesce(sum(o.refunds + o.others) filter (where n.nth > 1), 0)::bigint as in_shares
      from unnest(:name::text[]) with ordinality n (name, nth)
      cross join lateral (
           select (extract(epoch from window_start) * 1000000)::bigint as at_us, count(refund_id) as refunds,
                  count(*) - count(refund_id) as others, max(ordinal)::bigint as top
             from refundd.permits
            where limit_name = n.name
              and window_start > timestamptz 'epoch' + :after_us * interval '1 microsecond'
              and window_start < timestamptz 'epoch' + :to_us * interval '1 microsecond'
            group by window_start order by window_start limit :most) o
     group by o.at_us order by o.at_us limit :most"
);

// `id + 0` keeps the planner off the index on `id`, which it would walk from its end. The journal gets an attempt
// when the attempt is over. So the range begins a minute early, for differing clocks, and ends a day late, for
// outages.
const PAGES: &str = "
    select min(id + 0) as first, max(id + 0) as last from refundd.attempts
     where finished_at > timestamptz 'epoch' + $1 * interval '1 microsecond' - interval '1 minute'
       and finished_at < timestamptz 'epoch' + $2 * interval '1 microsecond' + interval '1 day'";

// `:sends_of` and `:inquiries_of` are the channels whose sends and whose inquiries need a permit of this limit.
// After a change of a channel's settings, nodes may send under the old settings for a minute. A request without a permit
// in that minute is no offence. A permit of any share is a permit of the limit. The statement looks each permit up by the
// ledger's key; a join would hash the whole ledger each time.
const CHECK_JOURNAL: Statement = statement!(
    "
    select count(*) filter (where s.is_ours) as first_bytes,
           count(*) filter (where s.is_bare) as without, min(s.refund_id) filter (where s.is_bare) as without_id,
           count(*) filter (where s.is_ours and not s.is_known) as unknown, min(s.refund_id) filter (where s.is_ours and not s.is_known) as unknown_id,
           count(*) filter (where s.is_ours and s.is_again) as again, min(s.refund_id) filter (where s.is_ours and s.is_again) as again_id
      from (select a.refund_id,
                   coalesce((select p.refund_id = a.refund_id from refundd.permits p
                              where p.limit_name = n.name and p.window_start = n.opens and p.ordinal = n.ordinal), false) as is_known,
                   coalesce(n.opens >= timestamptz 'epoch' + :permits_from_us * interval '1 microsecond'
                            and n.opens < timestamptz 'epoch' + :permits_to_us * interval '1 microsecond', false) as is_ours,
                   n.opens is null and a.started_at > c.published_at + interval '1 minute'
                   and a.started_at >= timestamptz 'epoch' + :requests_from_us * interval '1 microsecond'
                   and a.started_at < timestamptz 'epoch' + :requests_to_us * interval '1 microsecond' as is_bare,
                   exists (select from refundd.attempts b
                            where b.refund_id = a.refund_id and b.id < a.id and b.kind in ('send', 'inquiry') and b.started_at is not null
                              and b.finished_at > n.opens - interval '1 day' -- so that Postgres skips older months
                              and n.item = any(string_to_array(b.permit, ','))) as is_again
              from refundd.attempts a
              left join lateral (
                   select i as item, split_part(i, '@', 1) as name, split_part(split_part(i, '@', 2), '#', 1)::timestamptz as opens,
                          split_part(i, '#', 2)::bigint as ordinal
                     from unnest(string_to_array(a.permit, ',')) i where split_part(i, '@', 1) = any(:name::text[]) limit 1) n on true
              left join refundd.channels c on c.channel = a.channel
             where a.id > :after_id and a.id <= :to_id and a.kind in ('send', 'inquiry') and a.started_at is not null
               and (n.opens is not null or a.kind = 'send' and a.channel = any(:sends_of::text[])
                    or a.kind = 'inquiry' and a.channel = any(:inquiries_of::text[]))
            offset 0) s"
);

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("now", NOW),
    ("provable_channels", provable::CHANNELS),
    ("ruled_limits", provable::RULED),
    ("oldest_permit", OLDEST),
    ("agreed_days", AGREED_DAYS),
    ("openings", OPENINGS.sql),
    ("journal_pages", PAGES),
    ("check_journal", CHECK_JOURNAL.sql),
];

impl Store {
    /// The time of Postgres's clock.
    pub async fn now(&self) -> Result<Timestamp, StoreError> {
        let us: i64 = sqlx::query_scalar(NOW).one(&self.db).await.doing("read Postgres's clock")?;
        Ok(Timestamp::from_microsecond(us).unwrap_or(Timestamp::UNIX_EPOCH))
    }

    /// When the oldest permit in the ledger under one of these names opened, in us since 1970; `None` without permits.
    pub async fn oldest_permit_us(&self, names: &[String]) -> Result<Option<i64>, StoreError> {
        let oldest = sqlx::query_scalar(OLDEST).bind(names).one(&self.db.patient()).await;
        oldest.doing("look for the oldest permit")
    }

    /// When the days of a time zone begin, in us since 1970: every day on which the nodes agreed.
    pub async fn agreed_days(&self, zone: &str) -> Result<BTreeMap<Date, i64>, StoreError> {
        let rows = sqlx::query(AGREED_DAYS).bind(zone).all(&self.db.patient()).await;
        let rows = rows.doing("read the days of a time zone")?;
        let days = rows.iter().filter_map(|row| {
            let day: Date = row.get::<&str, _>("day").parse().ok()?;
            Some((day, row.get::<i64, _>("begins_us")))
        });
        Ok(days.collect())
    }

    /// Calls `see` with each opening of permits in a period, in order of time: of a limit by its own name, which comes first,
    /// and by the names of its shares.
    pub async fn each_opening(
        &self,
        names: &[String],
        period: Period,
        mut see: impl FnMut(&Opening),
    ) -> Result<(), StoreError> {
        let mut after = period.from_us - 1;
        loop {
            let query = bind!(OPENINGS, name: names, after_us: after, to_us: period.to_us, most: PAGE);
            let rows = query.all(&self.db.patient()).await.doing("read the ledger of permits")?;
            for row in &rows {
                let count = |column| u64::try_from(row.get::<i64, _>(column)).unwrap_or(0);
                after = row.get("at_us");
                see(&Opening {
                    at_us: after,
                    refunds: count("refunds"),
                    others: count("others"),
                    top: count("top"),
                    in_shares: count("in_shares"),
                });
            }
            if i64::try_from(rows.len()).unwrap_or(PAGE) < PAGE {
                return Ok(());
            }
        }
    }

    /// Compares the journal's first bytes under a limit with the ledger. Calls `seen` after each page with the ids of its
    /// last line and of the last line of all.
    pub async fn check_journal(
        &self,
        query: &JournalQuery<'_>,
        mut seen: impl FnMut(i64, i64),
    ) -> Result<JournalCheck, StoreError> {
        let JournalQuery { names, permits, requests, sends_of, inquiries_of } = query;
        let pages = sqlx::query(PAGES)
            .bind(permits.from_us.min(requests.from_us))
            .bind(permits.to_us.max(requests.to_us))
            .one(&self.db.patient())
            .await
            .doing("find the period in the journal")?;
        let mut check = JournalCheck::default();
        let (Some(first), Some(last)) =
            (pages.get::<Option<i64>, _>("first"), pages.get::<Option<i64>, _>("last"))
        else {
            return Ok(check);
        };
        let mut after = first - 1;
        while after < last {
            let query = bind!(
                CHECK_JOURNAL,
                name: names,
                after_id: after,
                to_id: last.min(after + PAGE),
                sends_of: sends_of,
                inquiries_of: inquiries_of,
                permits_from_us: permits.from_us,
                permits_to_us: permits.to_us,
                requests_from_us: requests.from_us,
                requests_to_us: requests.to_us,
            );
            let row = query.one(&self.db.patient()).await.doing("compare the journal with the ledger")?;
            check.first_bytes += u64::try_from(row.get::<i64, _>("first_bytes")).unwrap_or(0);
            check.without.add(row.get("without"), row.get("without_id"));
            check.unknown.add(row.get("unknown"), row.get("unknown_id"));
            check.again.add(row.get("again"), row.get("again_id"));
            after += PAGE;
            seen(after.min(last), last);
        }
        Ok(check)
    }
}
