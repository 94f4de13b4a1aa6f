//! The shares of limits that nodes count alone: which node counts which share.
//!
//! Two nodes may count one share for a moment, when one of them was taken for dead. That breaks no limit: claims
//! write the permits of a share to the ledger like all others, and the ledger takes each number once.

use std::collections::HashMap;

use sqlx::Row;

use super::connections::{Ask, Run};
use super::named::{Statement, bind, statement};
use super::{Doing, Store, StoreError};
use crate::refund::LimitName;

const RESERVE: Statement = statement!(include_str!("sql/reserve_share.sql"));

const LEAVE: &str = "delete from refundd.limit_shares where node = $1";

// A node keeps its share for as long as in `reserve_share`.
const IN_USE: &str = "
    select limit_name, share from refundd.limit_shares
     where seen_at > now() - interval '10 seconds' order by limit_name, share";

pub(super) const STATEMENTS: &[(&str, &str)] =
    &[("reserve_share", RESERVE.sql), ("leave_shares", LEAVE), ("shares_in_use", IN_USE)];

impl Store {
    /// Reserves one of a limit's `of` shares for this node, or keeps the one that it has. Answers the number of the
    /// share, or `None` if other nodes count all shares.
    pub async fn reserve_share(
        &self,
        limit: &LimitName,
        node: &str,
        of: u32,
    ) -> Result<Option<u32>, StoreError> {
        let shares = i32::try_from(of).unwrap_or(i32::MAX);
        let query = bind!(RESERVE, limit_name: limit.as_str(), node: node, shares: shares);
        let row = query.maybe(&self.db).await.doing("reserve a share of a limit")?;
        Ok(row.and_then(|row| u32::try_from(row.get::<i32, _>("share")).ok()))
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
        sqlx::query(LEAVE).bind(node).run(&self.db).await.doing("leave shares of limits")?;
        Ok(())
    }
}
