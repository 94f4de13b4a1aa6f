//! Counts permits that were granted and under which no request was made.

use super::{ChannelWorker, Work};
use crate::store::Claimed;

impl<W: Work> ChannelWorker<W> {
    /// Counts the permits that a claim of so many refunds refused or found spent.
    pub(super) fn count_unused(&self, claimed: &Claimed<W::Leased>, taken: usize) {
        let name = &self.channel.name;
        let unused = |reason: &'static str, count: usize| {
            if count > 0 {
                self.node.metrics.permits_unused(name, reason, count as u64);
            }
        };
        if claimed.is_suspended {
            unused("suspended", taken);
        } else if claimed.clocks_apart {
            unused("clocks_apart", taken);
        } else if claimed.is_address_lost {
            unused("address_lost", taken);
        } else if claimed.outdated || !claimed.overspent.is_empty() {
            unused("outdated", taken);
        } else {
            unused("spent_before", claimed.spent_before.len());
        }
    }

    /// Counts permits that no refund needs. They are not in the ledger, but Redis has counted them.
    pub(super) fn count_unspent(&mut self, count: usize) {
        if count > 0 {
            self.notices.wasted = true;
            self.node.metrics.permits_unused(&self.channel.name, "unspent", count as u64);
        }
    }
}
