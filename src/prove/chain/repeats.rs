//! Seals that have lines of earlier seals. `refundd.seal_journal()` makes none, unless somebody lowered `refundd.sealing.until_id`.
//!
//! Seals are read in the order of their lines, so such a seal may come before those that it repeats. Its number says that it
//! was made after them.

use std::collections::BTreeMap;

use super::{ChainHead, SealSpan};

/// The seals of one channel that repeat lines.
#[derive(Debug, Default)]
pub(super) struct RepeatingSeals {
    /// The channel was sealed up to this id when it was sealed again.
    sealed_to: Option<i64>,
    seals: BTreeMap<i64, ChainHead>,
}

impl RepeatingSeals {
    /// The seal that the next one follows: the head of the chain, or the last one of the repeats that follow the head.
    pub(super) fn last(&self, head: Option<ChainHead>) -> Option<ChainHead> {
        let mut last = head;
        while let Some(repeat) = self.seals.get(&last.map_or(1, |last| last.number + 1)) {
            last = Some(*repeat);
        }
        last
    }

    /// Takes a seal if it repeats lines, and says whether it does. `before` is the span of the seal with the number before.
    pub(super) fn take(
        &mut self,
        seal: ChainHead,
        before: Option<SealSpan>,
        head: Option<ChainHead>,
    ) -> bool {
        let earlier = [before, head.map(|head| head.span)].into_iter().flatten();
        let repeated_to =
            earlier.filter(|earlier| seal.span.repeats(*earlier)).map(|earlier| earlier.to_id).max();
        // The journal is sealed again in several calls, and each one begins where the one before ended.
        let follows_repeat = self.seals.contains_key(&(seal.number - 1))
            && self.last(head).is_none_or(|last| last.number + 1 != seal.number);
        let is_repeat = repeated_to.is_some() || follows_repeat;
        if is_repeat {
            self.sealed_to = self.sealed_to.max(repeated_to);
            self.seals.insert(seal.number, seal);
        }
        is_repeat
    }

    /// Whether an earlier seal of the channel has, or had, this line.
    pub(super) fn has(&self, id: i64) -> bool {
        Some(id) <= self.sealed_to
    }
}
