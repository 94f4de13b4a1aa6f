//! Whether a bank that asks to wait means its channel, or one refund alone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::lock::Lock;
use crate::refund::{ChannelName, Outcome};

/// Of each channel: whether the bank has said of another refund what became of it, since it last asked this node to wait. In memory,
/// so that no send writes a row for it; each node goes by the answers that it got. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct WaitsOfBanks(Arc<Mutex<HashMap<ChannelName, bool>>>);

impl WaitsOfBanks {
    /// Notes the answer to a send. Of "asked to wait" it says whether the bank goes on with other refunds: then a refund that it
    /// has refused again and again may be the only one that it means, and the channel need not wait with it.
    pub fn note(&self, channel: &ChannelName, outcome: &Outcome) -> bool {
        let goes_on = match outcome {
            Outcome::Succeeded | Outcome::Accepted | Outcome::Rejected => true,
            Outcome::SlowDown { .. } => false,
            _ => return false,
        };
        let mut channels = self.0.locked();
        match channels.get_mut(channel) {
            Some(known) => std::mem::replace(known, goes_on),
            None => channels.insert(channel.clone(), goes_on).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bank_goes_on_with_other_refunds_from_its_next_verdict_until_it_asks_to_wait_again() {
        let (waits, acme) = (WaitsOfBanks::default(), ChannelName::new("acme").unwrap());
        let wait = || waits.note(&acme, &Outcome::SlowDown { retry_after: None });
        assert!(!wait(), "nothing is known");
        waits.note(&acme, &Outcome::Unknown);
        assert!(!wait(), "nobody knows what became of it");
        for verdict in [Outcome::Succeeded, Outcome::Accepted, Outcome::Rejected] {
            waits.note(&acme, &verdict);
            assert!(wait(), "{verdict:?}");
            assert!(!wait(), "it was asked to wait twice");
        }
        let globex = ChannelName::new("globex").unwrap();
        waits.note(&globex, &Outcome::Succeeded);
        assert!(!wait(), "another channel says nothing");
    }
}
