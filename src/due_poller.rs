//! Looks for channels whose refunds became due while their line is empty, and for lines that others fed.
//!
//! The first is the leading node's duty alone, ten times a second: that is how a plain SQL insert is
//! noticed without a trigger that would make every producer's commit wait in one queue (see
//! docs/decisions/0001). The second is every node's own, once a second, for channels it waits on.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use crate::bucket::Errand;
use crate::node::failing::Failing;
use crate::node::reminding::ServerError;
use crate::node::{Node, jittered};
use crate::refund::ChannelName;
use crate::telemetry::chain;
use crate::wake_up::Feed;

/// The loop.
#[derive(Debug)]
pub struct DuePoller {
    node: Node,
    feed: Feed,
    /// When a line that was low but not empty was last asked for.
    last_low: std::collections::HashMap<ChannelName, Instant>,
}

impl DuePoller {
    const PERIOD: Duration = Duration::from_millis(100);
    /// What our own dispatcher saw of a line counts for this long.
    const FRESH: Duration = Duration::from_millis(1500);
    /// A line with something in it can wait this long.
    const LOW_AGAIN: Duration = Duration::from_secs(1);

    pub fn new(node: Node, feed: Feed) -> Self {
        DuePoller { node, feed, last_low: std::collections::HashMap::new() }
    }

    pub async fn run(mut self) {
        let mut failing = Failing::default();
        let mut looked_at_lines = Instant::now();
        loop {
            let started = Instant::now();
            let pass = self.node.progress.pass("scout");
            let found = if self.node.leads() { self.find_due().await } else { Ok(()) };
            let mine = self.feed.hungry();
            // A thousand channels are looked at every two seconds, not every one.
            let every = Duration::from_secs(1)
                .max(Duration::from_millis(2) * u32::try_from(mine.len()).unwrap_or(u32::MAX));
            // Whatever became of the first: the trouble of one channel's server is not the others', and a dispatcher
            // that sleeps is woken by nothing else.
            let woken = if looked_at_lines.elapsed() >= every {
                looked_at_lines = Instant::now();
                self.find_fed(&mine).await
            } else {
                Ok(())
            };
            drop(pass);
            failing.note(
                &found.and(woken),
                |error| {
                    tracing::warn!(error = %chain(error), "Failed to look for due refunds, will try again");
                },
                || tracing::info!("Looking for due refunds works again"),
            );
            // Never busy for more than a tenth of the time, however many channels there are.
            let wait = jittered(Self::PERIOD).max(started.elapsed() * 9).min(Duration::from_secs(5));
            tokio::select! {
                () = self.node.stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Asks for food where something is due and the line is empty, or low for a while.
    async fn find_due(&mut self) -> Result<(), ServerError> {
        let due = self.node.store.channels_with_due().await?;
        // Lines that our own dispatcher just saw well filled need no other look.
        let low_water = u64::from(self.feed.low_water());
        let well_fed = |channel: &ChannelName| {
            self.node.depth_seen_within(channel, Self::FRESH).is_some_and(|d| d >= low_water)
        };
        let due: Vec<ChannelName> =
            due.iter().filter_map(|name| ChannelName::new(name).ok()).filter(|c| !well_fed(c)).collect();
        let mut away = Ok(());
        let lines = self.node.bucket.survey(Errand::Send, &due).await;
        for (channel, line) in due.iter().zip(lines) {
            let line = match line {
                Ok(line) => line,
                Err(error) => {
                    away = Err(error.into());
                    continue;
                }
            };
            self.node.note_depth(channel, line.depth);
            let low = line.depth < low_water;
            let waited = self.last_low.get(channel).is_none_or(|at| at.elapsed() > Self::LOW_AGAIN);
            if line.depth == 0 || (low && waited) {
                self.feed.ask(channel);
                self.last_low.insert(channel.clone(), Instant::now());
            }
        }
        let due: HashSet<&ChannelName> = due.iter().collect();
        self.last_low.retain(|channel, _| due.contains(channel));
        away
    }

    /// Wakes the dispatchers whose line somebody else fed.
    async fn find_fed(&self, channels: &[ChannelName]) -> Result<(), ServerError> {
        let mut away = Ok(());
        let lines = self.node.bucket.survey(Errand::Send, channels).await;
        for (channel, line) in channels.iter().zip(lines) {
            let line = match line {
                Ok(line) => line,
                Err(error) => {
                    away = Err(error.into());
                    continue;
                }
            };
            self.node.note_depth(channel, line.depth);
            if line.depth > 0 {
                self.feed.fed(channel).notify_one();
            }
        }
        away
    }
}
