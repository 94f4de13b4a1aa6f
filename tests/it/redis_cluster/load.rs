//! Load of every kind of limit on a cluster, and what the tests do to the cluster meanwhile.

use std::time::Duration;

use playground::{RedisCluster, RedisOptions};
use refundd::refund::State;

use crate::faults::many_kinds::ManyKinds;
use crate::faults::{algorithms, always, hold};
use crate::harness::{Scratch, within};

/// A cluster, two nodes, and more refunds of every kind than they can send.
pub type Load = ManyKinds<RedisCluster>;

impl Load {
    pub const PLENTY: u32 = 3000;

    pub async fn start(options: &RedisOptions, saved: u32) -> Load {
        let redis = RedisCluster::start(options).await.unwrap_or_else(|error| panic!("{error}"));
        let scratch = Scratch::with_redis(redis.url()).await;
        let urls = [redis.url(), redis.url()];
        ManyKinds::over(scratch, redis, urls, saved).await
    }

    pub async fn owner(&self, tag: &str) -> (u16, usize) {
        let slot = self.redis.slot_of(tag).await.unwrap();
        (slot, self.redis.owner(slot).await.unwrap())
    }

    /// The channels that a master has, and those of the others.
    pub async fn parted_by(&self, master: usize) -> (Vec<&'static str>, Vec<&'static str>) {
        let (mut its, mut others) = (Vec::new(), Vec::new());
        for (name, _) in algorithms() {
            if self.owner(name).await.1 == master { its.push(name) } else { others.push(name) }
        }
        assert!(!others.is_empty(), "not all are on one master");
        (its, others)
    }

    /// Moves a slot group's slot to the next master; says how long no refund of the channel arrived then, and how
    /// long that is the case anyway.
    pub async fn move_on(&self, channel: &str) -> String {
        let (slot, from) = self.owner(channel).await;
        let began_us = self.scratch.now_us().await;
        let took = self.redis.move_slot(slot, from, (from + 1) % 3).await.unwrap();
        let moved_us = began_us + i64::try_from(took.as_micros()).unwrap();
        self.until_these_send(&[channel]).await;
        let mut times: Vec<i64> =
            self.scratch.bank.look(|ledger| ledger.arrivals(channel).map(|a| a.at_us).collect());
        times.sort_unstable();
        let moved = times.partition_point(|at| *at < moved_us);
        // The last refund may have arrived before the slot had moved.
        let gap = |at: usize| times.get(at).map_or(0, |next| (next - times[at - 1]) / 1000);
        let recent = times.partition_point(|at| *at < began_us - 2_500_000).max(1);
        let before = times.partition_point(|at| *at < began_us);
        let usual = (recent..before).map(gap).max().unwrap_or_default();
        format!(
            "{channel}: slot under way for {} ms, nothing arrived for {} ms, before at most {usual} ms",
            took.as_millis(),
            gap(moved),
        )
    }

    /// Waits until the last refund is settled.
    pub async fn drain(&self) {
        let all = i64::try_from(self.saved * algorithms().len()).unwrap();
        within(Duration::from_mins(5), "every refund is sent and settled", async || {
            self.scratch.count(State::Succeeded).await == all
        })
        .await;
    }

    pub async fn end(mut self, skip: &[&str]) -> Scratch {
        self.stop_nodes().await;
        hold(&self.scratch, skip, always).await;
        self.redis.stop().await.unwrap();
        self.scratch
    }
}
