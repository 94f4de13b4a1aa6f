//! The shares of limits that each node counts alone: who counts which.
//!
//! A share may have two holders for a moment, when one was taken for dead. That breaks nothing: the
//! permits of a share are spent in the ledger like all others, and it takes each number once.

use sqlx::Row;

use super::connections::{Ask, Run};
use super::{Doing, Store, StoreError};
use crate::refund::LimitName;

const HOLD: &str = include_str!("sql/hold_share.sql");

const LEAVE: &str = "delete from refundd.limit_shares where node = $1";

pub(super) const STATEMENTS: &[(&str, &str)] = &[("hold_share", HOLD), ("leave_shares", LEAVE)];

impl Store {
    /// Which of a limit's `of` shares this node counts; `None` if other nodes count them all.
    pub async fn hold_share(
        &self,
        limit: &LimitName,
        node: &str,
        of: u32,
    ) -> Result<Option<u32>, StoreError> {
        let row = sqlx::query(HOLD)
            .bind(limit.as_str())
            .bind(node)
            .bind(i32::try_from(of).unwrap_or(i32::MAX))
            .maybe(&self.db)
            .await
            .doing("hold a share of a limit")?;
        Ok(row.and_then(|row| u32::try_from(row.get::<i32, _>("share")).ok()))
    }

    /// Leaves this node's shares to others.
    pub async fn leave_shares(&self, node: &str) -> Result<(), StoreError> {
        sqlx::query(LEAVE).bind(node).run(&self.db).await.doing("leave shares of limits")?;
        Ok(())
    }
}
