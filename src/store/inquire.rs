//! Inquiries: reads which are due, leases them, and settles them.
//!
//! The lease of an inquiry is the time of the next one: `inquire_at` in the row of its refund.

use std::time::{Duration, Instant};

use sqlx::Row;
use sqlx::postgres::PgRow;

use super::claim::{
    ClaimStatements, Spending, bind_claim, claim_statements, has_new_server, read_claimed, read_expected_echo,
};
use super::connections::Ask;
use super::named::{Statement, bind, column, statement};
use super::witness::LONG_AGO;
use super::{ClaimRequest, Claimed, Doing, Store, StoreError, micros, read_state};
use crate::refund::inquiry::{self, ACCEPTED_PATIENCE, InquiryAnswer, InquirySettlement};
use crate::refund::{ChannelName, RefundId, RequestId, State};

/// One finished inquiry: the next state of its refund, and the evidence.
#[derive(Debug, Clone)]
pub struct Inquired {
    pub inquiry: inquiry::LeasedInquiry,
    pub channel: ChannelName,
    /// When the inquiry wrote its first byte; `None` if it wrote none.
    pub started: Option<Instant>,
    /// The numbers of the spent permits, as the journal writes them.
    pub permit: Option<String>,
    pub answer: InquiryAnswer,
    pub settlement: InquirySettlement,
}

/// What the answer of an inquiry did to its refund.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InquiryEffect {
    /// The refund has this state now: `review` instead of `ready` and `failed` if the bank said earlier that it executed the refund.
    Moved(State),
    /// The refund changed since the inquiry was leased. The journal keeps the answer.
    Late,
    /// Postgres does not have the refund any more: a failover lost it. The answer is an event.
    Lost,
}

const CLAIM: ClaimStatements = claim_statements!(include_str!("sql/claim_inquiry.sql"));
const SETTLE: Statement = statement!(include_str!("sql/settle_inquiry.sql"));

const DUE: &str = "
    select r.id from refundd.refunds r join refundd.channels c on c.channel = r.channel
     where r.channel = $1 and r.inquire_at <= now()
       and refundd.is_where_it_was_sent(r.sent_to, c.address, r.channel, true)
     order by r.inquire_at, r.id limit $2";

const CHANNELS: &str = include_str!("sql/channels_with_due_inquiries.sql");

const HOLDER: &str = "select id from refundd.refunds where channel = $1 and bank_ref = $2";

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("claim_inquiry", CLAIM.limited.sql),
    ("claim_inquiry_unlimited", CLAIM.unlimited.sql),
    ("settle_inquiry", SETTLE.sql),
    ("due_inquiries", DUE),
    ("channels_with_due_inquiries", CHANNELS),
    ("bank_ref_holder", HOLDER),
];

impl Store {
    /// The channels with a due inquiry.
    pub async fn channels_with_due_inquiries(&self) -> Result<Vec<String>, StoreError> {
        sqlx::query_scalar(CHANNELS).all(&self.db).await.doing("look for due inquiries")
    }

    /// The refunds of a channel with a due inquiry; the oldest `inquire_at` first.
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

    /// Leases inquiries for refunds whose ids were taken out of the bucket. The request's `holder`, `resend_within`
    /// and `most_sends` do not matter.
    pub async fn claim_inquiries(
        &self,
        request: &ClaimRequest<'_>,
    ) -> Result<Claimed<inquiry::LeasedInquiry>, StoreError> {
        let witnessed = self.witnessed_us();
        let spending = Spending::of(request.taken, &[]);
        let query = bind_claim!(
            CLAIM, request, spending,
            patience_us: micros(ACCEPTED_PATIENCE),
            witnessed_us: witnessed.unwrap_or(LONG_AGO),
            is_send: false,
        );
        let rows = query.all(&self.db).await.doing("claim inquiries")?;
        let mut claimed = read_claimed(&rows, request.taken, read_inquiry)?;
        if witnessed.is_err() {
            // Without a compared clock nobody knows how long the refund has been uncertain. The next inquiry is soon.
            for inquiry in &mut claimed.leased {
                (inquiry.age, inquiry.uncertain_for) = (Duration::ZERO, None);
            }
        }
        self.count_after(request, &mut claimed, has_new_server(&rows)).await?;
        Ok(claimed)
    }

    /// Writes the answer of an inquiry.
    pub async fn settle_inquiry(&self, node: &str, inquired: &Inquired) -> Result<InquiryEffect, StoreError> {
        let Inquired { inquiry, channel, started, permit, answer, settlement } = inquired;
        let reason = match (settlement.next, settlement.used_up) {
            (State::Succeeded, _) => None,
            (_, Some(why)) => Some(format!(
                "{why}: the bank was asked {} times, lately: {}",
                inquiry.number, answer.message
            )),
            (_, None) => Some(format!("{}: {}", answer.code, answer.message)),
        };
        let query = bind!(
            SETTLE,
            id: inquiry.id.0,
            refund_ref: inquiry.expected.refund_ref,
            request_id: inquiry.request_id.0,
            amount_minor: inquiry.expected.money.amount_minor,
            currency: inquiry.expected.money.currency,
            epoch: inquiry.epoch,
            number: inquiry.number,
            uncertain_at_us: inquiry.uncertain_at_us,
            state: inquiry.state.as_str(),
            next: settlement.next.as_str(),
            wait_us: settlement.wait.map(micros),
            inquire_us: settlement.inquire_in.map(micros),
            reason: reason,
            bank_ref: answer.bank_ref,
            channel: channel.as_str(),
            node: node,
            permit: permit,
            started_ago_us: started.map(|at| micros(at.elapsed())),
            outcome: settlement.outcome,
            status: answer.status.and_then(|status| i16::try_from(status).ok()),
            code: answer.code.as_str(),
            message: answer.message,
        );
        let row = query.one(&self.db).await.doing("settle an inquiry")?;
        if !row.get::<bool, _>("is_there") {
            return Ok(InquiryEffect::Lost);
        }
        match row.get::<Option<&str>, _>("state") {
            None => Ok(InquiryEffect::Late),
            Some(_) => read_state(&row, inquiry.id.0).map(InquiryEffect::Moved),
        }
    }

    /// The refund of a channel that has this bank reference.
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
            .doing("look up the refund of a bank reference")?;
        Ok(id.map(RefundId))
    }
}

fn read_inquiry(row: &PgRow) -> Result<inquiry::LeasedInquiry, StoreError> {
    let id: i64 = row.get("id");
    let span = |column| {
        row.get::<Option<i64>, _>(column).map(|us| Duration::from_micros(u64::try_from(us).unwrap_or(0)))
    };
    Ok(inquiry::LeasedInquiry {
        id: RefundId(id),
        state: read_state(row, id)?,
        epoch: row.get("lease_epoch"),
        number: row.get("inquiries"),
        uncertain_at_us: row.get("uncertain_at_us"),
        attempts: u32::try_from(row.get::<i32, _>("attempts")).unwrap_or(0),
        request_id: RequestId(row.get("request_id")),
        expected: read_expected_echo(row),
        age: span("age_us").unwrap_or_default(),
        uncertain_for: span("uncertain_us"),
    })
}
