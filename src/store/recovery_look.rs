//! Refunds that recovery finds only by looking at many others: no index has what tells them apart. One call looks at
//! some thousands, and the next call goes on there.

use sqlx::Row;

use super::connections::Ask;
use super::named::{Statement, bind, column, statement};
use super::recover::Recovered;
use super::{Doing, Store, StoreError, micros};
use crate::refund::inquiry::ACCEPTED_PATIENCE;
use crate::refund::{RefundId, inquiry};

const SHOW_MOVED: Statement =
    statement!(include_str!("sql/show_moved.sql"), include_str!("sql/parts/address_reason.sql"));
const SHOW_OVERDUE: Statement = statement!(include_str!("sql/show_overdue.sql"));
const SHOW_USED_UP: Statement =
    statement!(include_str!("sql/show_used_up.sql"), include_str!("sql/parts/address_reason.sql"));

pub(super) const STATEMENTS: &[(&str, &str)] =
    &[("show_moved", SHOW_MOVED.sql), ("show_overdue", SHOW_OVERDUE.sql), ("show_used_up", SHOW_USED_UP.sql)];

/// Which refunds a call looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RecoveryLook {
    /// They may have been sent to another address than their channel's present one.
    Moved,
    /// They are `unknown`, and may not be sent again any more.
    UsedUp,
    /// Their inquiry schedule is over, and their inquiry is due.
    Overdue,
}

/// The row up to which a round has looked. The default is before all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LookPlace {
    channel: String,
    /// When the refund or its inquiry is due, in us since 1970; 0 where the rows have no such order.
    us: i64,
    pub id: i64,
}

/// What one call did.
#[derive(Debug, Default)]
pub struct Looked {
    /// These refunds are in `review` now.
    pub shown: Vec<Recovered>,
    /// About so many refunds an inquiry is planned now.
    pub planned: usize,
    /// Where the next call goes on.
    pub next: LookPlace,
}

impl Store {
    /// Looks at the next `looks_at` rows after `after`. Moves to `review` the refunds among them that `which` names, or
    /// plans an inquiry about them; at most `limit`, and none of those in `without`.
    pub async fn look_for(
        &self,
        which: RecoveryLook,
        limit: u32,
        looks_at: u32,
        after: &LookPlace,
        without: &[RefundId],
    ) -> Result<Looked, StoreError> {
        let (most, rows, without) = (i64::from(limit), i64::from(looks_at), column(without, |id| id.0));
        let query = match which {
            RecoveryLook::Moved => bind!(
                SHOW_MOVED,
                after_channel: after.channel.as_str(),
                after_id: after.id,
                looks_at: rows,
                most: most,
                without: without,
            ),
            RecoveryLook::UsedUp => bind!(
                SHOW_USED_UP,
                after_channel: after.channel.as_str(),
                after_us: after.us,
                after_id: after.id,
                looks_at: rows,
                most: most,
                without: without,
            ),
            RecoveryLook::Overdue => {
                let Ok(witnessed_us) = self.witnessed_us() else {
                    return Ok(Looked { next: after.clone(), ..Looked::default() });
                };
                bind!(
                    SHOW_OVERDUE,
                    after_channel: after.channel.as_str(),
                    after_us: after.us,
                    after_id: after.id,
                    looks_at: rows,
                    most: most,
                    without: without,
                    witnessed_us: witnessed_us,
                    patience_us: micros(ACCEPTED_PATIENCE),
                    shown_after_us: micros(inquiry::SHOWN_AFTER),
                )
            }
        };
        let rows = query.all(&self.db.patient()).await.doing("move refunds to review")?;
        let Some(row) = rows.first() else { return Ok(Looked::default()) };
        let is_last = row.get::<i64, _>("looks") < i64::from(looks_at);
        let last =
            LookPlace { channel: row.get("last_channel"), us: row.get("last_us"), id: row.get("last_id") };
        let mut looked = Looked::default();
        for row in &rows {
            let Some(id) = row.get::<Option<i64>, _>("id") else { continue };
            // Only one of the statements has this column.
            if row.try_get("is_planned").unwrap_or(false) {
                looked.planned += 1;
            } else {
                let refund = Recovered { id: RefundId(id), channel: row.get("channel"), node: None };
                looked.shown.push(refund);
            }
        }
        if limit > 0 && looked.shown.len() + looked.planned >= limit as usize {
            // More of these rows may be of this kind.
            looked.next = after.clone();
        } else if !is_last {
            looked.next = last;
        }
        Ok(looked)
    }
}
