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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, Ordering};
    use std::time::Duration;

    use redis::{RedisError, Value};

    use super::*;
    use crate::bucket::memory::Memory;
    use crate::bucket::{End, Order, SimulatedServer, Take};
    use crate::config::Config;
    use crate::limiter::{Counted, LedgerCount};
    use crate::refund::RefundId;

    /// A Redis whose clock a test can set, and the monotonic clock of its only node.
    struct Settable {
        memory: Memory,
        began: Instant,
        /// How long the test has run by the node's clock.
        node_us: AtomicI64,
        redis_us: Arc<AtomicI64>,
    }

    impl Settable {
        fn new() -> Self {
            let redis_us = Arc::new(AtomicI64::new(1_790_000_000_000_000));
            let clock = Arc::clone(&redis_us);
            let memory = Memory::with_clock(Box::new(move || clock.load(Ordering::Relaxed))).unwrap();
            Settable { memory, began: Instant::now(), node_us: AtomicI64::default(), redis_us }
        }

        fn pass(&self, us: i64) {
            self.node_us.fetch_add(us, Ordering::Relaxed);
            self.set(us);
        }

        fn set(&self, by_us: i64) {
            self.redis_us.fetch_add(by_us, Ordering::Relaxed);
        }
    }

    impl SimulatedServer for Settable {
        fn run(&self, script: &str, keys: &[String], args: &[Vec<u8>]) -> Result<Value, RedisError> {
            self.memory.run(script, keys, args)
        }

        fn now(&self) -> Instant {
            self.began + Duration::from_micros(self.node_us.load(Ordering::Relaxed).unsigned_abs())
        }
    }

    const ORDER: Order = Order { want: 1, low_water: 0, lead_time: Duration::ZERO, until: None };

    /// What the ledger needs of the next permit.
    async fn next_permit(bucket: &Bucket, server: &Settable, channel: &Channel) -> Counted {
        for _ in 0..1_000 {
            match bucket.take(channel, ORDER).await.unwrap() {
                Take::Granted { taken, .. } => return taken[0].1.numbers[0].counted,
                Take::Forgot(forgotten) => {
                    let count = LedgerCount {
                        generation: 1,
                        window_start_us: forgotten.window.0,
                        ..Default::default()
                    };
                    bucket.restore(&channel.limits[0], &count).await.unwrap();
                }
                _ => {}
            }
            server.pass(50_000);
        }
        panic!("no permit is granted");
    }

    #[tokio::test]
    async fn permits_after_a_step_say_how_long_the_clock_is_known() {
        for algorithm in ["sliding_log", "fixed_window"] {
            let config = Config::of_tables(&format!(
                "[limit.acme]\nalgorithm = \"{algorithm}\"\npermits = 1\nper = \"1s\"\nlateness = \"100ms\"\n\
                 [channel.acme]\nendpoint = \"http://localhost/\"\nlimits = [\"acme\"]\n"
            ));
            let channel = config.channels.values().next().unwrap();
            let server = Arc::new(Settable::new());
            let simulated: Arc<dyn SimulatedServer> = Arc::<Settable>::clone(&server);
            let bucket = Bucket::simulated(simulated, Duration::from_secs(5)).unwrap();
            let ids: Vec<RefundId> = (1..=9).map(RefundId).collect();
            bucket.fill(&channel.name, &ids, End::Back, 100).await.unwrap();
            let before = next_permit(&bucket, &server, channel).await;
            assert_eq!(before.clock_known, None, "{algorithm}: nobody set the clock");
            server.pass(1_000_000);
            server.set(3_000_000);
            let shown = bucket.take(channel, ORDER).await.unwrap();
            assert!(matches!(shown, Take::ClockStepped { .. }), "{algorithm}: {shown:?}");
            let shown_at = server.now();
            server.pass(50_000);
            let after = next_permit(&bucket, &server, channel).await;
            assert_eq!(after.clock_known, Some(server.now() - shown_at), "{algorithm}");
            assert!(after.is_needed(false), "{algorithm}: the ledger counts once more");
        }
    }
}
