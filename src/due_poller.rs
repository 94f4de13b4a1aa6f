//! The due poller: finds channels whose refunds or inquiries became due while their bucket is low, and buckets that
//! another node filled.
//!
//! One poller looks for refunds to send, another for inquiries. The leading node reads the rows for all nodes. So
//! refundd notices a plain SQL insert. A trigger would make the commits of all producers wait in one queue (see
//! docs/decisions/0001).
//!
//! Every node looks at the buckets for which its own channel workers sleep. Two nodes may do the same work: a bucket
//! ignores an id that it has.
//!
//! The poller nudges the feeder, which fills the buckets of sends. It fills the buckets of inquiries itself.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use crate::bucket::{End, Purpose};
use crate::failing::Failing;
use crate::logs::chain;
use crate::node::restoring::ServerError;
use crate::node::{Node, jittered};
use crate::refund::ChannelName;
use crate::wake_up::WakeUps;

/// The due poller's loop.
#[derive(Debug)]
pub struct DuePoller {
    node: Node,
    wake_ups: WakeUps,
    /// When the feeder was last nudged for a bucket.
    nudged: HashMap<ChannelName, Instant>,
}

impl DuePoller {
    /// How often to look at the buckets for which channel workers sleep.
    const LOOK: Duration = Duration::from_secs(1);
    /// A depth that this node's own channel worker saw is good for this long.
    const FRESH: Duration = Duration::from_millis(1500);
    /// A bucket that is low but not empty can wait this long.
    const LOW_AGAIN: Duration = Duration::from_secs(1);

    pub fn new(node: Node, wake_ups: WakeUps) -> Self {
        DuePoller { node, wake_ups, nudged: HashMap::new() }
    }

    /// The name of this purpose's poller, for people and logs.
    pub fn name(purpose: Purpose) -> &'static str {
        match purpose {
            Purpose::Send => "due poller",
            Purpose::Inquire => "due poller of inquiries",
        }
    }

    pub async fn run(mut self) {
        let purpose = self.wake_ups.purpose();
        let (period, longest, what) = match purpose {
            Purpose::Send => (Duration::from_millis(100), Duration::from_secs(5), "refunds"),
            Purpose::Inquire => (Duration::from_secs(1), Duration::from_secs(10), "inquiries"),
        };
        let mut failing = Failing::default();
        let mut looked: Option<Instant> = None;
        loop {
            let started = Instant::now();
            let due_result = if self.node.leads() { self.find_due().await } else { Ok(false) };
            let sleeping = self.wake_ups.sleeping();
            // Look less often at many channels: a thousand of them every two seconds.
            let every =
                Self::LOOK.max(Duration::from_millis(2) * u32::try_from(sleeping.len()).unwrap_or(u32::MAX));
            // Look even when the first part failed: one server that is away must not keep the workers of other
            // channels asleep.
            let looks = looked.is_none_or(|at| at.elapsed() + period / 2 >= every);
            let wake_result = if looks {
                looked = Some(Instant::now());
                self.find_filled(&sleeping).await
            } else {
                Ok(())
            };
            let looked_at_some = (looks && !sleeping.is_empty()) || matches!(due_result, Ok(true));
            let result = due_result.and(wake_result);
            // A round that asked Redis nothing does not show that Redis is back.
            if result.is_err() || looked_at_some {
                failing.note(
                    &result,
                    |error| {
                        tracing::warn!(error = %chain(error), "Failed to look for due {what}, will try again");
                    },
                    || tracing::info!("Looking for due {what} works again"),
                );
            }
            // The poller works for a tenth of the time at most, unless the longest wait cuts its rest short.
            let wait = jittered(period).max(started.elapsed() * 9).min(longest);
            tokio::select! {
                () = self.node.stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Finds channels with something due and a low bucket, and nudges the feeder or fills the bucket. While the one
    /// server of all buckets is away, the rest is left for the next round. Answers whether it looked at any bucket.
    async fn find_due(&mut self) -> Result<bool, ServerError> {
        let purpose = self.wake_ups.purpose();
        let looking = self.node.progress.pass(Self::name(purpose));
        let due = match purpose {
            Purpose::Send => self.node.store.channels_with_due().await?,
            Purpose::Inquire => self.node.store.channels_with_due_inquiries().await?,
        };
        let low_water = u64::from(self.wake_ups.low_water());
        // Do not look at a bucket that this node's own channel worker just saw well filled.
        let well_filled = |channel: &ChannelName| {
            let seen = self.node.depth_seen_within(channel, Self::FRESH);
            purpose == Purpose::Send && seen.is_some_and(|depth| depth >= low_water)
        };
        let due: Vec<ChannelName> =
            due.iter().filter_map(|name| ChannelName::new(name).ok()).filter(|c| !well_filled(c)).collect();
        let mut away = Ok(());
        let depths = self.node.bucket.depths(purpose, &due).await;
        drop(looking);
        for (channel, depth) in due.iter().zip(depths) {
            let depth = match depth {
                Ok(depth) => depth,
                Err(error) => {
                    away = Err(error.into());
                    continue;
                }
            };
            self.note_depth(channel, depth);
            if depth >= low_water {
                continue;
            }
            match purpose {
                Purpose::Send => {
                    let waited = self.nudged.get(channel).is_none_or(|at| at.elapsed() > Self::LOW_AGAIN);
                    if depth == 0 || waited {
                        self.wake_ups.nudge(channel);
                        self.nudged.insert(channel.clone(), Instant::now());
                    }
                }
                Purpose::Inquire => {
                    // The fills of ten thousand channels take a minute. So only a fill that does not end is stuck.
                    let _filling = self.node.progress.pass(Self::name(purpose));
                    let capacity = self.wake_ups.capacity();
                    let ids = self.node.store.due_inquiries(channel, capacity).await?;
                    let filled = self.node.bucket.fill_for(purpose, channel, &ids, End::Back, capacity).await;
                    if let Err(error) = filled {
                        let is_away = self.node.bucket.is_away_by(&error);
                        away = Err(error.into());
                        if is_away {
                            break;
                        }
                    }
                }
            }
        }
        let due: HashSet<&ChannelName> = due.iter().collect();
        self.nudged.retain(|channel, _| due.contains(channel));
        away.map(|()| !due.is_empty())
    }

    /// Wakes the channel workers whose bucket has ids.
    async fn find_filled(&self, channels: &[ChannelName]) -> Result<(), ServerError> {
        let _looking = self.node.progress.pass(Self::name(self.wake_ups.purpose()));
        let mut away = Ok(());
        let depths = self.node.bucket.depths(self.wake_ups.purpose(), channels).await;
        for (channel, depth) in channels.iter().zip(depths) {
            match depth {
                Ok(depth) => {
                    self.note_depth(channel, depth);
                    if depth > 0 {
                        self.wake_ups.filled(channel).notify_one();
                    }
                }
                Err(error) => away = Err(error.into()),
            }
        }
        away
    }

    /// Notes the depth of a bucket of sends; the node keeps no depths of inquiries.
    fn note_depth(&self, channel: &ChannelName, depth: u64) {
        if self.wake_ups.purpose() == Purpose::Send {
            self.node.note_depth(channel, depth);
        }
    }
}
