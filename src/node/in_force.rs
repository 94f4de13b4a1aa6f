//! A channel with the limits it has just now: slowed while the bank wants it slower, and with this node's
//! shares of limits that nodes count alone. For whoever asks for permits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::Node;
use crate::bucket::Overruled;
use crate::channel::Channel;
use crate::limiter::{Placement, timing};
use crate::store::StoreError;

/// One channel, seen by one loop.
#[derive(Debug)]
pub struct InForce {
    node: Node,
    channel: Arc<Channel>,
    slowed: Option<Slowed>,
}

/// The channel as it goes while the bank wants it slower.
#[derive(Debug)]
struct Slowed {
    /// Of its rate.
    percent: u32,
    channel: Arc<Channel>,
    /// Whether its rule stands in the database.
    written: AtomicBool,
}

impl InForce {
    const ASK_WHILE_FILES_DIFFER: Duration = Duration::from_secs(2);
    /// The wait while other nodes count all shares of a limit.
    pub const NO_SHARE: Duration = Duration::from_secs(1);

    pub fn new(node: Node, channel: Arc<Channel>) -> Self {
        InForce { node, channel, slowed: None }
    }

    /// The channel now; `None` while this node has no share of one of its limits.
    pub fn now(&mut self) -> Option<Arc<Channel>> {
        let percent = self.node.held.slowed(&self.channel.name).filter(|_| self.channel.adaptive);
        let base = match percent {
            None => {
                self.slowed = None;
                Arc::clone(&self.channel)
            }
            Some(percent) => {
                if self.slowed.as_ref().is_none_or(|slowed| slowed.percent != percent) {
                    self.slowed = self.channel.slowed_to(percent).map(|channel| Slowed {
                        percent,
                        channel: Arc::new(channel),
                        written: AtomicBool::new(false),
                    });
                }
                Arc::clone(self.slowed.as_ref().map_or(&self.channel, |slowed| &slowed.channel))
            }
        };
        if base.limits.iter().all(|limit| limit.placement == Placement::Shared) {
            return Some(base);
        }
        let limits: Option<Vec<_>> = base.limits.iter().map(|limit| self.node.counted(limit)).collect();
        Some(Arc::new(Channel { limits: limits?, ..base.as_ref().clone() }))
    }

    /// Writes down a rule that no file names, before it is used, so that the pace can be proven.
    pub async fn write_down(&self) -> Result<(), StoreError> {
        if let Some(slowed) = self.slowed.as_ref().filter(|slowed| !slowed.written.load(Ordering::Relaxed)) {
            let rules = slowed.channel.limits.iter().map(|limit| (&limit.name, &limit.rule));
            self.node.store.publish_rules(&self.node.name, rules).await?;
            slowed.written.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// A denial under another rule may be over as soon as nobody asks under that. And while files differ,
    /// a stricter one rules only as long as it is asked under.
    pub fn longest_wait(&self, overruled: &[Overruled]) -> Duration {
        if !overruled.is_empty() {
            timing::STAYS_AWAY_OVERRULED
        } else if self.node.differs.load(Ordering::Relaxed) {
            Self::ASK_WHILE_FILES_DIFFER
        } else {
            timing::STAYS_AWAY
        }
    }
}
