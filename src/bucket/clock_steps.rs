//! Reads the servers' clocks, and reports steps of a clock to its server.
//!
//! `clock.rs` finds a step in two readings. `stepped.lua` says what a step means for the limits.

use std::time::Instant;

use futures_util::future::join_all;

use super::clock::ClockReading;
use super::server::Call;
use super::slot_group::Tag;
use super::{Bucket, BucketError, misread, reply};
use crate::channel::Channel;
use crate::limiter::Placement;
use crate::steady;

impl Bucket {
    /// Reports a step of a server's clock to that server, if the step is not reported yet. Returns the step in us.
    pub(super) async fn report_step(
        &self,
        placement: Placement,
        tag: &Tag,
    ) -> Result<Option<i64>, BucketError> {
        let (server, clock) = self.counter(placement, tag);
        let Some(step) = clock.unreported() else { return Ok(None) };
        let mut call = Call::default();
        call.key(self.keys.clock(tag)).arg(step.by_us).arg(step.right_us);
        self.ask(server, &self.scripts.stepped, &call, "the clock", tag).await?;
        clock.reported(step, server.now());
        Ok(Some(step.by_us))
    }

    /// Checks a reading. Returns the step in us when the reading shows that the clock was set; the step is reported
    /// first. Returns 0 when the call began before an earlier step was reported.
    pub(super) async fn doubt(
        &self,
        placement: Placement,
        tag: &Tag,
        read: ClockReading,
    ) -> Result<Option<i64>, BucketError> {
        if self.counter(placement, tag).1.is_right(read) {
            return Ok(None);
        }
        Ok(Some(self.report_step(placement, tag).await?.unwrap_or(0)))
    }

    /// Reads the clock that counts for a channel, if this node has not read that clock yet. Two readings of one node
    /// show a step between them. Without the first reading, a step before the node's first take would go unnoticed.
    pub async fn watch_clock(&self, channel: &Channel) -> Result<(), BucketError> {
        let is_counted = channel.limits.iter().any(|limit| limit.placement == Placement::Shared);
        let tag = self.keys.tag(&channel.name);
        if !is_counted || self.watches.clock(&tag).was_read() {
            return Ok(());
        }
        self.read_clock(&tag).await
    }

    /// Reads every clock again that this node has read before, and reports steps to Redis. Each heartbeat calls it.
    /// So a step shows within a second even while no channel of this node takes.
    pub async fn watch_clocks(&self) -> Result<(), BucketError> {
        let tags = self.watches.read_tags();
        join_all(tags.iter().map(|tag| self.read_clock(tag))).await.into_iter().collect()
    }

    async fn read_clock(&self, tag: &Tag) -> Result<(), BucketError> {
        let mut call = Call::default();
        call.key(self.keys.clock(tag));
        let (_, read) = self.ask(&self.server, &self.scripts.time, &call, "the clock", tag).await?;
        if let Some(by_us) = self.doubt(Placement::Shared, tag, read).await?.filter(|by_us| *by_us != 0) {
            let by_ms = by_us / 1000;
            tracing::warn!(
                by_ms,
                "Redis's clock was set by {by_ms} ms; the limits rest until old permits expire"
            );
        }
        Ok(())
    }

    /// Reads Redis's clock, in us since 1970. Returns also the moment of the reading on this node's steady clock:
    /// the middle between the call and its reply. In a cluster, the call always goes to the master of the same slot.
    pub async fn time(&self) -> Result<(i64, Instant), BucketError> {
        let (redis_us, at) = self.time_of(&None).await?;
        Ok((redis_us, steady::shifted(at, self.server.steady_ahead_us())))
    }

    /// Does what [`Bucket::time`] does, on the server of a slot group, and with the moment as `Instant` shows it.
    pub(super) async fn time_of(&self, tag: &Tag) -> Result<(i64, Instant), BucketError> {
        let mut call = Call::default();
        call.key(self.keys.clock(tag));
        let failed = |source| BucketError::Ask { what: "its clock".to_owned(), source };
        let (reply, started) = self.server.run(&self.scripts.time, &call).await.map_err(failed)?;
        let redis_us = reply::now_us(&reply).ok_or_else(|| misread("its clock", &reply))?;
        Ok((redis_us, started + self.server.now().saturating_duration_since(started) / 2))
    }
}
