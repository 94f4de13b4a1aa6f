//! What Postgres knew at one moment, for several forecasts of that moment.

use std::collections::HashMap;

use crate::forecast::{Allowance, SpentPermits};
use crate::limiter::Rule;
use crate::limiter::timing::micros;
use crate::refund::{ChannelName, State};
use crate::store::{ChannelCensus, ChannelOutlook, Store, StoreError};

/// What Postgres knew at one moment about the channels that have a backlog or inquiries. Two forecasts from the same inputs
/// differ only where the rules and the channels differ.
#[derive(Debug, Default)]
pub struct ForecastInputs {
    pub channels: Vec<ChannelOutlook>,
    pub backlogs: HashMap<String, u64>,
    /// The shares that nodes count now, by limit: the name of each. Of other limits nothing.
    pub shares: HashMap<String, Vec<String>>,
    /// The spent permits that still count, by limit and rule.
    pub spent: HashMap<(String, String), Vec<SpentPermits>>,
}

impl ForecastInputs {
    /// Reads what a forecast needs about the channels of this census that have a backlog or inquiries.
    pub async fn read(store: &Store, census: &[ChannelCensus]) -> Result<ForecastInputs, StoreError> {
        let backlog = |channel: &ChannelCensus| channel.counts.get(&State::Ready).copied().unwrap_or(0);
        // Inquiries about unknown and accepted refunds spend permits, too.
        let has_some = |channel: &&ChannelCensus| {
            let states = [State::Ready, State::Unknown, State::Accepted];
            states.iter().any(|state| channel.counts.get(state).is_some_and(|count| *count > 0))
        };
        let names: Vec<ChannelName> = census
            .iter()
            .filter(has_some)
            .filter_map(|channel| ChannelName::new(&channel.channel).ok())
            .collect();
        if names.is_empty() {
            return Ok(ForecastInputs::default());
        }
        let backlogs = census.iter().map(|channel| (channel.channel.clone(), backlog(channel))).collect();
        let (channels, shares) = (store.outlook(&names).await?, store.shares_in_use().await?);
        Ok(ForecastInputs { channels, backlogs, shares, spent: HashMap::new() })
    }

    /// Reads the spent permits of limits under rules that no forecast from these inputs has used yet.
    pub async fn read_spent(
        &mut self,
        store: &Store,
        rules: &HashMap<String, Rule>,
        now_us: i64,
    ) -> Result<(), StoreError> {
        let (mut windows, mut spans) = (Vec::new(), Vec::new());
        // The key of each name in the ledger.
        let mut new = HashMap::new();
        for (name, rule) in rules {
            let key = (name.clone(), rule.to_string());
            if self.spent.contains_key(&key) {
                continue;
            }
            let counted = self.shares.get(name).map_or(std::slice::from_ref(name), Vec::as_slice);
            for counted in counted {
                if rule.window().is_some() {
                    windows.push((counted.clone(), Allowance::window_at(rule, now_us)));
                } else if !rule.algorithm.is_paced() {
                    let memory = micros(Allowance::memory(rule));
                    spans.push((counted.clone(), now_us.saturating_sub(memory), (memory / 64).max(1)));
                }
                new.insert(counted.clone(), key.clone());
            }
            self.spent.insert(key, Vec::new());
        }
        for (counted, permits) in store.spent_permits(&windows, &spans).await? {
            if let Some(spent) = new.get(&counted).and_then(|key| self.spent.get_mut(key)) {
                spent.push(permits);
            }
        }
        Ok(())
    }
}
