//! Reserves this node's shares of the limits that nodes count alone, with one statement for many limits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Heartbeat;
use crate::limiter::Limit;
use crate::node::ShareLook;
use crate::store::{Locked, ReservedShare, StoreError};

impl Heartbeat {
    /// The most limits of one statement. It locks them until it is done, and other nodes wait meanwhile.
    const SHARES_AT_ONCE: usize = 25;
    /// After this time the limits that are left wait for the next heartbeat, which begins with them.
    const PATIENCE: Duration = Duration::from_secs(1);

    /// Keeps, or takes, a share of each limit with local shares.
    pub(super) async fn renew_shares(&mut self) -> Result<(), StoreError> {
        let running = self.node.running();
        let mut limits: Vec<Arc<Limit>> =
            running.limits.iter().filter(|limit| limit.shares().is_some()).cloned().collect();
        self.without_share.retain(|name, _| {
            let is_run = limits.iter().any(|limit| limit.name == *name);
            if !is_run {
                self.node.metrics.limit_has_stricter_rule(name, false);
                self.node.status_report.note_other_shares(name, None);
            }
            is_run
        });
        let first = std::mem::take(&mut self.shares_from).checked_rem(limits.len()).unwrap_or_default();
        limits.rotate_left(first);
        let (began, mut locked, mut is_done) = (Instant::now(), 0, true);
        for (nth, several) in limits.chunks(Self::SHARES_AT_ONCE).enumerate() {
            let left = match self.renew(several, Locked::Skip).await {
                Err(error) if error.is_a_lock() => several.to_vec(),
                skipped => skipped?,
            };
            // A statement that waits holds the locks that it has. So these limits wait one by one.
            for limit in left.chunks(1) {
                match self.renew(limit, Locked::Wait).await {
                    Err(error) if error.is_a_lock() => locked += 1,
                    done => drop(done?),
                }
                if began.elapsed() > Self::PATIENCE {
                    break;
                }
            }
            if began.elapsed() > Self::PATIENCE {
                (self.shares_from, is_done) = (first + (nth + 1) * Self::SHARES_AT_ONCE, false);
                break;
            }
        }
        // Postgres answers, so the node lives and may lead.
        if locked == 0 && is_done {
            self.locked_shares.worked(|| tracing::info!("No lock holds shares of limits back any more"));
        } else if locked > 0 {
            self.locked_shares.failed(|| {
                tracing::warn!(
                    limits = locked,
                    "Other transactions hold locks on the shares of {locked} limits; this node sends nothing under these limits once its shares are over",
                );
            });
        }
        Ok(())
    }

    /// Keeps, or takes, a share of each of these limits. Answers those whose locks another transaction holds.
    async fn renew(&mut self, limits: &[Arc<Limit>], locked: Locked) -> Result<Vec<Arc<Limit>>, StoreError> {
        for limit in limits {
            self.node.shares.give_up_older(limit);
        }
        let asked = ShareLook::now();
        let reserved = self.node.store.reserve_shares(limits, &self.node.name, locked).await;
        if reserved.as_ref().is_err_and(|error| !error.is_a_lock()) {
            // Postgres may have given the shares back. After a lock nothing was changed.
            for limit in limits {
                self.node.shares.give_up(&limit.name);
            }
        }
        let reserved = reserved?;
        let (mut owned, mut skipped) = (Vec::new(), Vec::new());
        for (limit, reserved) in limits.iter().zip(&reserved) {
            // Nothing was changed: the share is good for as long as it was before.
            let Some(reserved) = reserved else {
                skipped.push(Arc::clone(limit));
                continue;
            };
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
        Ok(skipped)
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
