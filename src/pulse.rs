//! The node's pulse: it says once a second that it lives, and hears twice a second what holds
//! channels back.
//!
//! Both are hints. A node that is taken for dead still holds its leases; a channel's pause is obeyed by
//! the claim itself, whatever a node has heard.

use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use crate::limiter::{Limit, Placement};
use crate::node::Node;
use crate::refund::ChannelName;
use crate::store::{Beat, StoreError};
use crate::telemetry::chain;

/// The loop.
#[derive(Debug)]
pub struct Pulse {
    node: Node,
    channels: Arc<RwLock<Vec<ChannelName>>>,
    digest: Arc<RwLock<String>>,
    limits: Arc<RwLock<Vec<Arc<Limit>>>>,
    bucket: &'static str,
    differing: Vec<String>,
    /// How many other nodes lived a beat ago.
    others: usize,
}

impl Pulse {
    const PERIOD: Duration = Duration::from_millis(400);
    const BEAT: Duration = Duration::from_secs(1);

    pub fn new(
        node: Node,
        channels: Arc<RwLock<Vec<ChannelName>>>,
        digest: Arc<RwLock<String>>,
        limits: Arc<RwLock<Vec<Arc<Limit>>>>,
        bucket: &'static str,
    ) -> Self {
        Pulse { node, channels, digest, limits, bucket, differing: Vec::new(), others: 0 }
    }

    pub async fn run(mut self) {
        let mut failing = false;
        let mut beaten: Option<Instant> = None;
        loop {
            let pass = self.node.progress.pass("pulse");
            let mut done = self.hear().await;
            if done.is_ok() && beaten.is_none_or(|at| at.elapsed() >= Self::BEAT) {
                beaten = Some(Instant::now());
                done = self.beat().await;
            }
            drop(pass);
            match done {
                Ok(()) if failing => {
                    failing = false;
                    tracing::info!("Postgres answers again");
                }
                Err(error) if !failing => {
                    failing = true;
                    tracing::warn!(
                        error = %chain(&error),
                        "Postgres does not answer; nothing is claimed until it does"
                    );
                }
                Ok(()) | Err(_) => {}
            }
            tokio::select! {
                () = self.node.stop.cancelled() => return,
                () = tokio::time::sleep(Self::PERIOD) => {}
            }
        }
    }

    async fn hear(&self) -> Result<(), StoreError> {
        for (channel, percent) in self.node.held.update(&self.node.store.held().await?) {
            if let Some(percent) = percent {
                tracing::info!(
                    channel.name = channel,
                    percent,
                    "Channel `{channel}` goes at {percent} % of its rate, since the bank asked for slower"
                );
            } else {
                tracing::info!(channel.name = channel, "Channel `{channel}` is back at its full rate");
            }
        }
        Ok(())
    }

    /// Keeps this node's share of each limit that nodes count alone.
    async fn hold_shares(&self) -> Result<(), StoreError> {
        let limits = self.limits.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        for limit in limits {
            let Placement::LocalShare { nodes } = limit.placement else { continue };
            let share = self.node.store.hold_share(&limit.name, &self.node.name, nodes).await?;
            if let Some(own) = share.map(|share| limit.share(share)) {
                self.node.store.publish_rules(&self.node.name, [(&own.name, &own.rule)]).await?;
            }
            let mut shares = self.node.shares.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let old = match share {
                Some(share) => shares.insert(limit.name.clone(), share),
                None => shares.remove(&limit.name),
            };
            match share {
                Some(share) if old != Some(share) => tracing::info!(
                    limit.name = %limit.name, share,
                    "This node counts share {share} of {nodes} of limit `{}`", limit.name,
                ),
                None if old.is_some() => tracing::warn!(
                    limit.name = %limit.name,
                    "Other nodes count all {nodes} shares of limit `{}`; this one sends nothing under it", limit.name,
                ),
                _ => {}
            }
        }
        Ok(())
    }

    async fn beat(&mut self) -> Result<(), StoreError> {
        let channels = self.channels.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        let digest = self.digest.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        let beat = Beat {
            node: &self.node.name,
            channels: &channels,
            config_digest: &digest,
            redis_is_away: self.node.bucket.trouble().is_some(),
            bucket: self.bucket,
            standing: &self.node.standing.told(),
        };
        let company = self.node.store.beat(&beat).await?;
        self.hold_shares().await?;
        self.node.set_leads(company.leads);
        if company.others < self.others {
            self.node.departures.send_modify(|times| *times += 1);
        }
        self.others = company.others;
        if company.differing != self.differing {
            if company.differing.is_empty() {
                tracing::info!("All living nodes run the same channels and limits again");
            } else {
                tracing::warn!(
                    nodes = company.differing.join(", "),
                    "Other nodes run other channels or limits than this one: reload them all from one file"
                );
            }
            self.differing = company.differing;
        }
        Ok(())
    }
}
