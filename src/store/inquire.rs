//! Inquiries: which refunds the bank is to be asked about, the lease of each, and what it came to.

use std::time::{Duration, Instant};

use sqlx::Row;
use sqlx::postgres::PgRow;

use super::claim::{Spending, read_claimed, read_owed};
use super::connections::Ask;
use super::{Asked, Claimed, Doing, Store, StoreError, micros};
use crate::refund::inquiry::{self, ACCEPTED_PATIENCE, Found, Resolution};
use crate::refund::{ChannelName, RefundId, RequestId, State};

/// One inquiry that is over: where it leaves its refund, and the evidence.
#[derive(Debug, Clone)]
pub struct Inquired {
    pub asked: inquiry::Asked,
    pub channel: ChannelName,
    /// When its first byte was written; `None` if none was.
    pub started: Option<Instant>,
    /// The permits it spent, described.
    pub permit: Option<String>,
    pub found: Found,
    pub resolution: Resolution,
}

const CLAIM: &str = concat!(
    include_str!("sql/claimable_inquiry.sql"),
    include_str!("sql/permits.sql"),
    include_str!("sql/claim_inquiry.sql")
);
const SETTLE: &str = include_str!("sql/settle_inquiry.sql");

const DUE: &str = "
    select r.id from refundd.refunds r join refundd.channels c on c.channel = r.channel
     where r.channel = $1 and r.inquire_at <= now()
       and refundd.is_where_it_was_sent(r.sent_to, c.address, r.channel, true)
     order by r.inquire_at, r.id limit $2";

const CHANNELS: &str = include_str!("sql/channels_with_due_inquiries.sql");

const HOLDER: &str = "select id from refundd.refunds where channel = $1 and bank_ref = $2";

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("claim_inquiry", CLAIM),
    ("settle_inquiry", SETTLE),
    ("due_inquiries", DUE),
    ("channels_with_due_inquiries", CHANNELS),
    ("bank_ref_holder", HOLDER),
];

impl Store {
    /// The channels in which the bank is to be asked about anything.
    pub async fn channels_with_due_inquiries(&self) -> Result<Vec<String>, StoreError> {
        sqlx::query_scalar(CHANNELS).all(&self.db).await.doing("look for due inquiries")
    }

    /// The refunds of a channel that the bank is to be asked about, the longest due first.
    pub async fn due_inquiries(
        &self,
        channel: &ChannelName,
        limit: u32,
    ) -> Result<Vec<RefundId>, StoreError> {
        let ids: Vec<i64> = sqlx::query_scalar(DUE)
            .bind(channel.as_str())
            .bind(i64::from(limit))
            .all(&self.db)
            .await
            .doing("read due inquiries")?;
        Ok(ids.into_iter().map(RefundId).collect())
    }

    /// Leases inquiries for what was taken from the line. `holder` and what is said of resending do not matter.
    pub async fn claim_inquiries(&self, asked: &Asked<'_>) -> Result<Claimed<inquiry::Asked>, StoreError> {
        let witnessed = self.witnessed_us();
        let rows = Spending::of(asked.taken, &[])
            .bind(sqlx::query(CLAIM), asked)
            .bind(micros(ACCEPTED_PATIENCE))
            .bind(asked.bank_address.endpoint.as_str())
            .bind(asked.bank_address.inquiry.as_str())
            .bind(witnessed.unwrap_or_default())
            .all(&self.db)
            .await
            .doing("claim inquiries")?;
        let mut claimed = read_claimed(&rows, asked.taken, read_asked)?;
        if witnessed.is_err() {
            // Nobody can say yet how much time went by.
            claimed.leased.iter_mut().for_each(|asked| asked.uncertain_for = None);
        }
        Ok(claimed)
    }

    /// Writes down what an inquiry came to; answers whether its refund still stood as it did when asked about.
    pub async fn settle_inquiry(&self, node: &str, inquired: &Inquired) -> Result<bool, StoreError> {
        let Inquired { asked, channel, started, permit, found, resolution } = inquired;
        let reason = match (resolution.next, resolution.used_up) {
            (State::Succeeded, _) => None,
            (_, Some(why)) => {
                Some(format!("{why}: the bank was asked {} times, lately: {}", asked.number, found.message))
            }
            (_, None) => Some(format!("{}: {}", found.code, found.message)),
        };
        let moved: Option<i64> = sqlx::query_scalar(SETTLE)
            .bind(asked.id.0)
            .bind(asked.epoch)
            .bind(asked.number)
            .bind(asked.state.as_str())
            .bind(resolution.next.as_str())
            .bind(resolution.wait.map(micros))
            .bind(resolution.inquire_in.map(micros))
            .bind(reason)
            .bind(found.bank_ref.as_deref())
            .bind(channel.as_str())
            .bind(node)
            .bind(permit.as_deref())
            .bind(started.map(|at| micros(at.elapsed())))
            .bind(resolution.outcome)
            .bind(found.status.and_then(|status| i16::try_from(status).ok()))
            .bind(found.code.as_str())
            .bind(found.message.as_str())
            .maybe(&self.db)
            .await
            .doing("settle an inquiry")?;
        Ok(moved.is_some())
    }

    /// The refund of a channel that has this reference of the bank's.
    pub async fn bank_ref_holder(
        &self,
        channel: &ChannelName,
        bank_ref: &str,
    ) -> Result<Option<RefundId>, StoreError> {
        let id: Option<i64> = sqlx::query_scalar(HOLDER)
            .bind(channel.as_str())
            .bind(bank_ref)
            .maybe(&self.db)
            .await
            .doing("look whose reference it is")?;
        Ok(id.map(RefundId))
    }
}

fn read_asked(row: &PgRow) -> Result<inquiry::Asked, StoreError> {
    let id: i64 = row.get("id");
    let state: String = row.get("state");
    let span = |column| {
        row.get::<Option<i64>, _>(column).map(|us| Duration::from_micros(u64::try_from(us).unwrap_or(0)))
    };
    Ok(inquiry::Asked {
        id: RefundId(id),
        state: state.parse().map_err(|_| StoreError::Row {
            table: "refundd.refunds",
            id,
            column: "state",
            found: state.clone(),
        })?,
        epoch: row.get("lease_epoch"),
        number: row.get("inquiries"),
        attempts: u32::try_from(row.get::<i32, _>("attempts")).unwrap_or(0),
        request_id: RequestId(row.get("request_id")),
        owed: read_owed(row),
        age: span("age_us").unwrap_or_default(),
        uncertain_for: span("uncertain_us"),
    })
}
