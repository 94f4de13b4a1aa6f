//! Reads what was sent to a bank from the journal, page after page, for `refundd export`.
//!
//! A page is read by the ids of its lines, so the memory that it needs does not grow with the period.
//!
//! A line is dated when its transaction begins, and can be read after the commit. So the reader first waits until no transaction
//! can write a line of the period any more ([`Store::journal_is_whole_before`]).
//!
//! Each page has a snapshot of its own: one transaction for all pages would keep Postgres from removing dead rows for as long as the
//! output lasts. All pages ignore lines that are dated after a time before which the journal is whole, so they see one journal. Only
//! the state of a refund, and whether it was sent again later, are those of the page's own snapshot. Such a send moves the money to
//! another period, and takes it from no other line.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use sqlx::Row;
use sqlx::postgres::PgRow;

use super::claim::read_money;
use super::connections::Ask;
use super::named::{Statement, bind, statement};
use super::{Doing, Store, StoreError, read_state, timestamp};
use crate::prove::Period;
use crate::refund::{Money, RefundId, State};

/// One send that reached its bank, or may have, and the refund as it stands now.
#[derive(Debug, Clone)]
pub struct SentLine {
    pub refund: RefundId,
    pub refund_ref: String,
    pub payment_ref: String,
    pub money: Money,
    /// Whether the refund is on another channel now. Then `request_id` and `bank_ref` are `None`: those of the refund are of
    /// no use to the bank of this send.
    pub is_elsewhere: bool,
    pub request_id: Option<String>,
    pub number: i32,
    /// `None` if the node died before it could say.
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    pub outcome: String,
    pub status: Option<i16>,
    pub code: Option<String>,
    pub permit: Option<String>,
    pub bank_ref: Option<String>,
    pub state: State,
    /// Who ended the refund; `None` while it has not ended.
    pub ended_by: Option<EndedBy>,
    pub again: SentAgain,
    /// Whether a late answer of the bank contradicts the refund.
    pub is_contradicted: bool,
}

/// Whether another send counts the money of a send's refund, and when the journal dates that send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SentAgain {
    No,
    InThePeriod,
    /// Before the period: the line of this send came late, or it provably executed nothing.
    Before,
    Later,
}

/// Who ended a refund, as the journal says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EndedBy {
    /// The bank's answer to a send or to an inquiry.
    Bank,
    /// A person's decision about a refund that was open, in review or over.
    Person,
    /// A person or a program, such as its producer, cancelled it while it was ready. The journal keeps the name, and
    /// not whose name it is.
    Canceller,
    /// Its deadline passed.
    Refundd,
}

impl EndedBy {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            EndedBy::Bank => "bank",
            EndedBy::Person => "person",
            EndedBy::Canceller => "canceller",
            EndedBy::Refundd => "refundd",
        }
    }

    /// `line` is the kind of the last line of the journal that moved the refund, or `cancellation`. Older versions cancelled
    /// without a line.
    fn of(state: State, line: Option<&str>) -> Option<EndedBy> {
        match (state, line) {
            (State::Ready | State::Sending | State::Accepted | State::Unknown | State::Review, _) => None,
            (_, Some("manual")) => Some(EndedBy::Person),
            (_, Some("cancellation")) | (State::Cancelled, _) => Some(EndedBy::Canceller),
            (_, Some("recovery")) => Some(EndedBy::Refundd),
            (State::Succeeded | State::Failed, _) => Some(EndedBy::Bank),
        }
    }
}

/// How many lines of the journal one statement reads.
const PAGE: i64 = 10_000;

/// One statement looks for lines in a day, or in up to 32 days next to a part without lines.
const DAY_US: i64 = 24 * 60 * 60 * 1_000_000;

// `id + 0`, as in `proof.rs`: the planner would walk the index on `id` from its end.
const RANGE: &str = "
    select min(id + 0) as first, max(id + 0) as last from refundd.attempts
     where finished_at >= timestamptz 'epoch' + $1 * interval '1 microsecond'
       and finished_at < timestamptz 'epoch' + $2 * interval '1 microsecond'";

// A line without a first byte is a send that was handed back, unless the outcome is open. The line of a lapsed lease
// is left out once the node's own line about the same send is there, also where the sends after a send are looked at. Two claims may
// have one epoch, so the process must be the same, too: a lapsed lease names process/claim, and the node's own line its process.
// Lines are written late, so the epoch says which send is the later one, and the id only between two claims with one epoch.
// The last send counts the money. But a send that provably executed nothing counts it only where all of them did not.
// A fail-over may lose a claim, and then the refund moves: sends to two banks have one epoch, and each bank may have paid. So only
// lines of one channel are compared.
const SENT: Statement = statement!(
    "
    select a.refund_id, r.refund_ref, r.payment_ref, r.amount_minor, r.currency, a.channel <> r.channel as is_elsewhere,
           case when a.channel = r.channel then r.request_id::text end as request_id, a.number,
           (extract(epoch from a.started_at) * 1000000)::bigint as started_us,
           (extract(epoch from a.finished_at) * 1000000)::bigint as finished_us,
           a.outcome, a.status, a.code, a.permit, case when a.channel = r.channel then r.bank_ref end as bank_ref, r.state,
           (select case when b.kind = 'manual' and b.code = 'cancelled' then 'cancellation' else b.kind end
              from refundd.attempts b where b.refund_id = a.refund_id and b.moved_to is not null
             order by b.id desc limit 1) as moved_by,
           exists (select from refundd.events e
                    where e.refund_id = a.refund_id and e.kind = 'late_answer_differs') as is_contradicted,
           (select case when s.is_here then 'here'
                        when s.counted_at < timestamptz 'epoch' + :from_us * interval '1 microsecond' then 'before'
                        when s.counted_at >= timestamptz 'epoch' + :to_us * interval '1 microsecond' then 'later' end
              from (select bool_or(b.finished_at >= timestamptz 'epoch' + :from_us * interval '1 microsecond'
                                   and b.finished_at < timestamptz 'epoch' + :to_us * interval '1 microsecond'
                                   and (o.own_at is null or o.own_at >= timestamptz 'epoch' + :whole_us * interval '1 microsecond')
                                   and (b.outcome <> 'not_executed', b.lease_epoch, b.id)
                                       > (a.outcome <> 'not_executed', a.lease_epoch, a.id)) as is_here,
                           (array_agg(b.finished_at order by (b.outcome <> 'not_executed') desc, b.lease_epoch desc, b.id desc)
                              filter (where o.own_at is null))[1] as counted_at
                      from refundd.attempts b
                           cross join lateral (select min(c.finished_at) as own_at from refundd.attempts c
                                                where b.code = 'lease_lapsed' and c.refund_id = b.refund_id and c.channel = b.channel
                                                  and c.lease_epoch = b.lease_epoch and c.kind = 'send'
                                                  and starts_with(b.node || '/', c.node || '/')
                                                  and c.code is distinct from 'lease_lapsed') o
                     where b.refund_id = a.refund_id and b.channel = a.channel and b.kind = 'send'
                       and (b.started_at is not null or b.outcome <> 'not_executed')) s) as sent_again
      from refundd.attempts a join refundd.refunds r on r.id = a.refund_id
     where a.id > :after_id and a.id <= :to_id and a.channel = :channel and a.kind = 'send'
       and (a.started_at is not null or a.outcome <> 'not_executed')
       and a.finished_at >= timestamptz 'epoch' + :from_us * interval '1 microsecond'
       and a.finished_at < timestamptz 'epoch' + :to_us * interval '1 microsecond'
       and not (a.code is not distinct from 'lease_lapsed'
                and exists (select from refundd.attempts b
                             where b.refund_id = a.refund_id and b.channel = a.channel and b.lease_epoch = a.lease_epoch and b.kind = 'send'
                               and starts_with(a.node || '/', b.node || '/')
                               and b.finished_at < timestamptz 'epoch' + :whole_us * interval '1 microsecond'
                               and b.code is distinct from 'lease_lapsed'))
     order by a.id"
);

// The transactions that may still write sends dated before the end. Nodes give up such a statement after 3.5 s, so one that began
// 5 s ago has its lock on the journal, or is over; before, each transaction counts. Times of other roles' transactions are not
// shown to everybody: one without a time may have begun before the end.
const MAY_WRITE: Statement = statement!(
    "
    select distinct w.name
      from (select unnest(f.writers) as name from refundd.feed_reach() f
            union all
            select l.virtualtransaction from pg_locks l join pg_stat_activity a on a.pid = l.pid
             where l.locktype = 'virtualxid' and l.virtualxid = l.virtualtransaction and l.pid <> pg_backend_pid()
               and a.datname = current_database() and a.usesysid is not null
               and now() < timestamptz 'epoch' + :end_us * interval '1 microsecond' + interval '5 seconds') w
     where not exists (select from pg_locks l join pg_stat_activity a on a.pid = l.pid
                        where l.locktype = 'virtualxid' and l.virtualtransaction = w.name
                          and a.xact_start >= timestamptz 'epoch' + :end_us * interval '1 microsecond')"
);

pub(super) const STATEMENTS: &[(&str, &str)] =
    &[("sent_range", RANGE), ("sent", SENT.sql), ("may_write_sends", MAY_WRITE.sql)];

fn read(row: &PgRow) -> Result<SentLine, StoreError> {
    let id: i64 = row.get("refund_id");
    let state = read_state(row, id)?;
    Ok(SentLine {
        refund: RefundId(id),
        refund_ref: row.get("refund_ref"),
        payment_ref: row.get("payment_ref"),
        money: read_money(row),
        is_elsewhere: row.get("is_elsewhere"),
        request_id: row.get("request_id"),
        number: row.get("number"),
        started_at: timestamp(row, "started_us"),
        finished_at: timestamp(row, "finished_us"),
        outcome: row.get("outcome"),
        status: row.get("status"),
        code: row.get("code"),
        permit: row.get("permit"),
        bank_ref: row.get("bank_ref"),
        ended_by: EndedBy::of(state, row.get("moved_by")),
        state,
        again: match row.get::<Option<&str>, _>("sent_again") {
            None => SentAgain::No,
            Some("here") => SentAgain::InThePeriod,
            Some("before") => SentAgain::Before,
            Some(_) => SentAgain::Later,
        },
        is_contradicted: row.get("is_contradicted"),
    })
}

impl Store {
    /// Waits until no transaction can write a send any more that is dated before `end_us`, which is past; false if one still
    /// can after `at_most`. Calls `waits` before each further look.
    pub async fn journal_is_whole_before(
        &self,
        end_us: i64,
        at_most: Duration,
        mut waits: impl FnMut(),
    ) -> Result<bool, StoreError> {
        let (began, mut wait) = (Instant::now(), Duration::from_millis(5));
        let mut open = self.may_write_before(end_us).await?;
        while !open.is_empty() {
            if began.elapsed() >= at_most {
                return Ok(false);
            }
            waits();
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(Duration::from_millis(250));
            let now = self.may_write_before(end_us).await?;
            // One that was not there before began after the end. One that prepared its commit has no virtual id any more.
            open = now.into_iter().filter(|name| name == "prepared" || open.contains(name)).collect();
        }
        Ok(true)
    }

    async fn may_write_before(&self, end_us: i64) -> Result<Vec<String>, StoreError> {
        let rows = bind!(MAY_WRITE, end_us: end_us).all(&self.db).await;
        let rows = rows.doing("look who may still write sends")?;
        Ok(rows.iter().map(|row| row.get("name")).collect())
    }

    /// The first and the last line of the journal in a period. After a step of the clock, ids are in another order than times, so each
    /// part of the period is read. The newest part is the first one: the parts get longer before the beginning of the journal.
    async fn range_of(&self, period: Period) -> Result<Option<(i64, i64)>, StoreError> {
        let mut range: Option<(i64, i64)> = None;
        let (mut to_us, mut part_us) = (period.to_us, DAY_US);
        while to_us > period.from_us {
            let from_us = period.from_us.max(to_us.saturating_sub(part_us));
            let row = sqlx::query(RANGE).bind(from_us).bind(to_us).one(&self.db.patient()).await;
            let row = row.doing("find the period in the journal")?;
            let found = row.get::<Option<i64>, _>("first").zip(row.get::<Option<i64>, _>("last"));
            part_us = if found.is_some() { DAY_US } else { (part_us * 2).min(32 * DAY_US) };
            if let Some((first, last)) = found {
                range = range.or(found).map(|(lowest, highest)| (lowest.min(first), highest.max(last)));
            }
            to_us = from_us;
        }
        Ok(range)
    }

    /// Calls `see` with the sends of a channel that ended in the period, from its beginning up to and without its end, in
    /// the order of the journal. `see` gets one page at a time, and how much of the journal was read in percent; it stops
    /// the reading by answering false. The journal must be whole before `whole_us`, which is not before the end of the period: a line
    /// that is dated later takes the place of no lapsed lease. It only says that a refund was sent again later.
    pub async fn each_page_of_sent(
        &self,
        channel: &str,
        period: Period,
        whole_us: i64,
        mut see: impl FnMut(&[SentLine], i64) -> bool,
    ) -> Result<(), StoreError> {
        let db = self.db.patient();
        let Some((first, last)) = self.range_of(period).await? else { return Ok(()) };
        let mut after = first - 1;
        while after < last {
            let to = last.min(after + PAGE);
            let query = bind!(
                SENT,
                channel: channel,
                after_id: after,
                to_id: to,
                from_us: period.from_us,
                to_us: period.to_us,
                whole_us: whole_us,
            );
            let rows = query.all(&db).await.doing("read what was sent")?;
            let lines = rows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
            if !see(&lines, (to - first + 1) * 100 / (last - first + 1)) {
                return Ok(());
            }
            after = to;
        }
        Ok(())
    }
}
