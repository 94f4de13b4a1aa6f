//! Whether a bank that asks to wait means its channel, or one refund alone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::lock::Lock;
use crate::refund::{ChannelName, Outcome};

/// The channels whose bank has said of a refund what became of it since the channel last cooled for an answer to this node. In memory,
/// so that no send writes a row for it. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct WaitsOfBanks(Arc<Mutex<HashMap<ChannelName, bool>>>);

impl WaitsOfBanks {
    /// Notes the answer to a send. Answers whether a bank that asks to wait goes on with other refunds: then it may mean only this one,
    /// if it has refused it again and again.
    pub fn note(&self, channel: &ChannelName, outcome: &Outcome) -> bool {
        let mut goes_on = self.0.locked();
        match outcome {
            Outcome::SlowDown { .. } => return goes_on.get(channel).is_some_and(|goes_on| *goes_on),
            Outcome::Succeeded | Outcome::Accepted | Outcome::Rejected => {}
            _ => return false,
        }
        match goes_on.get_mut(channel) {
            Some(known) => *known = true,
            None => drop(goes_on.insert(channel.clone(), true)),
        }
        false
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
    fn a_bank_goes_on_with_other_refunds_from_its_next_verdict_until_the_channel_cools_again() {
        let (waits, acme) = (WaitsOfBanks::default(), ChannelName::new("acme").unwrap());
        let goes_on = || waits.note(&acme, &Outcome::SlowDown { retry_after: None });
        assert!(!goes_on(), "nothing is known");
        waits.note(&acme, &Outcome::Unknown);
        assert!(!goes_on(), "nobody knows what became of it");
        for verdict in [Outcome::Succeeded, Outcome::Accepted, Outcome::Rejected] {
            waits.note(&acme, &verdict);
            assert!(goes_on() && goes_on(), "{verdict:?}");
            waits.start_anew(&acme);
            assert!(!goes_on(), "it cooled");
        }
        let globex = ChannelName::new("globex").unwrap();
        waits.note(&globex, &Outcome::Succeeded);
        assert!(!goes_on(), "another channel says nothing");
    }
}
