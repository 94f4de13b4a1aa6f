//! Load of every kind of limit at once, from two nodes.

use std::time::{Duration, Instant};

use refundd::bucket::Purpose;
use refundd::refund::ChannelName;

use super::{PERMITS, algorithms, channels};
use crate::harness::{Scratch, TestNode};

/// A Redis of its own, two nodes, and more refunds of every kind than they can send.
pub struct ManyKinds<R> {
    pub scratch: Scratch,
    pub redis: R,
    pub nodes: Vec<TestNode>,
    /// Saved for each channel.
    pub saved: usize,
}

impl<R> ManyKinds<R> {
    /// Starts the nodes, each at its address of Redis.
    pub async fn over(scratch: Scratch, redis: R, urls: [String; 2], saved: u32) -> ManyKinds<R> {
        let mut nodes = Vec::new();
        for (name, url) in ["a", "b"].into_iter().zip(urls) {
            nodes.push(TestNode::start_at(&scratch, name, &channels(PERMITS), &url).await);
        }
        for (name, _) in algorithms() {
            scratch.insert(name, &format!("{name}-"), saved).await;
        }
        let load = ManyKinds { scratch, redis, nodes, saved: saved as usize };
        load.until_all_send().await;
        load
    }

    pub fn sent(&self, channel: &str) -> usize {
        self.scratch.bank.look(|ledger| ledger.arrivals(channel).count())
    }

    /// Waits until each of these channels has sent more than it has by now.
    pub async fn until_these_send(&self, names: &[&str]) {
        let enough: Vec<_> =
            names.iter().map(|name| (*name, (self.sent(name) + 10).min(self.saved - 1))).collect();
        let silent = || {
            let silent = enough.iter().filter(|(name, enough)| self.sent(name) <= *enough);
            silent.map(|(name, enough)| (*name, self.sent(name), *enough)).collect::<Vec<_>>()
        };
        let began = Instant::now();
        while !silent().is_empty() {
            // On a machine with much else to do, permits of 50 ms lapse one after the other for a while.
            assert!(
                began.elapsed() < Duration::from_mins(4),
                "within four minutes too little was sent: {}",
                self.details(&silent()).await
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// What a person wants to know of channels that sent too little.
    async fn details(&self, silent: &[(&str, usize, usize)]) -> String {
        let names: Vec<ChannelName> =
            silent.iter().map(|(name, ..)| ChannelName::new(name).unwrap()).collect();
        let buckets = self.scratch.bucket().survey(Purpose::Send, &names).await;
        let mut due = Vec::new();
        for name in &names {
            let query = format!(
                "select count(*) from refundd.refunds where channel = '{name}' and state = 'ready' and due_at <= now()"
            );
            due.push(self.scratch.number(&query).await);
        }
        format!("(channel, sent, enough): {silent:?}; due: {due:?}; buckets: {buckets:?}")
    }

    pub async fn until_all_send(&self) {
        self.until_these_send(&algorithms().map(|(name, _)| name)).await;
    }

    /// Stops the nodes; then what arrived can be held against promises.
    pub async fn stop_nodes(&mut self) {
        for node in self.nodes.drain(..) {
            node.stop().await;
        }
    }
}
