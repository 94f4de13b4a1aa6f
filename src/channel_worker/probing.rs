//! What a suspended channel still lets through: nothing, or one refund as the breaker's probe.
//!
//! One node reserves a probe in Postgres before it takes, and the claim lets that node through. So however many nodes
//! run the channel, one refund probes the bank.

use std::time::Instant;

use super::{ChannelWorker, Next, Work};
use crate::logs::chain;
use crate::node::jittered;
use crate::node::suspended::{Clearance, ReservedProbe};

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
            Clearance::Probe(probe) => {
                self.probe = Some(probe);
                Permission::One
            }
            Clearance::ProbeIsDue => {
                // The end by this node's clock comes before the end by Postgres's.
                let began = Instant::now();
                let span = self.channel.breaker.unwrap_or_default().probe;
                let reserved = async {
                    let since = self.node.store.reserve_probe(name, &self.node.name, span).await?;
                    if since.is_none() {
                        // Another node probes, or the suspension is over.
                        self.node.read_suspensions().await?;
                    }
                    Ok::<_, crate::store::StoreError>(since)
                };
                match reserved.await {
                    Ok(Some(since)) => {
                        let probe = ReservedProbe { until: began + span, since };
                        self.node.suspensions.reserve_probe(name, probe);
                        self.probe = Some(probe);
                        Permission::One
                    }
                    Ok(None) => Permission::None(Next::later(Self::LEAST_REST)),
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
