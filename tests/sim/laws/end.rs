//! What must hold when everything has come to its end.

use std::collections::BTreeMap;

use refundd::refund::{RefundId, State};

use super::{Lawful, broken};
use crate::world::World;

impl World<'_> {
    /// When everything has come to its end.
    pub async fn agrees_in_the_end(&mut self) -> Lawful<()> {
        let now = self.now();
        for (id, row) in &self.rows {
            let paid = self.paid(RefundId(*id), now);
            if !row.state.is_end() {
                return broken("nothing is lost", format!("refund {id} is {} and stays so", row.state));
            }
            if paid != usize::from(row.state == State::Succeeded) {
                return broken(
                    "the row agrees with the bank",
                    format!("refund {id} is {}, the bank paid {paid} times", row.state),
                );
            }
        }
        let kept: Vec<(i64, i64)> =
            sqlx::query_as("select refund_id, count(*) from refundd.attempts where kind = 'send' group by 1")
                .fetch_all(&mut self.stage.sql)
                .await
                .unwrap();
        let kept: BTreeMap<i64, i64> = kept.into_iter().collect();
        let twice: Vec<(i64, i64)> = sqlx::query_as(
            "select refund_id, lease_epoch from refundd.attempts where code <> 'lease_lapsed' and kind <> 'manual'
              group by 1, 2, kind, case kind when 'inquiry' then number end having count(*) > 1",
        )
        .fetch_all(&mut self.stage.sql)
        .await
        .unwrap();
        if let Some((id, epoch)) = twice.first() {
            return broken(
                "the journal has one line for each request",
                format!("refund {id}, lease {epoch}"),
            );
        }
        for id in self.rows.keys() {
            let (sent, kept) = (self.bank.of(RefundId(*id)).count(), kept.get(id).copied().unwrap_or(0));
            if usize::try_from(kept).unwrap_or(0) < sent {
                return broken(
                    "every request is in the journal",
                    format!("refund {id} was sent {sent} times, {kept} are kept"),
                );
            }
        }
        Ok(())
    }
}
