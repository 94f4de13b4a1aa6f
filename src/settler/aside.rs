//! Writes outcomes that were set aside, and outcomes one by one.

use std::sync::Arc;
use std::time::Instant;

use super::{Settler, Writer};
use crate::lock::Lock;
use crate::refund::RefundId;
use crate::store::Settled;

impl Writer {
    /// Writes the outcomes whose rows are no longer locked. Returns the others. Those at which Postgres failed before come last
    /// and each alone: one on which it works for too long would cost the others of its commit the same time again.
    pub(super) async fn write_free(&self, aside: Vec<Settled>) -> Vec<Settled> {
        let ids: Vec<RefundId> = aside.iter().map(|settled| settled.id).collect();
        let free = match self.node.store.free(&ids).await {
            Ok(free) => free,
            Err(error) if error.is_outage() => return aside,
            // Postgres cannot read one of the rows. Each outcome is tried alone.
            Err(_) => ids,
        };
        let (free, mut waiting): (Vec<_>, Vec<_>) = aside.into_iter().partition(|one| free.contains(&one.id));
        let failed_before = self.refused.locked().clone();
        let (failed, free): (Vec<_>, Vec<_>) =
            free.into_iter().partition(|one| failed_before.contains(&(one.id, Arc::clone(&one.holder))));
        if !free.is_empty() {
            waiting.extend(self.write(&free, true).await);
        }
        waiting.extend(self.write_each(&failed, true).await);
        waiting
    }

    /// Writes each outcome in a commit of its own. Returns those that wait.
    pub(super) async fn write_each(&self, batch: &[Settled], again: bool) -> Vec<Settled> {
        let (mut waiting, began) = (Vec::new(), Instant::now());
        for (place, one) in batch.iter().enumerate() {
            waiting.extend(Box::pin(self.write(std::slice::from_ref(one), again)).await);
            // The others likely wait for the same row. The next round begins with another.
            let is_slow = !waiting.is_empty() && began.elapsed() >= Settler::LOOK_AGAIN;
            if is_slow || waiting.len() >= Settler::FAILS_AT_ONCE {
                let rest = &batch[place + 1..];
                self.report(if again { &[] } else { rest });
                return [rest, &waiting].concat();
            }
        }
        waiting
    }
}
