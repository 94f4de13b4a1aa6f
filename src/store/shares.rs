//! The shares of limits that each node counts alone: who counts which.
//!
//! A share may have two holders for a moment, when one was taken for dead. That breaks nothing: the
//! permits of a share are spent in the ledger like all others, and it takes each number once.

use sqlx::Row;

use super::connections::{Ask, Run};
use super::{Doing, Store, StoreError};
use crate::refund::LimitName;

// Keeps the share this node has, or takes the first that nobody has held for ten seconds.
const HOLD: &str = "
    with held as (
        update refundd.limit_shares set seen_at = now() where limit_name = $1 and node = $2 and share <= $3 returning share
    ), free as (
        select s.share from generate_series(1, $3) s (share)
          left join refundd.limit_shares l on l.limit_name = $1 and l.share = s.share
         where not exists (select from held) and (l.node is null or l.seen_at < now() - interval '10 seconds')
         order by s.share limit 1
    ), taken as (
        insert into refundd.limit_shares as l (limit_name, share, node) select $1, share, $2 from free
            on conflict (limit_name, share) do update set node = excluded.node, seen_at = now()
         where l.seen_at < now() - interval '10 seconds'
        returning share
    )
    select share from held union all select share from taken order by share limit 1";

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
