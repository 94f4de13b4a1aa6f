//! The housekeeping: forgets old evidence, dead nodes and channels that no node runs.
//!
//! The leading node does it. Each node that starts makes missing tables of the ledger and the journal, too.

use std::time::{Duration, Instant};

use super::first_failure::FirstFailure;
use super::{Recovery, part};
use crate::channel::Channel;
use crate::node::jittered;
use crate::node::liveness::JUDGES_AFTER;
use crate::node::restoring::ServerError;
use crate::store::{Rotation, Store};

impl Recovery {
    /// How often to rotate the journal. Looking for open refunds in a month may read the index of a long backlog.
    const ROTATE_EVERY: Duration = Duration::from_hours(1);
    /// The wait before the next try, when somebody used a table that was to be made or dropped: claims queue behind each try.
    const ROTATE_AGAIN: Duration = Duration::from_mins(1);
    /// How long `refundd.turn_permits` waits for a lock. It does not say whether it got it.
    const WAITS_FOR_A_LOCK: Duration = Duration::from_millis(100);
    /// How much longer the journal is kept than the ledger, which is dropped by whole days.
    const SPARE: Duration = Duration::from_hours(2 * 24);
    /// For how long a starting node tries to make tables. Nodes that start at once stand in each other's way for a moment.
    const TRIES_AT_START: Duration = Duration::from_secs(1);

    /// Makes the tables of this day and month and of the next ones, before a starting node writes its first row. A day or month whose
    /// first rows came before its table never gets one.
    ///
    /// # Errors
    /// The first failure of the last try, or that Postgres is away. A node can run without these tables.
    pub async fn make_tables(store: &Store) -> Result<(), ServerError> {
        let began = Instant::now();
        loop {
            let mut first = FirstFailure::default();
            let has_months = first.go_on(store.make_months().await)?.unwrap_or_default();
            let asked = Instant::now();
            first.go_on(store.make_days().await)?;
            let has_days = asked.elapsed() < Self::WAITS_FOR_A_LOCK;
            let is_last = began.elapsed() >= Self::TRIES_AT_START;
            match first.or(has_months && has_days) {
                Ok(true) => return Ok(()),
                Ok(false) if is_last => {
                    tracing::info!(
                        "The ledger or the journal may lack the tables of a day or a month: another session uses a table, or Postgres is \
                         slow. The leading node will try it again"
                    );
                    return Ok(());
                }
                Err(error) if is_last => return Err(error),
                Ok(false) | Err(_) => tokio::time::sleep(jittered(Self::WAITS_FOR_A_LOCK)).await,
            }
        }
    }

    /// Does the housekeeping. `led_for` says how long this node has led without a failed heartbeat.
    ///
    /// # Errors
    /// The first failure. What failed waits for the next call; while Postgres is away, so does the rest.
    pub async fn keep_house(&mut self, led_for: Duration) -> Result<(), ServerError> {
        let node = self.node.clone();
        let (store, mut first) = (&node.store, FirstFailure::default());
        first.go_on(part(&node, store.clear_cooling()).await)?;
        let ended = first.go_on(part(&node, store.expire_proposals()).await)?;
        if let Some(ended) = ended.filter(|ended| *ended > 0) {
            tracing::info!(
                proposals = ended,
                "Ended {ended} proposals: nobody approved them in time, or before their refunds changed"
            );
        }
        if led_for >= JUDGES_AFTER {
            first.go_on(part(&node, store.delete_dead_nodes()).await)?;
            for channel in first.go_on(part(&node, store.retire_channels()).await)?.unwrap_or_default() {
                tracing::info!(
                    channel.name = channel,
                    "No node runs channel `{channel}` any more; new refunds for it are refused"
                );
            }
        }
        // Never forget permits of a window that still runs, even if a reload made the window longer.
        let longest = {
            let running = node.running();
            let asking = |c: &Channel| c.inquiry.as_ref().and_then(|i| i.limits.clone()).unwrap_or_default();
            let all = running.channels.iter().flat_map(|c| c.limits.iter().cloned().chain(asking(c)));
            all.map(|limit| limit.rule.memory()).max().unwrap_or_default()
        };
        // Other nodes may have limits that this node's file lacks, or limits with longer windows.
        let wanted = self.keep.permits.max(longest * 2);
        if let Some(keep) = first.go_on(part(&node, store.permits_are_kept_for(wanted)).await)? {
            first.go_on(self.rotate_ledger(keep).await)?;
            // Keep the journal longer than the ledger, so that it still has the attempt of each permit in the ledger.
            let attempts = self.keep.attempts.map(|attempts| attempts.max(keep + Self::SPARE));
            first.go_on(self.rotate_journal(attempts).await)?;
        }
        if let Some(keep) = self.keep.events {
            first.go_on(part(&node, store.forget_events(keep)).await)?;
        }
        // Do this last: it takes longest when many refunds have ended.
        first.go_on(part(&node, store.count_ended()).await)?;
        first.or(())
    }

    /// Makes the ledger's next days and drops the days that ended longer than `keep` ago.
    async fn rotate_ledger(&mut self, keep: Duration) -> Result<(), ServerError> {
        let now = Instant::now();
        if now < self.rotate_ledger_at {
            return Ok(());
        }
        let rotated = part(&self.node, self.node.store.rotate_permits(keep)).await;
        // A day is made two days early, so that a wait does no harm. If Postgres is only slow, rows of other days are deleted more
        // slowly.
        if now.elapsed() >= Self::WAITS_FOR_A_LOCK {
            self.rotate_ledger_at = now + Self::ROTATE_AGAIN;
        }
        let dropped = rotated?;
        if dropped > 0 {
            tracing::info!(days = dropped, "Forgot {dropped} days of the ledger of permits");
        }
        Ok(())
    }

    /// Makes the journal's next months and drops the months that ended longer than `keep` ago.
    async fn rotate_journal(&mut self, keep: Option<Duration>) -> Result<(), ServerError> {
        let now = Instant::now();
        if now < self.rotate_journal_at {
            return Ok(());
        }
        self.rotate_journal_at = now + Self::ROTATE_AGAIN;
        let mut rotation = part(&self.node, self.node.store.rotate_attempts(None)).await?;
        // Make the next months first. Looking at the months that are over may take long.
        if keep.is_some() {
            let made = rotation.done;
            rotation = part(&self.node, self.node.store.rotate_attempts(keep)).await?;
            rotation.done &= made;
        }
        let Rotation { done, dropped, kept_month } = rotation;
        if done {
            self.rotate_journal_at = now + Self::ROTATE_EVERY;
        }
        if dropped > 0 {
            tracing::info!(months = dropped, "Forgot {dropped} months of the journal of attempts");
        }
        if let Some((month, refund)) = kept_month {
            tracing::info!(
                refund.id = %refund,
                "The journal up to {month} is old enough to be dropped, and is kept: refund {refund} has not ended",
            );
        }
        Ok(())
    }
}
