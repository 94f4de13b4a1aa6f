//! What a suspended channel still lets through: nothing, or one refund as the breaker's probe.
//!
//! One node reserves a probe in Postgres before it takes, and the claim lets that node through. So however many nodes
//! run the channel, one refund probes the bank.

use std::time::Instant;

use super::{ChannelWorker, Next, Work};
use crate::logs::chain;
use crate::node::jittered;
use crate::node::suspended::Clearance;

/// How many refunds the next take may take.
#[derive(Debug, Clone, Copy)]
pub(super) enum Permission {
    All,
    /// The breaker's probe.
    One,
    /// None; look again then.
    None(Next),
}

impl<W: Work> ChannelWorker<W> {
    /// Looks whether the channel may send now, and reserves the breaker's probe if it is due.
    pub(super) async fn permission(&mut self) -> Permission {
        let name = &self.channel.name;
        self.probe = None;
        match self.node.suspensions.clearance(name, W::PURPOSE) {
            Clearance::Free => Permission::All,
            Clearance::Suspended(_) => Permission::None(Next::Now),
            Clearance::Probe(until) => {
                self.probe = Some(until);
                Permission::One
            }
            Clearance::ProbeIsDue => {
                // The end by this node's clock comes before the end by Postgres's.
                let began = Instant::now();
                let span = self.channel.breaker.unwrap_or_default().probe;
                let reserved = async {
                    let is_ours = self.node.store.reserve_probe(name, &self.node.name, span).await?;
                    if !is_ours {
                        // Another node probes, or the suspension is over.
                        self.node.read_suspensions().await?;
                    }
                    Ok::<bool, crate::store::StoreError>(is_ours)
                };
                match reserved.await {
                    Ok(true) => {
                        let until = began + span;
                        self.node.suspensions.reserve_probe(name, until);
                        self.probe = Some(until);
                        Permission::One
                    }
                    Ok(false) => Permission::None(Next::later(Self::LEAST_REST)),
                    Err(error) => {
                        tracing::debug!(
                            channel.name = %name, error = %chain(&error),
                            "Failed to reserve the probe of channel `{name}`",
                        );
                        Permission::None(Next::later(jittered(Self::TRY_AGAIN)))
                    }
                }
            }
        }
    }
}
