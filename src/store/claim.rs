//! The claim: ready -> sending for a handful at once, with the permits it spends, committed before
//! the first byte leaves.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{Postgres, Row};

use super::connections::Ask;
use super::{Doing, Store, StoreError, micros, timestamp};
use crate::channel::BankAddress;
use crate::limiter::{Permit, PermitNumber};
use crate::refund::{BankBody, ChannelName, Leased, Owed, RefundId, RequestId};

/// What a channel worker wants to claim.
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
    /// Ids in the order of the line, and the permits of one take in theirs. An id does not own the permit beside it:
    /// the first claimable refund gets the first permit, and so on.
    pub taken: &'a [(RefundId, Permit)],
    /// How long after its first send a refund may be sent again under the same key; `None` for never.
    pub resend_within: Option<Duration>,
    pub most_sends: u32,
    /// Where this node goes: what may have been sent elsewhere is left alone.
    pub bank_address: &'a BankAddress,
}

/// What became of a claim, of refunds to send (`Leased`) or to ask about.
#[derive(Debug)]
pub struct Claimed<T = Leased> {
    /// Under our lease now; for each a request may be made under its permit.
    pub leased: Vec<T>,
    /// The permit that was spent for each of them.
    pub permits: HashMap<RefundId, Permit>,
    /// Permits that nobody needed: they were not written down, and are good until they close.
    pub unspent: Vec<Permit>,
    /// Ids beyond the permits, in the order of the line; their rows are as they should be.
    pub beyond: Vec<RefundId>,
    /// Ids whose permit's number was spent before: Redis forgot something.
    pub spent_before: Vec<RefundId>,
    /// Ids whose row was not as it should be any more, or was locked. No permit was spent for them.
    pub stale: Vec<RefundId>,
    /// The channel is paused or cooling: nothing was claimed and nothing was spent.
    pub held_back: bool,
    /// Redis's clock is too far from Postgres's: nothing was claimed and nothing was spent.
    pub clocks_apart: bool,
    /// A limit has begun another generation: nothing was claimed and nothing was spent.
    pub outdated: bool,
}

impl<T> Claimed<T> {
    /// Whether nothing could be claimed, whatever the rows.
    pub fn is_refused(&self) -> bool {
        self.held_back || self.clocks_apart || self.outdated
    }
}

const CLAIM: &str = concat!(
    include_str!("sql/claimable.sql"),
    include_str!("sql/permits.sql"),
    include_str!("sql/claim.sql")
);

// A claim whose commit we did not see may or may not have happened; its refunds were never sent.
// The lease names this very claim, so no other lease is touched, not even a later one of this process.
const UNCLAIM: &str = "
    update refundd.refunds
       set state = case when uncertain_at is null then 'ready' else 'unknown' end,
           attempts = attempts - 1, lease_node = null, lease_until = null
     where id = any($1) and state = 'sending' and lease_node = $2
    returning id";

pub(super) const STATEMENTS: &[(&str, &str)] = &[("claim", CLAIM), ("unclaim", UNCLAIM)];

/// A claim's ids and permits, as `permits.sql` wants them.
pub(super) struct Spending<'a> {
    ids: Vec<i64>,
    /// Each number with its permit's place, from 1.
    numbers: Vec<(i64, &'a PermitNumber)>,
    numbers_each: usize,
    opens_us: Option<i64>,
    closes_us: Option<i64>,
    /// One take grants all its permits under the same generations.
    generations: &'a [PermitNumber],
}

impl<'a> Spending<'a> {
    pub(super) fn of(taken: &'a [(RefundId, Permit)], more: &[RefundId]) -> Self {
        let spans = || taken.iter().filter_map(|(_, permit)| permit.span);
        let first: &[PermitNumber] = taken.first().map_or(&[], |(_, permit)| &permit.numbers);
        let mut seen = HashSet::new();
        Spending {
            ids: taken
                .iter()
                .map(|(id, _)| id.0)
                .chain(more.iter().map(|id| id.0))
                .filter(|id| seen.insert(*id))
                .collect(),
            numbers: (1..)
                .zip(taken)
                .flat_map(|(place, (_, permit))| permit.numbers.iter().map(move |n| (place, n)))
                .collect(),
            numbers_each: first.len(),
            opens_us: spans().map(|s| s.opens_us).max(),
            closes_us: spans().map(|s| s.closes_us).min(),
            generations: first,
        }
    }

    /// Binds `$1` to `$14`.
    pub(super) fn bind<'q>(
        self,
        query: Query<'q, Postgres, PgArguments>,
        asked: &Asked<'_>,
    ) -> Query<'q, Postgres, PgArguments> {
        query
            .bind(self.ids)
            .bind(asked.channel.to_string())
            .bind(asked.node.to_owned())
            .bind(micros(asked.lease))
            .bind(self.numbers.iter().map(|(place, _)| *place).collect::<Vec<i64>>())
            .bind(self.numbers.iter().map(|(_, n)| n.limit.to_string()).collect::<Vec<_>>())
            .bind(self.numbers.iter().map(|(_, n)| n.window_start_us).collect::<Vec<i64>>())
            .bind(self.numbers.iter().map(|(_, n)| n.ordinal).collect::<Vec<i32>>())
            .bind(i64::try_from(self.numbers_each).unwrap_or(i64::MAX))
            .bind(self.opens_us)
            .bind(self.closes_us)
            .bind(micros(asked.clock_tolerance))
            .bind(self.generations.iter().map(|n| n.limit.to_string()).collect::<Vec<_>>())
            .bind(self.generations.iter().map(|n| n.generation).collect::<Vec<i64>>())
    }
}

/// Sorts the answer of a claim.
pub(super) fn read_claimed<T>(
    rows: &[PgRow],
    taken: &[(RefundId, Permit)],
    read: impl Fn(&PgRow) -> Result<T, StoreError>,
) -> Result<Claimed<T>, StoreError> {
    let mut claimed = Claimed {
        leased: Vec::new(),
        permits: HashMap::new(),
        unspent: Vec::new(),
        beyond: Vec::new(),
        spent_before: Vec::new(),
        stale: Vec::new(),
        held_back: false,
        clocks_apart: false,
        outdated: false,
    };
    let mut rows: Vec<(Option<usize>, &PgRow)> = rows
        .iter()
        .map(|row| {
            let place = row.get::<Option<i64>, _>("place").and_then(|place| usize::try_from(place).ok());
            (place.and_then(|place| place.checked_sub(1)), row)
        })
        .collect();
    rows.sort_by_key(|(place, _)| *place);
    let mut given = 0;
    for (place, row) in rows {
        let id = RefundId(row.get("asked_id"));
        claimed.held_back |= !row.get::<bool, _>("is_open");
        claimed.clocks_apart |= !row.get::<bool, _>("is_timely");
        claimed.outdated |= !row.get::<bool, _>("is_current");
        let is_leased = row.get::<Option<i64>, _>("id").is_some();
        let permit = match place {
            Some(place) => Some(taken.get(place).map(|(_, permit)| permit)),
            // Without limits any permit is as good as another, and has no number.
            None => is_leased.then(|| taken.first().map(|(_, permit)| permit)),
        };
        given += usize::from(matches!(permit, Some(Some(_))));
        match (is_leased, permit) {
            (true, Some(Some(permit))) => {
                claimed.leased.push(read(row)?);
                claimed.permits.insert(id, permit.clone());
            }
            (_, None) => claimed.stale.push(id),
            (_, Some(None)) => claimed.beyond.push(id),
            (false, Some(Some(_))) => claimed.spent_before.push(id),
        }
    }
    if claimed.is_refused() {
        claimed.spent_before.clear();
    } else {
        claimed.unspent = taken.iter().skip(given).map(|(_, permit)| permit.clone()).collect();
    }
    Ok(claimed)
}

impl Store {
    /// Claims what was taken from the bucket.
    pub async fn claim(&self, asked: &Asked<'_>) -> Result<Claimed, StoreError> {
        self.claim_among(asked, &[]).await
    }

    /// The same with more ids than permits, for lines in which many ids cannot be claimed any more.
    pub async fn claim_among(&self, asked: &Asked<'_>, more: &[RefundId]) -> Result<Claimed, StoreError> {
        let witnessed = self.witnessed_us();
        // Nothing is sent again while nobody can say how much time went by.
        let resend_within = asked.resend_within.filter(|_| witnessed.is_ok());
        let rows = Spending::of(asked.taken, more)
            .bind(sqlx::query(CLAIM), asked)
            .bind(asked.holder)
            .bind(resend_within.map(micros))
            .bind(i32::try_from(asked.most_sends).unwrap_or(i32::MAX))
            .bind(asked.bank_address.endpoint.as_str())
            .bind(asked.bank_address.inquiry.as_str())
            .bind(witnessed.unwrap_or_default())
            .all(&self.db)
            .await
            .doing("claim refunds")?;
        read_claimed(&rows, asked.taken, |row| read_leased(row, asked.channel))
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
    let owed = read_owed(row);
    let body = serde_json::to_vec(&body).map_err(|error| bad("payload", error.to_string()))?;
    Ok(Leased {
        id,
        epoch: row.get("lease_epoch"),
        attempt: row.get("attempts"),
        request_id: RequestId(row.get("request_id")),
        is_resend: row.get("is_resend"),
        is_first: row.get("is_first"),
        owed,
        body: Arc::from(body),
    })
}

pub(super) fn read_owed(row: &PgRow) -> Owed {
    Owed {
        refund_id: RefundId(row.get("id")),
        refund_ref: row.get("refund_ref"),
        amount_minor: row.get("amount_minor"),
        currency: row.get("currency"),
        bank_ref: row.get("bank_ref"),
    }
}
