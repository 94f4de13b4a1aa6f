//! The feeder: puts the ids of due refunds into the bucket of their channel.
//!
//! It does not decide how fast refunds are sent; the limiter does. A row is always written before its id is put into
//! a bucket.
//!
//! Three callers nudge the feeder: a take that finds a bucket low, HTTP after it saved a refund, and the due poller.
//! A nudge without need does no harm. Filling twice does none either: the bucket ignores an id that it has.
//!
//! A pass over thousands of channels may take minutes. So each of its steps is a pass of its own for the watchdog, and
//! only a step that does not end counts as stuck.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use futures_util::future::join_all;

use crate::backoff::Backoff;
use crate::bucket::{Bucket, End, Purpose};
use crate::crash;
use crate::failing::Failing;
use crate::logs::chain;
use crate::node::restoring::ServerError;
use crate::node::{Node, jittered};
use crate::refund::ChannelName;
use crate::wake_up::WakeUps;

/// The feeder loop.
#[derive(Debug)]
pub struct Feeder {
    node: Node,
    wake_ups: WakeUps,
    /// When each bucket was last filled, and how long the feeder then leaves it alone unless it is empty.
    last: HashMap<ChannelName, (Instant, Duration)>,
    failing: Failing,
    /// How many passes in a row ended early because a server was away.
    outages: u32,
}

/// What a pass leaves for the next one.
#[derive(Debug, Default)]
struct Remaining {
    channels: Vec<ChannelName>,
    /// Whether Postgres is away, or the one server of all buckets. Then the pass tries no further channel.
    is_away: bool,
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
    /// The wait after a failure. It doubles while a server is away. The longest wait delays the first fill after an
    /// outage, so it is short.
    const AFTER_FAILURE: Backoff =
        Backoff { first: Duration::from_millis(500), last: Duration::from_secs(2) };

    pub fn new(node: Node, wake_ups: WakeUps) -> Self {
        Feeder { node, wake_ups, last: HashMap::new(), failing: Failing::default(), outages: 0 }
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
            let Remaining { channels, is_away } = self.pass(nudged).await;
            self.outages = if is_away { self.outages.saturating_add(1) } else { 0 };
            if !channels.is_empty() {
                for channel in &channels {
                    self.wake_ups.nudge(channel);
                }
                let wait = if is_away || self.failing.is_failing() {
                    jittered(Self::AFTER_FAILURE.after(self.outages))
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
    async fn pass(&mut self, nudged: HashSet<ChannelName>) -> Remaining {
        let mut remaining = Remaining::default();
        // A set has another order on each node. So nodes that fill the same buckets begin with different ones.
        let nudged = nudged.into_iter().map(|channel| (channel, u64::MAX)).collect();
        let low = self.find_low(nudged, &mut remaining).await;
        for (n, chunk) in low.chunks(Self::WIDTH).enumerate() {
            if remaining.is_away {
                // Each further try would wait seconds for the same server.
                remaining.channels.extend(chunk.iter().map(|(channel, _)| channel.clone()));
                continue;
            }
            // Other nodes may have filled these buckets since the first look. When Redis comes back empty, all nodes are
            // nudged for all channels.
            let chunk =
                if n == 0 { chunk.to_vec() } else { self.find_low(chunk.to_vec(), &mut remaining).await };
            let channels: Vec<ChannelName> = chunk.into_iter().map(|(channel, _)| channel).collect();
            let _filling = self.node.progress.pass("feeder");
            let results = join_all(channels.iter().map(|channel| self.fill_one(channel))).await;
            for (channel, result) in channels.into_iter().zip(results) {
                let rest = match (&result, self.last.get(&channel)) {
                    (Ok(0), Some((_, rest))) => (*rest * 2).clamp(Self::IN_VAIN, Self::IN_VAIN_AT_LAST),
                    (Ok(0), None) => Self::IN_VAIN,
                    // Takes empty this bucket fast: it may be low again at once.
                    (Ok(added), _) if *added >= u64::from(self.wake_ups.low_water()) => Duration::ZERO,
                    _ => Self::PAUSE,
                };
                self.last.insert(channel.clone(), (Instant::now(), rest));
                self.note(&result, &mut remaining);
                match result {
                    Ok(added) => self.node.metrics.filled(&channel, added),
                    Err(_) => remaining.channels.push(channel),
                }
            }
        }
        remaining
    }

    /// Looks at buckets, and returns those to fill. Each channel comes and goes with the depth of its bucket at the last
    /// look; before the first look it is the greatest number.
    async fn find_low(
        &mut self,
        seen: Vec<(ChannelName, u64)>,
        remaining: &mut Remaining,
    ) -> Vec<(ChannelName, u64)> {
        let _looking = self.node.progress.pass("feeder");
        let (channels, seen): (Vec<ChannelName>, Vec<u64>) = seen.into_iter().unzip();
        let depths = self.node.bucket.depths(Purpose::Send, &channels).await;
        let mut low = Vec::new();
        for ((channel, seen), depth) in channels.into_iter().zip(seen).zip(depths) {
            let depth = match depth {
                Ok(depth) => depth,
                Err(error) => {
                    self.note(&Err(error.into()), remaining);
                    remaining.channels.push(channel);
                    continue;
                }
            };
            if depth > 0 {
                self.wake_ups.filled(&channel).notify_one();
                // A bucket that grew was filled by another node. If it is still low, the next take or the due poller
                // nudges again.
                if depth >= u64::from(self.wake_ups.low_water()) || depth > seen {
                    continue;
                }
                if let Some((at, rest)) = self.last.get(&channel)
                    && at.elapsed() < *rest
                {
                    // After a fill that added nothing, the next take or the due poller nudges again.
                    if *rest <= Self::PAUSE {
                        remaining.channels.push(channel);
                    }
                    continue;
                }
            }
            low.push((channel, depth));
        }
        low
    }

    /// Fills one bucket with the ids that are due. Returns how many ids the bucket did not have before.
    async fn fill_one(&self, channel: &ChannelName) -> Result<u64, ServerError> {
        // Ids that were taken a moment ago come first: their rows are `ready` until their claims commit, and the bucket ignores them.
        let most = self.wake_ups.capacity().saturating_add(Bucket::MOST_AT_ONCE);
        let due = self.node.store.due(channel, most).await?;
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

    /// Notes the result of a fill or a look, and whether a server is away for all channels.
    fn note(&mut self, result: &Result<u64, ServerError>, remaining: &mut Remaining) {
        remaining.is_away |= match result {
            // A statement that is too slow may be about one channel.
            Err(ServerError::Store(error)) => error.is_away(),
            Err(ServerError::Bucket(error)) => self.node.bucket.is_away_by(error),
            Ok(_) => false,
        };
        self.failing.note(
            result,
            |error| tracing::warn!(error = %chain(error), "Failed to fill a bucket, will try again"),
            || tracing::info!("Filling buckets works again"),
        );
    }
}
