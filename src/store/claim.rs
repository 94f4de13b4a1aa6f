//! The claim leases a few refunds (`ready` -> `sending`) and spends their permits in one commit, before the first
//! byte leaves.
//!
//! The claim takes no ids out of the bucket and sends nothing.
//!
//! The claims of sends and of inquiries share `sql/parts/gate.sql` and `sql/parts/permits.sql`, so that the rule for permits stands
//! once. They are parts of both statements and no functions of the database: nodes of two versions share a database for
//! a while, and each must check by its own rule. A claim without limits has `sql/parts/unlimited.sql` instead of the permits.

mod spending;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use sqlx::Row;
use sqlx::postgres::PgRow;

use super::connections::Ask;
use super::error::CLAIMING;
use super::named::{Statement, bind, column, statement};
use super::witness::LONG_AGO;
use super::{Doing, Store, StoreError, micros, timestamp};
use crate::channel::BankAddress;
use crate::limiter::{Permit, PermitNumber};
use crate::refund::{BankBody, ChannelName, ExpectedEcho, Leased, Money, RefundId, RequestId, TraceParent};
pub(super) use spending::{
    ClaimStatements, Spending, bind_claim, claim_statements, has_new_server, read_claimed,
};

/// The request of a channel worker for one claim.
#[derive(Debug)]
pub struct ClaimRequest<'a> {
    pub channel: &'a ChannelName,
    /// The node that spends the permits.
    pub node: &'a str,
    /// Names the node and this claim; the leases carry this name.
    pub holder: &'a str,
    /// How long the leases last.
    pub lease: Duration,
    /// The largest difference of Redis's clock and Postgres's clock at which a claim spends permits.
    pub clock_tolerance: Duration,
    /// Ids in the order of the bucket, and the permits of one take in their order. An id does not own the permit
    /// beside it: the first claimable refund gets the first permit, and so on.
    pub taken: &'a [(RefundId, Permit)],
    /// How long after its first send a refund may be sent again under the same request id; `None` for never.
    pub resend_within: Option<Duration>,
    /// The most sends of one refund.
    pub most_sends: u32,
    /// The bank address of this node. The claim leaves out refunds that may have been sent to another address.
    pub bank_address: &'a BankAddress,
}

/// The result of a claim. `T` is `Leased` for refunds to send, and `LeasedInquiry` for inquiries.
#[expect(clippy::struct_excessive_bools, reason = "each is a reason to refuse a claim")]
#[derive(Debug)]
pub struct Claimed<T = Leased> {
    /// Leased by this claim. The node may make one request for each, under its permit.
    pub leased: Vec<T>,
    /// The permit that the claim spent for each leased refund.
    pub permits: HashMap<RefundId, Permit>,
    /// Permits that the claim did not need. The ledger does not have them; they stay good until they close.
    pub unspent: Vec<Permit>,
    /// Claimable ids for which no permit was left, in the order of the bucket.
    pub beyond: Vec<RefundId>,
    /// Ids whose permit's number the ledger already had: Redis lost some of its count.
    pub spent_before: Vec<RefundId>,
    /// Ids whose row is not claimable any more, or is locked. The claim spent no permit for them.
    pub stale: Vec<RefundId>,
    /// The channel is paused or cooling. Nothing was claimed and no permit was spent.
    pub is_suspended: bool,
    /// Redis's clock is too far from Postgres's clock. Nothing was claimed and no permit was spent.
    pub clocks_apart: bool,
    /// A limit has another generation than the permits, or the permits do not keep its rule. Nothing was claimed and no permit was spent.
    pub outdated: bool,
    /// Postgres does not have the node's bank address, as after a failover. Nothing was claimed and no permit was spent.
    pub is_address_lost: bool,
    /// Leased with spent permits, but the ledger's count does not allow these. No request may be made for them.
    pub overspent: Vec<RefundId>,
}

impl<T> Claimed<T> {
    /// Whether the claim refused all ids, for a reason that is not in their rows.
    pub fn is_refused(&self) -> bool {
        self.is_suspended
            || self.clocks_apart
            || self.outdated
            || self.is_address_lost
            || !self.overspent.is_empty()
    }
}

const CLAIM: ClaimStatements = claim_statements!(include_str!("sql/claim.sql"));

const UNCLAIM: Statement = statement!(include_str!("sql/unclaim.sql"));

pub(super) const STATEMENTS: &[(&str, &str)] =
    &[("claim", CLAIM.limited.sql), ("claim_unlimited", CLAIM.unlimited.sql), ("unclaim", UNCLAIM.sql)];

impl Store {
    /// Claims the refunds whose ids were taken out of the bucket. `more` are ids beyond the permits, after those of the
    /// request: for buckets in which many ids are not claimable any more.
    pub async fn claim_among(
        &self,
        request: &ClaimRequest<'_>,
        more: &[RefundId],
    ) -> Result<Claimed, StoreError> {
        let witnessed = self.witnessed_us();
        // Without a compared clock nobody knows how old the first send is, so the claim allows no resend.
        let resend_within = request.resend_within.filter(|_| witnessed.is_ok());
        let spending = Spending::of(request.taken, more);
        let query = bind_claim!(
            CLAIM, request, spending,
            holder: request.holder,
            resend_within_us: resend_within.map(micros),
            most_sends: i32::try_from(request.most_sends).unwrap_or(i32::MAX),
            witnessed_us: witnessed.unwrap_or(LONG_AGO),
            is_send: true,
        );
        let rows = query.all(&self.db).await.doing(CLAIMING)?;
        let holder = Arc::from(request.holder);
        let mut claimed =
            read_claimed(&rows, request.taken, |row| read_leased(row, request.channel, &holder))?;
        self.count_after(request, &mut claimed, has_new_server(&rows)).await?;
        Ok(claimed)
    }

    /// Counts the spans of a claim's permits once more, after its commit, if their numbers alone do not keep the
    /// limits' rules. Where the ledger has too many, all leased refunds are overspent. `has_new_server` as in
    /// [`Counted::is_needed`](crate::limiter::Counted::is_needed).
    ///
    /// Claims do not wait for each other. Of all claims that pass, the last one to be committed saw all the others.
    pub(super) async fn count_after<T>(
        &self,
        request: &ClaimRequest<'_>,
        claimed: &mut Claimed<T>,
        has_new_server: bool,
    ) -> Result<(), StoreError> {
        let numbers: Vec<&PermitNumber> =
            request.taken.iter().flat_map(|(_, permit)| &permit.numbers).collect();
        if !claimed.leased.is_empty()
            && !self.keeps_rules(&numbers, request.clock_tolerance, has_new_server).await?
        {
            claimed.leased.clear();
            claimed.overspent = claimed.permits.drain().map(|(id, _)| id).collect();
        }
        Ok(())
    }

    /// Takes a claim back. The node did not see its commit and sent none of the refunds; answers how many rows
    /// went back.
    pub async fn unclaim(&self, ids: &[RefundId], holder: &str) -> Result<u64, StoreError> {
        let ids: Vec<i64> = ids.iter().map(|id| id.0).collect();
        let query = bind!(UNCLAIM, ids: ids, holder: holder);
        let rows = query.all(&self.db).await.doing("take a claim back")?;
        Ok(rows.len() as u64)
    }
}

fn read_leased(row: &PgRow, channel: &ChannelName, holder: &Arc<str>) -> Result<Leased, StoreError> {
    let id = RefundId(row.get("id"));
    let bad = |column, found: String| StoreError::Row { table: "refundd.refunds", id: id.0, column, found };
    let payload: Option<&RawValue> = row
        .get::<Option<&str>, _>("payload")
        .map(|text| serde_json::from_str(text).map_err(|_| bad("payload", text.to_owned())))
        .transpose()?;
    let requested_at = timestamp(row, "created_us").ok_or_else(|| bad("created_at", "no time".to_owned()))?;
    let expected = read_expected_echo(row);
    let body = BankBody {
        refund_id: id,
        refund_ref: &expected.refund_ref,
        channel: channel.as_str(),
        payment_ref: row.get("payment_ref"),
        money: &expected.money,
        payload,
        requested_at,
    };
    let body = serde_json::to_vec(&body).map_err(|error| bad("payload", error.to_string()))?;
    Ok(Leased {
        id,
        epoch: row.get("lease_epoch"),
        holder: Arc::clone(holder),
        attempt: row.get("attempts"),
        request_id: RequestId(row.get("request_id")),
        is_resend: row.get("is_resend"),
        is_first: row.get("is_first"),
        expected,
        body: Arc::from(body),
        traceparent: row.get::<Option<&str>, _>("traceparent").and_then(TraceParent::read),
    })
}

pub(super) fn read_money(row: &PgRow) -> Money {
    Money { amount_minor: row.get("amount_minor"), currency: row.get("currency") }
}

pub(super) fn read_expected_echo(row: &PgRow) -> ExpectedEcho {
    ExpectedEcho {
        refund_id: RefundId(row.get("id")),
        refund_ref: row.get("refund_ref"),
        money: read_money(row),
        bank_ref: row.get("bank_ref"),
    }
}
