//! Telling Redis what the ledger says of a limit: when it forgot, and when it turns out to be behind.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::mpsc;

use crate::bucket::BucketError;
use crate::channel::Channel;
use crate::crash;
use crate::limiter::{Forgotten, Limit, Permit};
use crate::store::StoreError;
use crate::telemetry::chain;

use super::Node;

/// One of the two servers failed.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error(transparent)]
    Bucket(#[from] BucketError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Node {
    /// Settles under which generation permits are good, and tells Redis what is spent.
    pub async fn remind(&self, forgotten: &Forgotten) -> Result<(), ServerError> {
        let limit = &forgotten.limit;
        self.share_days([limit]).await?;
        if limit.rule.zone().is_some() && forgotten.window.0 == 0 {
            // Redis was not told of any day yet; the next take tells it.
            return Ok(());
        }
        crash::point("adopting");
        let told = self.store.adopt(forgotten, &self.name, self.bucket.tolerance()).await?;
        crash::point("adopted");
        self.bucket.remind(limit, &told).await?;
        crash::point("reminded");
        let spent = told.used + told.history.iter().map(|past| past.count).sum::<i64>();
        tracing::info!(
            limit.name = %limit.name, spent, generation = told.generation,
            "Told Redis what the ledger says: {spent} permits of limit `{}` still count", limit.name,
        );
        Ok(())
    }

    /// Agrees with all other nodes where the days of these limits' time zones begin. A node whose time zone
    /// database says otherwise counts by the shared days all the same, and warns.
    pub async fn share_days<'a>(
        &self,
        limits: impl IntoIterator<Item = &'a Arc<Limit>>,
    ) -> Result<(), StoreError> {
        let mut seen = HashSet::new();
        for limit in limits {
            let Some(zone) = limit.rule.zone().filter(|zone| seen.insert(*zone)) else { continue };
            let own = limit.rule.days(Timestamp::now());
            let shared = self.store.share_days(zone, &own, &self.name).await?;
            for day in &shared {
                let Some((_, begins_us)) =
                    own.iter().find(|(name, us)| *name == day.day && *us != day.begins_us)
                else {
                    continue;
                };
                let say =
                    |us| Timestamp::from_microsecond(us).map_or_else(|_| us.to_string(), |at| at.to_string());
                tracing::warn!(
                    zone,
                    day = day.day,
                    ours = say(*begins_us),
                    shared = say(day.begins_us),
                    by = day.node,
                    "This machine's time zone database lets {} in {zone} begin at {}; all nodes count by {}, which node {} \
                     published: bring the time zone databases of all nodes to one version",
                    day.day,
                    say(*begins_us),
                    say(day.begins_us),
                    day.node,
                );
            }
            self.bucket.share_edges(zone, shared.iter().map(|day| day.begins_us));
        }
        Ok(())
    }

    /// While a request is under way, hears whether its first byte left after its permit had closed, and has that
    /// counted at once, not when the bank answers. Ends with the request.
    pub async fn watch_leaving(
        &self,
        channel: &Arc<Channel>,
        permit: &Permit,
        mut was_late: mpsc::Receiver<Instant>,
    ) {
        // The lease may end before the permit does.
        if let (Some(first_byte), Some(span)) = (was_late.recv().await, permit.span)
            && first_byte >= span.closes
        {
            self.left_late(channel, permit, first_byte - span.closes);
        }
    }

    /// A first byte left so long after its permit closed, because this process was stalled between the look at
    /// the clock and the write: says so, and has it counted once more, at the moment it really left.
    fn left_late(&self, channel: &Arc<Channel>, permit: &Permit, by: Duration) {
        let name = &channel.name;
        let late_ms = by.as_secs_f64() * 1000.0;
        self.metrics.first_byte_late(name);
        tracing::warn!(
            channel.name = %name, late_ms, permit = permit.describe(),
            "A first byte left on channel `{name}` {late_ms:.1} ms after its permit closed: this process was stalled; one more permit of each limit is spent",
        );
        let asking = channel.inquiry.iter().flat_map(|inquiry| inquiry.limits.iter().flatten());
        let limits: Vec<Arc<Limit>> = channel.limits.iter().chain(asking).cloned().collect();
        let (node, channel, permit) = (self.clone(), Arc::clone(channel), permit.clone());
        self.calls.spawn(async move {
            if let Err(error) = node.bucket.left_late(&channel.name, &limits, &permit).await {
                tracing::debug!(
                    channel.name = %channel.name, error = %chain(&error),
                    "A late first byte of channel `{}` could not be counted once more", channel.name,
                );
            }
        });
    }

    /// After the ledger refused permits of a limit: either Redis handed out numbers that were spent, and
    /// is told how many were; or it counts under another generation, and what it has is dropped. That is
    /// one that is over, or one the ledger does not know, because the database was restored or made anew.
    pub async fn catch_up(&self, limit: &Limit, refused: &[Permit]) -> Result<(), ServerError> {
        let mut numbers = refused.iter().flat_map(|permit| &permit.numbers);
        let Some(number) = numbers.rfind(|number| number.limit == limit.name) else { return Ok(()) };
        let generation = self.store.generation(&limit.name).await?;
        if generation != number.generation {
            self.bucket.forget(limit, generation.max(number.generation.saturating_add(1))).await?;
        } else if limit.rule.algorithm.is_numbered() {
            let window = (number.window_start_us, number.window_start_us + 1);
            let told =
                self.store.recollect(limit, number.window_start_us, window, self.bucket.tolerance()).await?;
            self.bucket.remind(limit, &told).await?;
        }
        Ok(())
    }
}
