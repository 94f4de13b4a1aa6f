//! The claim: ready -> sending for a handful at once, with the permits it spends, committed before
//! the first byte leaves.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use sqlx::Row;
use sqlx::postgres::PgRow;

use super::connections::Ask;
use super::{Doing, Store, StoreError, micros, timestamp};
use crate::limiter::Permit;
use crate::refund::{BankBody, ChannelName, Leased, RefundId, RequestId};

/// What a dispatcher asks to claim.
#[derive(Debug)]
pub struct Asked<'a> {
    pub channel: &'a ChannelName,
    /// The process that will spend the permits.
    pub node: &'a str,
    /// That process and this very claim: who will hold the leases.
    pub holder: &'a str,
    pub lease: Duration,
    /// How far Redis's clock may be from Postgres's.
    pub clock_tolerance: Duration,
    pub taken: &'a [(RefundId, Permit)],
}

/// What became of it.
#[derive(Debug, Default)]
pub struct Claimed {
    /// Under our lease now; each may be sent under its permit.
    pub leased: Vec<Leased>,
    /// Ids whose permit's number was spent before: Redis forgot something.
    pub spent_before: Vec<RefundId>,
    /// Ids whose row was not ready any more.
    pub stale: Vec<RefundId>,
    /// The channel is paused or cooling: nothing was claimed and nothing was spent.
    pub held_back: bool,
    /// Redis's clock is too far from Postgres's: nothing was claimed and nothing was spent.
    pub clocks_apart: bool,
    /// A limit has begun another generation: nothing was claimed and nothing was spent.
    pub outdated: bool,
}

const CLAIM: &str = include_str!("sql/claim.sql");

// A claim whose commit we did not see may or may not have happened; its refunds were never sent.
// The lease names this very claim, so no other lease is touched, not even a later one of this process.
const UNCLAIM: &str = "
    update refundd.refunds
       set state = 'ready', attempts = attempts - 1, lease_node = null, lease_until = null
     where id = any($1) and state = 'sending' and lease_node = $2
    returning id";

pub(super) const STATEMENTS: &[(&str, &str)] = &[("claim", CLAIM), ("unclaim", UNCLAIM)];

impl Store {
    /// Claims what was taken from the bucket.
    pub async fn claim(&self, asked: &Asked<'_>) -> Result<Claimed, StoreError> {
        let ids: Vec<i64> = asked.taken.iter().map(|(id, _)| id.0).collect();
        let spans = || asked.taken.iter().filter_map(|(_, permit)| permit.span);
        let permits_each = asked.taken.first().map_or(0, |(_, permit)| permit.numbers.len());
        let numbers =
            || asked.taken.iter().flat_map(|(id, permit)| permit.numbers.iter().map(move |n| (id.0, n)));
        // One take grants all its permits under the same generations.
        let generations = || asked.taken.first().into_iter().flat_map(|(_, permit)| &permit.numbers);
        let rows = sqlx::query(CLAIM)
            .bind(&ids)
            .bind(asked.channel.as_str())
            .bind(asked.node)
            .bind(micros(asked.lease))
            .bind(numbers().map(|(id, _)| id).collect::<Vec<i64>>())
            .bind(numbers().map(|(_, n)| n.limit.as_str()).collect::<Vec<_>>())
            .bind(numbers().map(|(_, n)| n.window_start_us).collect::<Vec<i64>>())
            .bind(numbers().map(|(_, n)| n.ordinal).collect::<Vec<i32>>())
            .bind(i64::try_from(permits_each).unwrap_or(i64::MAX))
            .bind(spans().map(|s| s.opens_us).max())
            .bind(spans().map(|s| s.closes_us).min())
            .bind(micros(asked.clock_tolerance))
            .bind(asked.holder)
            .bind(generations().map(|n| n.limit.as_str()).collect::<Vec<_>>())
            .bind(generations().map(|n| n.generation).collect::<Vec<i64>>())
            .all(&self.db)
            .await
            .doing("claim refunds")?;
        let mut claimed = Claimed::default();
        for row in &rows {
            let id = RefundId(row.get("asked_id"));
            claimed.held_back |= !row.get::<bool, _>("is_open");
            claimed.clocks_apart |= !row.get::<bool, _>("is_timely");
            claimed.outdated |= !row.get::<bool, _>("is_current");
            if row.get::<Option<i64>, _>("id").is_some() {
                claimed.leased.push(read_leased(row, asked.channel)?);
            } else if row.get::<bool, _>("is_covered") {
                claimed.stale.push(id);
            } else {
                claimed.spent_before.push(id);
            }
        }
        if claimed.held_back || claimed.clocks_apart || claimed.outdated {
            claimed.spent_before.clear();
        }
        Ok(claimed)
    }

    /// Takes back a claim whose commit was not seen and whose refunds were never sent.
    pub async fn unclaim(&self, ids: &[RefundId], holder: &str) -> Result<u64, StoreError> {
        let ids: Vec<i64> = ids.iter().map(|id| id.0).collect();
        let rows =
            sqlx::query(UNCLAIM).bind(&ids).bind(holder).all(&self.db).await.doing("take a claim back")?;
        Ok(rows.len() as u64)
    }
}

fn read_leased(row: &PgRow, channel: &ChannelName) -> Result<Leased, StoreError> {
    let id = RefundId(row.get("id"));
    let bad = |column, found: String| StoreError::Row { table: "refundd.refunds", id: id.0, column, found };
    let payload = row
        .get::<Option<String>, _>("payload")
        .map(|text| RawValue::from_string(text.clone()).map_err(|_| bad("payload", text)))
        .transpose()?;
    let requested_at = timestamp(row, "created_us").ok_or_else(|| bad("created_at", "no time".to_owned()))?;
    let body = BankBody {
        refund_id: id,
        refund_ref: row.get("refund_ref"),
        channel: channel.as_str(),
        payment_ref: row.get("payment_ref"),
        amount_minor: row.get("amount_minor"),
        currency: row.get("currency"),
        payload: payload.as_deref(),
        requested_at,
    };
    let body = serde_json::to_vec(&body).map_err(|error| bad("payload", error.to_string()))?;
    Ok(Leased {
        id,
        epoch: row.get("lease_epoch"),
        attempt: row.get("attempts"),
        request_id: RequestId(row.get("request_id")),
        body: Arc::from(body),
    })
}
