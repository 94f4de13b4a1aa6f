//! The properties that must hold when every refund has ended.

use std::collections::BTreeMap;

use refundd::refund::{RefundId, State};

use super::{Checked, broken, number};
use crate::stage;
use crate::world::World;

/// Reads how many sends the journal has of each refund.
pub const KEPT: &str = "select refund_id, count(*) from refundd.attempts where kind = 'send' group by 1";

/// Reads the leases that have more than one line of a kind in the journal.
pub const KEPT_TWICE: &str = "
    select refund_id, lease_epoch::bigint from refundd.attempts where code <> 'lease_lapsed' and kind in ('send', 'inquiry')
     group by 1, 2, kind, case kind when 'inquiry' then number end having count(*) > 1";

/// Reads the retired channels.
pub const RETIRED: &str =
    "select right(channel, 1)::bigint from refundd.channels where retired_at is not null";

impl World<'_> {
    /// Checks the rows, the journal and the bank's ledger when every refund has ended.
    pub async fn agrees_in_the_end(&mut self) -> Checked<()> {
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
        if let Some(row) = self.stage.wire.ask(stage::RETIRED, None).await.first() {
            return broken(
                "a channel that a node runs is not retired",
                format!("c{}", number(row, 0).unwrap()),
            );
        }
        let kept = self.stage.wire.ask(stage::KEPT, None).await;
        let kept: BTreeMap<i64, i64> =
            kept.iter().map(|row| (number(row, 0).unwrap(), number(row, 1).unwrap())).collect();
        if let Some(row) = self.stage.wire.ask(stage::KEPT_TWICE, None).await.first() {
            let (id, epoch) = (number(row, 0).unwrap(), number(row, 1).unwrap());
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
