//! The shares of limits that nodes count alone: which node counts which share.
//!
//! Only nodes with one number of shares and one rule have shares of a limit at one time. `refundd.reserve_share` keeps to
//! that (migration 0068), one transaction at a time (migration 0078).
//!
//! Two nodes may count one share for a moment, when one of them was taken for dead. That breaks no limit: claims
//! write the permits of a share to the ledger like all others, and the ledger takes each number once.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use sqlx::Row;
use sqlx::postgres::PgRow;

use super::connections::{Ask, Run};
use super::named::{Statement, bind, column, statement};
use super::{Doing, Store, StoreError, micros};
use crate::limiter::Limit;
use crate::refund::LimitName;

const RESERVE: Statement = statement!(include_str!("sql/reserve_shares.sql"));

const LEAVE: &str = "delete from refundd.limit_shares where node = $1";

// The permits that this node took may still count, so its rows stay.
const WANT_NO_MORE: &str = "
    update refundd.share_rules
       set seen_at = '-infinity', held_until = case when held_until > now() then now() else held_until end
     where node = $1";

// A node keeps its share for as long as in `refundd.reserve_share`.
const IN_USE: &str = "
    select limit_name, share from refundd.limit_shares
     where seen_at > now() - interval '10 seconds' order by limit_name, share";

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("reserve_shares", RESERVE.sql),
    ("leave_shares", LEAVE),
    ("want_no_shares", WANT_NO_MORE),
    ("shares_in_use", IN_USE),
];

/// What to do with limits whose shares another transaction has locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locked {
    /// Wait for a moment.
    Wait,
    /// Leave their shares as they are.
    Skip,
}

/// Whether a node has a share of a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReservedShare {
    /// The share of this number.
    Own(u32),
    /// Other nodes count all shares.
    AllTaken,
    /// The limit is counted in another way, or was until lately.
    CountedOtherwise(OtherShares),
}

/// How other nodes share out a limit, or this node before its last reload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherShares {
    node: String,
    /// How many shares, and of how many permits; `None` for a node of an older version, which does not say so.
    of: Option<(i32, i64)>,
}

impl fmt::Display for OtherShares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node = self.node.split('#').next().unwrap_or_default();
        match self.of {
            Some((shares, permits)) => write!(f, "{shares} shares of {permits} permits, on node {node}"),
            None => write!(f, "an unknown number of shares, on node {node} of an older version"),
        }
    }
}

impl Store {
    /// One limit that is locked must not keep the others waiting until their shares are over.
    const SHARES_WAIT: &str = "500ms";

    /// Reserves a share of each of these limits for this node, or keeps the one that it has: all of them, or none after an
    /// error. Answers in the order of the limits, and `None` for those that were skipped.
    pub async fn reserve_shares(
        &self,
        limits: &[Arc<Limit>],
        node: &str,
        locked: Locked,
    ) -> Result<Vec<Option<ReservedShare>>, StoreError> {
        let query = bind!(
            RESERVE,
            limit_name: column(limits, |limit| limit.name.as_str()),
            node: node,
            shares: column(limits, |limit| i32::try_from(limit.shares().unwrap_or(1)).unwrap_or(i32::MAX)),
            rule: column(limits, |limit| limit.rule.to_string()),
            rest_us: column(limits, |limit| micros(limit.rest_of_share())),
            lock_timeout: Self::SHARES_WAIT,
            skips: locked == Locked::Skip,
        );
        let rows = query.all(&self.db).await.doing("reserve shares of limits")?;
        let mut shares = vec![None; limits.len()];
        for row in &rows {
            let nth: i64 = row.get("nth");
            if let Some(share) = usize::try_from(nth - 1).ok().and_then(|place| shares.get_mut(place)) {
                *share = Some(reserved(row));
            }
        }
        Ok(shares)
    }

    /// The shares that nodes count now, by limit: the name of each, as in the ledger.
    pub async fn shares_in_use(&self) -> Result<HashMap<String, Vec<String>>, StoreError> {
        let rows = sqlx::query(IN_USE).all(&self.db.patient()).await.doing("read the shares of limits")?;
        let mut shares: HashMap<String, Vec<String>> = HashMap::new();
        for row in &rows {
            let (limit, share): (String, i32) = (row.get("limit_name"), row.get("share"));
            let name = LimitName::derived(&limit, &format!("share{share}")).to_string();
            shares.entry(limit).or_default().push(name);
        }
        Ok(shares)
    }

    /// Frees this node's shares for other nodes.
    pub async fn leave_shares(&self, node: &str) -> Result<(), StoreError> {
        sqlx::query(WANT_NO_MORE).bind(node).run(&self.db).await.doing("want no more shares of limits")?;
        sqlx::query(LEAVE).bind(node).run(&self.db).await.doing("leave shares of limits")?;
        Ok(())
    }
}

fn reserved(row: &PgRow) -> ReservedShare {
    if let Some(node) = row.get::<Option<String>, _>("other_node") {
        let (shares, permits): (Option<i32>, Option<i64>) =
            (row.get("other_shares"), row.get("other_permits"));
        return ReservedShare::CountedOtherwise(OtherShares { node, of: shares.zip(permits) });
    }
    let given = row.get::<Option<i32>, _>("given").and_then(|share| u32::try_from(share).ok());
    given.map_or(ReservedShare::AllTaken, ReservedShare::Own)
}
