//! Feeds due refunds into their channel's bucket.
//!
//! The feeder decides nothing about speed; that is the limiter's business. It only keeps the line in
//! step with the rows, and the row is always written first. It is nudged: by a take that finds the
//! line low, by HTTP when a refund was saved, and by the due poller. A nudge in vain is harmless, and
//! so is feeding twice: an id in line is ignored.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use futures_util::future::join_all;

use crate::bucket::{End, Errand};
use crate::crash;
use crate::node::failing::Failing;
use crate::node::reminding::ServerError;
use crate::node::{Node, jittered};
use crate::refund::ChannelName;
use crate::telemetry::chain;
use crate::wake_up::WakeUps;

/// The loop.
#[derive(Debug)]
pub struct Feeder {
    node: Node,
    wake_ups: WakeUps,
    /// When each line was last fed, and how long it then rests unless it is empty.
    last: HashMap<ChannelName, (Instant, Duration)>,
    failing: Failing,
}

impl Feeder {
    /// A line with something in it is fed at most this often, however often it is nudged.
    const PAUSE: Duration = Duration::from_millis(50);
    /// One that had all that was due is left alone for so long, for twice as long the next time, and at last for
    /// so long: a low line with nothing behind it would be fed in vain for as long as it lasts.
    const IN_VAIN: Duration = Duration::from_millis(200);
    const IN_VAIN_AT_LAST: Duration = Duration::from_secs(8);
    /// Lines fed side by side.
    const WIDTH: usize = 4;

    pub fn new(node: Node, wake_ups: WakeUps) -> Self {
        Feeder { node, wake_ups, last: HashMap::new(), failing: Failing::default() }
    }

    pub async fn run(mut self) {
        while !self.node.stop.is_cancelled() {
            let nudged = self.wake_ups.take_nudged();
            if nudged.is_empty() {
                tokio::select! {
                    () = self.node.stop.cancelled() => return,
                    () = self.wake_ups.wait_for_nudge() => continue,
                }
            }
            let pass = self.node.progress.pass("feeder");
            let later = self.pass(nudged).await;
            drop(pass);
            if !later.is_empty() {
                for channel in &later {
                    self.wake_ups.nudge(channel);
                }
                let wait = if self.failing.is_failing() {
                    jittered(Duration::from_millis(500))
                } else {
                    Self::PAUSE
                };
                tokio::select! {
                    () = self.node.stop.cancelled() => return,
                    () = tokio::time::sleep(wait) => {}
                }
            }
        }
    }

    /// Feeds the lines it was nudged for; answers those to look at again.
    async fn pass(&mut self, nudged: HashSet<ChannelName>) -> Vec<ChannelName> {
        let channels: Vec<ChannelName> = nudged.into_iter().collect();
        let lines = self.node.bucket.survey(Errand::Send, &channels).await;
        let mut later = Vec::new();
        let mut hungry = Vec::new();
        for (channel, line) in channels.into_iter().zip(lines) {
            let line = match line {
                Ok(line) => line,
                Err(error) => {
                    self.note(&Err(error.into()));
                    later.push(channel);
                    continue;
                }
            };
            if line.depth > 0 {
                self.wake_ups.filled(&channel).notify_one();
                if line.depth >= u64::from(self.wake_ups.low_water()) {
                    continue;
                }
                if let Some((at, rest)) = self.last.get(&channel)
                    && at.elapsed() < *rest
                {
                    // After a feeding in vain the next take nudges, or the due poller.
                    if *rest <= Self::PAUSE {
                        later.push(channel);
                    }
                    continue;
                }
            }
            hungry.push(channel);
        }
        for channels in hungry.chunks(Self::WIDTH) {
            let fed = join_all(channels.iter().map(|channel| self.feed_one(channel))).await;
            for (channel, fed) in channels.iter().zip(fed) {
                let rest = match (&fed, self.last.get(channel)) {
                    (Ok(0), Some((_, rest))) => (*rest * 2).clamp(Self::IN_VAIN, Self::IN_VAIN_AT_LAST),
                    (Ok(0), None) => Self::IN_VAIN,
                    _ => Self::PAUSE,
                };
                self.last.insert(channel.clone(), (Instant::now(), rest));
                self.note(&fed);
                match fed {
                    Ok(added) => self.node.metrics.fed(channel, added),
                    Err(_) => later.push(channel.clone()),
                }
            }
        }
        later
    }

    async fn feed_one(&self, channel: &ChannelName) -> Result<u64, ServerError> {
        let due = self.node.store.due(channel, self.wake_ups.capacity()).await?;
        if due.is_empty() {
            return Ok(0);
        }
        crash::point("feeding");
        let added = self.node.bucket.fill(channel, &due, End::Back, self.wake_ups.capacity()).await?;
        crash::point("fed");
        if added > 0 {
            self.wake_ups.filled(channel).notify_one();
        }
        Ok(added)
    }

    fn note(&mut self, result: &Result<u64, ServerError>) {
        self.failing.note(
            result,
            |error| tracing::warn!(error = %chain(error), "Failed to feed a line, will try again"),
            || tracing::info!("Feeding works again"),
        );
    }
}
