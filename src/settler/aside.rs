//! Writes outcomes that were set aside, and outcomes channel by channel or one by one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use super::{Settler, Writer};
use crate::lock::Lock;
use crate::refund::{ChannelName, RefundId};
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
        waiting.extend(self.write_each(&in_turn(failed, |one| one.channel.clone()), true).await);
        waiting
    }

    /// Writes the outcomes of each channel in a commit of their own, or each outcome alone if all are of one channel. So the outcomes of a
    /// channel do not wait until those of another one, which Postgres refuses, have all been tried. Returns those that wait.
    pub(super) async fn write_apart(&self, batch: &[Settled], again: bool) -> Vec<Settled> {
        if batch.iter().all(|one| one.channel == batch[0].channel) {
            return self.write_each(batch, again).await;
        }
        let (mut rest, mut waiting, began) = (batch.to_vec(), Vec::new(), Instant::now());
        while let Some(channel) = rest.first().map(|one| one.channel.clone()) {
            let (own, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(|one| one.channel == channel);
            rest = others;
            waiting.extend(Box::pin(self.write(&own, again)).await);
            // As below: the next round begins with another channel.
            if !waiting.is_empty() && began.elapsed() >= Settler::LOOK_AGAIN {
                if !again {
                    self.report(&rest);
                }
                rest.extend(waiting);
                return rest;
            }
        }
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

/// One of each channel in turn. Few of a round may fail, so all would be of one channel that has many.
fn in_turn<T>(all: Vec<T>, channel_of: impl Fn(&T) -> ChannelName) -> Vec<T> {
    let mut counts: HashMap<ChannelName, usize> = HashMap::new();
    let number = |one: T| {
        let count = counts.entry(channel_of(&one)).or_default();
        *count += 1;
        (*count, one)
    };
    let mut numbered: Vec<(usize, T)> = all.into_iter().map(number).collect();
    numbered.sort_by_key(|(number, _)| *number);
    numbered.into_iter().map(|(_, one)| one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_that_failed_are_tried_one_of_each_channel_in_turn() {
        let all: Vec<&str> = "a1 a2 a3 a4 b1 c1 c2 a5".split(' ').collect();
        let tried = in_turn(all, |one| ChannelName::new(&one[..1]).unwrap());
        assert_eq!(tried, ["a1", "b1", "c1", "a2", "c2", "a3", "a4", "a5"]);
    }
}
