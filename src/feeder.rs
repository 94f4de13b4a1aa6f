//! The feeder: puts the ids of due refunds into the bucket of their channel.
//!
//! It does not decide how fast refunds are sent; the limiter does. A row is always written before its id is put into
//! a bucket.
//!
//! Three callers nudge the feeder: a take that finds a bucket low, HTTP after it saved a refund, and the due poller.
//! A nudge without need does no harm. Filling twice does none either: the bucket ignores an id that it has.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use futures_util::future::join_all;

use crate::bucket::{End, Purpose};
use crate::crash;
use crate::failing::Failing;
use crate::node::restoring::ServerError;
use crate::node::{Node, jittered};
use crate::refund::ChannelName;
use crate::telemetry::chain;
use crate::wake_up::WakeUps;

/// The feeder loop.
#[derive(Debug)]
pub struct Feeder {
    node: Node,
    wake_ups: WakeUps,
    /// When each bucket was last filled, and how long the feeder then leaves it alone unless it is empty.
    last: HashMap<ChannelName, (Instant, Duration)>,
    failing: Failing,
}

impl Feeder {
    /// The shortest time between two fills of one bucket that is not empty, however many nudges come. A fill that
    /// added half of the bucket or more needs no such rest.
    const PAUSE: Duration = Duration::from_millis(50);
    /// The rest after a fill that added nothing, because the bucket had every id that is due. The rest doubles each
    /// time. Without it the feeder would read the rows again and again for a low bucket with nothing to add.
    const IN_VAIN: Duration = Duration::from_millis(200);
    /// The longest such rest.
    const IN_VAIN_AT_LAST: Duration = Duration::from_secs(8);
    /// How many buckets are filled at the same time.
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

    /// Fills the buckets of the nudged channels. Returns the channels to look at again.
    async fn pass(&mut self, nudged: HashSet<ChannelName>) -> Vec<ChannelName> {
        let channels: Vec<ChannelName> = nudged.into_iter().collect();
        let depths = self.node.bucket.depths(Purpose::Send, &channels).await;
        let mut later = Vec::new();
        let mut to_fill = Vec::new();
        for (channel, depth) in channels.into_iter().zip(depths) {
            let depth = match depth {
                Ok(depth) => depth,
                Err(error) => {
                    self.note(&Err(error.into()));
                    later.push(channel);
                    continue;
                }
            };
            if depth > 0 {
                self.wake_ups.filled(&channel).notify_one();
                if depth >= u64::from(self.wake_ups.low_water()) {
                    continue;
                }
                if let Some((at, rest)) = self.last.get(&channel)
                    && at.elapsed() < *rest
                {
                    // After a fill that added nothing, the next take or the due poller nudges again.
                    if *rest <= Self::PAUSE {
                        later.push(channel);
                    }
                    continue;
                }
            }
            to_fill.push(channel);
        }
        for channels in to_fill.chunks(Self::WIDTH) {
            let results = join_all(channels.iter().map(|channel| self.fill_one(channel))).await;
            for (channel, result) in channels.iter().zip(results) {
                let rest = match (&result, self.last.get(channel)) {
                    (Ok(0), Some((_, rest))) => (*rest * 2).clamp(Self::IN_VAIN, Self::IN_VAIN_AT_LAST),
                    (Ok(0), None) => Self::IN_VAIN,
                    // Takes empty this bucket fast: it may be low again at once.
                    (Ok(added), _) if *added >= u64::from(self.wake_ups.low_water()) => Duration::ZERO,
                    _ => Self::PAUSE,
                };
                self.last.insert(channel.clone(), (Instant::now(), rest));
                self.note(&result);
                match result {
                    Ok(added) => self.node.metrics.filled(channel, added),
                    Err(_) => later.push(channel.clone()),
                }
            }
        }
        later
    }

    /// Fills one bucket with the ids that are due. Returns how many ids the bucket did not have before.
    async fn fill_one(&self, channel: &ChannelName) -> Result<u64, ServerError> {
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
            |error| tracing::warn!(error = %chain(error), "Failed to fill a bucket, will try again"),
            || tracing::info!("Filling buckets works again"),
        );
    }
}
