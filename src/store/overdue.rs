//! Refunds whose time for inquiries is over: a person decides them. They are found by looking at all planned inquiries,
//! some thousands in one call.

use sqlx::Row;

use super::connections::Ask;
use super::named::{Statement, bind, statement};
use super::{Doing, Store, StoreError, micros};
use crate::refund::inquiry::ACCEPTED_PATIENCE;
use crate::refund::{RefundId, inquiry};

const SHOW_OVERDUE: Statement = statement!(include_str!("sql/show_overdue.sql"));

pub(super) const STATEMENTS: &[(&str, &str)] = &[("show_overdue", SHOW_OVERDUE.sql)];

/// The planned inquiry up to which a round has looked. The default is before all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OverduePlace {
    channel: String,
    /// When the inquiry is due, in us since 1970.
    us: i64,
    id: i64,
}

impl Store {
    /// Looks at the next `looks_at` planned inquiries after `after`. Moves to `review` the refunds among them whose
    /// inquiry schedule is over and whose inquiry is due; at most `limit`. Answers them, and where the next call goes on.
    pub async fn show_overdue(
        &self,
        limit: u32,
        looks_at: u32,
        after: &OverduePlace,
    ) -> Result<(Vec<(RefundId, String)>, OverduePlace), StoreError> {
        let Ok(witnessed_us) = self.witnessed_us() else { return Ok((Vec::new(), after.clone())) };
        let query = bind!(
            SHOW_OVERDUE,
            after_channel: after.channel.as_str(),
            after_us: after.us,
            after_id: after.id,
            looks_at: i64::from(looks_at),
            most: i64::from(limit),
            witnessed_us: witnessed_us,
            patience_us: micros(ACCEPTED_PATIENCE),
            shown_after_us: micros(inquiry::SHOWN_AFTER),
        );
        let rows = query.all(&self.db.patient()).await.doing("move refunds to review")?;
        let Some(row) = rows.first() else { return Ok((Vec::new(), OverduePlace::default())) };
        let is_last = row.get::<i64, _>("looks") < i64::from(looks_at);
        let last =
            OverduePlace { channel: row.get("last_channel"), us: row.get("last_us"), id: row.get("last_id") };
        let shown: Vec<(RefundId, String)> = rows
            .iter()
            .filter_map(|row| Some((RefundId(row.get::<Option<i64>, _>("id")?), row.get("channel"))))
            .collect();
        let next = if limit > 0 && shown.len() >= limit as usize {
            // More of these rows may be overdue.
            after.clone()
        } else if is_last {
            OverduePlace::default()
        } else {
            last
        };
        Ok((shown, next))
    }
}
