//! The statements of recovery: lapsed leases, refunds that only a person can decide, plans of inquiries, and passed
//! deadlines.
//!
//! Nothing here moves a refund from `sending` back to `ready`: a lapsed refund may have been sent. Each move writes a line
//! of the journal in its own statement, because the feed of changes reads the journal.

use sqlx::Row;

use super::connections::Ask;
use super::named::{Statement, bind, column, statement};
use super::{Doing, Store, StoreError};
use crate::refund::RefundId;

/// A refund whose lease lapsed. It may have been sent.
#[derive(Debug)]
pub struct Lapsed {
    pub id: RefundId,
    pub channel: String,
    /// The node and the claim that had the lease.
    pub node: String,
}

const LAPSE: Statement = statement!(include_str!("sql/lapse.sql"));

// Some of them may not be over by the witnessed time: LAPSE then leaves them alone.
const LAPSED: &str = "
    select id from refundd.refunds
     where state = 'sending' and lease_until < now() and id <> all($2::bigint[])
     order by lease_until limit $1";

// Refunds that may have been sent to another address than the channel's present one. The statement waits a minute
// after the change, in which a person may put the old address back. A channel that only lost its inquiry, at the
// same bank, did not move.
const SHOW_MOVED: &str = "
    update refundd.refunds r
       set state = 'review',
           reason = 'address_changed: it may have been sent to ' || case when was.endpoint <> here.endpoint then was.endpoint
                       else was.endpoint || ' and asked about at ' || was.inquiry end
                    || ', and the channel''s bank is at ' || case when was.endpoint <> here.endpoint then here.endpoint
                       else here.endpoint || ' and asked at ' || here.inquiry end
                    || ' now; ask the first one what became of it, and decide'
      from (select u.id, c.address as here, coalesce(u.sent_to, (select min(a.address) from refundd.addresses a where a.channel = u.channel)) as was
              from refundd.refunds u join refundd.channels c on c.channel = u.channel
             where u.state in ('unknown', 'accepted') and c.address_since < now() - interval '1 minute'
               and not refundd.is_where_it_was_sent(u.sent_to, c.address, u.channel, c.inquires)
             limit $1 for update of u skip locked) moved
      join refundd.addresses was on was.address = moved.was
      join refundd.addresses here on here.address = moved.here
     where r.id = moved.id
    returning r.id, r.channel, refundd.recovery_moved(r, 'address_changed')";

// Leaves out refunds with a planned inquiry, refunds that will get one, and refunds that may be sent again, also if
// DROP_PLANS has yet to drop their plans. Of the latter it shows those that the bank has. It looks for a few of them in the
// journal each time: DROP_PLANS drops the plans of the others, until only those that the bank has are left.
const SHOW_UNKNOWN: &str = "
    update refundd.refunds r
       set state = 'review',
           reason = case when stuck.is_had then 'said_paid: an answer that came late says that the bank has this refund' else r.reason end
      from (select u.id, u.inquire_at is not null and refundd.was_said_paid(u.id, true) as is_had
              from refundd.refunds u join refundd.channels c on c.channel = u.channel
             where u.state = 'unknown'
               and not (c.retired_at is null and (
                        (c.inquires and (c.on_unknown <> 'review' or u.inquire_at is not null))
                     or (c.on_unknown = 'resend'
                         and refundd.may_be_resent(u.first_sent_at, u.attempts, u.deadline_at, c.resend_within, c.most_sends)
                         and (u.inquire_at is null or u.id <> all (array(
                              select few.id
                                from (select p.id from refundd.refunds p join refundd.channels d on d.channel = p.channel
                                       where p.state = 'unknown' and p.inquire_at is not null
                                         and d.on_unknown = 'resend' and not d.inquires and d.retired_at is null
                                       limit $1) few
                               where refundd.was_said_paid(few.id, true)))))))
             limit $1 for update of u skip locked) stuck
     where r.id = stuck.id
    returning r.id, r.channel, refundd.recovery_moved(r, case when stuck.is_had then 'said_paid' else 'nothing_left_to_try' end)";

// For channels without inquiries: `due_at` is the end of the time that the bank has to report. With inquiries, the
// inquiry schedule decides.
const SHOW_ACCEPTED: &str = "
    update refundd.refunds r set state = 'review'
      from (select id from refundd.refunds
             where state = 'accepted' and inquire_at is null and due_at <= now()
             limit $1 for update skip locked) stuck
     where r.id = stuck.id
    returning r.id, r.channel, refundd.recovery_moved(r, 'no_report')";

// Plans an inquiry for refunds that lack one: the channel got its inquiry later, the resends are used up, or an older
// node moved the refund.
const PLAN: &str = "
    update refundd.refunds r set inquire_at = now()
      from (select u.id from refundd.channels c join refundd.refunds u on u.channel = c.channel
             where c.inquires and c.retired_at is null and u.state in ('unknown', 'accepted') and u.inquire_at is null
               and refundd.is_where_it_was_sent(u.sent_to, c.address, u.channel, true)
               and (u.state = 'accepted' or c.on_unknown = 'inquire'
                    or (c.on_unknown = 'resend'
                        and not refundd.may_be_resent(u.first_sent_at, u.attempts, u.deadline_at, c.resend_within, c.most_sends)))
             limit $1 for update of u skip locked) unplanned
     where r.id = unplanned.id
    returning r.channel";

// Drops plans of channels that lost their inquiry or are retired: no node would make these inquiries. A refund that the
// bank says it has keeps its plan until SHOW_UNKNOWN shows it: without a plan it would wait for a resend that no claim makes.
const DROP_PLANS: &str = "
    update refundd.refunds r set inquire_at = null
      from (select u.id from refundd.channels c join refundd.refunds u on u.channel = c.channel
             where (not c.inquires or c.retired_at is not null) and u.inquire_at is not null
               and not (u.state = 'unknown' and refundd.was_said_paid(u.id, true))
             limit $1 for update of u skip locked) planned
     where r.id = planned.id
    returning r.channel";

const PAST_DEADLINE: &str = "
    update refundd.refunds r set state = 'failed', settled_at = now(), reason = 'deadline_passed'
      from (select id from refundd.refunds
             where state = 'ready' and deadline_at <= least(now(), timestamptz 'epoch' + $2 * interval '1 microsecond')
               -- A node may not have written a second step yet.
               and deadline_at + refundd.stepped_forward(created_at) <= least(now(), timestamptz 'epoch' + $2 * interval '1 microsecond')
             order by deadline_at limit $1 for update skip locked) late
     where r.id = late.id
    returning r.id, r.channel, refundd.recovery_moved(r, 'deadline_passed')";

const LEASED_BY: &str = "select id, channel from refundd.refunds where state = 'sending' and left(lease_node, length($1) + 1) = $1 || '/' order by id";

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("lapse", LAPSE.sql),
    ("lapsed", LAPSED),
    ("show_moved", SHOW_MOVED),
    ("show_unknown", SHOW_UNKNOWN),
    ("show_accepted", SHOW_ACCEPTED),
    ("plan_inquiries", PLAN),
    ("drop_plans", DROP_PLANS),
    ("past_deadline", PAST_DEADLINE),
    ("leased_by", LEASED_BY),
];

impl Store {
    /// Moves refunds whose lease lapsed to `unknown`, without those in `without`; at most `limit` in one call.
    pub async fn lapse_leases(&self, limit: u32, without: &[RefundId]) -> Result<Vec<Lapsed>, StoreError> {
        self.lapse(limit, None, without).await
    }

    /// Moves those of these refunds whose lease lapsed to `unknown`.
    pub async fn lapse_leases_of(&self, refunds: &[RefundId]) -> Result<Vec<Lapsed>, StoreError> {
        let limit = u32::try_from(refunds.len()).unwrap_or(u32::MAX);
        self.lapse(limit, Some(refunds), &[]).await
    }

    async fn lapse(
        &self,
        limit: u32,
        only: Option<&[RefundId]>,
        without: &[RefundId],
    ) -> Result<Vec<Lapsed>, StoreError> {
        let Ok(witnessed_us) = self.witnessed_us() else { return Ok(Vec::new()) };
        let query = bind!(
            LAPSE,
            most: i64::from(limit),
            witnessed_us: witnessed_us,
            only: only.map(|only| column(only, |id| id.0)),
            without: column(without, |id| id.0),
        );
        let rows = query.all(&self.db).await.doing("look for lapsed leases")?;
        Ok(rows
            .iter()
            .map(|row| Lapsed {
                id: RefundId(row.get("id")),
                channel: row.get("channel"),
                node: row.get("node"),
            })
            .collect())
    }

    /// The first `limit` refunds whose lease lapsed, without those in `without`. Moves none of them.
    pub async fn lapsed_leases(&self, limit: u32, without: &[RefundId]) -> Result<Vec<RefundId>, StoreError> {
        let without = column(without, |id| id.0);
        let query = sqlx::query_scalar(LAPSED).bind(i64::from(limit)).bind(without);
        let ids: Vec<i64> = query.all(&self.db).await.doing("look for lapsed leases one by one")?;
        Ok(ids.into_iter().map(RefundId).collect())
    }

    /// The refunds that a node still has leased, with their channels.
    pub async fn leased_by(&self, node: &str) -> Result<Vec<(i64, String)>, StoreError> {
        let rows =
            sqlx::query(LEASED_BY).bind(node).all(&self.db).await.doing("look for leases of this node")?;
        Ok(rows.iter().map(|row| (row.get("id"), row.get("channel"))).collect())
    }

    /// Moves to `review` the refunds that may have been sent to another address than their channel's present one.
    pub async fn show_moved(&self, limit: u32) -> Result<Vec<(RefundId, String)>, StoreError> {
        self.show(SHOW_MOVED, limit).await
    }

    /// Moves to `review` the `unknown` refunds that no node will send again and that get no inquiry.
    pub async fn show_unknown(&self, limit: u32) -> Result<Vec<(RefundId, String)>, StoreError> {
        self.show(SHOW_UNKNOWN, limit).await
    }

    /// Moves to `review` the `accepted` refunds without an inquiry whose bank did not report in time.
    pub async fn show_accepted(&self, limit: u32) -> Result<Vec<(RefundId, String)>, StoreError> {
        self.show(SHOW_ACCEPTED, limit).await
    }

    async fn show(&self, which: &'static str, limit: u32) -> Result<Vec<(RefundId, String)>, StoreError> {
        let rows =
            sqlx::query(which).bind(i64::from(limit)).all(&self.db).await.doing("move refunds to review")?;
        Ok(rows.iter().map(|row| (RefundId(row.get("id")), row.get("channel"))).collect())
    }

    /// Plans inquiries for refunds that lack one. Answers how many.
    pub async fn plan_inquiries(&self, limit: u32) -> Result<usize, StoreError> {
        let rows = sqlx::query(PLAN).bind(i64::from(limit)).all(&self.db).await;
        Ok(rows.doing("plan inquiries")?.len())
    }

    /// Drops the planned inquiries of channels without an inquiry. Answers how many.
    pub async fn drop_plans(&self, limit: u32) -> Result<usize, StoreError> {
        let rows = sqlx::query(DROP_PLANS).bind(i64::from(limit)).all(&self.db).await;
        Ok(rows.doing("drop planned inquiries")?.len())
    }

    /// Moves `ready` refunds whose deadline passed to `failed`. The bank executed none of them.
    pub async fn fail_past_deadline(&self, limit: u32) -> Result<Vec<(RefundId, String)>, StoreError> {
        let Ok(witnessed_us) = self.witnessed_us() else { return Ok(Vec::new()) };
        let rows = sqlx::query(PAST_DEADLINE)
            .bind(i64::from(limit))
            .bind(witnessed_us)
            .all(&self.db)
            .await
            .doing("look for passed deadlines")?;
        Ok(rows.iter().map(|row| (RefundId(row.get("id")), row.get("channel"))).collect())
    }
}
