//! Feeds due refunds into their channel's bucket.
//!
//! The feeder decides nothing about speed; that is the limiter's business. It only keeps the line in
//! step with the rows, and the row is always written first. It is asked: by a take that finds the
//! line low, by HTTP when a refund was saved, and by the scout. Being asked in vain is harmless, and
//! so is feeding twice: an id in line is ignored.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::sync::Notify;

use crate::bucket::{BucketError, End, Errand};
use crate::crash;
use crate::lock::Lock;
use crate::node::failing::Failing;
use crate::node::{Node, jittered};
use crate::refund::ChannelName;
use crate::sleepers::{Asleep, Sleepers};
use crate::store::StoreError;
use crate::telemetry::chain;

/// Where the loops ask for food, and learn that it came. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Feed(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The ids a line may hold.
    capacity: AtomicU32,
    asked: Mutex<HashSet<ChannelName>>,
    wake: Notify,
    /// Woken when something stands in line.
    fed: Mutex<HashMap<ChannelName, Arc<Notify>>>,
    /// The channels whose dispatcher found its line empty and sleeps until it is fed.
    hungry: Sleepers,
}

impl Feed {
    pub fn new(capacity: u32) -> Self {
        Feed(Arc::new(Inner {
            capacity: AtomicU32::new(capacity),
            asked: Mutex::default(),
            wake: Notify::new(),
            fed: Mutex::default(),
            hungry: Sleepers::default(),
        }))
    }

    pub fn capacity(&self) -> u32 {
        self.0.capacity.load(Ordering::Relaxed)
    }

    pub fn set_capacity(&self, capacity: u32) {
        self.0.capacity.store(capacity, Ordering::Relaxed);
    }

    /// The depth below which a line is low.
    pub fn low_water(&self) -> u32 {
        self.capacity().div_ceil(2)
    }

    /// Asks for a channel's line to be fed.
    pub fn ask(&self, channel: &ChannelName) {
        self.0.asked.locked().insert(channel.clone());
        self.0.wake.notify_one();
    }

    /// The signal that something stands in a channel's line.
    pub fn fed(&self, channel: &ChannelName) -> Arc<Notify> {
        let mut fed = self.0.fed.locked();
        Arc::clone(fed.entry(channel.clone()).or_default())
    }

    /// A dispatcher sleeps until its line is fed, or what is returned is dropped.
    pub fn wait_for_food(&self, channel: &ChannelName) -> Asleep {
        self.0.hungry.enter(channel)
    }

    /// The channels of this node that sleep until they are fed.
    pub fn hungry(&self) -> Vec<ChannelName> {
        self.0.hungry.channels()
    }

    fn take_asked(&self) -> HashSet<ChannelName> {
        std::mem::take(&mut *self.0.asked.locked())
    }
}

/// Why a line could not be fed.
#[derive(Debug, thiserror::Error)]
pub enum FeedError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Bucket(#[from] BucketError),
}

/// The loop.
#[derive(Debug)]
pub struct Feeder {
    node: Node,
    feed: Feed,
    /// When each line was last fed, and how long it then rests unless it is empty.
    last: HashMap<ChannelName, (Instant, Duration)>,
    failing: Failing,
}

impl Feeder {
    /// A line with something in it is fed at most this often by being asked.
    const PAUSE: Duration = Duration::from_millis(50);
    /// One that had all that was due is left alone for so long, for twice as long the next time, and at last for
    /// so long: a low line with nothing behind it would be fed in vain for as long as it lasts.
    const IN_VAIN: Duration = Duration::from_millis(200);
    const IN_VAIN_AT_LAST: Duration = Duration::from_secs(8);
    /// Lines fed side by side.
    const WIDTH: usize = 4;

    pub fn new(node: Node, feed: Feed) -> Self {
        Feeder { node, feed, last: HashMap::new(), failing: Failing::default() }
    }

    pub async fn run(mut self) {
        while !self.node.stop.is_cancelled() {
            let asked = self.feed.take_asked();
            if asked.is_empty() {
                tokio::select! {
                    () = self.node.stop.cancelled() => return,
                    () = self.feed.0.wake.notified() => continue,
                }
            }
            let pass = self.node.progress.pass("feeder");
            let later = self.pass(asked).await;
            drop(pass);
            if !later.is_empty() {
                for channel in &later {
                    self.feed.ask(channel);
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

    /// Feeds the lines asked for; answers those to look at again.
    async fn pass(&mut self, asked: HashSet<ChannelName>) -> Vec<ChannelName> {
        let channels: Vec<ChannelName> = asked.into_iter().collect();
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
                self.feed.fed(&channel).notify_one();
                if line.depth >= u64::from(self.feed.low_water()) {
                    continue;
                }
                if let Some((at, rest)) = self.last.get(&channel)
                    && at.elapsed() < *rest
                {
                    // After a feeding in vain the next taker asks, or the scout.
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

    async fn feed_one(&self, channel: &ChannelName) -> Result<u64, FeedError> {
        let due = self.node.store.due(channel, self.feed.capacity()).await?;
        if due.is_empty() {
            return Ok(0);
        }
        crash::point("feeding");
        let added = self.node.bucket.fill(channel, &due, End::Back, self.feed.capacity()).await?;
        crash::point("fed");
        if added > 0 {
            self.feed.fed(channel).notify_one();
        }
        Ok(added)
    }

    fn note(&mut self, result: &Result<u64, FeedError>) {
        self.failing.note(
            result,
            |error| tracing::warn!(error = %chain(error), "Failed to feed a line, will try again"),
            || tracing::info!("Feeding works again"),
        );
    }
}
