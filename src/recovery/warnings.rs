//! Warns people in time: about backlogs that are full, and about refunds that will be late.

use std::time::Instant;

use super::Recovery;
use crate::lock::Lock;
use crate::node::restoring::ServerError;
use crate::store::Forecast;

impl Recovery {
    /// Looks which backlogs are full. Counting millions takes long, so this pauses ten times as long as it took, for
    /// a minute at most.
    pub(super) async fn watch_backlogs(&self) -> Result<(), ServerError> {
        let began = Instant::now();
        if began < *self.watch_at.locked() {
            return Ok(());
        }
        for (channel, full) in self.node.store.watch_backlogs().await? {
            if full {
                tracing::warn!(
                    channel.name = channel,
                    "The backlog of channel `{channel}` is full; more refunds are refused"
                );
            } else {
                tracing::info!(channel.name = channel, "The backlog of channel `{channel}` has room again");
            }
        }
        let rest = (began.elapsed() * 10).min(Self::BACKLOGS_AT_LEAST_EVERY);
        *self.watch_at.locked() = Instant::now() + rest;
        Ok(())
    }

    /// Warns about refunds that will miss their deadlines at the rate of the limits, while a person can still act.
    pub(super) async fn look_ahead(&self) -> Result<(), ServerError> {
        let running = self.node.running();
        let rates: Vec<(&str, f64)> = running
            .channels
            .iter()
            .filter_map(|c| {
                Some((c.name.as_str(), c.limits.iter().map(|l| l.rule.per_second()).min_by(f64::total_cmp)?))
            })
            .collect();
        for Forecast { channel, late, from, .. } in self.node.store.forecast(&rates).await? {
            if let Some(from) = from {
                tracing::warn!(
                    channel.name = channel,
                    refunds = late,
                    "At its rate channel `{channel}` will be too late for {late} refunds, the first at {from:.0}; raise its limits, or cancel refunds before them",
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
}
