//! Restoring: tells Redis from the ledger what is spent of a limit, when Redis forgot it or is behind.
//!
//! This module also agrees with other nodes on the days of time zones.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::bucket::{Bucket, BucketError};
use crate::crash;
use crate::limiter::rule::days_of;
use crate::limiter::{Forgotten, Limit, Permit};
use crate::logs::{chain, millis};
use crate::store::StoreError;

use super::Node;

/// Redis or Postgres failed.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error(transparent)]
    Bucket(#[from] BucketError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ServerError {
    pub fn is_postgres_away(&self) -> bool {
        matches!(self, ServerError::Store(error) if error.is_away())
    }
}

impl Node {
    /// Restores a limit that Redis forgot: adopts a generation in the ledger, and tells Redis what is spent. With `quietly`
    /// the log says nothing of it.
    ///
    /// One node at a time restores a limit, and all others wait for it. So its statements wait for no place among callers' requests,
    /// also where such a request found that Redis forgot. One restore at a time may do so: many would use the connections of the
    /// node's own work.
    ///
    /// # Errors
    /// When Redis or Postgres fails. Redis then still lacks the count, and the next take finds that again.
    pub async fn restore(&self, forgotten: &Forgotten, quietly: bool) -> Result<(), ServerError> {
        let began = Instant::now();
        let restored = self.try_to_restore(forgotten, began, quietly).await;
        if matches!(restored, Err(ServerError::Store(_))) {
            // Redis may be away as well. Then another node may try after a while.
            let _ = self.bucket.give_up(forgotten).await;
        }
        restored
    }

    async fn try_to_restore(
        &self,
        forgotten: &Forgotten,
        began: Instant,
        quietly: bool,
    ) -> Result<(), ServerError> {
        let limit = &forgotten.limit;
        let place = self.state.restores.try_acquire();
        let store = if place.is_ok() { &self.state.store } else { &self.store };
        let publishing = Box::pin(self.publish_days([limit]));
        self.bucket.while_restoring(forgotten, publishing).await?;
        if let Some(zone) = limit.rule.zone() {
            self.warn_without_day(limit, zone, forgotten.now_us);
            if forgotten.window.0 == 0 {
                // Redis has no day of this zone yet. The next take brings the days, and then the limit is restored.
                return Ok(());
            }
        }
        crash::point("adopting");
        let adopting = Box::pin(store.adopt(forgotten, &self.name, self.bucket.tolerance()));
        let count = self.bucket.while_restoring(forgotten, adopting).await?;
        drop(place);
        crash::point("adopted");
        if forgotten.generation > count.generation {
            // The database was restored from a backup, or somebody wrote into Redis. Redis takes no count of an older generation
            // than its own, so its own must go. The count is unusable anyway.
            self.bucket.forget(limit, forgotten.generation.saturating_add(1)).await?;
        }
        let is_restored = self.bucket.restore(limit, &count).await?;
        if is_restored {
            crash::point("restored");
        }
        if quietly {
            return Ok(());
        }
        if !is_restored {
            let took_ms = millis(began.elapsed());
            tracing::warn!(
                limit.name = %limit.name, generation = count.generation, took_ms,
                "Redis did not take the count of limit `{}`, which took {took_ms} ms to read: another node restores it, or a stricter \
                 rule counts", limit.name,
            );
            return Ok(());
        }
        let spent = count.used + count.history.iter().map(|past| past.count).sum::<i64>();
        tracing::info!(
            limit.name = %limit.name, spent, generation = count.generation,
            "Restored Redis from the ledger: {spent} permits of limit `{}` still count", limit.name,
        );
        Ok(())
    }

    /// Warns if no day is published for the time that the limit's clock shows: then no take brings a day that helps.
    fn warn_without_day(&self, limit: &Limit, zone: &str, now_us: i64) {
        let day = self.bucket.day_of(limit, now_us).ok_or(());
        self.zones_without_day.note(
            zone,
            &day,
            |()| {
                let shows = time_text(now_us);
                tracing::warn!(
                    limit.name = %limit.name, zone, shows,
                    "Limit `{}` grants nothing: the clock that counts it shows {shows}, and for that time no day of {zone} is published. \
                     Days are published from yesterday to three days ahead of Postgres's clock. Correct the clock that is wrong: \
                     Postgres's or Redis's, or this machine's for `placement = \"local_share\"`", limit.name,
                );
            },
            || tracing::info!(zone, "The time of the limits in {zone} has a published day again"),
        );
    }

    /// Publishes when the days of these limits' time zones begin, where no node has done so. This node counts by the
    /// published days, and warns if its own time zone database differs. Postgres's clock says which days are near. Answers how
    /// many days it published.
    ///
    /// # Errors
    /// When Postgres fails.
    pub async fn publish_days<'a>(
        &self,
        limits: impl IntoIterator<Item = &'a Arc<Limit>>,
    ) -> Result<u64, StoreError> {
        let mut seen = HashSet::new();
        let zoned = limits.into_iter().filter_map(|limit| Some((limit, limit.rule.zone()?)));
        let zoned: Vec<(&Arc<Limit>, &str)> = zoned.filter(|(_, zone)| seen.insert(*zone)).collect();
        if zoned.is_empty() {
            return Ok(0);
        }
        let mut added = 0;
        let now = self.state.store.now().await?;
        for (limit, zone) in zoned {
            let own = self.own_days(limit, zone, now);
            let (new, published) = self.state.store.publish_days(zone, &own, &self.name).await?;
            added += new;
            for day in &published {
                let Some((_, begins_us)) =
                    own.iter().find(|(name, us)| *name == day.day && *us != day.begins_us)
                else {
                    continue;
                };
                tracing::warn!(
                    zone,
                    day = day.day,
                    ours = time_text(*begins_us),
                    shared = time_text(day.begins_us),
                    by = day.node,
                    "This machine's time zone database lets {} in {zone} begin at {}; all nodes count by {}, which node {} \
                     published: bring the time zone databases of all nodes to one version",
                    day.day,
                    time_text(*begins_us),
                    time_text(day.begins_us),
                    day.node,
                );
            }
            self.bucket.share_edges(zone, published.iter().map(|day| day.begins_us));
        }
        Ok(added)
    }

    /// The days of a limit's time zone by this machine's database as it is now. A node runs for longer than a database
    /// stays the same. jiff reads a zone again after five minutes.
    fn own_days(&self, limit: &Limit, zone: &str, now: Timestamp) -> Vec<(String, i64)> {
        let read = TimeZone::get(zone);
        self.unreadable_zones.note(
            zone,
            &read,
            |error| {
                tracing::warn!(
                    zone, error = %chain(error),
                    "Failed to read the time zone {zone} again: this node publishes its days as it read them with the configuration. \
                     Install the time zone database of this machine (tzdata) again",
                );
            },
            || tracing::info!(zone, "The time zone {zone} can be read again"),
        );
        read.map_or_else(|_| limit.rule.days(now), |zone| days_of(&zone, now))
    }

    /// Corrects Redis after the ledger refused permits of a limit. There are four cases:
    ///
    /// - Redis granted numbers that were spent before. Then it is told how many are spent.
    /// - Redis granted numbers above all that are spent, and the claim was refused for another reason, such as another limit. Then
    ///   Redis forgets the count of a long window. Told how many are spent, it would keep its own higher count until the window ends.
    /// - Redis counts under another generation than the ledger. Then Redis forgets its count. That generation is
    ///   over, or the ledger does not know it, because the database was restored from a backup or made anew.
    /// - Redis's count, or its rule, cannot be true: somebody wrote into Redis. Then Redis forgets both.
    ///
    /// The claim also refuses a permit of a day that Postgres lost. So the days are published first.
    ///
    /// # Errors
    /// When Redis or Postgres fails.
    pub async fn catch_up(&self, limit: &Arc<Limit>, refused: &[Permit]) -> Result<(), ServerError> {
        let mut numbers = refused.iter().flat_map(|permit| &permit.numbers);
        let Some(number) = numbers.rfind(|number| number.limit == limit.name) else { return Ok(()) };
        let lost = self.publish_days([limit]).await?;
        // One day more each day is usual. Where the present day is missing, those after it are missing, too.
        if lost > 1 {
            tracing::warn!(
                limit.name = %limit.name, days = lost,
                "Postgres had lost {lost} days of the time zone of limit `{}`, as after a failover: this node published them again",
                limit.name,
            );
        }
        let generation = self.store.generation(&limit.name).await?;
        if generation != number.generation {
            self.bucket.forget(limit, generation.max(number.generation.saturating_add(1))).await?;
        } else if let Some(rule) = &number.stricter_rule
            && !self.store.is_published(&limit.name, rule).await?
        {
            tracing::error!(
                limit.name = %limit.name, rule = &**rule,
                "Redis has a rule of limit `{}` that stands in no node's file: `{rule}`. Its permits are refused and the \
                 rule is deleted. Find out who writes to Redis: the shipped ACL lets nobody else in", limit.name,
            );
            self.bucket.forget_rule(limit).await?;
        } else if limit.rule.algorithm.is_numbered() && number.stricter_rule.is_none() {
            let window = (number.window_start_us, number.window_start_us + 1);
            let count = self
                .store
                .count_spent(limit, number.window_start_us, window, self.bucket.tolerance())
                .await?;
            if limit.rule.per >= Bucket::LONG_WINDOW && i64::from(number.ordinal) > count.used {
                self.bucket.forget(limit, i64::MAX).await?;
            } else {
                self.bucket.restore(limit, &count).await?;
            }
        } else {
            if number.stricter_rule.is_some() {
                tracing::info!(
                    limit.name = %limit.name,
                    "Limit `{}`: the ledger refused permits that Redis granted under a stricter rule, and spent none of them; the rule \
                     of this node's own file is used up, or Redis's count is wrong. If the files of nodes differ, reload all from one",
                    limit.name,
                );
            } else {
                tracing::warn!(
                    limit.name = %limit.name,
                    "Redis granted permits that the ledger's count of limit `{}` does not allow; the ledger refused them, \
                     and Redis is restored from it", limit.name,
                );
            }
            // Behind a stricter rule the count may be forged, too.
            self.bucket.forget(limit, i64::MAX).await?;
        }
        Ok(())
    }
}

fn time_text(us: i64) -> String {
    Timestamp::from_microsecond(us).map_or_else(|_| us.to_string(), |at| at.to_string())
}
