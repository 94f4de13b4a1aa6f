//! Whether a bank that asks to wait means its channel, or one refund alone.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use crate::lock::Lock;
use crate::refund::{ChannelName, Outcome, RefundId};

/// The channels whose bank has said of a refund what became of it since the channel last cooled for an answer to this node, with the
/// refunds that it has refused alone since. In memory, so that no send writes a row for it. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct WaitsOfBanks(Arc<Mutex<HashMap<ChannelName, HashSet<RefundId>>>>);

impl WaitsOfBanks {
    /// How many refunds a bank may refuse alone. If it refuses more, it means the channel.
    pub const ALONE: usize = 8;

    /// Notes the answer to a send.
    pub fn note(&self, channel: &ChannelName, outcome: &Outcome) {
        if matches!(outcome, Outcome::Succeeded | Outcome::Accepted | Outcome::Rejected) {
            let mut channels = self.0.locked();
            if !channels.contains_key(channel) {
                channels.insert(channel.clone(), HashSet::new());
            }
        }
    }

    /// Whether a bank that refuses this refund again and again may mean it alone, because it goes on with others.
    pub fn may_mean_one(&self, channel: &ChannelName, refund: RefundId) -> bool {
        let mut channels = self.0.locked();
        let Some(alone) = channels.get_mut(channel) else { return false };
        if alone.len() < Self::ALONE {
            alone.insert(refund);
        }
        alone.contains(&refund)
    }

    /// The channel cools.
    pub fn start_anew(&self, channel: &ChannelName) {
        self.0.locked().remove(channel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bank_may_mean_a_few_refunds_alone_from_its_next_verdict_until_the_channel_cools_again() {
        let (waits, acme) = (WaitsOfBanks::default(), ChannelName::new("acme").unwrap());
        let alone = |id| waits.may_mean_one(&acme, RefundId(id));
        assert!(!alone(1), "nothing is known");
        for nothing in [Outcome::Unknown, Outcome::SlowDown { retry_after: None }] {
            waits.note(&acme, &nothing);
            assert!(!alone(1), "{nothing:?}");
        }
        for verdict in [Outcome::Succeeded, Outcome::Accepted, Outcome::Rejected] {
            waits.note(&acme, &verdict);
            assert!(alone(1) && alone(1) && (2..=8).all(alone), "{verdict:?}");
            waits.note(&acme, &verdict);
            assert!(!alone(9) && alone(8), "it means the channel if it refuses more");
            waits.start_anew(&acme);
            assert!(!alone(1), "it cooled");
        }
        waits.note(&ChannelName::new("globex").unwrap(), &Outcome::Succeeded);
        assert!(!alone(1), "another channel says nothing");
    }
}
