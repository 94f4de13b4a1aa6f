//! The properties that must hold when every refund has ended.

use std::collections::BTreeMap;

use refundd::refund::{RefundId, State};

use crate::stage::own;
use crate::violation::{Checked, broken};
use crate::wire::number;
use crate::world::World;

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
        if let Some(row) = self.stage.wire.ask(own::RETIRED, None).await.first() {
            return broken(
                "a channel that a node runs is not retired",
                format!("c{}", number(row, 0).unwrap()),
            );
        }
        let kept = self.stage.wire.ask(own::KEPT, None).await;
        let kept: BTreeMap<i64, i64> =
            kept.iter().map(|row| (number(row, 0).unwrap(), number(row, 1).unwrap())).collect();
        if let Some(row) = self.stage.wire.ask(own::KEPT_TWICE, None).await.first() {
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
