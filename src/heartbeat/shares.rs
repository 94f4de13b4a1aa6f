//! Reserves this node's shares of the limits that nodes count alone, with one statement for many limits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Heartbeat;
use crate::limiter::Limit;
use crate::node::ShareLook;
use crate::store::{ReservedShare, StoreError};
use crate::telemetry::chain;

impl Heartbeat {
    /// The most limits of one statement. It locks them until it is done, and other nodes wait meanwhile.
    const SHARES_AT_ONCE: usize = 100;
    /// For how long one heartbeat waits for locks. The rest of the limits of a locked batch wait for the next heartbeat.
    const PATIENCE: Duration = Duration::from_secs(1);

    /// Keeps, or takes, a share of each limit with local shares.
    pub(super) async fn renew_shares(&mut self) -> Result<(), StoreError> {
        let running = self.node.running();
        let limits: Vec<Arc<Limit>> =
            running.limits.iter().filter(|limit| limit.shares().is_some()).cloned().collect();
        self.without_share.retain(|name, _| {
            let is_run = limits.iter().any(|limit| limit.name == *name);
            if !is_run {
                self.node.metrics.limit_has_stricter_rule(name, false);
                self.node.status_report.note_other_shares(name, None);
            }
            is_run
        });
        let began = Instant::now();
        let mut locked = Ok(());
        for several in limits.chunks(Self::SHARES_AT_ONCE) {
            match self.renew(several).await {
                // The others need their shares, too.
                Err(error) if error.is_a_lock() => {
                    locked = Err(error);
                    for limit in several.chunks(1).filter(|_| several.len() > 1) {
                        match self.renew(limit).await {
                            Err(error) if error.is_a_lock() && began.elapsed() > Self::PATIENCE => break,
                            Err(error) if error.is_a_lock() => {}
                            done => done?,
                        }
                    }
                }
                done => done?,
            }
        }
        // Postgres answers, so the node lives and may lead.
        self.locked_shares.note(
            &locked,
            |error| {
                tracing::warn!(
                    error = %chain(error),
                    "Another transaction holds a lock on shares of limits; this node sends nothing under those limits until it has their shares again",
                );
            },
            || tracing::info!("No lock holds shares of limits back any more"),
        );
        Ok(())
    }

    /// Keeps, or takes, a share of each of these limits.
    async fn renew(&mut self, limits: &[Arc<Limit>]) -> Result<(), StoreError> {
        for limit in limits {
            self.node.shares.give_up_older(limit);
        }
        let asked = ShareLook::now();
        let reserved = self.node.store.reserve_shares(limits, &self.node.name).await;
        if reserved.as_ref().is_err_and(|error| !error.is_a_lock()) {
            // Postgres may have given the shares back. After a lock nothing was changed.
            for limit in limits {
                self.node.shares.give_up(&limit.name);
            }
        }
        let reserved = reserved?;
        let mut owned = Vec::new();
        for (limit, reserved) in limits.iter().zip(&reserved) {
            self.note_reserved(limit, reserved);
            match reserved {
                ReservedShare::Own(share) => owned.push((limit, *share)),
                _ => self.node.shares.give_up(&limit.name),
            }
        }
        let is_new = |(limit, share): &&(&Arc<Limit>, u32)| self.node.shares.number(limit) != Some(*share);
        let new: Vec<Arc<Limit>> =
            owned.iter().filter(is_new).map(|(limit, share)| limit.share(*share)).collect();
        if !new.is_empty() {
            let rules = new.iter().map(|own| (&own.name, &own.rule));
            self.node.store.publish_rules(&self.node.name, rules).await?;
        }
        for (limit, share) in owned {
            if self.node.shares.keep(limit, share, asked) {
                let nodes = limit.shares().unwrap_or(1);
                tracing::info!(
                    limit.name = %limit.name, share,
                    "This node counts share {share} of {nodes} of limit `{}`", limit.name,
                );
            }
        }
        Ok(())
    }

    /// Logs, and reports, why this node has no share of a limit.
    fn note_reserved(&mut self, limit: &Limit, reserved: &ReservedShare) {
        let other = match reserved {
            ReservedShare::CountedOtherwise(other) => Some(other.to_string()),
            ReservedShare::Own(_) | ReservedShare::AllTaken => None,
        };
        self.node.metrics.limit_has_stricter_rule(&limit.name, other.is_some());
        self.node.status_report.note_other_shares(&limit.name, other);
        if matches!(reserved, ReservedShare::Own(_)) {
            self.without_share.remove(&limit.name);
            return;
        }
        if self.without_share.insert(limit.name.clone(), reserved.clone()).as_ref() == Some(reserved) {
            return;
        }
        match reserved {
            ReservedShare::Own(_) => {}
            ReservedShare::AllTaken => tracing::warn!(
                limit.name = %limit.name,
                "Other nodes count all {} shares of limit `{}`; this one sends nothing under it",
                limit.shares().unwrap_or(1), limit.name,
            ),
            ReservedShare::CountedOtherwise(other) => tracing::warn!(
                limit.name = %limit.name,
                "Limit `{}` is counted in {other}, or was until lately; this one sends nothing under it", limit.name,
            ),
        }
    }
}
