//! Warns people in time: about backlogs that are full, and about refunds that will be late.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use super::Recovery;
use crate::channel::Channel;
use crate::forecast::{Allowance, FullPace, Quota};
use crate::limiter::Limit;
use crate::node::restoring::ServerError;
use crate::refund::LimitName;
use crate::store::{Forecast, StoreError};

impl Recovery {
    /// Looks which backlogs are full. Counting millions takes long, so this pauses ten times as long as it took, for
    /// a minute at most.
    pub(super) async fn watch_backlogs(&mut self) -> Result<(), ServerError> {
        let began = Instant::now();
        if began < self.watch_at {
            return Ok(());
        }
        let seen = self.node.store.watch_backlogs().await;
        self.watch_at = Self::next_after(began, Self::BACKLOGS_AT_LEAST_EVERY);
        for (channel, full) in seen? {
            if full {
                tracing::warn!(
                    channel.name = channel,
                    "The backlog of channel `{channel}` is full; more refunds are refused"
                );
            } else {
                tracing::info!(channel.name = channel, "The backlog of channel `{channel}` has room again");
            }
        }
        Ok(())
    }

    /// Warns about refunds that will miss their deadlines at the rate of the limits, while a person can still act.
    pub(super) async fn look_ahead(&self) -> Result<(), ServerError> {
        let running = self.node.running();
        let paces = self.full_paces(&running.channels).await?;
        for Forecast { channel, late, from, .. } in self.node.store.forecast(&paces).await? {
            if let Some(from) = from {
                tracing::warn!(
                    channel.name = channel,
                    refunds = late,
                    "At its rate channel `{channel}` will be too late for {late} refunds, the first at {from:.0}; agree on a faster limit with the bank, or move or cancel refunds that go before them",
                );
            } else {
                tracing::info!(
                    channel.name = channel,
                    "Channel `{channel}` will be in time for every deadline again"
                );
            }
        }
        Ok(())
    }

    /// The full pace of each channel with limits.
    async fn full_paces<'c>(
        &self,
        channels: &'c [Arc<Channel>],
    ) -> Result<Vec<(&'c str, FullPace)>, StoreError> {
        let store = &self.node.store;
        let now_us = store.now().await?.as_microsecond();
        let quotas = own_quotas(channels);
        let windows: Vec<(String, i64)> = quotas
            .iter()
            .flatten()
            .map(|limit| (limit.name.to_string(), Allowance::window_at(&limit.rule, now_us)))
            .collect();
        let spent = store.spent_permits(&windows, &[]).await?;
        let spent: HashMap<&str, u64> =
            spent.iter().map(|(limit, spent)| (limit.as_str(), spent.count)).collect();
        let shares = store.shares_in_use().await?;
        let with_share = |limit: &LimitName| shares.get(limit.as_str()).map_or(0, Vec::len);
        let pace = |(channel, limit): (&'c Arc<Channel>, Option<&Arc<Limit>>)| {
            let inquiries_share = channel.inquiry.as_ref().is_some_and(|inquiry| inquiry.limits.is_none());
            let quota = limit.map(|limit| {
                let spent = spent.get(limit.name.as_str()).copied().unwrap_or(0);
                (&limit.name, Quota::of(&limit.rule, spent, inquiries_share, now_us))
            });
            Some((channel.name.as_str(), FullPace::of(&channel.limits, quota, with_share, now_us)?))
        };
        Ok(channels.iter().zip(quotas).filter_map(pace).collect())
    }
}

/// For each channel, the quota that it has for itself.
fn own_quotas(channels: &[Arc<Channel>]) -> Vec<Option<&Arc<Limit>>> {
    let mut users: HashMap<&LimitName, u32> = HashMap::new();
    for channel in channels {
        let of_inquiries = channel.inquiry.iter().filter_map(|inquiry| inquiry.limits.as_ref()).flatten();
        for limit in channel.limits.iter().chain(of_inquiries) {
            *users.entry(&limit.name).or_default() += 1;
        }
    }
    let is_own = |limit: &LimitName| users.get(limit) == Some(&1);
    channels.iter().map(|channel| Quota::among(&channel.limits, is_own)).collect()
}
