//! Finds refunds by any of their names, and reads how far one has come.

use jiff::Timestamp;
use sqlx::Row;
use uuid::Uuid;

use super::connections::Ask;
use super::look::{read_refund, refund_columns};
use super::named::{Statement, bind, statement};
use super::{Doing, Store, StoreError, timestamp};
use crate::caller::Names;
use crate::refund::{Refund, RefundId};

/// A refund that was found, and the names that matched: `refund_ref`, `id`, `request_id`, `bank_ref`, `payment_ref`.
#[derive(Debug, Clone)]
pub struct Found {
    pub refund: Refund,
    pub by: Vec<String>,
}

/// The refunds with a name, newest first.
#[derive(Debug, Clone)]
pub struct FoundRefunds {
    pub found: Vec<Found>,
    /// Whether more refunds have the name than were asked for.
    pub more: bool,
}

/// What the row of a refund says about its way, beside what callers see of it.
#[derive(Debug, Clone)]
pub struct RefundProgress {
    /// The node that has leased it, and until when.
    pub lease: Option<(String, Timestamp)>,
    pub next_inquiry_at: Option<Timestamp>,
    /// How many inquiries were made.
    pub inquiries: i32,
    /// Whether it will be sent again by itself although it may have been executed.
    pub may_be_resent: bool,
    /// Whether a byte of it may have left, also while it is `ready` again.
    pub may_have_left: bool,
    /// Postgres's time.
    pub now: Timestamp,
}

// Each name has an index. A bank's reference is unique in its channel only, so each channel is looked at. The indexes of
// request ids and payment refs leave out the few refunds that are `sending`.
// One payment may have very many refunds, and no index has them by age: at most 10,000 are read.
const FIND: Statement = statement!(concat!(
    "select ",
    refund_columns!(),
    ", found.by
       from (select named.id, array_agg(distinct named.by order by named.by) as by
               from (select r.id, 'refund_ref' as by from refundd.refunds r where r.refund_ref = :name
                     union all
                     select r.id, 'id' from refundd.refunds r where r.id = :id
                     union all
                     select r.id, 'request_id' from refundd.refunds r where r.request_id = :request_id and r.state <> 'sending'
                     union all
                     select r.id, 'request_id' from refundd.refunds r where r.request_id = :request_id and r.state = 'sending'
                     union all
                     select b.id, 'bank_ref' from refundd.channels c cross join lateral (
                         select r.id from refundd.refunds r where r.channel = c.channel and r.bank_ref = :name) b
                     union all
                     (select p.id, 'payment_ref' from (
                          select r.id from refundd.refunds r
                           where r.payment_ref = :name and r.state <> 'sending'
                             and (:channels::text[] is null or r.channel = any(:channels)) limit 10000) p order by p.id desc limit :most)
                     union all
                     (select p.id, 'payment_ref' from (
                          select r.id from refundd.refunds r
                           where r.payment_ref = :name and r.state = 'sending'
                             and (:channels::text[] is null or r.channel = any(:channels)) limit 10000) p order by p.id desc limit :most)
                    ) named
              group by named.id) found
       join refundd.refunds r on r.id = found.id
      where :channels::text[] is null or r.channel = any(:channels)
      order by r.id desc limit :most"
));

const PROGRESS: &str = "
    select split_part(r.lease_node, '#', 1) as lease_node, (extract(epoch from r.lease_until) * 1000000)::bigint as lease_us,
           (extract(epoch from r.inquire_at) * 1000000)::bigint as inquire_us, r.inquiries,
           r.state = 'unknown' and r.inquire_at is null and c.resend_within is not null
             and refundd.may_be_resent(r.first_sent_at, r.attempts, r.deadline_at, c.resend_within, c.most_sends) as may_be_resent,
           r.first_sent_at is not null as may_have_left, (extract(epoch from now()) * 1000000)::bigint as now_us
      from refundd.refunds r join refundd.channels c on c.channel = r.channel where r.id = $1";

pub(super) const STATEMENTS: &[(&str, &str)] = &[("find", FIND.sql), ("progress", PROGRESS)];

impl Store {
    /// The refunds with this name, newest first, at most `most`: a refund ref, an id, a request id, a bank's reference or a
    /// payment ref. Only refunds of these channels.
    pub async fn find(&self, name: &str, channels: &Names, most: u32) -> Result<FoundRefunds, StoreError> {
        // Postgres has no such texts.
        if name.contains('\0') {
            return Ok(FoundRefunds { found: Vec::new(), more: false });
        }
        let id = RefundId::read(name).map(|id| id.0);
        let request_id = Uuid::parse_str(name).ok();
        let query = bind!(FIND, name: name, id: id, request_id: request_id, channels: channels.these(), most: i64::from(most) + 1);
        let rows = query.all(&self.db.patient()).await.doing("find refunds by a name")?;
        let most = most as usize;
        let found =
            rows.iter().take(most).map(|row| Ok(Found { refund: read_refund(row)?, by: row.get("by") }));
        Ok(FoundRefunds { found: found.collect::<Result<_, StoreError>>()?, more: rows.len() > most })
    }

    /// How far a refund has come; `None` if there is none with this id.
    pub async fn progress(&self, id: RefundId) -> Result<Option<RefundProgress>, StoreError> {
        let row = sqlx::query(PROGRESS).bind(id.0).maybe(&self.db).await.doing("read a refund's progress")?;
        Ok(row.map(|row| RefundProgress {
            lease: row.get::<Option<String>, _>("lease_node").zip(timestamp(&row, "lease_us")),
            next_inquiry_at: timestamp(&row, "inquire_us"),
            inquiries: row.get("inquiries"),
            may_be_resent: row.get::<Option<bool>, _>("may_be_resent").unwrap_or(false),
            may_have_left: row.get("may_have_left"),
            now: timestamp(&row, "now_us").unwrap_or(Timestamp::UNIX_EPOCH),
        }))
    }
}
