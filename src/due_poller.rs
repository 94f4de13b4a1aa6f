//! Finds channels whose refunds or inquiries became due while their bucket is low, and buckets that another node filled.
//!
//! One poller looks for refunds to send, another for inquiries. The leading node reads the rows for all nodes. So it notices
//! a plain SQL insert without a trigger, which would make the commits of all producers wait in one queue (see
//! docs/decisions/0001). Every node looks at the buckets on which its own channel workers sleep. Both may be done
//! twice: an id that is in a bucket is ignored.
//!
//! Buckets of sends are filled by the feeder, which this loop nudges. Buckets of inquiries are filled here.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use crate::bucket::{End, Errand};
use crate::node::failing::Failing;
use crate::node::reminding::ServerError;
use crate::node::{Node, jittered};
use crate::refund::ChannelName;
use crate::telemetry::chain;
use crate::wake_up::WakeUps;

/// The loop.
#[derive(Debug)]
pub struct DuePoller {
    node: Node,
    wake_ups: WakeUps,
    /// When the feeder was last nudged for a bucket.
    nudged: HashMap<ChannelName, Instant>,
}

impl DuePoller {
    /// How often to look at the buckets on which channel workers sleep.
    const LOOK: Duration = Duration::from_secs(1);
    /// What our own channel worker saw of a bucket counts for this long.
    const FRESH: Duration = Duration::from_millis(1500);
    /// A bucket that is low but not empty can wait this long.
    const LOW_AGAIN: Duration = Duration::from_secs(1);

    pub fn new(node: Node, wake_ups: WakeUps) -> Self {
        DuePoller { node, wake_ups, nudged: HashMap::new() }
    }

    /// How people and logs name the loop that looks for this.
    pub fn name(errand: Errand) -> &'static str {
        match errand {
            Errand::Send => "due poller",
            Errand::Inquire => "due poller of inquiries",
        }
    }

    pub async fn run(mut self) {
        let errand = self.wake_ups.errand();
        let (period, longest, what) = match errand {
            Errand::Send => (Duration::from_millis(100), Duration::from_secs(5), "refunds"),
            Errand::Inquire => (Duration::from_secs(1), Duration::from_secs(10), "inquiries"),
        };
        let mut failing = Failing::default();
        let mut looked: Option<Instant> = None;
        loop {
            let started = Instant::now();
            let pass = self.node.progress.pass(Self::name(errand));
            let found = if self.node.leads() { self.find_due().await } else { Ok(()) };
            let sleeping = self.wake_ups.sleeping();
            // A thousand channels are looked at every two seconds, not every one.
            let every =
                Self::LOOK.max(Duration::from_millis(2) * u32::try_from(sleeping.len()).unwrap_or(u32::MAX));
            // Even when the first part failed: one channel's server must not keep the workers of other channels asleep.
            let woken = if looked.is_none_or(|at| at.elapsed() + period / 2 >= every) {
                looked = Some(Instant::now());
                self.find_filled(&sleeping).await
            } else {
                Ok(())
            };
            drop(pass);
            failing.note(
                &found.and(woken),
                |error| {
                    tracing::warn!(error = %chain(error), "Failed to look for due {what}, will try again");
                },
                || tracing::info!("Looking for due {what} works again"),
            );
            // Never busy for more than a tenth of the time, however many channels there are.
            let wait = jittered(period).max(started.elapsed() * 9).min(longest);
            tokio::select! {
                () = self.node.stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Has the low buckets of channels filled in which something is due.
    async fn find_due(&mut self) -> Result<(), ServerError> {
        let errand = self.wake_ups.errand();
        let due = match errand {
            Errand::Send => self.node.store.channels_with_due().await?,
            Errand::Inquire => self.node.store.channels_with_due_inquiries().await?,
        };
        let low_water = u64::from(self.wake_ups.low_water());
        // Buckets that our own channel worker just saw well filled need no other look.
        let well_filled = |channel: &ChannelName| {
            let seen = self.node.depth_seen_within(channel, Self::FRESH);
            errand == Errand::Send && seen.is_some_and(|depth| depth >= low_water)
        };
        let due: Vec<ChannelName> =
            due.iter().filter_map(|name| ChannelName::new(name).ok()).filter(|c| !well_filled(c)).collect();
        let mut away = Ok(());
        let lines = self.node.bucket.survey(errand, &due).await;
        for (channel, line) in due.iter().zip(lines) {
            let depth = match line {
                Ok(line) => line.depth,
                Err(error) => {
                    away = Err(error.into());
                    continue;
                }
            };
            self.note_depth(channel, depth);
            if depth >= low_water {
                continue;
            }
            match errand {
                Errand::Send => {
                    let waited = self.nudged.get(channel).is_none_or(|at| at.elapsed() > Self::LOW_AGAIN);
                    if depth == 0 || waited {
                        self.wake_ups.nudge(channel);
                        self.nudged.insert(channel.clone(), Instant::now());
                    }
                }
                Errand::Inquire => {
                    let capacity = self.wake_ups.capacity();
                    let ids = self.node.store.due_inquiries(channel, capacity).await?;
                    let filled = self.node.bucket.fill_for(errand, channel, &ids, End::Back, capacity).await;
                    if let Err(error) = filled {
                        away = Err(error.into());
                    }
                }
            }
        }
        let due: HashSet<&ChannelName> = due.iter().collect();
        self.nudged.retain(|channel, _| due.contains(channel));
        away
    }

    /// Wakes the channel workers whose bucket holds something.
    async fn find_filled(&self, channels: &[ChannelName]) -> Result<(), ServerError> {
        let mut away = Ok(());
        let lines = self.node.bucket.survey(self.wake_ups.errand(), channels).await;
        for (channel, line) in channels.iter().zip(lines) {
            match line {
                Ok(line) => {
                    self.note_depth(channel, line.depth);
                    if line.depth > 0 {
                        self.wake_ups.filled(channel).notify_one();
                    }
                }
                Err(error) => away = Err(error.into()),
            }
        }
        away
    }

    /// The node knows the depths of the buckets of sends only.
    fn note_depth(&self, channel: &ChannelName, depth: u64) {
        if self.wake_ups.errand() == Errand::Send {
            self.node.note_depth(channel, depth);
        }
    }
}
