//! The effective limits: a channel with the limits that are in force just now on this node.
//!
//! They differ from the file in two ways. While the bank wants fewer requests, the channel has slower limits. Of a
//! limit that nodes count by shares, the channel has this node's share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::Node;
use super::own_shares::ShareLook;
use crate::bucket::StricterRule;
use crate::channel::Channel;
use crate::limiter::{Limit, Placement, timing};
use crate::store::StoreError;

/// The effective limits of one channel, for one channel worker.
#[derive(Debug)]
pub struct EffectiveLimits {
    node: Node,
    channel: Arc<Channel>,
    slowed: Option<Slowed>,
    /// When this node looked at its shares of these limits; `None` if it counts none of them by shares.
    looked: Option<ShareLook>,
}

/// The channel with slower limits, while the bank wants fewer requests.
#[derive(Debug)]
struct Slowed {
    /// The percentage of its rate that the channel may use.
    percent: u32,
    channel: Arc<Channel>,
    /// Whether Postgres has the slower rules.
    written: AtomicBool,
}

impl EffectiveLimits {
    const ASK_WHILE_FILES_DIFFER: Duration = Duration::from_secs(2);
    /// How long a channel worker waits while this node has no share of a limit.
    pub const NO_SHARE: Duration = Duration::from_secs(1);

    /// The effective limits of `channel`, which is as the file has it.
    pub fn new(node: Node, channel: Arc<Channel>) -> Self {
        EffectiveLimits { node, channel, slowed: None, looked: None }
    }

    /// The channel with its effective limits; `None` while this node has no share of one of them.
    pub fn now(&mut self) -> Option<Arc<Channel>> {
        let percent = self.node.suspensions.slowed(&self.channel.name).filter(|_| self.channel.adaptive);
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
            self.looked = None;
            return Some(base);
        }
        self.looked = Some(ShareLook::now());
        let limits: Option<Vec<_>> = base.limits.iter().map(|limit| self.node.counted(limit)).collect();
        Some(Arc::new(Channel { limits: limits?, ..base.as_ref().clone() }))
    }

    /// Whether it is too late to use what was granted after [`EffectiveLimits::now`]: other nodes may count new shares.
    pub fn are_too_old(&self) -> bool {
        self.looked.is_some_and(|looked| looked.is_older_than(Limit::SLOWEST_TAKE))
    }

    /// Up to when a take under these limits may begin to spend; `None` if this node counts none of them by shares.
    pub fn good_until(&self) -> Option<Instant> {
        self.looked.map(|looked| looked.at_age(Limit::SLOWEST_TAKE))
    }

    /// As if the machine had slept since this node looked at its shares.
    #[cfg(test)]
    pub fn look_before_a_sleep(&mut self) {
        self.looked = Some(ShareLook::before_a_sleep());
    }

    /// Publishes the slower rules in Postgres before they are used. No file names them, and `prove` needs them to
    /// check the pace.
    ///
    /// # Errors
    /// When Postgres fails.
    pub async fn write_down(&self) -> Result<(), StoreError> {
        if let Some(slowed) = self.slowed.as_ref().filter(|slowed| !slowed.written.load(Ordering::Relaxed)) {
            let rules = slowed.channel.limits.iter().map(|limit| (&limit.name, &limit.rule));
            self.node.store.publish_rules(&self.node.name, rules).await?;
            slowed.written.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The longest wait before a channel worker asks again after a denial. It is short while another node's stricter
    /// rule is in force or files differ: a stricter rule ends soon after the last node that uses it has asked.
    pub fn longest_wait(&self, stricter_rules: &[StricterRule]) -> Duration {
        if !stricter_rules.is_empty() {
            timing::STAYS_AWAY_UNDER_STRICTER
        } else if self.node.differs.load(Ordering::Relaxed) {
            Self::ASK_WHILE_FILES_DIFFER
        } else {
            timing::STAYS_AWAY
        }
    }
}
